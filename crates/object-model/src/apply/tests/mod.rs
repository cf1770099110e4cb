//! A small kind with every sort of list and map, for the tests of this folder.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::*;
use crate::identity::GroupVersionKind;
use crate::schema::{Field, List, ListKind, Map, Omit, Patch, Scalar, Schema, Shape, Struct, Type, TypeId, Types};

mod managers;
mod properties;
mod sets;
mod walks;

pub(super) const NOW: &str = "2026-01-01T00:00:00Z";
pub(super) const LATER: &str = "2026-01-02T00:00:00Z";

pub(super) static KIND: LazyLock<GroupVersionKind> = LazyLock::new(|| GroupVersionKind::new("test", "v1", "Thing"));
pub(super) static SCHEMA: LazyLock<Schema> = LazyLock::new(|| thing("v1.Thing"));

struct Builder(Types);

impl Builder {
    fn add(&mut self, shape: Shape) -> TypeId {
        self.0.add(Type::new(shape))
    }

    fn scalar(&mut self, scalar: Scalar) -> TypeId {
        self.add(Shape::Scalar(scalar))
    }

    fn list(&mut self, item: TypeId, kind: ListKind) -> TypeId {
        self.add(Shape::List(List { item, kind }))
    }

    fn map(&mut self, value: TypeId, atomic: bool) -> TypeId {
        self.add(Shape::Map(Map { value, atomic }))
    }

    /// Fields are named with a type; those with a `*` are pointers, the others are always written.
    fn object(&mut self, name: &str, fields: &[(&str, TypeId)]) -> TypeId {
        let field = |(name, id): &(&str, TypeId)| Field {
            name: name.trim_start_matches('*').into(),
            r#type: *id,
            number: 0,
            omit: Omit::Empty,
            pointer: name.starts_with('*'),
            required: false,
            patch: Patch::default(),
        };
        let mut fields: Vec<Field> = fields.iter().map(field).collect();
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        let shape = Struct {
            name: name.into(),
            fields: fields.into(),
            atomic: false,
            preserve_unknown: false,
            embedded: false,
        };
        self.add(Shape::Struct(shape))
    }
}

fn by(keys: &[&str]) -> ListKind {
    ListKind::Map(keys.iter().map(|key| Box::from(*key)).collect())
}

/// `name` empty makes a custom kind.
pub(super) fn thing(name: &str) -> Schema {
    let mut b = Builder(Types::default());
    let (text, int) = (b.scalar(Scalar::String), b.scalar(Scalar::Int64));
    let flag = b.scalar(Scalar::Bool);
    let any = b.add(Shape::Any);
    let protocol = b.0.add(Type { default: Some(Box::new(json!("TCP"))), ..Type::new(Shape::Scalar(Scalar::String)) });
    let texts = b.map(text, false);
    let whole_texts = b.map(text, true);
    let set = b.list(text, ListKind::Set);
    let args = b.list(text, ListKind::Atomic);
    let port = b.object("", &[("port", int), ("protocol", protocol), ("name", text)]);
    let ports = b.list(port, by(&["port", "protocol"]));
    let probe = b.object("", &[("path", text), ("seconds", int)]);
    let item = b.object(
        "",
        &[("name", text), ("image", text), ("args", args), ("tags", set), ("ports", ports), ("*probe", probe)],
    );
    let items = b.list(item, by(&["name"]));
    let managed = b.list(any, ListKind::Atomic);
    let metadata = b.object(
        "",
        &[
            ("name", text),
            ("namespace", text),
            ("uid", text),
            ("labels", texts),
            ("annotations", texts),
            ("finalizers", set),
            ("managedFields", managed),
        ],
    );
    let spec = b.object(
        "",
        &[
            ("text", text),
            ("count", int),
            ("flag", flag),
            ("items", items),
            ("selector", whole_texts),
            ("free", any),
            ("*probe", probe),
        ],
    );
    let status = b.object("", &[("ready", int)]);
    let root = b.object(
        name,
        &[("apiVersion", text), ("kind", text), ("metadata", metadata), ("spec", spec), ("status", status)],
    );
    Schema::new(Arc::new(b.0), root)
}

pub(super) fn field_manager() -> FieldManager<'static> {
    FieldManager { schema: &SCHEMA, kind: &KIND, api_version: "test/v1", subresource: "", versions: &OneVersion }
}

/// An object with a name, so much metadata and spec.
pub(super) fn object(metadata: Value, spec: Value) -> Value {
    let mut object = json!({"apiVersion": "test/v1", "kind": "Thing", "metadata": metadata, "spec": spec});
    object["metadata"]["name"] = json!("x");
    object
}

pub(super) fn set(fields: Value) -> Set {
    decode_fields(&fields).unwrap()
}

/// FieldsV1 of a manager, or null.
pub(super) fn owned(object: &Value, manager: &str, operation: Operation) -> Value {
    let managed = managed_of(object).unwrap();
    let found = managed.entries().iter().find(|e| e.manager.name == manager && e.manager.operation == operation);
    found.map(|e| encode_fields(e.fields())).unwrap_or_default()
}
