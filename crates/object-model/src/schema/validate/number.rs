//! Ranges and multiples of numbers.
//!
//! Bounds are floating point in schemas. They are compared as integers with integers, and a bound that the type cannot
//! hold is itself reported: both as Kubernetes does it.

use serde_json::{Number, Value};

use super::Format;
use super::walk::{Expected, Walk};
use crate::field::{ErrorKind, Path};
use crate::go_text;
use crate::schema::{Bound, JsonType, Rules};

impl Walk<'_> {
    pub(super) fn number(&mut self, rules: Option<&Rules>, expected: Expected<'_>, number: &Number, path: &Path<'_>) {
        let range = Range::new(rules, expected);
        match number.as_i64() {
            Some(value) if !range.holds_integer(value) => self.out_of_range("Checked", &range, path),
            None if !number.as_f64().is_some_and(|value| range.holds(value)) => {
                self.out_of_range("Checked", &range, path);
            }
            _ => {}
        }
        let Some(rules) = rules else { return };
        if let Some(factor) = rules.multiple_of {
            if range.holds(factor) {
                self.multiple(number, factor, path);
            } else {
                self.out_of_range("MultipleOf", &range, path);
                self.float_multiple(as_float(number), factor, path);
            }
        }
        let minimum = rules.minimum.map(|bound| (bound, "Minimum boundary", true));
        let maximum = rules.maximum.map(|bound| (bound, "Maximum boundary", false));
        for (bound, what, is_minimum) in minimum.into_iter().chain(maximum) {
            let integer = number.as_i64().filter(|_| range.holds(bound.value));
            if !range.holds(bound.value) {
                self.out_of_range(what, &range, path);
            }
            match integer {
                Some(value) => self.bound(value, bound.value as i64, bound, is_minimum, value.into(), path),
                None => {
                    let value = as_float(number);
                    self.bound(Float(value), Float(bound.value), bound, is_minimum, value.into(), path);
                }
            }
        }
    }

    fn out_of_range(&mut self, what: &str, range: &Range<'_>, path: &Path<'_>) {
        self.unplaced(|| {
            let json_type = range.json_type.map_or("", JsonType::name);
            match range.format {
                Some(format) => {
                    format!("{what} value must be of type {json_type} with format {} in {path}", format.name())
                }
                None => format!("{what} value must be of type {json_type} (default format) in {path}"),
            }
        });
    }

    fn bound<T: PartialOrd + std::fmt::Display>(
        &mut self,
        value: T,
        limit: T,
        bound: Bound,
        is_minimum: bool,
        bad: Value,
        path: &Path<'_>,
    ) {
        let beyond = if is_minimum { value < limit } else { value > limit };
        if beyond || bound.exclusive && value == limit {
            let side = if is_minimum { "greater" } else { "less" };
            let or_equal = if bound.exclusive { "" } else { " or equal to" };
            self.report(ErrorKind::Invalid, path, Some(bad), |name| {
                format!("{name} in body should be {side} than{or_equal} {limit}")
            });
        }
    }

    fn multiple(&mut self, number: &Number, factor: f64, path: &Path<'_>) {
        let Some(value) = number.as_i64() else { return self.float_multiple(as_float(number), factor, path) };
        let factor = factor as i64;
        if factor <= 0 {
            self.not_positive(factor.into(), &factor.to_string(), path);
        } else if value % factor != 0 {
            self.not_multiple(value.into(), &factor.to_string(), path);
        }
    }

    fn float_multiple(&mut self, value: f64, factor: f64, path: &Path<'_>) {
        if factor <= 0.0 {
            return self.not_positive(factor.into(), &Float(factor).to_string(), path);
        }
        let quotient = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
        if !is_json_integer(quotient) {
            self.not_multiple(value.into(), &Float(factor).to_string(), path);
        }
    }

    fn not_positive(&mut self, bad: Value, factor: &str, path: &Path<'_>) {
        self.report(ErrorKind::Invalid, path, Some(bad), |name| {
            format!("factor MultipleOf declared for {name} must be positive: {factor}")
        });
    }

    fn not_multiple(&mut self, bad: Value, factor: &str, path: &Path<'_>) {
        self.report(ErrorKind::Invalid, path, Some(bad), |name| {
            format!("{name} in body should be a multiple of {factor}")
        });
    }
}

/// What numbers the type and format can hold.
struct Range<'r> {
    json_type: Option<&'r JsonType>,
    format: Option<&'r Format>,
}

impl<'r> Range<'r> {
    fn new(rules: Option<&'r Rules>, expected: Expected<'r>) -> Self {
        let json_type = match expected {
            Expected::One(one @ (JsonType::Integer | JsonType::Number)) => Some(one),
            _ => None,
        };
        let format = rules.and_then(|rules| rules.format.as_ref());
        Self { json_type, format: format.filter(|format| json_type.is_some() && !format.is_text()) }
    }

    fn holds_integer(&self, value: i64) -> bool {
        self.format.is_none_or(|format| format.holds_integer(value))
    }

    fn holds(&self, value: f64) -> bool {
        match self.json_type {
            Some(JsonType::Integer) => {
                let whole = value.fract() == 0.0 && (-(2f64.powi(63))..2f64.powi(63)).contains(&value);
                whole && self.holds_integer(value as i64)
            }
            _ => self.format.is_none_or(|format| format.holds_number(value)),
        }
    }
}

fn as_float(number: &Number) -> f64 {
    number.as_f64().unwrap_or(f64::NAN)
}

/// A whole number that JSON tells apart from its neighbours, give or take rounding.
pub(super) fn is_json_integer(value: f64) -> bool {
    const MOST: f64 = 9_007_199_254_740_991.0;
    if !(-MOST..=MOST).contains(&value) {
        return false;
    }
    let whole = value.max(0.0).trunc();
    let error = (value - whole).abs();
    value.fract() == 0.0 || whole != 0.0 && error / (value.abs() + whole) < 1e-9
}

/// Printed as Go prints it.
#[derive(PartialEq, PartialOrd)]
struct Float(f64);

impl std::fmt::Display for Float {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&go_text::float(self.0))
    }
}
