//! What an object may look like: one schema type for built-in and custom kinds.
//!
//! A [`Types`] is an arena of type nodes that refer to each other by [`TypeId`] (built-in types are recursive). All
//! built-in kinds share one arena; a custom resource version has its own, into which the nodes of `ObjectMeta` are
//! copied. A [`Schema`] is an arena and the root of one kind in it; a [`Ref`] is a borrowed position while walking.
//!
//! Facts of a *type* (shape, list type, map keys, atomicity, default) are on the node; facts of a *field of a struct*
//! (protobuf number, omission of empty values, patch strategy and merge key) are on the [`Field`].

pub mod custom;
pub mod default;
pub mod prune;
mod rules;
pub mod table;
#[cfg(test)]
mod testing;
pub mod validate;

use std::sync::Arc;

use serde_json::Value;

pub use rules::{Bound, Expression, JsonType, Rules, Untyped};

/// The index of a node in its arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// An arena of type nodes.
#[derive(Debug, Default)]
pub struct Types {
    pub(crate) nodes: Vec<Type>,
    /// What is known of built-in nodes beyond their shape, by index; shorter than the nodes or empty.
    facts: Vec<Option<Box<Facts>>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    pub shape: Shape,
    /// May be null (custom resources only).
    pub nullable: bool,
    /// The declared default.
    pub default: Option<Box<Value>>,
    /// Value validation beyond structure (custom resources only).
    pub rules: Option<Box<Rules>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Anything, kept as it is: raw extensions, JSON, preserved unknown fields without structure.
    Any,
    Scalar(Scalar),
    List(List),
    Map(Map),
    Struct(Struct),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    Bool,
    Int32,
    Int64,
    Float64,
    String,
    /// Base64 in JSON.
    Bytes,
    Quantity,
    /// Seconds.
    Time,
    /// Microseconds.
    MicroTime,
    Duration,
    IntOrString,
}

#[derive(Clone, Debug, PartialEq)]
pub struct List {
    pub item: TypeId,
    pub kind: ListKind,
}

/// How server-side apply merges a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListKind {
    Atomic,
    Set,
    /// Items are objects identified by these fields, in this order.
    Map(Box<[Box<str>]>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    pub value: TypeId,
    /// Owned and replaced as a whole by server-side apply.
    pub atomic: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Struct {
    /// The definition's full name, such as `io.k8s.api.core.v1.PodSpec`; empty for custom ones.
    pub name: Box<str>,
    /// Sorted by name.
    pub fields: Box<[Field]>,
    pub atomic: bool,
    /// Fields that are not listed are kept (`x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// A whole object with apiVersion, kind and metadata of its own (`x-kubernetes-embedded-resource`).
    pub embedded: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub name: Box<str>,
    pub r#type: TypeId,
    /// In protobuf; 0 where the type has none. For a field of an embedded struct, the number in that one's message
    /// (see [`Facts::wire`]).
    pub number: u32,
    pub omit: Omit,
    /// A pointer in Go: an explicit zero value differs from an absent one.
    pub pointer: bool,
    pub required: bool,
    pub patch: Patch,
}

/// When Kubernetes leaves a field out of its JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omit {
    /// Always written, as null, zero or `{}` if need be.
    Never,
    /// `omitempty`: left out when false, 0, "", null, or an empty list or map; structs are always written.
    Empty,
    /// `omitzero`: left out when the whole value is zero, structs too.
    Zero,
}

/// How a strategic merge patch treats a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Lists: merge item by item instead of replacing.
    pub merge: bool,
    /// Objects: keep only the keys that the patch names.
    pub retain_keys: bool,
    /// Objects: replace instead of merging. Lists that are not merged are replaced anyway.
    pub replace: bool,
    /// The field that identifies an item of a merged list of objects.
    pub merge_key: Option<Box<str>>,
}

/// What Go and protobuf say of a built-in node beyond its shape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// The Go name of a named type that is no struct (`v1.Protocol`); messages about wrong types contain it.
    pub go: Option<Box<str>>,
    /// The Go name of the type of a map's keys.
    pub key: Option<Box<str>>,
    pub wire: Wire,
}

/// How protobuf carries a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Wire {
    /// As its shape says.
    #[default]
    Plain,
    /// A struct, as a message with these members, in the order of their numbers.
    Members(Box<[Member]>),
    /// A named list, as a message that repeats the items in field 1: an empty one differs from an absent one.
    Items,
    /// The unions in the schema of a custom resource definition; the node is the schema's.
    SchemaOrBool(TypeId),
    SchemaOrList(TypeId),
    SchemaOrStrings(TypeId),
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub number: u32,
    pub target: MemberTarget,
}

