//! Objects that cannot be read as they are: one of them must not keep all others of its kind from being followed.
//!
//! Kubernetes writes `null` for a time that is not set, also where the typed structs demand one: in conditions. So such an
//! object is read with a time long ago in those places and without its other nulls, and one that cannot be read even so is
//! left out.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// All objects of a list that can be read.
pub(super) fn objects<K: DeserializeOwned>(list: &mut Value) -> Vec<K> {
    let items = list.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
    items.into_iter().filter_map(object).collect()
}

/// An object, if it can be read.
pub(super) fn object<K: DeserializeOwned>(mut value: Value) -> Option<K> {
    fill_and_drop_nulls(&mut value);
    let name = value.pointer("/metadata/name").cloned();
    match serde_json::from_value(value) {
        Ok(object) => Some(object),
        Err(error) => {
            tracing::warn!(%error, ?name, "an object cannot be read, and is not followed");
            None
        }
    }
}

/// When a condition changed last that does not say so: what Kubernetes' own types hold then.
const NEVER: &str = "0001-01-01T00:00:00Z";

fn fill_and_drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            for condition in fields.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
                let Some(condition) = condition.as_object_mut() else { continue };
                if condition.get("lastTransitionTime").is_none_or(Value::is_null) {
                    condition.insert("lastTransitionTime".to_owned(), NEVER.into());
                }
            }
            fields.values_mut().for_each(fill_and_drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(fill_and_drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use serde_json::json;

    use super::objects;

    #[test]
    fn what_others_wrote_is_read_or_left_out() {
        let condition =
            json!({"type": "A", "status": "True", "lastTransitionTime": null, "reason": "r", "message": ""});
        let mut list = json!({"items": [
            {"metadata": {"name": "odd"}, "status": {"conditions": [condition]}},
            {"metadata": {"name": "wrong"}, "spec": 3},
            {"metadata": {"name": "good"}},
        ]});
        let read: Vec<Service> = objects(&mut list);
        let names: Vec<_> = read.iter().filter_map(|service| service.metadata.name.as_deref()).collect();
        assert_eq!(names, ["odd", "good"]);
    }
}
