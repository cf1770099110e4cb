//! The types of the API as JSON schemas, each defined once and referred to by name.

use api::schemas;
use object_model::schema::{Field, ListKind, Ref, Scalar, Schema, Shape, Struct, Wire};
use serde_json::{Map, Value, json};

use super::{Dialect, descriptions::Descriptions};
use crate::catalogue::{Resource, Served};

type Object = Map<String, Value>;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.";

/// Definitions, made as they are referred to.
pub struct Definitions<'a> {
    pub dialect: Dialect,
    served: &'a Served,
    texts: &'a Descriptions,
    made: Object,
}

impl<'a> Definitions<'a> {
    pub fn new(dialect: Dialect, served: &'a Served, texts: &'a Descriptions) -> Self {
        Self { dialect, served, texts, made: Object::new() }
    }

    pub fn finish(self) -> Object {
        self.made
    }

    /// Refers to the objects of a resource.
    pub fn object(&mut self, resource: &Resource) -> Value {
        let root = resource.schema.root();
        match root.shape() {
            Shape::Struct(shape) if !shape.name.is_empty() => self.named(&shape.name),
            _ => self.custom(resource, &resource.kind, |definitions| definitions.value(root)),
        }
    }

    /// Refers to a list of them.
    pub fn list(&mut self, resource: &Resource) -> Value {
        if let Some(schema) = schemas::schema_of(&resource.group, &resource.version, &resource.list_kind) {
            return self.root(&schema);
        }
        self.custom(resource, &resource.list_kind, |definitions| {
            let items = json!({"type": "array", "items": definitions.object(resource)});
            let metadata = definitions.meta("ListMeta");
            let text = json!({"type": "string"});
            let properties = json!({"apiVersion": text, "items": items, "kind": text, "metadata": metadata});
            object([("type", "object".into()), ("required", json!(["items"])), ("properties", properties)])
        })
    }

    /// Refers to a built-in kind.
    pub fn kind(&mut self, group: &str, version: &str, kind: &str) -> Value {
        schemas::schema_of(group, version, kind).map_or_else(|| json!({}), |schema| self.root(&schema))
    }

    /// Refers to a type that all groups share.
    pub fn meta(&mut self, name: &str) -> Value {
        self.named(&format!("{META}{name}"))
    }

    fn root(&mut self, schema: &Schema) -> Value {
        Value::Object(self.value(schema.root()))
    }

    /// A kind that has no name among the built-in types is named after its group, read backwards.
    fn custom(&mut self, resource: &Resource, kind: &str, make: impl FnOnce(&mut Self) -> Object) -> Value {
        let parts: Vec<&str> = resource.group.rsplit('.').chain([&*resource.version, kind]).collect();
        let name = parts.join(".");
        if !self.made.contains_key(&name) {
            self.made.insert(name.clone(), Value::Null);
            let mut made = make(self);
            made.insert(
                "x-kubernetes-group-version-kind".into(),
                json!([gvk(&resource.group, &resource.version, kind)]),
            );
            self.made.insert(name.clone(), Value::Object(made));
        }
        self.reference(&name)
    }

    /// Refers to a definition, and makes it if it is new. The types refer to each other in circles.
    fn named(&mut self, name: &str) -> Value {
        if !self.made.contains_key(name) {
            self.made.insert(name.to_owned(), Value::Null);
            let mut made = match schemas::definition(name) {
                Some(schema) => self.definition(name, &schema),
                None => self.without_fields(name),
            };
            if let Some(text) = self.texts.definition(name) {
                made.insert("description".into(), text.into());
            }
            self.made.insert(name.to_owned(), Value::Object(made));
        }
        self.reference(name)
    }

    fn reference(&self, name: &str) -> Value {
        let folder = if self.dialect == Dialect::V2 { "#/definitions/" } else { "#/components/schemas/" };
        json!({"$ref": format!("{folder}{name}")})
    }

