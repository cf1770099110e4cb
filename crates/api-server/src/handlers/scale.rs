//! The `scale` subresource: the number of replicas of anything that has one, as a `Scale` of `autoscaling/v1`.
//!
//! A Scale is made of the object and its owners, written like any other object, and what became of it is brought back: the
//! replicas, and who owns them.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use hyper::{Request, Response, StatusCode};
use object_model::{
    apply::{self, FieldManager, FieldPath, Managed, OneVersion, ScaleMapping},
    codec::canonical,
    field::{Errors, Path},
    identity::{GroupKind, GroupVersionKind},
    meta::{Meta, MetaMut},
    patch::{PatchDocument, PatchKind},
    selector::LabelSelector,
    status::Status,
    value::Fields,
};
use serde_json::{Value, json};

use super::{
    Call,
    body::{self, MediaType},
    decode::{self, Strictness},
    respond,
    write::APPLY,
};
use crate::{
    body::{Body, RequestBody},
    negotiation::{Content, Negotiated},
    options::{ListOptions, Write, WriteOptions},
    registry::Change,
};

const VERSION: &str = "autoscaling/v1";

pub async fn handle(call: &Call<'_>, request: Request<RequestBody>) -> Result<Response<Body>, Status> {
    let accept = request.headers().get(hyper::header::ACCEPT).and_then(|v| v.to_str().ok());
    let encoding = Negotiated::read(accept, Content::BuiltIn)?.encoding;
    let registry = &call.server.registry;
    let object = match call.info.verb {
        "get" => {
            let version = ListOptions::read(&call.query)?.resource_version;
            registry.get(&call.target(), &version).await?.object(&call.resource.kind)
        }
        verb => {
            let write = match verb {
                "update" => Write::Update,
                _ if body::content_type(request.headers()) == APPLY => Write::Apply,
                _ => Write::Patch,
            };
            let options = WriteOptions::read(&call.query, write)?;
            let strictness = Strictness::new(&options, &call.context.warnings);
            let wanted = Wanted::read(write, request, &strictness).await?;
            let manager = call.field_manager(&options.field_manager);
            let mut change = Rescale { call, wanted, manager, force: options.force };
            registry.update(&call.target(), call.context, &mut change, &options).await?.object(&call.resource.kind)
        }
    };
    let scale = serde_json::to_vec(&scale_of(&object)).unwrap_or_default();
    Ok(respond::answer(StatusCode::OK, encoding, Bytes::from(scale)))
}

/// What a writer wants the scale to be.
enum Wanted {
    Scale(Value),
    Patch(PatchDocument),
    Applied(Value),
}

impl Wanted {
    async fn read(write: Write, request: Request<RequestBody>, strictness: &Strictness<'_>) -> Result<Self, Status> {
        let content_type = body::content_type(request.headers()).to_owned();
        let media = MediaType::of(request.headers());
        let bytes = body::read(request.into_body()).await?;
        match write {
            Write::Update => {
                return Ok(Self::Scale(decode::plain("autoscaling", "v1", "Scale", media?, &bytes, strictness)?));
            }
            Write::Apply => return Ok(Self::Applied(decode::applied(&bytes, strictness)?)),
            _ => {}
        }
        let known: Vec<&str> = PatchKind::ALL.iter().map(|k| k.content_type()).chain([APPLY]).collect();
        let kind = PatchKind::from_content_type(&content_type).ok_or_else(|| Status::unsupported_media_type(&known))?;
        Ok(Self::Patch(decode::patch(kind, &bytes, strictness)?))
    }
}

struct Rescale<'a> {
    call: &'a Call<'a>,
    wanted: Wanted,
    manager: &'a str,
    force: bool,
}

