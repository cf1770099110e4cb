//! POST, PUT and PATCH: each is a [`Change`] that the registry carries out.

use async_trait::async_trait;
use bytes::BytesMut;
use hyper::{Request, Response, StatusCode};
use object_model::{
    meta::{Meta, MetaMut},
    patch::{PatchDocument, PatchKind},
    status::{Reason, Status},
};
use serde_json::Value;

use super::{
    Call,
    body::{self, MediaType},
    decode::{self, Strictness},
    read,
    respond::{self, Encoded, Writer},
};
use crate::{
    body::{Body, RequestBody},
    conversion,
    negotiation::Encoding,
    options::{Write, WriteOptions},
    ownership,
    registry::{Answer, Change, owners},
};

pub(super) const APPLY: &str = "application/apply-patch+yaml";

pub async fn create(call: &Call<'_>, request: Request<RequestBody>) -> Result<Response<Body>, Status> {
    let (encoding, writer) = read::negotiate(call, request.headers(), None)?;
    let options = WriteOptions::read(&call.query, Write::Create)?;
    let media = MediaType::of(request.headers())?;
    let bytes = body::read(request.into_body()).await?;
    let strictness = Strictness::new(&options, &call.context.warnings);
    let mut object = decode::object(&call.resource, media, &bytes, &strictness)?;
    refuse_version(&object, &options)?;
    wipe_system_fields(&mut object);
    owners::told_once(&mut object, owners::When::Asked, &call.context.warnings);
    let manager = call.field_manager(&options.field_manager);
    let now = call.server.registry.clock.seconds().to_string();
    let object = ownership::on_update(&call.target(), None, object, manager, &now);
    let answer = call.server.registry.create(&call.target(), call.context, object, &options).await?;
    Ok(written(answer, encoding, &writer))
}

pub async fn update(call: &Call<'_>, request: Request<RequestBody>) -> Result<Response<Body>, Status> {
    let (encoding, writer) = read::negotiate(call, request.headers(), None)?;
    let options = WriteOptions::read(&call.query, Write::Update)?;
    let media = MediaType::of(request.headers())?;
    let bytes = body::read(request.into_body()).await?;
    let strictness = Strictness::new(&options, &call.context.warnings);
    let mut object = decode::object(&call.resource, media, &bytes, &strictness)?;
    check_name(call, &object)?;
    owners::told_once(&mut object, owners::When::Asked, &call.context.warnings);
    let mut change = Replace { call, object, manager: call.field_manager(&options.field_manager) };
    let answer = call.server.registry.update(&call.target(), call.context, &mut change, &options).await?;
    Ok(written(answer, encoding, &writer))
}

pub async fn patch(call: &Call<'_>, request: Request<RequestBody>) -> Result<Response<Body>, Status> {
    let (encoding, writer) = read::negotiate(call, request.headers(), None)?;
    let content_type = body::content_type(request.headers()).to_owned();
    let write = if content_type == APPLY { Write::Apply } else { Write::Patch };
    let kind = PatchKind::from_content_type(&content_type);
    let accepted = PatchKind::accepted(call.resource.custom);
    if write == Write::Patch && !kind.is_some_and(|k| accepted.contains(&k)) {
        let mut known: Vec<&str> = accepted.iter().map(|k| k.content_type()).collect();
        known.push(APPLY);
        return Err(Status::unsupported_media_type(&known));
    }
    let options = WriteOptions::read(&call.query, write)?;
    let bytes = body::read(request.into_body()).await?;
    let registry = &call.server.registry;
    let answer = match kind {
        Some(kind) => {
            let strictness = Strictness::new(&options, &call.context.warnings);
            let document = decode::patch(kind, &bytes, &strictness)?;
            let manager = call.field_manager(&options.field_manager);
            let mut change = Patch { call, document, strictness, manager };
            registry.update(&call.target(), call.context, &mut change, &options).await?
        }
        None => {
            let strictness = Strictness::new(&options, &call.context.warnings);
            let applied = decode::applied(&bytes, &strictness)?;
            let mut change = Apply { call, applied, options: &options };
            registry.update(&call.target(), call.context, &mut change, &options).await?
        }
    };
    Ok(written(answer, encoding, &writer))
}

fn written(answer: Answer, encoding: Encoding, writer: &Writer) -> Response<Body> {
    let code = if answer.created { StatusCode::CREATED } else { StatusCode::OK };
    let mut out = BytesMut::with_capacity(answer.body.len() + 128);
    writer.object(Encoded { api_version: &answer.api_version, body: &answer.body }, &mut out);
    respond::answer(code, encoding, out.freeze())
}

