//! Go's durations: nanoseconds, written as `1h0m0.5s`.

use std::fmt;

use thiserror::Error;

use super::parse::quote;

/// A length of time, up to about 292 years either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(i64);

/// A text that is no duration, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("time: {0}")]
pub struct BadDuration(String);

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl Duration {
    pub const ZERO: Duration = Duration(0);

    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Whole seconds, cut towards zero.
    pub const fn seconds(self) -> i64 {
        self.0 / 1_000_000_000
    }

    /// For timers: nothing is negative there.
    pub fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0.try_into().unwrap_or(0))
    }

    /// Reads a sequence of numbers with units: `1h15m30.918s`, `-1.5h`, `0`.
    pub fn parse(text: &str) -> Result<Self, BadDuration> {
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        let invalid = || BadDuration(format!("invalid duration {}", quote(text)));
        if rest.is_empty() {
            return Err(invalid());
        }
        // One more than fits, since the smallest negative duration has no positive twin.
        const MOST: u64 = 1 << 63;
        let mut total = 0u64;
        while !rest.is_empty() {
            let (nanos, after) = part(rest, text)?;
            total = total.checked_add(nanos).filter(|sum| *sum <= MOST).ok_or_else(invalid)?;
            rest = after;
        }
        match (negative, total) {
            (true, total) => Ok(Self((total as i64).wrapping_neg())),
            (false, MOST) => Err(invalid()),
            (false, total) => Ok(Self(total as i64)),
        }
    }
}

/// One number with its unit, in nanoseconds, and what follows it.
fn part<'a>(text: &'a str, whole: &str) -> Result<(u64, &'a str), BadDuration> {
    let invalid = || BadDuration(format!("invalid duration {}", quote(whole)));
    let digits = |text: &'a str| text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let (integer, rest) = digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    if integer.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    if unit.is_empty() {
        return Err(BadDuration(format!("missing unit in duration {}", quote(whole))));
    }
    let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(BadDuration(format!("unknown unit {} in duration {}", quote(unit), quote(whole))));
    };
    let integer: u64 = if integer.is_empty() { 0 } else { integer.parse().map_err(|_| invalid())? };
    let nanos = integer.checked_mul(*scale).filter(|nanos| *nanos <= 1 << 63).ok_or_else(invalid)?;
    Ok((nanos + fraction_of(fraction, *scale), rest))
}

/// The fraction of a unit in nanoseconds. Digits beyond what fits are dropped, as Go drops them.
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let (mut fraction, mut scale) = (0u64, 1.0f64);
    for digit in digits.bytes() {
        match fraction.checked_mul(10).and_then(|f| f.checked_add(u64::from(digit - b'0'))) {
            Some(next) if next < 1 << 63 => {
                fraction = next;
                scale *= 10.0;
            }
            _ => break,
        }
    }
    // Floats here, since Go computes it so and the last nanosecond may depend on it.
    (fraction as f64 * (unit as f64 / scale)) as u64
}

/// `72h3m0.5s`; below a second in a smaller unit; zero is `0s`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        match nanos {
            0 => return f.write_str("0s"),
            1..1_000 => return write!(f, "{nanos}ns"),
            1_000..1_000_000 => return decimal(f, nanos, 1_000).and_then(|()| f.write_str("µs")),
            1_000_000..1_000_000_000 => return decimal(f, nanos, 1_000_000).and_then(|()| f.write_str("ms")),
            _ => {}
        }
        let minutes = nanos / 60_000_000_000;
        if minutes >= 60 {
            write!(f, "{}h", minutes / 60)?;
        }
        if minutes > 0 {
            write!(f, "{}m", minutes % 60)?;
        }
        decimal(f, nanos % 60_000_000_000, 1_000_000_000)?;
        f.write_str("s")
    }
}

/// `nanos / unit` without zeros at the end of the fraction.
fn decimal(f: &mut fmt::Formatter<'_>, nanos: u64, unit: u64) -> fmt::Result {
    write!(f, "{}", nanos / unit)?;
    let (mut fraction, mut width) = (nanos % unit, unit.ilog10() as usize);
    if fraction == 0 {
        return Ok(());
    }
    while fraction % 10 == 0 {
        fraction /= 10;
        width -= 1;
    }
    write!(f, ".{fraction:0width$}")
}
