//! Labels and label selectors.

use object_model::names;
use object_model::selector::LabelSelector;
use serde_json::Value;

use super::Field;

/// How far an old object's mistakes are tolerated in a selector.
#[derive(Clone, Copy, Default)]
pub struct SelectorOptions {
    pub allow_invalid_values: bool,
    pub allow_unknown_operators: bool,
}

/// A map of labels, as in `metadata.labels` or `nodeSelector`.
pub fn labels(labels: &Field) {
    for (key, value) in labels.entries() {
        for message in names::qualified_name(key) {
            labels.invalid_value(key, message);
        }
        for message in names::label_value(value.text()) {
            labels.invalid_value(value.text(), message);
        }
    }
}

/// A `LabelSelector`, if there is one.
pub fn label_selector(selector: &Field) {
    label_selector_with(selector, SelectorOptions::default());
}

pub fn label_selector_with(selector: &Field, options: SelectorOptions) {
    labels(&selector.at("matchLabels"));
    for expression in selector.at("matchExpressions").each() {
        requirement(&expression, options);
    }
}

/// One requirement of a selector.
pub fn requirement(requirement: &Field, options: SelectorOptions) {
    let values = requirement.at("values");
    match requirement.at("operator").text() {
        "In" | "NotIn" if values.is_empty() => values.missing("must be specified when `operator` is 'In' or 'NotIn'"),
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ if options.allow_unknown_operators => {}
        operator => requirement.at("operator").invalid_value(operator, "not a valid selector operator"),
    }
    requirement.at("key").qualified_name();
    if !options.allow_invalid_values {
        for value in values.each() {
            value.invalid_for(names::label_value(value.text()));
        }
    }
}

/// Options that let values stay which a stored selector had wrong already.
pub fn tolerating(old: &Value) -> SelectorOptions {
    SelectorOptions { allow_invalid_values: !Field::check(old, label_selector).is_empty(), ..Default::default() }
}

/// Does a map of labels (a selector of equalities) select these labels? An empty one selects everything.
pub fn selects(selector: &Field, labels: &Value) -> bool {
    selector.entries().all(|(key, value)| labels.get(key) == Some(value.value()))
}

/// What a `LabelSelector` says about these labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The selector selects everything, for it is empty.
    Everything,
    Selected,
    NotSelected,
    /// The selector is no valid one.
    Invalid,
}

/// Applies a `LabelSelector` to labels. One that is absent selects nothing.
pub fn select(selector: &Value, labels: &Value) -> Selection {
    if selector.is_null() {
        return Selection::NotSelected;
    }
    match LabelSelector::from_object(selector) {
        Err(_) => Selection::Invalid,
        Ok(selector) if selector.is_everything() => Selection::Everything,
        Ok(selector) if selector.matches(|key| labels[key].as_str()) => Selection::Selected,
        Ok(_) => Selection::NotSelected,
    }
}
