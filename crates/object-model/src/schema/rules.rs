//! What a custom resource's schema says of values beyond their structure.
//!
//! A [`Rules`] hangs on a type node of the arena, where the node's shape gives type and children. Inside a logical
//! combination (`allOf`, `anyOf`, `oneOf`, `not`) rules stand alone and form a tree of their own: there `json_type`,
//! `properties` and `items` are used, which are empty on a node. Kubernetes calls these two `ValueValidation` and
//! `NestedValueValidation`.

use serde_json::Value;

use super::validate::{Format, Pattern};
use super::{Ref, Shape, TypeId};
use crate::field::Path;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// The type asked for where no shape says it.
    pub json_type: Option<JsonType>,
    pub nullable: bool,
    pub format: Option<Format>,
    pub minimum: Option<Bound>,
    pub maximum: Option<Bound>,
    pub multiple_of: Option<f64>,
    /// In characters.
    pub min_length: Option<i64>,
    pub max_length: Option<i64>,
    pub pattern: Option<Pattern>,
    pub min_items: Option<i64>,
    pub max_items: Option<i64>,
    pub min_properties: Option<i64>,
    pub max_properties: Option<i64>,
    /// Any value if empty.
    pub values: Box<[Value]>,
    pub required: Box<[Box<str>]>,
    /// `additionalProperties` given as true or false instead of a schema.
    pub additional: Option<bool>,
    /// Sorted by name.
    pub properties: Box<[(Box<str>, Rules)]>,
    pub items: Option<Box<Rules>>,
    pub all_of: Box<[Rules]>,
    pub any_of: Box<[Rules]>,
    pub one_of: Box<[Rules]>,
    pub not: Option<Box<Rules>>,
    /// Children of a node without a type.
    pub untyped: Option<Box<Untyped>>,
    /// `x-kubernetes-validations`.
    pub expressions: Box<[Expression]>,
}

/// A type name of JSON schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonType {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// A name that no value has; schemas with it are refused, but their defaults are checked first.
    Unknown(Box<str>),
}

/// One end of a range of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    pub value: f64,
    pub exclusive: bool,
}

/// A node that may hold values of several types (`x-kubernetes-preserve-unknown-fields` without `type`) and yet says
/// something of its children. Its shape is `Any`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Untyped {
    /// Sorted by name.
    pub properties: Box<[(Box<str>, TypeId)]>,
    pub additional: Option<TypeId>,
    pub items: Option<TypeId>,
}

/// One expression rule, as data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expression {
    pub rule: Box<str>,
    pub message: Box<str>,
    pub message_expression: Box<str>,
    pub reason: Option<Box<str>>,
    pub field_path: Box<str>,
    pub optional_old_self: Option<bool>,
}

impl JsonType {
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "" => return None,
            "object" => JsonType::Object,
            "array" => JsonType::Array,
            "string" => JsonType::String,
            "integer" => JsonType::Integer,
            "number" => JsonType::Number,
            "boolean" => JsonType::Boolean,
            other => JsonType::Unknown(other.into()),
        })
    }

    pub fn name(&self) -> &str {
        match self {
            JsonType::Object => "object",
            JsonType::Array => "array",
            JsonType::String => "string",
            JsonType::Integer => "integer",
            JsonType::Number => "number",
            JsonType::Boolean => "boolean",
            JsonType::Unknown(name) => name,
        }
    }
}

impl Rules {
    pub fn property(&self, name: &str) -> Option<&Rules> {
        find(&self.properties, name)
    }
}

impl<'a> Ref<'a> {
    pub fn rules(self) -> Option<&'a Rules> {
        self.node().rules.as_deref()
    }

    fn untyped(self) -> Option<&'a Untyped> {
        self.rules()?.untyped.as_deref()
    }

    /// What the schema says of a key of an object here: a field, a map's value, or the same of a node without type.
    pub(super) fn property(self, name: &str) -> Option<Ref<'a>> {
        self.child(name).or_else(|| {
            let untyped = self.untyped()?;
            find(&untyped.properties, name).copied().or(untyped.additional).map(|id| self.to(id))
        })
    }

    /// What the schema says of an item of a list here.
    pub(super) fn element(self) -> Option<Ref<'a>> {
        self.item().or_else(|| self.untyped()?.items.map(|id| self.to(id)))
    }

    /// Are keys that [`Ref::property`] does not know kept?
    pub(super) fn keeps_unknown(self) -> bool {
        match self.shape() {
            Shape::Any => true,
            Shape::Struct(s) => s.preserve_unknown,
            _ => false,
        }
    }

    /// Is it a type of Kubernetes' own, such as `ObjectMeta`? Those are checked elsewhere.
    pub(super) fn is_built_in(self) -> bool {
        matches!(self.shape(), Shape::Struct(s) if !s.name.is_empty())
    }

    /// The path to a key of an object here: maps in brackets, fields with a dot.
    pub(super) fn step<'p>(self, parent: &'p Path<'p>, name: &'p str) -> Path<'p> {
        let is_field = match (self.shape(), self.untyped()) {
            (Shape::Map(_), _) => false,
            (_, Some(untyped)) => find(&untyped.properties, name).is_some(),
            _ => true,
        };
        if is_field { parent.child(name) } else { parent.key(name) }
    }

    /// Is an object here a whole resource with metadata of its own?
    pub(super) fn is_resource(self) -> bool {
        matches!(self.shape(), Shape::Struct(s) if s.embedded)
    }
}

fn find<'a, T>(sorted: &'a [(Box<str>, T)], name: &str) -> Option<&'a T> {
    sorted.binary_search_by(|(key, _)| (**key).cmp(name)).ok().map(|i| &sorted[i].1)
}
