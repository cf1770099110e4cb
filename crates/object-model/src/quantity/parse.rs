//! Reading of quantities: what Kubernetes' scanner accepts, oddities included (`+`, `.` and `Ki` alone are zero).

use super::{BadQuantity, Format, Quantity, UNIT};

pub(super) struct Parsed {
    pub quantity: Quantity,
    /// Kubernetes writes it back just as it was.
    pub as_written: bool,
}

/// The pieces of a text: sign, digits without zeros in front, digits after the point, suffix.
struct Pieces<'a> {
    negative: bool,
    integer: &'a str,
    fraction: &'a str,
    suffix: &'a str,
    has_digits: bool,
}

/// What the suffix says: a power of two or of ten.
enum Multiplier {
    Two(u32),
    Ten(i32),
}

pub(super) fn parse(text: &str) -> Result<Parsed, BadQuantity> {
    if text.is_empty() {
        return Err(BadQuantity::Format);
    }
    let pieces = split(text)?;
    let (multiplier, format) = interpret(pieces.suffix)?;
    let simple = is_simple(&pieces, &multiplier);
    if !simple && !pieces.has_digits {
        return Err(BadQuantity::Number);
    }
    let magnitude = magnitude(&pieces, &multiplier)?;
    let nanos = if pieces.negative { -magnitude } else { magnitude };
    let as_written = simple && cannot_be_shorter(&pieces, &multiplier);
    // Kubernetes goes over to decimal suffixes as soon as it reads less than one in binary form.
    let format = if format == Format::BinarySi && (1..UNIT).contains(&magnitude) { Format::DecimalSi } else { format };
    Ok(Parsed { quantity: Quantity { nanos, format }, as_written })
}

fn split(text: &str) -> Result<Pieces<'_>, BadQuantity> {
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (integer, rest) = digits(rest.trim_start_matches('0'));
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
    let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if !exponent.bytes().all(|b| b.is_ascii_digit()) {
        return Err(BadQuantity::Format);
    }
    let has_digits = text[..text.len() - suffix.len()].contains(|c: char| c.is_ascii_digit());
    Ok(Pieces { negative, integer, fraction, suffix, has_digits })
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn interpret(suffix: &str) -> Result<(Multiplier, Format), BadQuantity> {
    let ten = |power| Ok((Multiplier::Ten(power), Format::DecimalSi));
    let two = |power| Ok((Multiplier::Two(power), Format::BinarySi));
    match suffix {
        "n" => ten(-9),
        "u" => ten(-6),
        "m" => ten(-3),
        "" => ten(0),
        "k" => ten(3),
        "M" => ten(6),
        "G" => ten(9),
        "T" => ten(12),
        "P" => ten(15),
        "E" => ten(18),
        "Ki" => two(10),
        "Mi" => two(20),
        "Gi" => two(30),
        "Ti" => two(40),
        "Pi" => two(50),
        "Ei" => two(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).ok_or(BadQuantity::Suffix)?;
            let exponent = exponent.parse().map_err(|_| BadQuantity::Suffix)?;
            Ok((Multiplier::Ten(exponent), Format::DecimalExponent))
        }
    }
}

/// The amount without its sign in nano-units, rounded up. Takes time for the digits given, never for the exponent.
fn magnitude(pieces: &Pieces<'_>, multiplier: &Multiplier) -> Result<i128, BadQuantity> {
    let digits: Vec<u8> = pieces.integer.bytes().chain(pieces.fraction.bytes()).map(|b| b - b'0').collect();
    if digits.iter().all(|digit| *digit == 0) {
        return Ok(0);
    }
    let places = 9 - pieces.fraction.len() as i64;
    match multiplier {
        Multiplier::Ten(power) => nanos(&digits, 1, places + i64::from(*power)).ok_or(BadQuantity::TooBig),
        Multiplier::Two(power) => {
            let most = i128::from(i64::MAX) * UNIT;
            Ok(nanos(&digits, 1 << power, places).map_or(most, |nanos| nanos.min(most)))
        }
    }
}

/// `digits * factor * 10^shift`, rounded up; `None` where it does not fit.
fn nanos(digits: &[u8], factor: i128, shift: i64) -> Option<i128> {
    let below = usize::try_from(-shift).unwrap_or(0);
    let (kept, dropped) = digits.split_at(digits.len().saturating_sub(below));
    // What falls below one nano-unit is multiplied digit by digit from the right, as on paper, for what it carries.
    let (mut carry, mut rest) = (0i128, false);
    for digit in dropped.iter().rev() {
        let product = i128::from(*digit) * factor + carry;
        (carry, rest) = (product / 10, rest || product % 10 != 0);
    }
    for _ in dropped.len()..below {
        if carry == 0 {
            break;
        }
        (carry, rest) = (carry / 10, rest || carry % 10 != 0);
    }
    let kept = kept.iter().try_fold(0i128, |sum, digit| sum.checked_mul(10)?.checked_add((*digit).into()))?;
    let whole = kept.checked_mul(factor)?.checked_add(carry)?.checked_add(rest.into())?;
    whole.checked_mul(10i128.checked_pow(u32::try_from(shift.max(0)).ok()?)?)
}

/// Does Kubernetes read it on its fast path? There, it takes a suffix without digits for zero, and may remember the
/// text as it was.
fn is_simple(pieces: &Pieces<'_>, multiplier: &Multiplier) -> bool {
    let integer = pieces.integer.len().max(1) as i64;
    let fraction = pieces.fraction.len() as i64;
    match multiplier {
        Multiplier::Two(power) => fraction == 0 && integer + i64::from(*power) * 3 / 10 <= 14,
        Multiplier::Ten(power) => integer + fraction <= 18 && i64::from(*power) - fraction >= -9,
    }
}

/// Kubernetes' test for a text that it writes back as it was.
fn cannot_be_shorter(pieces: &Pieces<'_>, multiplier: &Multiplier) -> bool {
    match multiplier {
        Multiplier::Two(_) => pieces.integer.parse().is_ok_and(|number: i64| number & 7 != 0),
        Multiplier::Ten(power) => {
            let zeros =
                pieces.fraction.bytes().rev().chain(pieces.integer.bytes().rev()).take_while(|b| *b == b'0').count();
            (i64::from(*power) - pieces.fraction.len() as i64) % 3 == 0 && zeros < 3 && !pieces.integer.is_empty()
        }
    }
}
