//! Spreading pods over zones and nodes, and the label keys that affinity terms use in the same way.

use std::collections::{HashMap, HashSet};

use super::Options;
use crate::validation::{Field, selectors};

pub fn constraints(constraints: &Field, options: &Options) {
    for (i, constraint) in constraints.each().enumerate() {
        constraint.at("maxSkew").positive();
        let (key, action) = (constraint.at("topologyKey"), constraint.at("whenUnsatisfiable"));
        if key.is_empty() {
            key.missing("can not be empty");
        }
        action.one_of(&["DoNotSchedule", "ScheduleAnyway"]);
        let repeats = constraints.each().skip(i + 1).any(|later| {
            later.at("topologyKey").text() == key.text() && later.at("whenUnsatisfiable").text() == action.text()
        });
        if repeats {
            constraint.at("{topologyKey, whenUnsatisfiable}").duplicate_value(format!(
                "{{{}, {}}}",
                key.text(),
                action.text()
            ));
        }
        let domains = constraint.at("minDomains");
        if domains.is_set() {
            domains.positive();
            if !action.is("DoNotSchedule") {
                domains.invalid(format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                    action.text()
                ));
            }
        }
        constraint.at("nodeAffinityPolicy").one_of_if_set(&["Honor", "Ignore"]);
        constraint.at("nodeTaintsPolicy").one_of_if_set(&["Honor", "Ignore"]);
        if options.invalid_spread_keys {
            label_keys_apart_from_selector(&constraint);
        } else {
            label_keys_with_selector(&constraint);
        }
        if !options.invalid_spread_selectors {
            selectors::label_selector(&constraint.at("labelSelector"));
        }
    }
}

/// Keys whose values are merged into the selector.
pub fn label_keys_with_selector(owner: &Field) {
    label_keys(owner, "matchLabelKeys");
    keys_beside_selector(owner);
}

pub fn label_keys(owner: &Field, name: &str) {
    let keys = owner.at(name);
    if keys.is_empty() {
        return;
    }
    if !owner.at("labelSelector").is_set() {
        return keys.forbidden("must not be specified when labelSelector is not set");
    }
    for key in keys.each() {
        key.qualified_name();
    }
}

/// The merged keys may stand in the selector once, where merging put them, but not twice.
pub fn keys_beside_selector(owner: &Field) {
    let (keys, mismatch, selector) =
        (owner.at("matchLabelKeys"), owner.at("mismatchLabelKeys"), owner.at("labelSelector"));
    let mut seen: HashSet<&str> = selector.at("matchLabels").entries().map(|(key, _)| key).collect();
    let mut places = HashMap::new();
    for (i, key) in keys.texts().enumerate() {
        places.entry(key).or_insert(i);
    }
    for expression in selector.at("matchExpressions").each() {
        let key = expression.at("key").text();
        if let Some(i) = places.get(key).filter(|_| seen.contains(&key)) {
            owner.index(*i).invalid_value(key, "exists in both matchLabelKeys and labelSelector");
        }
        seen.insert(key);
    }
    let mismatch: HashSet<&str> = mismatch.texts().collect();
    for key in keys.each() {
        if mismatch.contains(key.text()) {
            key.invalid("exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
}

/// Keys that are not merged, and so must not stand in the selector at all.
fn label_keys_apart_from_selector(owner: &Field) {
    let (keys, selector) = (owner.at("matchLabelKeys"), owner.at("labelSelector"));
    if keys.is_empty() {
        return;
    }
    if !selector.is_set() {
        keys.forbidden("must not be specified when labelSelector is not set");
    }
    for key in keys.each() {
        key.qualified_name();
        let in_selector = selector.at("matchLabels").key(key.text()).is_set()
            || selector.at("matchExpressions").each().any(|e| e.at("key").is(key.text()));
        if in_selector {
            key.invalid("exists in both matchLabelKeys and labelSelector");
        }
    }
}
