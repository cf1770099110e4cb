//! From bytes to an object in its stored version: read, made canonical, converted, defaulted. The one decode step.

use object_model::{
    codec::{StrictErrors, canonical, json, protobuf, yaml},
    field::{Errors, Path},
    identity::{GroupKind, GroupVersionKind},
    meta::Meta,
    patch::{GoPrint, PatchDocument, PatchKind},
    schema::Schema,
    status::{Reason, Status},
    value::Fields,
};
use serde_json::Value;

use super::body::MediaType;
use crate::{
    catalogue::Resource,
    context::Warnings,
    conversion,
    options::{FieldValidation, WriteOptions},
};

/// What happens to unknown and duplicate fields of one request.
pub struct Strictness<'a> {
    validation: FieldValidation,
    warnings: &'a Warnings,
}

impl<'a> Strictness<'a> {
    pub fn new(options: &WriteOptions, warnings: &'a Warnings) -> Self {
        Self { validation: options.field_validation, warnings }
    }

    /// Warns, or hands the problems back where they must be refused.
    fn judge(&self, errors: StrictErrors) -> Result<(), StrictErrors> {
        match self.validation {
            _ if errors.is_empty() => Ok(()),
            FieldValidation::Ignore => Ok(()),
            FieldValidation::Strict => Err(errors),
            FieldValidation::Warn => {
                errors.iter().for_each(|error| self.warnings.add(error.to_string()));
                Ok(())
            }
        }
    }
}

/// The body of a create or replace.
pub fn object(
    resource: &Resource,
    media: MediaType,
    bytes: &[u8],
    strictness: &Strictness<'_>,
) -> Result<Value, Status> {
    let (mut value, mut strict) = parse(&resource.schema, &resource.kind, media, bytes)?;
    let kind = settle_kind(resource, &mut value, bytes)?;
    let refused = |why: String| {
        Status::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: {why}",
            kind.kind, &*kind.version, resource.kind
        ))
    };
    let unknown = canonical::canonicalise(&resource.schema, &mut value).map_err(|e| refused(e.to_string()))?;
    match media {
        // Typed objects are read in one go, custom ones first and looked at then.
        MediaType::Json if !resource.custom && !unknown.is_empty() => {
            strict = json::in_order(bytes, unknown).map_err(|e| refused(e.to_string()))?;
        }
        _ => strict.extend(unknown),
    }
    strictness.judge(strict).map_err(|errors| refused(errors.to_string()))?;
    finish(resource, value)
}

/// An object after a patch, which may have made anything of it.
pub fn patched(
    resource: &Resource,
    document: &PatchDocument,
    mut value: Value,
    strictness: &Strictness<'_>,
) -> Result<Value, Status> {
    let shown = match document {
        PatchDocument::Strategic(patch) => GoPrint(&Value::Object(patch.clone())).to_string(),
        PatchDocument::Json(_) | PatchDocument::Merge(_) => value.to_string(),
    };
    let refused = |why: String| {
        let mut errors = Errors::new();
        let root = Path::root();
        errors.invalid(&root.child("patch"), shown.clone(), why);
        Status::invalid(&GroupKind::new("", ""), "", &errors)
    };
    let strict = canonical::canonicalise(&resource.schema, &mut value).map_err(|e| refused(e.to_string()))?;
    strictness.judge(strict).map_err(|errors| refused(errors.to_string()))?;
    finish(resource, value)
}

/// An object after server-side apply of `applied`. Its parts have been checked against the schema already, except for texts
/// that stand for something else.
pub fn applied_object(resource: &Resource, applied: &Value, mut value: Value) -> Result<Value, Status> {
    canonical::canonicalise(&resource.schema, &mut value).map_err(|error| {
        let kind = GroupVersionKind::new(&*resource.group, &*resource.version, &*resource.kind);
        let meta = Meta::of(applied);
        let from_json = if matches!(error, canonical::DecodeError::Base64(_)) { "error decoding from json: " } else { "" };
        let message = format!(
            "failed to convert new object ({}/{}; {kind}) to proper version: unable to convert unstructured object to {kind}: \
             {from_json}{error}",
            meta.namespace(),
            meta.name()
        );
        Status::failure(500, Reason::UNKNOWN, message, None)
    })?;
    finish(resource, value)
}

