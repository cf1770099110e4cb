//! Amounts given as a number or as a percentage.

use object_model::names;
use serde_json::Value;

use super::Field;

impl Field<'_, '_> {
    /// A number that is not negative, or a percentage.
    pub fn positive_int_or_percent(&self) {
        match self.value() {
            Value::String(text) => self.invalid_for(names::percent(text)),
            _ => self.non_negative(),
        }
    }

    /// A percentage must not be above 100 %.
    pub fn at_most_100_percent(&self) {
        if self.percent().is_some_and(|percent| percent > 100) {
            self.invalid("must not be greater than 100%");
        }
    }

    /// The percentage, if it is one.
    pub fn percent(&self) -> Option<i64> {
        self.text().strip_suffix('%').filter(|_| names::percent(self.text()).is_empty())?.parse().ok()
    }

    /// The number, of a percentage without its sign.
    pub fn int_or_percent(&self) -> i64 {
        match self.value() {
            Value::String(text) => self.percent().or_else(|| text.parse().ok()).unwrap_or_default(),
            _ => self.number(),
        }
    }
}
