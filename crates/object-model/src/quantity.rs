//! Amounts of resources: `100m`, `1.5Gi`, `3e6`. Kubernetes' `resource.Quantity`.
//!
//! A [`Quantity`] is a whole number of nano-units in an `i128`, so arithmetic is exact, takes constant time and never
//! allocates. What is finer than a nano-unit is rounded away from zero, as in Kubernetes: who asks for some gets
//! some. Amounts in binary form are capped at 2^63-1, as in Kubernetes. Others reach to about 1.7e29; Kubernetes has
//! no bound there, and spends memory in proportion to the exponent. Beyond it, text is refused and sums saturate.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;
use thiserror::Error;

mod parse;

#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// Which family of suffixes a quantity is written with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `12M`
    #[default]
    DecimalSi,
    /// `12Mi`
    BinarySi,
    /// `12e6`
    DecimalExponent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadQuantity {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Number,
    #[error("unable to parse quantity's suffix")]
    Suffix,
    #[error("quantities must be less than 1.7e29")]
    TooBig,
}

/// A power of ten, for [`Quantity::scaled_value`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scale(pub i8);

impl Scale {
    pub const NANO: Scale = Scale(-9);
    pub const MICRO: Scale = Scale(-6);
    pub const MILLI: Scale = Scale(-3);
    pub const UNIT: Scale = Scale(0);
    pub const KILO: Scale = Scale(3);
    pub const MEGA: Scale = Scale(6);
    pub const GIGA: Scale = Scale(9);

    /// How many nano-units.
    fn nanos(self) -> i128 {
        10i128.pow((i32::from(self.0) + 9).clamp(0, 38) as u32)
    }
}

const UNIT: i128 = 1_000_000_000;
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The text Kubernetes writes for this text. It keeps what already has a whole step of three digits and no zeros to
/// shorten (`1.500`, `+5`), and writes everything else in its shortest form.
pub fn canonical(text: &str) -> Result<Cow<'_, str>, BadQuantity> {
    let parsed = parse::parse(text)?;
    Ok(if parsed.as_written { text.into() } else { parsed.quantity.to_string().into() })
}

impl Quantity {
    pub const ZERO: Quantity = Quantity::new(0, Format::DecimalSi);

    pub const fn new(units: i64, format: Format) -> Self {
        Self { nanos: units as i128 * UNIT, format }
    }

    pub const fn from_milli(milli: i64, format: Format) -> Self {
        Self { nanos: milli as i128 * 1_000_000, format }
    }

    pub fn parse(text: &str) -> Result<Self, BadQuantity> {
        parse::parse(text).map(|parsed| parsed.quantity)
    }

    /// A quantity in an object: text with or without space around it, or a number. Null is zero.
    pub fn of(value: &Value) -> Result<Self, BadQuantity> {
        match value {
            Value::Null => Ok(Self::ZERO),
            Value::String(text) => Self::parse(text.trim()),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => Err(BadQuantity::Format),
        }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        self.nanos.signum() as i32
    }

    /// Whole units, rounded away from zero.
    pub fn value(&self) -> i64 {
        self.scaled_value(Scale::UNIT)
    }

    pub fn milli_value(&self) -> i64 {
        self.scaled_value(Scale::MILLI)
    }

    /// How many of `scale`, rounded away from zero and kept within 64 bits.
    pub fn scaled_value(&self, scale: Scale) -> i64 {
        let count = div_away_from_zero(self.nanos, scale.nanos());
        count.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// The number of units, where it is whole and fits.
    pub fn as_i64(&self) -> Option<i64> {
        if self.nanos % UNIT == 0 { (self.nanos / UNIT).try_into().ok() } else { None }
    }

    pub fn as_f64(&self) -> f64 {
        self.nanos as f64 / UNIT as f64
    }

    /// Takes the format of what is added where there was nothing.
    pub fn add(&mut self, other: &Quantity) {
        self.adopt_format(other);
        self.nanos = self.nanos.saturating_add(other.nanos);
    }

    pub fn sub(&mut self, other: &Quantity) {
        self.adopt_format(other);
        self.nanos = self.nanos.saturating_sub(other.nanos);
    }

    fn adopt_format(&mut self, other: &Quantity) {
        if self.is_zero() {
            self.format = other.format;
        }
    }

    pub fn mul(&mut self, factor: i64) {
        self.nanos = self.nanos.saturating_mul(factor.into());
    }

    pub fn neg(&mut self) {
        self.nanos = self.nanos.saturating_neg();
    }

    /// Rounds away from zero to whole steps of `scale`, and says whether nothing was lost.
    pub fn round_up(&mut self, scale: Scale) -> bool {
        let (step, before) = (scale.nanos(), self.nanos);
        self.nanos = div_away_from_zero(self.nanos, step).saturating_mul(step);
        self.nanos == before
    }
}

fn div_away_from_zero(number: i128, by: i128) -> i128 {
    number / by + if number % by == 0 { 0 } else { number.signum() }
}

/// The sum; see [`Quantity::add`].
impl std::iter::Sum for Quantity {
    fn sum<I: Iterator<Item = Quantity>>(iter: I) -> Self {
        iter.fold(Quantity::ZERO, |mut sum, quantity| {
            sum.add(&quantity);
            sum
        })
    }
}

impl std::str::FromStr for Quantity {
    type Err = BadQuantity;
    fn from_str(text: &str) -> Result<Self, BadQuantity> {
        Self::parse(text)
    }
}

/// Equal amounts are equal, however they are written.
impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    /// No fraction, and the largest suffix that allows for that.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        // Below 1024 and where a fraction would be lost, the binary suffixes give way to the decimal ones.
        if self.format == Format::BinarySi && self.nanos % UNIT == 0 && self.nanos.abs() >= 1024 * UNIT {
            let (number, steps) = without_factors(self.nanos / UNIT, 1024, BINARY_SUFFIXES.len() - 1);
            return write!(f, "{number}{}", BINARY_SUFFIXES[steps]);
        }
        match self.format {
            Format::DecimalExponent => {
                let (number, steps) = without_factors(self.nanos, 1000, usize::MAX);
                let exponent = steps as i32 * 3 - 9;
                if exponent == 0 { write!(f, "{number}") } else { write!(f, "{number}e{exponent}") }
            }
            _ => {
                let (number, steps) = without_factors(self.nanos, 1000, DECIMAL_SUFFIXES.len() - 1);
                write!(f, "{number}{}", DECIMAL_SUFFIXES[steps])
            }
        }
    }
}

/// Divides by `factor` as often as it goes, at most `limit` times.
fn without_factors(mut number: i128, factor: i128, limit: usize) -> (i128, usize) {
    let mut steps = 0;
    while steps < limit && number % factor == 0 {
        number /= factor;
        steps += 1;
    }
    (number, steps)
}

#[cfg(test)]
mod tests;
