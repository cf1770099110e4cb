//! Selecting nodes: node affinity of pods and volumes, topology terms of storage classes.

use object_model::names;

use super::Field;

/// A `NodeSelector`: terms, at least one.
pub fn node_selector(selector: &Field, allow_invalid_values: bool) {
    let terms = selector.at("nodeSelectorTerms");
    if terms.is_empty() {
        return terms.missing("must have at least one node selector term");
    }
    for term in terms.each() {
        node_selector_term(&term, allow_invalid_values);
    }
}

pub fn node_selector_term(term: &Field, allow_invalid_values: bool) {
    for requirement in term.at("matchExpressions").each() {
        label_requirement(&requirement, allow_invalid_values);
    }
    for requirement in term.at("matchFields").each() {
        field_requirement(&requirement);
    }
}

fn label_requirement(requirement: &Field, allow_invalid_values: bool) {
    let (operator, values) = (requirement.at("operator"), requirement.at("values"));
    match operator.text() {
        "In" | "NotIn" if values.is_empty() => values.missing("must be specified when `operator` is 'In' or 'NotIn'"),
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        }
        "Gt" | "Lt" if values.len() != 1 => {
            values.missing("must be specified single value when `operator` is 'Lt' or 'Gt'")
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => operator.invalid_value(other, "not a valid selector operator"),
    }
    requirement.at("key").qualified_name();
    if !allow_invalid_values {
        for value in values.each() {
            value.invalid_for(names::label_value(value.text()));
        }
    }
}

fn field_requirement(requirement: &Field) {
    let (operator, values, key) = (requirement.at("operator"), requirement.at("values"), requirement.at("key"));
    match operator.text() {
        "In" | "NotIn" if values.len() != 1 => {
            values.missing("must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
        }
        "In" | "NotIn" => {}
        other => operator.invalid_value(other, "not a valid selector operator"),
    }
    if key.is("metadata.name") {
        for value in values.each() {
            value.dns_subdomain();
        }
    } else {
        key.invalid_value(key.text(), "not a valid field selector key");
    }
}

/// Does any requirement of the terms have a value that is no label value?
pub fn has_invalid_values(selector: &Field) -> bool {
    selector.at("nodeSelectorTerms").each().any(|term| {
        term.at("matchExpressions")
            .each()
            .any(|r| r.at("values").texts().any(|value| !names::label_value(value).is_empty()))
    })
}

/// A `TopologySelectorTerm` of a storage class.
pub fn topology_selector_term(term: &Field) {
    let mut keys = Vec::new();
    for expression in term.at("matchLabelExpressions").each() {
        let values = expression.at("values");
        values.required();
        for (i, value) in values.each().enumerate() {
            if values.texts().take(i).any(|earlier| earlier == value.text()) {
                value.duplicate();
            }
        }
        let key = expression.at("key");
        key.qualified_name();
        if keys.contains(&key.text()) {
            key.duplicate();
        }
        keys.push(key.text());
    }
}
