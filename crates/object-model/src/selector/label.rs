//! Label selectors, as text (`app in (web, api), !canary`) and as the `LabelSelector` object.

use std::fmt;

use serde_json::Value;

use super::parse;
use crate::field::{Errors, Path};
use crate::go_text::quote;
use crate::names;
use crate::value::Fields;

/// All requirements must hold. None select everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: Box<str>,
    operator: Operator,
    /// Sorted, each once.
    values: Box<[Box<str>]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    Equals,
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// Why a text or an object is no label selector, in Kubernetes' words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadSelector(pub String);

impl LabelSelector {
    /// Reads the text form. The empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, BadSelector> {
        let mut requirements = parse::requirements(text)?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements })
    }

    /// Reads a `LabelSelector` object. An empty one selects everything; the caller decides what an absent one means.
    pub fn from_object(selector: &Value) -> Result<Self, BadSelector> {
        let mut requirements = Vec::new();
        for (key, value) in selector.entries("matchLabels") {
            let value = value.as_str().unwrap_or_default();
            requirements.push(Requirement::new(key, Operator::Equals, vec![value.into()])?);
        }
        for expression in selector.items("matchExpressions") {
            let operator = match expression.text("operator") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(BadSelector(format!("{} is not a valid label selector operator", quote(other)))),
            };
            let values = expression.items("values").iter().map(|v| v.as_str().unwrap_or_default().into()).collect();
            requirements.push(Requirement::new(expression.text("key"), operator, values)?);
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements })
    }

    /// Selects objects that have all these labels.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let requirement = |(key, value): (&str, &str)| Requirement {
            key: key.into(),
            operator: Operator::Equals,
            values: Box::new([value.into()]),
        };
        labels.into_iter().map(requirement).collect()
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// The one value that a label must have, if the selector says so: what indexes are looked up by.
    pub fn exact(&self, label: &str) -> Option<&str> {
        let requirement = self.requirements.iter().find(|r| *r.key == *label)?;
        match (requirement.operator, &*requirement.values) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => Some(value),
            _ => None,
        }
    }

    /// Whether labels, looked up by key, are selected.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|r| r.matches(label(&r.key)))
    }

    /// Whether the labels of an object are selected.
    pub fn matches_object(&self, object: &Value) -> bool {
        let labels = crate::meta::Meta::of(object).labels();
        self.matches(|key| labels.get(key))
    }
}

impl FromIterator<Requirement> for LabelSelector {
    fn from_iter<I: IntoIterator<Item = Requirement>>(requirements: I) -> Self {
        let mut requirements: Vec<Requirement> = requirements.into_iter().collect();
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements }
    }
}

impl Requirement {
    pub fn new(key: &str, operator: Operator, mut values: Vec<Box<str>>) -> Result<Self, BadSelector> {
        values.sort();
        values.dedup();
        let requirement = Self { key: key.into(), operator, values: values.into() };
        let errors = requirement.problems();
        let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
        match words.as_slice() {
            [] => Ok(requirement),
            [one] => Err(BadSelector(one.clone())),
            several => Err(BadSelector(format!("[{}]", several.join(", ")))),
        }
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn operator(&self) -> Operator {
        self.operator
    }

    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|v| &**v)
    }

    fn problems(&self) -> Errors {
        let mut errors = Errors::new();
        let root = Path::root();
        check_key(&self.key, &root.child("key"), &mut errors);
        let path = root.child("values");
        // Go prints a list without items as null.
        let values = || match &*self.values {
            [] => Value::Null,
            values => values.iter().map(|v| Value::from(&**v)).collect::<Vec<_>>().into(),
        };
        match (self.operator, self.values.len()) {
            (Operator::In | Operator::NotIn, 0) => {
                errors.invalid(&path, values(), "for 'in', 'notin' operators, values set can't be empty");
            }
            (Operator::Equals | Operator::DoubleEquals | Operator::NotEquals, n) if n != 1 => {
                errors.invalid(&path, values(), "exact-match compatibility requires one single value");
            }
            (Operator::Exists | Operator::DoesNotExist, n) if n != 0 => {
                errors.invalid(&path, values(), "values set must be empty for exists and does not exist");
            }
            (Operator::GreaterThan | Operator::LessThan, n) => {
                if n != 1 {
                    errors.invalid(&path, values(), "for 'Gt', 'Lt' operators, exactly one value is required");
                }
                for (i, value) in self.values().enumerate().filter(|(_, v)| v.parse::<i64>().is_err()) {
                    let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                    errors.invalid(&path.index(i), value, why);
                }
            }
            _ => {}
        }
        for (i, value) in self.values().enumerate() {
            let wrong = names::label_value(value);
            if !wrong.is_empty() {
                errors.invalid(&path.index(i).key(&self.key), value, wrong.join("; "));
            }
        }
        errors
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let has = |value: &str| self.values.iter().any(|v| **v == *value);
        match (self.operator, value) {
            (Operator::Exists, value) => value.is_some(),
            (Operator::DoesNotExist, value) => value.is_none(),
            (Operator::NotIn | Operator::NotEquals, value) => !value.is_some_and(has),
            (Operator::In | Operator::Equals | Operator::DoubleEquals, value) => value.is_some_and(has),
            (Operator::GreaterThan | Operator::LessThan, value) => {
                let bound = self.values.first().and_then(|v| v.parse::<i64>().ok());
                match (value.and_then(|v| v.parse::<i64>().ok()), bound) {
                    (Some(value), Some(bound)) if self.operator == Operator::GreaterThan => value > bound,
                    (Some(value), Some(bound)) => value < bound,
                    _ => false,
                }
            }
        }
    }
}

/// What is wrong with a label key.
pub(super) fn check_key(key: &str, path: &Path<'_>, errors: &mut Errors) {
    let wrong = names::qualified_name(key);
    if !wrong.is_empty() {
        errors.invalid(path, key, wrong.join("; "));
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}
