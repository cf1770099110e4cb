//! What the schema says of a field that both sides of a merge have.
//!
//! Kubernetes looks this up in Go structs, and only when there is something to merge: a field that is unknown, or that
//! sits below a map or a raw value where no struct describes it, is an error only then.

use super::error::StrategicError;
use crate::schema::{Field, Patch, Ref, Scalar, Shape};

/// A field that holds an object or a list.
pub(super) struct Member<'a> {
    /// The type of the object, or of the list's items.
    pub schema: Ref<'a>,
    pub patch: &'a Patch,
}

impl<'a> Member<'a> {
    /// A field that holds an object.
    pub(super) fn object(parent: Ref<'a>, name: &str) -> Result<Self, StrategicError> {
        let field = field(parent, name)?;
        Ok(Self { schema: parent.to(field.r#type), patch: &field.patch })
    }

    /// A field that holds a list.
    pub(super) fn list(parent: Ref<'a>, name: &str) -> Result<Self, StrategicError> {
        let field = field(parent, name)?;
        let schema = parent.to(field.r#type);
        match schema.shape() {
            Shape::List(_) => Ok(Self { schema: schema.item().unwrap_or(schema), patch: &field.patch }),
            Shape::Any => Ok(Self { schema, patch: &field.patch }),
            _ => Err(StrategicError::NotAList),
        }
    }

    pub(super) fn merge_key(&self) -> Option<&'a str> {
        self.patch.merge_key.as_deref()
    }
}

fn field<'a>(parent: Ref<'a>, name: &str) -> Result<&'a Field, StrategicError> {
    let unknown =
        |in_struct: &str| StrategicError::UnknownField { in_struct: in_struct.to_owned(), field: name.to_owned() };
    match parent.shape() {
        Shape::Struct(s) => s.field(name).ok_or_else(|| unknown(s.name.rsplit('.').next().unwrap_or_default())),
        Shape::Any => {
            let go = parent.facts().and_then(|f| f.go.as_deref()).unwrap_or("RawExtension");
            Err(unknown(go.rsplit('.').next().unwrap_or_default()))
        }
        Shape::Map(_) => Err(StrategicError::NotAStruct("map")),
        Shape::List(_) => Err(StrategicError::NotAStruct("slice")),
        Shape::Scalar(scalar) => Err(match scalar {
            Scalar::Bool => StrategicError::NotAStruct("bool"),
            Scalar::Int32 => StrategicError::NotAStruct("int32"),
            Scalar::Int64 => StrategicError::NotAStruct("int64"),
            Scalar::Float64 => StrategicError::NotAStruct("float64"),
            Scalar::String => StrategicError::NotAStruct("string"),
            Scalar::Bytes => StrategicError::NotAStruct("slice"),
            Scalar::Quantity => unknown("Quantity"),
            Scalar::Time => unknown("Time"),
            Scalar::MicroTime => unknown("MicroTime"),
            Scalar::Duration => unknown("Duration"),
            Scalar::IntOrString => unknown("IntOrString"),
        }),
    }
}