#[derive(Clone, Debug, PartialEq)]
pub enum MemberTarget {
    /// The index of a field of the struct.
    Field(u16),
    /// A Go struct embedded in this one, by name: its fields are among those of the struct, its message is its own.
    Embedded(Box<str>, Box<[Member]>),
}

/// One kind in an arena. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Schema {
    types: Arc<Types>,
    root: TypeId,
}

/// A position in a schema while walking a value.
#[derive(Clone, Copy, Debug)]
pub struct Ref<'a> {
    types: &'a Types,
    id: TypeId,
}

impl Types {
    pub fn get(&self, id: TypeId) -> &Type {
        &self.nodes[id.0 as usize]
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a node and says where it is.
    pub fn add(&mut self, node: Type) -> TypeId {
        let id = TypeId(self.nodes.len() as u32);
        self.nodes.push(node);
        id
    }

    /// Replaces a node, for types that refer to themselves.
    pub fn set(&mut self, id: TypeId, node: Type) {
        self.nodes[id.0 as usize] = node;
    }

    /// What is known of a built-in node beyond its shape.
    pub fn facts(&self, id: TypeId) -> Option<&Facts> {
        self.facts.get(id.0 as usize)?.as_deref()
    }

    fn state(&mut self, id: TypeId, facts: Facts) {
        let at = id.0 as usize;
        if self.facts.len() <= at {
            self.facts.resize_with(at + 1, || None);
        }
        self.facts[at] = Some(Box::new(facts));
    }

    /// Without spare room, for an arena that is complete.
    fn shrunk(mut self) -> Self {
        self.nodes.shrink_to_fit();
        self.facts.shrink_to_fit();
        self
    }
}

impl Type {
    pub fn new(shape: Shape) -> Self {
        Self { shape, nullable: false, default: None, rules: None }
    }
}

impl Struct {
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.binary_search_by(|f| (*f.name).cmp(name)).ok().map(|i| &self.fields[i])
    }
}

impl Schema {
    pub fn new(types: Arc<Types>, root: TypeId) -> Self {
        Self { types, root }
    }

    pub fn root(&self) -> Ref<'_> {
        Ref { types: &self.types, id: self.root }
    }

    /// The arena, to make a schema of another of its nodes.
    pub fn types(&self) -> &Arc<Types> {
        &self.types
    }
}

impl<'a> Ref<'a> {
    pub fn id(self) -> TypeId {
        self.id
    }

    pub fn node(self) -> &'a Type {
        self.types.get(self.id)
    }

    pub fn shape(self) -> &'a Shape {
        &self.node().shape
    }

    /// What is known of a built-in node beyond its shape.
    pub fn facts(self) -> Option<&'a Facts> {
        self.types.facts(self.id)
    }

    /// Another node of the same arena.
    pub fn to(self, id: TypeId) -> Ref<'a> {
        Ref { types: self.types, id }
    }

    /// The type of a field of a struct or of an entry of a map.
    pub fn child(self, name: &str) -> Option<Ref<'a>> {
        match self.shape() {
            Shape::Struct(s) => s.field(name).map(|f| self.to(f.r#type)),
            Shape::Map(m) => Some(self.to(m.value)),
            _ => None,
        }
    }

    /// What a field counts as where it is absent and identifies an item: its declared default, or the zero value of a
    /// built-in scalar that is always written.
    pub fn key_default(self, name: &str) -> Option<Value> {
        let Shape::Struct(s) = self.shape() else { return None };
        let field = s.field(name)?;
        let node = self.types.get(field.r#type);
        if let Some(default) = &node.default {
            return Some((**default).clone());
        }
        match &node.shape {
            Shape::Scalar(scalar) if !s.name.is_empty() && field.omit == Omit::Never && !field.pointer => {
                match scalar {
                    Scalar::Bool => Some(false.into()),
                    Scalar::Int32 | Scalar::Int64 | Scalar::Float64 => Some(0.into()),
                    Scalar::String => Some("".into()),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The type of the items of a list.
    pub fn item(self) -> Option<Ref<'a>> {
        match self.shape() {
            Shape::List(l) => Some(self.to(l.item)),
            _ => None,
        }
    }
}