/// The body of a patch.
pub fn patch(kind: PatchKind, bytes: &[u8], strictness: &Strictness<'_>) -> Result<PatchDocument, Status> {
    let (value, strict) = json::read_strict(bytes).map_err(|e| Status::bad_request(e.to_string()))?;
    strictness.judge(strict).map_err(|errors| Status::bad_request(errors.to_string()))?;
    PatchDocument::parse(kind, value).map_err(|e| e.status())
}

/// The body of a server-side apply.
pub fn applied(bytes: &[u8], strictness: &Strictness<'_>) -> Result<Value, Status> {
    let (value, strict) =
        yaml::read_strict(bytes).map_err(|e| Status::bad_request(format!("error decoding YAML: {e}")))?;
    strictness.judge(strict).map_err(|e| Status::bad_request(format!("error strict decoding YAML: {e}")))?;
    Ok(value)
}

/// The body of a request that is of a kind of its own, such as `Scale`, `Eviction` or `DeleteOptions`.
pub fn plain(
    group: &str,
    version: &str,
    kind: &str,
    media: MediaType,
    bytes: &[u8],
    strictness: &Strictness<'_>,
) -> Result<Value, Status> {
    let schema = schema_of(group, version, kind)?;
    let (mut value, mut strict) = parse(&schema, kind, media, bytes)?;
    let refused = |why: String| {
        Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
    };
    strict.extend(canonical::canonicalise(&schema, &mut value).map_err(|e| refused(e.to_string()))?);
    strictness.judge(strict).map_err(|errors| refused(errors.to_string()))?;
    Ok(value)
}

/// The schema of a built-in kind that is known to exist.
pub fn schema_of(group: &str, version: &str, kind: &str) -> Result<Schema, Status> {
    api::schemas::schema_of(group, version, kind)
        .ok_or_else(|| Status::internal(format!("{kind} of {group}/{version} has no schema")))
}

fn parse(schema: &Schema, kind: &str, media: MediaType, bytes: &[u8]) -> Result<(Value, StrictErrors), Status> {
    let unrecognized = |why: String| {
        let shown: String = String::from_utf8_lossy(bytes).chars().take(30).collect();
        let more = if bytes.len() > 30 { "..." } else { "" };
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({shown}{more})"
        ))
    };
    match media {
        MediaType::Json => json::read_strict(bytes).map_err(|e| unrecognized(e.to_string())),
        MediaType::Yaml => yaml::read_strict(bytes).map_err(|e| unrecognized(e.to_string())),
        MediaType::Protobuf => {
            let envelope = protobuf::unwrap(bytes).map_err(|e| unrecognized(e.to_string()))?;
            let mut value = protobuf::decode(schema.root(), envelope.raw).map_err(|e| unrecognized(e.to_string()))?;
            value["apiVersion"] = envelope.api_version.into();
            value["kind"] = envelope.kind.into();
            Ok((value, StrictErrors::default()))
        }
    }
}

/// The object must be of the kind and version that the path names; what it does not say is filled in.
fn settle_kind(resource: &Resource, value: &mut Value, bytes: &[u8]) -> Result<GroupVersionKind, Status> {
    let wanted = GroupVersionKind::new(&*resource.group, &*resource.version, &*resource.kind);
    if !value.is_object() {
        let shown: String = String::from_utf8_lossy(bytes).chars().take(30).collect();
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: json: \
             cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind \
             string \"json:\\\"kind,omitempty\\\"\" }} ({shown})",
            resource.kind,
            json::type_name(value)
        )));
    }
    if value.text("kind").is_empty() {
        value["kind"] = resource.kind.as_ref().into();
    }
    if value.text("apiVersion").is_empty() {
        value["apiVersion"] = resource.api_version().into();
    }
    let given = GroupVersionKind::parse(value.text("apiVersion"), value.text("kind"))
        .map_err(|e| Status::bad_request(e.to_string()))?;
    if given.kind != wanted.kind {
        return Err(Status::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: converting ({}).{} to ({}).{}: unknown conversion",
            given.kind,
            &*given.version,
            resource.kind,
            given.group_version(),
            given.kind,
            wanted.group_version(),
            wanted.kind
        )));
    }
    if given.group_version() != wanted.group_version() {
        return Err(Status::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({})",
            given.group_version(),
            wanted.group_version()
        )));
    }
    Ok(given)
}

/// Into the stored version, with its defaults.
fn finish(resource: &Resource, mut value: Value) -> Result<Value, Status> {
    conversion::convert(&mut value, &resource.stored_api_version());
    (resource.strategy.defaults)(&mut value);
    Ok(value)
}
