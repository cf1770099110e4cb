//! Tolerations of pods, and the taints of nodes they match.

use std::collections::HashSet;

use object_model::field::ErrorKind;
use object_model::names;

use crate::validation::{Field, go_form};

pub const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub fn tolerations(tolerations: &Field) {
    for toleration in tolerations.each() {
        let (key, operator) = (toleration.at("key"), toleration.at("operator"));
        let (value, effect) = (toleration.at("value"), toleration.at("effect"));
        if !key.is_empty() {
            key.qualified_name();
        } else if !operator.is("Exists") {
            operator
                .with_text()
                .invalid("operator must be Exists when `key` is empty, which means \"match all values and all keys\"");
        }
        if toleration.at("tolerationSeconds").is_set() && !effect.is("NoExecute") {
            effect.with_text().invalid("effect must be 'NoExecute' when `tolerationSeconds` is set");
        }
        match operator.text() {
            "Equal" | "" => {
                let wrong = names::label_value(value.text());
                if !wrong.is_empty() {
                    operator.invalid_value(value.text(), wrong.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                operator.invalid_value(value.text(), "value must be empty when `operator` is 'Exists'")
            }
            "Exists" => {}
            // The feature that compares numbers is off, but the words for it are on.
            "Lt" | "Gt" => operator.not_supported(&["Equal", "Exists", "Lt", "Gt"]),
            _ => operator.not_supported(&["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            effect.one_of(EFFECTS);
        }
    }
}

/// The taints of a node, unique by key and effect.
pub fn taints(taints: &Field) {
    let mut seen = HashSet::new();
    for taint in taints.each() {
        let (key, value, effect) = (taint.at("key"), taint.at("value"), taint.at("effect"));
        key.qualified_name();
        let wrong = names::label_value(value.text());
        if !wrong.is_empty() {
            value.invalid(wrong.join(";"));
        }
        effect.required_one_of(EFFECTS);
        let this = (key.text(), effect.text());
        if seen.contains(&this) {
            let shown = go_form::shown("Taint", taint.value());
            taint.tell(ErrorKind::Duplicate, None, format!("{shown}: taints must be unique by key and effect pair"));
        } else {
            seen.insert(this);
        }
    }
}