    fn definition(&mut self, name: &str, schema: &Schema) -> Object {
        let root = schema.root();
        let Shape::Struct(shape) = root.shape() else { return Object::new() };
        let mut made = self.fields(shape, root);
        let kinds = self.kinds_of(name, root);
        if !kinds.is_empty() {
            made.insert("x-kubernetes-group-version-kind".into(), kinds.into());
        }
        made
    }

    /// The groups, versions and kinds that a definition stands for.
    fn kinds_of(&self, name: &str, root: Ref<'_>) -> Vec<Value> {
        match name.strip_prefix(META) {
            Some(kind @ ("DeleteOptions" | "WatchEvent")) => {
                let of_group = |group: &'a crate::catalogue::Group| {
                    group.versions.iter().map(move |version| gvk(&group.name, &version.name, kind))
                };
                self.served.groups.iter().flat_map(of_group).collect()
            }
            Some(kind @ ("Status" | "APIGroup" | "APIGroupList" | "APIResourceList" | "APIVersions")) => {
                vec![gvk("", "v1", kind)]
            }
            Some(_) => Vec::new(),
            None => {
                let found = schemas::kinds().iter().find(|kind| kind.r#type == root.id());
                found.map(|kind| gvk(&kind.group, &kind.version, &kind.kind)).into_iter().collect()
            }
        }
    }

