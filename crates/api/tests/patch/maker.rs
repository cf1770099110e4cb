//! Random schemas, random objects of any schema, and random changes of them.

use std::sync::Arc;

use object_model::schema::{
    Field, List, ListKind, Map, Omit, Patch, Ref, Scalar, Schema, Shape, Struct, Type, TypeId, Types,
};
use object_model::value::Object;
use serde_json::{Value, json};

/// Makes the same things from the same seed. Objects have no nulls, and merged lists have distinct keys.
pub struct Maker(u64);

impl Maker {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// An object of a struct. Every level makes fewer fields.
    pub fn object(&mut self, schema: Ref<'_>, depth: u64) -> Object {
        let Shape::Struct(s) = schema.shape() else { return Object::new() };
        let percent = (400 / (s.fields.len() as u64 + 3) + 60) / (depth + 1);
        let wanted: Vec<&Field> = s.fields.iter().filter(|_| self.chance(percent)).collect();
        wanted.into_iter().map(|f| (f.name.to_string(), self.field(schema, f, depth))).collect()
    }

    fn field(&mut self, parent: Ref<'_>, field: &Field, depth: u64) -> Value {
        let schema = parent.to(field.r#type);
        match schema.item() {
            Some(item) if field.patch.merge => {
                let chance = if depth > 5 { 0 } else { 40 };
                let keys: Vec<u64> = (1..6).filter(|_| self.chance(chance)).collect();
                keys.into_iter().map(|k| self.item(item, &field.patch, k, depth)).collect()
            }
            _ => self.value(schema, depth),
        }
    }

    /// An item of a merged list, told from the others by `identity`.
    fn item(&mut self, item: Ref<'_>, patch: &Patch, identity: u64, depth: u64) -> Value {
        let key = |scalar: Ref<'_>| match scalar.shape() {
            Shape::Scalar(Scalar::Int32 | Scalar::Int64) => json!(identity),
            _ => json!(format!("k{identity}")),
        };
        match patch.merge_key.as_deref() {
            None => key(item),
            Some(name) => {
                let mut object = self.object(item, depth + 1);
                object.insert(name.to_owned(), item.child(name).map_or(Value::Null, key));
                Value::Object(object)
            }
        }
    }

    fn value(&mut self, schema: Ref<'_>, depth: u64) -> Value {
        let count = if depth > 5 { 0 } else { self.below(3) };
        match schema.shape() {
            Shape::Any => json!({"a": self.below(3), "b": [self.below(2)]}),
            Shape::Struct(_) if depth > 6 => json!({}),
            Shape::Struct(_) => Value::Object(self.object(schema, depth + 1)),
            Shape::List(list) => (0..count).map(|_| self.value(schema.to(list.item), depth + 1)).collect(),
            Shape::Map(map) => {
                (0..count).map(|i| (format!("m{i}"), self.value(schema.to(map.value), depth + 1))).collect()
            }
            Shape::Scalar(scalar) => match scalar {
                Scalar::Bool => json!(self.chance(50)),
                Scalar::Int32 | Scalar::Int64 => json!(self.below(3)),
                Scalar::Float64 => json!(self.below(3) as f64 + 0.5),
                _ => json!(format!("s{}", self.below(3))),
            },
        }
    }

    /// Most of an object, with some fields and items made anew, moved, added or dropped.
    pub fn changed(&mut self, schema: Ref<'_>, object: &Object, depth: u64) -> Object {
        let Shape::Struct(s) = schema.shape() else { return object.clone() };
        let mut out = Object::new();
        for field in &s.fields {
            let new = match object.get(&*field.name) {
                None => self.chance(5).then(|| self.field(schema, field, depth + 1)),
                Some(old) => self.changed_field(schema, field, old, depth),
            };
            out.extend(new.map(|v| (field.name.to_string(), v)));
        }
        out
    }

