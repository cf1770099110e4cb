//! A field that is a number or a text, such as a port by number or name, or a count by number or percentage.

use serde_json::Value;
use thiserror::Error;

use crate::go_text::quote;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntOrString<'a> {
    Int(i32),
    String(&'a str),
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid value for IntOrString: {0}")]
pub struct BadPercentage(String);

/// Which way a percentage of something goes that is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    Up,
    Down,
}

impl<'a> IntOrString<'a> {
    /// `None` where the value is neither, or a number that does not fit.
    pub fn of(value: &'a Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self::String(text)),
            Value::Number(number) => number.as_i64().and_then(|n| i32::try_from(n).ok()).map(Self::Int),
            _ => None,
        }
    }

    /// A text that is a number counts as the number, as on a command line.
    pub fn parse(text: &'a str) -> Self {
        text.parse().map_or(Self::String(text), Self::Int)
    }

    pub fn to_value(self) -> Value {
        match self {
            Self::Int(number) => number.into(),
            Self::String(text) => text.into(),
        }
    }

    /// The number, or the number that the text spells, or 0.
    pub fn int_value(self) -> i64 {
        match self {
            Self::Int(number) => number.into(),
            Self::String(text) => text.parse().unwrap_or(0),
        }
    }

    /// The percentage of a text such as `25%`.
    pub fn percentage(self) -> Result<Option<i64>, BadPercentage> {
        let Self::String(text) = self else { return Ok(None) };
        let Some(digits) = text.strip_suffix('%') else {
            return Err(BadPercentage("invalid type: string is not a percentage".to_owned()));
        };
        digits.parse().map(Some).map_err(|_| {
            let problem = if is_integer(digits) { "value out of range" } else { "invalid syntax" };
            let (text, digits) = (quote(text), quote(digits));
            BadPercentage(format!("invalid value {text}: strconv.Atoi: parsing {digits}: {problem}"))
        })
    }

    /// The number, or that percentage of `total`.
    pub fn scaled(self, total: i64, round: Round) -> Result<i64, BadPercentage> {
        match (self, self.percentage()?) {
            (Self::Int(number), _) => Ok(number.into()),
            (_, None) => Ok(0),
            (_, Some(percent)) => {
                let product = i128::from(percent) * i128::from(total);
                let scaled = match round {
                    Round::Down => product.div_euclid(100),
                    Round::Up => -(-product).div_euclid(100),
                };
                Ok(scaled.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
            }
        }
    }
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

impl std::fmt::Display for IntOrString<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::String(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values() {
        assert_eq!(IntOrString::of(&json!(8080)), Some(IntOrString::Int(8080)));
        assert_eq!(IntOrString::of(&json!("http")), Some(IntOrString::String("http")));
        assert_eq!(IntOrString::of(&json!(1i64 << 40)), None);
        assert_eq!(IntOrString::of(&json!(1.5)), None);
        assert_eq!(IntOrString::parse("80"), IntOrString::Int(80));
        assert_eq!(IntOrString::parse("80%").to_string(), "80%");
    }

    #[test]
    fn percentages_round_as_asked() {
        let quarter = IntOrString::String("25%");
        assert_eq!(quarter.scaled(10, Round::Up), Ok(3));
        assert_eq!(quarter.scaled(10, Round::Down), Ok(2));
        assert_eq!(quarter.scaled(-10, Round::Up), Ok(-2));
        assert_eq!(quarter.scaled(-10, Round::Down), Ok(-3));
        assert_eq!(IntOrString::Int(7).scaled(10, Round::Up), Ok(7));
        assert_eq!(IntOrString::String("9223372036854775807%").scaled(i64::MAX, Round::Up), Ok(i64::MAX));
    }

    #[test]
    fn other_texts_are_refused_in_gos_words() {
        let words = |text| IntOrString::String(text).scaled(1, Round::Up).unwrap_err().to_string();
        assert_eq!(words("5"), "invalid value for IntOrString: invalid type: string is not a percentage");
        assert_eq!(
            words("a%"),
            "invalid value for IntOrString: invalid value \"a%\": strconv.Atoi: parsing \"a\": invalid syntax"
        );
        assert_eq!(
            words("99999999999999999999%"),
            "invalid value for IntOrString: invalid value \"99999999999999999999%\": strconv.Atoi: parsing \"99999999999999999999\": value out of range"
        );
    }
}