    fn fields(&mut self, shape: &Struct, at: Ref<'_>) -> Object {
        let mut properties = Object::new();
        for field in &shape.fields {
            properties.insert(field.name.to_string(), self.field(&shape.name, field, at.to(field.r#type)));
        }
        let mut made = object([("type", "object".into())]);
        let required: Vec<&str> = shape.fields.iter().filter(|f| f.required).map(|f| &*f.name).collect();
        if !required.is_empty() {
            made.insert("required".into(), required.into());
        }
        if !properties.is_empty() {
            made.insert("properties".into(), properties.into());
        }
        for (holds, word, value) in [
            (shape.atomic, "x-kubernetes-map-type", Value::from("atomic")),
            (shape.preserve_unknown, "x-kubernetes-preserve-unknown-fields", true.into()),
            (shape.embedded, "x-kubernetes-embedded-resource", true.into()),
        ] {
            if holds {
                made.insert(word.into(), value);
            }
        }
        made
    }

    fn field(&mut self, of: &str, field: &Field, at: Ref<'_>) -> Value {
        let value = self.value(at);
        let mut beside = Object::new();
        if let Some(text) = self.texts.field(of, &field.name) {
            beside.insert("description".into(), text.into());
        }
        if let Some(default) = &at.node().default {
            beside.insert("default".into(), (**default).clone());
        }
        if let Shape::Struct(shape) = at.shape()
            && let Some(own) = schemas::definition(&shape.name)
            && !matches!(own.root().shape(), Shape::Struct(own) if own.atomic == shape.atomic)
        {
            let kind = if shape.atomic { "atomic" } else { "granular" };
            beside.insert("x-kubernetes-map-type".into(), kind.into());
        }
        if let Some(key) = &field.patch.merge_key {
            beside.insert("x-kubernetes-patch-merge-key".into(), (**key).into());
        }
        let strategies =
            [(field.patch.merge, "merge"), (field.patch.retain_keys, "retainKeys"), (field.patch.replace, "replace")];
        let strategies: Vec<&str> = strategies.iter().filter(|(holds, _)| *holds).map(|(_, name)| *name).collect();
        if !strategies.is_empty() {
            beside.insert("x-kubernetes-patch-strategy".into(), strategies.join(",").into());
        }
        Value::Object(self.beside(value, beside))
    }

    /// In v3 nothing may stand beside a reference.
    fn beside(&self, value: Object, beside: Object) -> Object {
        if self.dialect == Dialect::V3 && value.contains_key("$ref") && !beside.is_empty() {
            return object([("allOf", json!([value]))]).into_iter().chain(beside).collect();
        }
        value.into_iter().chain(beside).collect()
    }

    fn value(&mut self, at: Ref<'_>) -> Object {
        match at.shape() {
            Shape::Any => self.any(at),
            Shape::Scalar(scalar) => self.scalar(*scalar),
            Shape::List(list) => {
                let items = self.value(at.to(list.item));
                let mut made = object([("type", "array".into()), ("items", items.into())]);
                let kind = match &list.kind {
                    ListKind::Atomic => "atomic",
                    ListKind::Set => "set",
                    ListKind::Map(keys) => {
                        made.insert("x-kubernetes-list-map-keys".into(), keys.iter().map(|k| &**k).collect());
                        "map"
                    }
                };
                made.insert("x-kubernetes-list-type".into(), kind.into());
                made
            }
            Shape::Map(map) => {
                let values = self.value(at.to(map.value));
                let mut made = object([("type", "object".into()), ("additionalProperties", values.into())]);
                if map.atomic {
                    made.insert("x-kubernetes-map-type".into(), "atomic".into());
                }
                made
            }
            Shape::Struct(shape) if shape.name.is_empty() => self.fields(shape, at),
            Shape::Struct(shape) => referred(self.named(&shape.name)),
        }
    }

    fn any(&mut self, at: Ref<'_>) -> Object {
        let Some(facts) = at.facts() else { return object([("x-kubernetes-preserve-unknown-fields", true.into())]) };
        let name = match (&facts.wire, facts.go.as_deref()) {
            (Wire::SchemaOrBool(_), _) => format!("{EXTENSIONS}JSONSchemaPropsOrBool"),
            (Wire::SchemaOrList(_), _) => format!("{EXTENSIONS}JSONSchemaPropsOrArray"),
            (Wire::SchemaOrStrings(_), _) => format!("{EXTENSIONS}JSONSchemaPropsOrStringArray"),
            (_, Some("v1.JSON")) => format!("{EXTENSIONS}JSON"),
            (_, Some("v1.FieldsV1")) => format!("{META}FieldsV1"),
            (_, Some("runtime.RawExtension")) => "io.k8s.apimachinery.pkg.runtime.RawExtension".to_owned(),
            _ => return object([("type", "object".into())]),
        };
        referred(self.named(&name))
    }

    fn scalar(&mut self, scalar: Scalar) -> Object {
        let plain = |r#type: &str| object([("type", r#type.into())]);
        let with_format = |r#type: &str, format: &str| object([("type", r#type.into()), ("format", format.into())]);
        let name = match scalar {
            Scalar::Bool => return plain("boolean"),
            Scalar::String => return plain("string"),
            Scalar::Int32 => return with_format("integer", "int32"),
            Scalar::Int64 => return with_format("integer", "int64"),
            Scalar::Float64 => return with_format("number", "double"),
            Scalar::Bytes => return with_format("string", "byte"),
            Scalar::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity".to_owned(),
            Scalar::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString".to_owned(),
            Scalar::Time => format!("{META}Time"),
            Scalar::MicroTime => format!("{META}MicroTime"),
            Scalar::Duration => format!("{META}Duration"),
        };
        referred(self.named(&name))
    }

    /// Definitions that are no structs.
    fn without_fields(&self, name: &str) -> Object {
        let either = |other: &str| json!([{"type": "string"}, {"type": other}]);
        match (name.rsplit('.').next().unwrap_or_default(), self.dialect) {
            ("Quantity", Dialect::V3) => object([("oneOf", either("number"))]),
            ("IntOrString", Dialect::V3) => object([("format", "int-or-string".into()), ("oneOf", either("integer"))]),
            ("IntOrString", Dialect::V2) => object([("type", "string".into()), ("format", "int-or-string".into())]),
            ("Quantity" | "Duration", _) => object([("type", "string".into())]),
            ("Time" | "MicroTime", _) => object([("type", "string".into()), ("format", "date-time".into())]),
            ("RawExtension" | "FieldsV1" | "Patch", _) => object([("type", "object".into())]),
            _ => Object::new(),
        }
    }
}

fn referred(reference: Value) -> Object {
    match reference {
        Value::Object(fields) => fields,
        _ => Object::new(),
    }
}

fn object<const N: usize>(fields: [(&str, Value); N]) -> Object {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

pub fn gvk(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}