/// PUT: the body is the new object.
struct Replace<'a> {
    call: &'a Call<'a>,
    object: Value,
    manager: &'a str,
}

#[async_trait]
impl Change for Replace<'_> {
    async fn apply(&mut self, current: Option<&Value>) -> Result<Value, Status> {
        let (wanted, found) = (Meta::of(&self.object).uid(), current.map_or("", |current| Meta::of(current).uid()));
        if !wanted.is_empty() && wanted != found {
            return Err(uid_conflict(self.call, wanted, found));
        }
        if current.is_none() {
            self.call.permit("create").await?;
        }
        let now = self.call.server.registry.clock.seconds().to_string();
        Ok(ownership::on_update(&self.call.target(), current, self.object.clone(), self.manager, &now))
    }

    fn creates(&self) -> bool {
        self.call.resource.strategy.create_on_update && self.call.info.subresource.is_empty()
    }
}

/// PATCH by JSON patch, merge patch or strategic merge patch.
struct Patch<'a> {
    call: &'a Call<'a>,
    document: PatchDocument,
    strictness: Strictness<'a>,
    manager: &'a str,
}

#[async_trait]
impl Change for Patch<'_> {
    async fn apply(&mut self, current: Option<&Value>) -> Result<Value, Status> {
        let Some(current) = current else {
            return Err(Status::not_found(&self.call.resource.group_resource(), &self.call.info.name));
        };
        let mut versioned = current.clone();
        conversion::convert(&mut versioned, &self.call.resource.api_version());
        let Value::Object(fields) = versioned else { return Err(Status::internal("the stored object is not one")) };
        let patched = self.document.apply(self.call.resource.schema.root(), fields).map_err(|error| error.status())?;
        let object = decode::patched(&self.call.resource, &self.document, patched, &self.strictness)?;
        check_name(self.call, &object)?;
        let now = self.call.server.registry.clock.seconds().to_string();
        Ok(ownership::on_update(&self.call.target(), Some(current), object, self.manager, &now))
    }
}

/// PATCH by server-side apply.
struct Apply<'a> {
    call: &'a Call<'a>,
    applied: Value,
    options: &'a WriteOptions,
}

#[async_trait]
impl Change for Apply<'_> {
    async fn apply(&mut self, current: Option<&Value>) -> Result<Value, Status> {
        let now = self.call.server.registry.clock.seconds().to_string();
        let (manager, force) = (self.options.field_manager.as_str(), self.options.force);
        let object = ownership::on_apply(&self.call.target(), current, &self.applied, manager, force, &now)?;
        let object = decode::applied_object(&self.call.resource, &self.applied, object)?;
        if current.is_none() && !Meta::of(&object).uid().is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                Meta::of(&object).uid()
            );
            return Err(Status::conflict(&self.call.resource.group_resource(), &self.call.info.name, why));
        }
        check_name(self.call, &object)?;
        if current.is_none() {
            self.call.permit("create").await?;
        }
        Ok(object)
    }

    fn creates(&self) -> bool {
        self.call.info.subresource.is_empty()
    }
}

/// The object's name must be the one in the path.
fn check_name(call: &Call<'_>, object: &Value) -> Result<(), Status> {
    let meta = Meta::of(object);
    let (name, wanted) = (meta.name(), call.info.name.as_str());
    if name.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != wanted {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        )));
    }
    Ok(())
}

fn uid_conflict(call: &Call<'_>, given: &str, found: &str) -> Status {
    let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {found}");
    Status::conflict(&call.resource.group_resource(), &call.info.name, why)
}

/// A new object has no version yet; one that was read elsewhere has, and may be meant to replace something.
fn refuse_version(object: &Value, options: &WriteOptions) -> Result<(), Status> {
    let given = Meta::of(object).resource_version().parse::<u64>();
    if options.dry_run || !given.is_ok_and(|version| version > 0) {
        return Ok(());
    }
    let message = "resourceVersion should not be set on objects to be created";
    Err(Status::failure(500, Reason::UNKNOWN, message, None))
}

/// What only the server sets is not taken from a new object.
pub(super) fn wipe_system_fields(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    let mut meta = MetaMut::of(fields);
    for field in
        ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"]
    {
        meta.remove(field);
    }
}
