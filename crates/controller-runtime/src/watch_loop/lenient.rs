//! Lists with objects that cannot be read as they are: one of them must not keep all others of its kind from being followed.
//!
//! Kubernetes writes `null` for a time that is not set, also where its types always have one, such as in conditions; the
//! typed structs take a field that is missing, but not that. So such an object is read without its nulls, and one that cannot
//! be read even so is left out.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// All objects of a list that can be read.
pub(super) fn objects<K: DeserializeOwned>(list: &mut Value) -> Vec<K> {
    let items = list.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
    items.into_iter().filter_map(object).collect()
}

fn object<K: DeserializeOwned>(mut value: Value) -> Option<K> {
    drop_nulls(&mut value);
    let name = value.pointer("/metadata/name").cloned();
    match serde_json::from_value(value) {
        Ok(object) => Some(object),
        Err(error) => {
            tracing::warn!(%error, ?name, "an object cannot be read, and is left out");
            None
        }
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
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