    fn changed_field(&mut self, parent: Ref<'_>, field: &Field, old: &Value, depth: u64) -> Option<Value> {
        let schema = parent.to(field.r#type);
        match (self.below(10), old) {
            (0, _) => None,
            (1, _) => Some(self.field(parent, field, depth)),
            (_, Value::Object(object)) => match schema.shape() {
                Shape::Struct(_) => Some(Value::Object(self.changed(schema, object, depth + 1))),
                _ => Some(self.field(parent, field, depth)),
            },
            (2..7, Value::Array(items)) if field.patch.merge => {
                Some(Value::Array(self.changed_list(schema.item()?, &field.patch, items, depth)))
            }
            _ => Some(old.clone()),
        }
    }

    fn changed_list(&mut self, item: Ref<'_>, patch: &Patch, items: &[Value], depth: u64) -> Vec<Value> {
        let mut out: Vec<Value> = items.iter().filter(|_| self.chance(80)).cloned().collect();
        for value in &mut out {
            if let (Value::Object(object), Some(key)) = (&mut *value, patch.merge_key.as_deref()) {
                let identity = object.get(key).cloned().unwrap_or_default();
                *object = self.changed(item, object, depth + 1);
                object.insert(key.to_owned(), identity);
            }
        }
        if self.chance(40) {
            out.push(self.item(item, patch, 6 + self.0 % 3, depth));
        }
        if !out.is_empty() && self.chance(40) {
            let places = self.below(out.len() as u64) as usize;
            out.rotate_left(places);
        }
        out
    }

    /// A kind of a few structs that hold each other in all the ways that a patch can treat differently.
    pub fn schema(&mut self) -> Schema {
        let mut types = Types::default();
        let scalars = [Scalar::String, Scalar::Int64];
        let scalars = scalars.map(|s| types.add(Type::new(Shape::Scalar(s))));
        let structs: Vec<TypeId> = (0..4).map(|_| types.add(Type::new(Shape::Any))).collect();
        for (i, id) in structs.iter().enumerate() {
            let mut fields = vec![field("id", scalars[0], Patch::default())];
            for n in 0..3 + self.below(5) {
                fields.push(self.random_field(&mut types, format!("f{n}"), &scalars, &structs));
            }
            fields.push(field("port", scalars[1], Patch::default()));
            fields.sort_by(|a, b| a.name.cmp(&b.name));
            let name = format!("test.S{i}").into();
            let shape = Struct { name, fields: fields.into(), atomic: false, preserve_unknown: false, embedded: false };
            types.set(*id, Type::new(Shape::Struct(shape)));
        }
        Schema::new(Arc::new(types), structs[0])
    }

    fn random_field(&mut self, types: &mut Types, name: String, scalars: &[TypeId], structs: &[TypeId]) -> Field {
        let scalar = scalars[self.below(2) as usize];
        let object = structs[self.below(structs.len() as u64) as usize];
        let mut list = |item| types.add(Type::new(Shape::List(List { item, kind: ListKind::Atomic })));
        let merge = |key: Option<&str>| Patch { merge: true, merge_key: key.map(Into::into), ..Patch::default() };
        let (r#type, patch) = match self.below(10) {
            0 => (list(scalar), merge(None)),
            1 => (list(scalar), Patch::default()),
            2 | 3 => (list(object), merge(Some("id"))),
            4 => (list(object), Patch { retain_keys: true, ..merge(Some("port")) }),
            5 => (list(object), Patch::default()),
            6 => (types.add(Type::new(Shape::Map(Map { value: scalar, atomic: false }))), Patch::default()),
            7 => (object, Patch { retain_keys: true, ..Patch::default() }),
            8 => (object, Patch { replace: true, ..Patch::default() }),
            _ => (object, Patch::default()),
        };
        field(&name, r#type, patch)
    }
}

fn field(name: &str, r#type: TypeId, patch: Patch) -> Field {
    Field { name: name.into(), r#type, number: 0, omit: Omit::Empty, pointer: false, required: false, patch }
}
