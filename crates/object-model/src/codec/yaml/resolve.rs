//! What an unquoted text means in YAML 1.1.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value};

use super::BadYaml;
use crate::go_text;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    /// Beyond what a signed number holds. JSON's reader makes a float of it.
    BigInt(u64),
    Float(f64),
    Text,
}

impl Scalar {
    pub fn tag(self) -> &'static str {
        match self {
            Scalar::Null => "!!null",
            Scalar::Bool(_) => "!!bool",
            Scalar::Int(_) | Scalar::BigInt(_) => "!!int",
            Scalar::Float(_) => "!!float",
            Scalar::Text => "!!str",
        }
    }

    pub fn into_value(self, text: Cow<'_, str>) -> Result<Value, BadYaml> {
        Ok(match self {
            Scalar::Null => Value::Null,
            Scalar::Bool(flag) => flag.into(),
            Scalar::Int(number) => number.into(),
            Scalar::BigInt(number) => (number as f64).into(),
            Scalar::Float(f64::INFINITY) => return Err(BadYaml::Number("+Inf")),
            Scalar::Float(f64::NEG_INFINITY) => return Err(BadYaml::Number("-Inf")),
            Scalar::Float(float) => match (whole(float), Number::from_f64(float)) {
                (Some(integer), _) => integer.into(),
                (None, Some(float)) => float.into(),
                (None, None) => return Err(BadYaml::Number("NaN")),
            },
            Scalar::Text => text.into_owned().into(),
        })
    }

    /// The text it is as a key.
    pub fn key(self, text: &str) -> Option<String> {
        Some(match self {
            Scalar::Null => return None,
            Scalar::Bool(flag) => flag.to_string(),
            Scalar::Int(number) => number.to_string(),
            Scalar::BigInt(number) => number.to_string(),
            Scalar::Float(f64::INFINITY) => ".inf".to_owned(),
            Scalar::Float(f64::NEG_INFINITY) => "-.inf".to_owned(),
            Scalar::Float(float) if float.is_nan() => ".nan".to_owned(),
            // Kubernetes' reader prints such keys with the precision of a 32-bit float.
            Scalar::Float(float) => go_text::float32(float as f32),
            Scalar::Text => text.to_owned(),
        })
    }
}

/// On its way through JSON, a float without fraction is written without point and read as an integer.
fn whole(float: f64) -> Option<i64> {
    go_text::json_float(float).parse().ok()
}

/// The meaning of a plain scalar.
pub(super) fn plain(text: &str) -> Scalar {
    match text.as_bytes() {
        [] | [b'~', ..] | [b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O', ..] => word(text),
        [b'.', ..] => match word(text) {
            Scalar::Text => match without_separators(text) {
                Some(text) if is_float(&text) => float(&text),
                _ => Scalar::Text,
            },
            meaning => meaning,
        },
        [b'0'..=b'9' | b'+' | b'-', ..] => match word(text) {
            Scalar::Text => number(&text.replace('_', "")),
            meaning => meaning,
        },
        _ => Scalar::Text,
    }
}

/// Underscores go where they stand between digits.
fn without_separators(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let between_digits = |at: usize| {
        let is_digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
        is_digit(at.checked_sub(1)) && is_digit(Some(at + 1))
    };
    text.match_indices('_').all(|(at, _)| between_digits(at)).then(|| text.replace('_', ""))
}

fn word(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Scalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Scalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" => Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Scalar::Float(f64::NEG_INFINITY),
        _ => Scalar::Text,
    }
}

fn number(text: &str) -> Scalar {
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    match (integer(digits), negative) {
        (Some(size), true) if size <= i64::MIN.unsigned_abs() => Scalar::Int((size as i64).wrapping_neg()),
        (Some(size), false) if size <= i64::MAX as u64 => Scalar::Int(size as i64),
        // A number with a plus counts as signed, and does not fit.
        (Some(size), false) if !text.starts_with('+') => Scalar::BigInt(size),
        _ if is_float(text) => float(text),
        _ => Scalar::Text,
    }
}

/// With Go's prefixes for other bases; a zero in front means octal.
fn integer(digits: &str) -> Option<u64> {
    let (base, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    // The standard library would take a sign here.
    if digits.starts_with(['+', '-']) { None } else { u64::from_str_radix(digits, base).ok() }
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_float(text: &str) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (integer, rest) = text.split_at(digits(text));
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let exponent_fits = match rest.strip_prefix(['e', 'E']) {
        Some(exponent) => {
            let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            !exponent.is_empty() && digits(exponent) == exponent.len()
        }
        None => rest.is_empty(),
    };
    exponent_fits && !(integer.is_empty() && fraction.is_empty())
}

/// What is too big for a float stays text.
fn float(text: &str) -> Scalar {
    match text.parse() {
        Ok(float) if f64::is_finite(float) => Scalar::Float(float),
        _ => Scalar::Text,
    }
}

/// The value under a tag such as `!!int`, if it fits there.
pub(super) fn tagged(found: Scalar, wanted: &str) -> Option<Scalar> {
    match (wanted, found) {
        ("float", Scalar::Int(number)) => Some(Scalar::Float(number as f64)),
        ("float", Scalar::Float(_)) | ("int", Scalar::Int(_) | Scalar::BigInt(_)) | ("bool", Scalar::Bool(_)) => {
            Some(found)
        }
        ("null", Scalar::Null) => Some(found),
        ("float" | "int" | "bool" | "null", _) => None,
        // Unknown tags leave the text alone.
        _ => Some(Scalar::Text),
    }
}

pub(super) fn binary(text: &str) -> Option<String> {
    let compact: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    let bytes = STANDARD.decode(compact).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