impl Rescale<'_> {
    /// The Scale as it is to be, with its owners, of the one that is there.
    fn rescaled(&self, live: &Value) -> Result<Value, Status> {
        let schema = decode::schema_of("autoscaling", "v1", "Scale")?;
        let kind = GroupVersionKind::new("autoscaling", "v1", "Scale");
        let owners = FieldManager {
            schema: &schema,
            kind: &kind,
            api_version: VERSION,
            subresource: "scale",
            versions: &OneVersion,
        };
        let now = self.call.server.registry.clock.seconds().to_string();
        let canonical = |mut scale: Value| match canonical::canonicalise(&schema, &mut scale) {
            Ok(_) => Ok(scale),
            Err(error) => Err(Status::bad_request(error.to_string())),
        };
        let new = match (&self.wanted, live) {
            (Wanted::Applied(applied), _) => {
                let result = owners.on_apply(Some(live), applied, self.manager, self.force, &now);
                return canonical(result.map_err(|e| e.status())?.object);
            }
            (Wanted::Patch(patch), Value::Object(fields)) => {
                canonical(patch.apply(schema.root(), fields.clone()).map_err(|e| e.status())?)?
            }
            (Wanted::Patch(_), _) => return Err(Status::internal("no scale")),
            (Wanted::Scale(scale), _) => scale.clone(),
        };
        Ok(owners.on_update(Some(live), new, self.manager, &now))
    }
}

#[async_trait]
impl Change for Rescale<'_> {
    async fn apply(&mut self, current: Option<&Value>) -> Result<Value, Status> {
        let Some(current) = current else {
            return Err(Status::not_found(&self.call.resource.group_resource(), &self.call.info.name));
        };
        let version = self.call.resource.stored_api_version();
        let replicas = [(&*version, Some(FieldPath::of_fields(&["spec", "replicas"])))];
        let mapping = ScaleMapping { api_version: &version, replicas: &replicas };
        let parents = apply::managed_of(current).map_err(Status::internal)?;
        let mut live = scale_of(current);
        set_owners(&mut live, mapping.to_scale(&parents));
        let scale = self.rescaled(&live)?;
        validate(&self.call.info.name, &scale)?;
        let given = Meta::of(&scale);
        if !given.uid().is_empty() && given.uid() != Meta::of(current).uid() {
            let why = format!(
                "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                given.uid(),
                Meta::of(current).uid()
            );
            return Err(Status::conflict(&self.call.resource.group_resource(), &self.call.info.name, why));
        }
        let mut object = current.clone();
        let replicas = scale.field("spec").and_then(|s| s.int("replicas")).unwrap_or_default();
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("replicas".into(), replicas.into());
        }
        if let Some(fields) = object.as_object_mut() {
            let version = given.resource_version();
            let version = if version.is_empty() { Meta::of(current).resource_version() } else { version };
            MetaMut::of(fields).set_resource_version(version);
        }
        let owners = apply::managed_of(&scale).map_err(Status::internal)?;
        set_owners(&mut object, mapping.to_parent(parents, &owners));
        Ok(object)
    }
}

fn set_owners(object: &mut Value, owners: Managed) {
    if let Some(fields) = object.as_object_mut() {
        let list = owners.encode().and_then(|list| list.as_array().cloned()).unwrap_or_default();
        MetaMut::of(fields).set_list("managedFields", list);
    }
}

fn validate(name: &str, scale: &Value) -> Result<(), Status> {
    let mut errors = Errors::new();
    let root = Path::root();
    if Meta::of(scale).name() != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            Meta::of(scale).name()
        )));
    }
    let replicas = scale.field("spec").and_then(|s| s.int("replicas")).unwrap_or_default();
    if replicas < 0 {
        let spec = root.child("spec");
        errors.invalid(&spec.child("replicas"), replicas, "must be greater than or equal to 0");
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(&GroupKind::new("autoscaling", "Scale"), name, &errors))
    }
}

/// The scale of an object that has replicas.
fn scale_of(object: &Value) -> Value {
    let meta = Meta::of(object);
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta.get(field) {
            metadata[field] = value.clone();
        }
    }
    let at = |path: &[&str]| object.at(path).and_then(Value::as_i64).unwrap_or_default();
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": VERSION,
        "metadata": metadata,
        "spec": {},
        "status": {"replicas": at(&["status", "replicas"])},
    });
    if at(&["spec", "replicas"]) != 0 {
        scale["spec"]["replicas"] = at(&["spec", "replicas"]).into();
    }
    let selector = selector_text(object.at(&["spec", "selector"]));
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

/// A label selector, or the plain map that a ReplicationController has, as text.
fn selector_text(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return String::new() };
    if selector.has("matchLabels") || selector.has("matchExpressions") {
        return LabelSelector::from_object(selector).map(|s| s.to_string()).unwrap_or_default();
    }
    let pairs: BTreeMap<&str, &str> = selector
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
        .collect();
    pairs.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(",")
}
