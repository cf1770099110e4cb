//! What an object may look like: one schema type for built-in and custom kinds.
//!
//! A [`Types`] is an arena of type nodes that refer to each other by [`TypeId`] (built-in types are recursive). All
//! built-in kinds share one arena; a custom resource version has its own, into which the nodes of `ObjectMeta` are
//! copied. A [`Schema`] is an arena and the root of one kind in it; a [`Ref`] is a borrowed position while walking.
//!
//! Facts of a *type* (shape, list type, map keys, atomicity, default) are on the node; facts of a *field of a struct*
//! (protobuf number, omission of empty values, patch strategy and merge key) are on the [`Field`].

use std::sync::Arc;

use serde_json::Value;

/// The index of a node in its arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// An arena of type nodes.
#[derive(Debug, Default)]
pub struct Types {
    pub(crate) nodes: Vec<Type>,
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// In protobuf; 0 where the type has none.
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
    /// The field that identifies an item of a merged list of objects.
    pub merge_key: Option<Box<str>>,
}

/// Value validation of a custom resource's schema, and the logical combinations of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {}

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

    /// The type of the items of a list.
    pub fn item(self) -> Option<Ref<'a>> {
        match self.shape() {
            Shape::List(l) => Some(self.to(l.item)),
            _ => None,
        }
    }
}
