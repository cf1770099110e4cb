//! Errors of strategic merge patches, in Kubernetes' words: clients match on some of them.

use serde_json::Value;
use thiserror::Error;

use super::super::go_print::{GoList, GoPrint, go_type};
use super::{DIRECTIVE, ELEMENT_ORDER};
use crate::go_text::quote;
use crate::value::Object;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StrategicError {
    #[error("unknown patch type: {directive} in map: {object}")]
    UnknownDirective { directive: String, object: String },
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirectiveInList,
    #[error("map: {object} does not contain declared merge key: {key}")]
    NoMergeKey { object: String, key: String },
    #[error("cannot merge lists without merge key for struct")]
    NoDeclaredMergeKey,
    #[error("expected a {expected}, but received a {actual}")]
    WrongType { expected: &'static str, actual: &'static str },
    #[error("value for key {0} is not a map")]
    NotAnObject(usize),
    #[error("lists of lists are not supported")]
    ListOfLists,
    #[error("list element types are not identical: {0}")]
    MixedItems(String),
    #[error("no elements in any of the given slices")]
    NoItems,
    #[error("invalid patch format of primitive list")]
    BadDeleteList,
    #[error("invalid patch format of retainKeys")]
    BadRetainKeys,
    #[error("invalid patch format of setElementOrder list")]
    BadElementOrder,
    #[error("The order in patch list:\n{patch}\n doesn't match {ELEMENT_ORDER} list:\n{order}\n")]
    OrderMismatch { patch: String, order: String },
    #[error("unable to find api field in struct {in_struct} for the json field {}", quote(field))]
    UnknownField { in_struct: String, field: String },
    #[error("merging an object in json but data type is not struct, instead is: {0}")]
    NotAStruct(&'static str),
    #[error("expected slice or array type, but got: struct")]
    NotAList,
}

impl StrategicError {
    /// Is the form of a directive wrong, which Kubernetes blames on the client?
    pub(crate) fn is_bad_format(&self) -> bool {
        matches!(self, Self::BadDeleteList | Self::BadRetainKeys | Self::BadElementOrder)
    }

    pub(super) fn unknown_directive(object: &Object) -> Self {
        let directive = object.get(DIRECTIVE).unwrap_or(&Value::Null);
        let directive = match directive {
            Value::String(s) => s.clone(),
            Value::Null => go_type(directive).to_owned(),
            Value::Object(_) | Value::Array(_) => GoPrint(directive).to_string(),
            scalar => format!("%!s({}={})", go_type(scalar), GoPrint(scalar)),
        };
        Self::UnknownDirective { directive, object: print(object) }
    }

    pub(super) fn no_merge_key(object: &Object, key: &str) -> Self {
        Self::NoMergeKey { object: print(object), key: key.to_owned() }
    }

    pub(super) fn not_an_object(value: &Value) -> Self {
        Self::WrongType { expected: go_type(&Value::Object(Object::new())), actual: go_type(value) }
    }

    pub(super) fn not_a_list(value: &Value) -> Self {
        Self::WrongType { expected: go_type(&Value::Array(Vec::new())), actual: go_type(value) }
    }

    pub(super) fn mixed_items(lists: [&[Value]; 2]) -> Self {
        Self::MixedItems(format!("[{} {}]", GoList(lists[0]), GoList(lists[1])))
    }

    pub(super) fn order_mismatch(patch: &[Value], order: &[Value]) -> Self {
        Self::OrderMismatch { patch: GoList(patch).to_string(), order: GoList(order).to_string() }
    }
}

fn print(object: &Object) -> String {
    GoPrint(&Value::Object(object.clone())).to_string()
}
