//! Makes a client's body what Kubernetes' decoder would make of it, from the recorded facts about fields.

use std::collections::HashMap;

use object_model::quantity;
use serde_json::{Map, Value, json};

pub struct Canonical {
    types: HashMap<String, Value>,
}

enum Kind {
    Struct(String),
    List(String),
    Map(String),
    Pointer(String),
    Quantity,
    Time,
    Scalar(Value),
    Any,
}

impl Canonical {
    pub fn new(facts: &str) -> Self {
        Self { types: serde_json::from_str(facts).expect("facts about fields") }
    }

    /// `group` is the last part of the Go package, such as `core.v1`.
    pub fn object(&self, package: &str, kind: &str, value: &Value) -> Value {
        let name = format!("{package}.{kind}");
        let mut out = self.strukt(&name, value);
        for field in ["apiVersion", "kind"] {
            out[field] = value[field].clone();
        }
        out
    }

    fn resolve(&self, package: &str, go: &str) -> Kind {
        if let Some(rest) = go.strip_prefix('*') {
            return Kind::Pointer(rest.to_owned());
        }
        if let Some(rest) = go.strip_prefix("[]") {
            return if rest == "byte" { Kind::Scalar(Value::Null) } else { Kind::List(rest.to_owned()) };
        }
        if let Some(rest) = go.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            return Kind::Map(rest.1.to_owned());
        }
        match go {
            "string" => return Kind::Scalar(json!("")),
            "bool" => return Kind::Scalar(json!(false)),
            "int" | "int32" | "int64" | "uint32" | "uint64" | "float64" => return Kind::Scalar(json!(0)),
            "resource.Quantity" => return Kind::Quantity,
            "metav1.Time" | "metav1.MicroTime" | "Time" | "MicroTime" => return Kind::Time,
            "intstr.IntOrString" => return Kind::Scalar(json!(0)),
            "runtime.RawExtension" | "runtime.Object" | "JSON" | "FieldsV1" => return Kind::Any,
            _ => {}
        }
        let name = match go.split_once('.') {
            None => format!("{package}.{go}"),
            Some((alias, name)) => format!("{}.{name}", self.package_of(package, alias, name)),
        };
        match self.types.get(&name) {
            Some(Value::Array(_)) => Kind::Struct(name),
            Some(Value::String(inner)) => {
                let package = name.rsplit_once('.').map_or("", |(package, _)| package);
                self.resolve(package, inner)
            }
            _ => Kind::Any,
        }
    }

    fn package_of(&self, package: &str, alias: &str, name: &str) -> String {
        let meta = "k8s.io.apimachinery.pkg.apis.meta.v1";
        match alias {
            "metav1" => meta.to_owned(),
            "types" => "k8s.io.apimachinery.pkg.types".to_owned(),
            "corev1" | "apiv1" => "k8s.io.api.core.v1".to_owned(),
            "batchv1" => "k8s.io.api.batch.v1".to_owned(),
            "authenticationv1" => "k8s.io.api.authentication.v1".to_owned(),
            "v1" => {
                let core = format!("k8s.io.api.core.v1.{name}");
                if self.types.contains_key(&core) { "k8s.io.api.core.v1".to_owned() } else { meta.to_owned() }
            }
            _ => package.to_owned(),
        }
    }

    fn strukt(&self, name: &str, value: &Value) -> Value {
        let package = name.rsplit_once('.').map_or("", |(package, _)| package);
        let mut out = Map::new();
        for field in self.types.get(name).and_then(Value::as_array).into_iter().flatten() {
            let go = field["go"].as_str().unwrap_or_default();
            if field["inline"] == true {
                if let Kind::Struct(inner) | Kind::Pointer(inner) = self.resolve(package, go) {
                    let inner = if inner.contains('.') && self.types.contains_key(&inner) {
                        inner
                    } else if let Kind::Struct(inner) = self.resolve(package, &inner) {
                        inner
                    } else {
                        continue;
                    };
                    if let Value::Object(fields) = self.strukt(&inner, value) {
                        out.extend(fields);
                    }
                }
                continue;
            }
            let json = field["json"].as_str().unwrap_or_default();
            let canonical = self.value(package, go, value.get(json).unwrap_or(&Value::Null));
            let pointer = go.starts_with('*');
            let is_struct = !pointer && matches!(self.resolve(package, go), Kind::Struct(_));
            let drop = if field["omitzero"] == true {
                is_zero(&canonical) && (!pointer || canonical.is_null())
            } else if field["omitempty"] == true {
                match (pointer, is_struct) {
                    (true, _) => canonical.is_null(),
                    (_, true) => false,
                    _ if matches!(self.resolve(package, go), Kind::Quantity | Kind::Time) => false,
                    _ if matches!(self.resolve(package, go), Kind::Any) => canonical.is_null(),
                    _ if go.ends_with("intstr.IntOrString") => false,
                    _ => is_empty(&canonical),
                }
            } else {
                false
            };
            if !drop {
                out.insert(json.to_owned(), canonical);
            }
        }
        Value::Object(out)
    }

    fn value(&self, package: &str, go: &str, value: &Value) -> Value {
        match self.resolve(package, go) {
            Kind::Pointer(_) if value.is_null() => Value::Null,
            Kind::Pointer(inner) => self.value(package, &inner, value),
            Kind::Struct(name) => {
                let empty = json!({});
                self.strukt(&name, if value.is_null() { &empty } else { value })
            }
            Kind::List(inner) => match value.as_array() {
                // What is stored in protobuf does not tell an empty list from none.
                Some(items) if items.is_empty() => Value::Null,
                Some(items) => Value::Array(items.iter().map(|item| self.value(package, &inner, item)).collect()),
                None => Value::Null,
            },
            Kind::Map(inner) => match value.as_object() {
                Some(entries) => Value::Object(
                    entries.iter().map(|(key, entry)| (key.clone(), self.value(package, &inner, entry))).collect(),
                ),
                None => Value::Null,
            },
            Kind::Quantity => match value {
                Value::Null => json!("0"),
                Value::Number(number) => json!(quantity::canonical(&number.to_string()).unwrap_or("0".into())),
                other => json!(quantity::canonical(other.as_str().unwrap_or("0")).unwrap_or("0".into())),
            },
            Kind::Time if value == "" => Value::Null,
            Kind::Time | Kind::Any => value.clone(),
            Kind::Scalar(zero) if value.is_null() => zero,
            Kind::Scalar(_) => value.clone(),
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Object(entries) => entries.values().all(is_zero),
        Value::String(text) => text.is_empty() || text == "0",
        other => is_empty(other),
    }
}
