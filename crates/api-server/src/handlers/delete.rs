//! DELETE, of one object or of a selection.

use bytes::{Bytes, BytesMut};
use hyper::{Request, Response, StatusCode};
use object_model::{
    meta::Meta,
    status::{Reason, Status},
};
use serde_json::json;

use super::{
    Call,
    body::{self, MediaType},
    decode, read,
    respond::{self, Encoded},
};
use crate::{
    body::{Body, RequestBody},
    catalogue::Target,
    options::{ListOptions, WriteOptions, boolean, integer},
    registry::{DeleteOptions, Deleted, Preconditions, Selection, deleted_status},
    request_info::pairs,
};

pub async fn delete(call: &Call<'_>, request: Request<RequestBody>) -> Result<Response<Body>, Status> {
    let (encoding, writer) = read::negotiate(call, request.headers(), None)?;
    let options = options(call, request).await?;
    let target = call.target();
    let (code, answer) = match call.server.registry.delete(&target, call.context, &options).await? {
        // Only who says so in the old way is told that it takes a while.
        Deleted::Pending(answer) if options.orphan_dependents == Some(false) => (StatusCode::ACCEPTED, answer),
        Deleted::Pending(answer) => (StatusCode::OK, answer),
        Deleted::Gone(answer) if call.resource.strategy.returns_deleted => (StatusCode::OK, answer),
        Deleted::Gone(answer) => {
            let object = answer.object(&call.resource.kind);
            return Ok(respond::status(&deleted_status(&target, Meta::of(&object).uid())));
        }
    };
    let mut out = BytesMut::new();
    writer.object(Encoded { api_version: &answer.api_version, body: &answer.body }, &mut out);
    Ok(respond::answer(code, encoding, out.freeze()))
}

/// Deletes everything that is selected, and answers with what it was.
pub async fn collection(call: &Call<'_>, request: Request<RequestBody>) -> Result<Response<Body>, Status> {
    let (encoding, _) = read::negotiate(call, request.headers(), None)?;
    let list_options = ListOptions::read(&call.query)?;
    let options = options(call, request).await?;
    let target = call.target();
    let selection = Selection::new(&target, &list_options)?;
    let registry = &call.server.registry;
    let mut list = registry.list(&target, selection, &list_options).await?;
    let mut found = Vec::new();
    list.items.each(|entry| {
        found.push(entry.clone());
        true
    });
    let mut items = Vec::with_capacity(found.len());
    for entry in found {
        let one = Target { namespace: &entry.namespace, name: &entry.name, ..target };
        let uid = Meta::of(&entry.object(&call.resource.kind)).uid().to_owned();
        // Only what was listed: an object that was made anew under the same name stays.
        let preconditions = Preconditions { uid: Some(uid), ..options.preconditions.clone().unwrap_or_default() };
        let options = DeleteOptions { preconditions: Some(preconditions), ..options.clone() };
        match registry.delete(&one, call.context, &options).await {
            Ok(Deleted::Gone(answer) | Deleted::Pending(answer)) => items.push(answer.object(&call.resource.kind)),
            Err(status) if status.is(Reason::NOT_FOUND) || status.is(Reason::CONFLICT) => {}
            Err(status) => return Err(status),
        }
    }
    let answer = json!({
        "kind": call.resource.list_kind,
        "apiVersion": call.resource.api_version(),
        "metadata": {"resourceVersion": list.revision.to_string()},
        "items": items,
    });
    Ok(respond::answer(StatusCode::OK, encoding, Bytes::from(serde_json::to_vec(&answer).unwrap_or_default())))
}

/// From the body, else from the query.
async fn options(call: &Call<'_>, request: Request<RequestBody>) -> Result<DeleteOptions, Status> {
    let media = MediaType::of(request.headers());
    let bytes = body::read(request.into_body()).await?;
    if bytes.is_empty() {
        return from_query(&call.query);
    }
    let strictness = decode::Strictness::new(&WriteOptions::default(), &call.context.warnings);
    let value = decode::plain("meta.k8s.io", "v1", "DeleteOptions", media?, &bytes, &strictness)?;
    let options: DeleteOptions =
        serde_json::from_value(value).map_err(|e| Status::bad_request(format!("bad DeleteOptions: {e}")))?;
    let dry_run = if options.dry_run.is_empty() { from_query(&call.query)?.dry_run } else { options.dry_run.clone() };
    Ok(DeleteOptions { dry_run, ..options })
}

fn from_query(query: &str) -> Result<DeleteOptions, Status> {
    let mut options = DeleteOptions::default();
    for (key, value) in pairs(query) {
        match key.as_str() {
            "gracePeriodSeconds" => options.grace_period_seconds = Some(integer(&value)?),
            "orphanDependents" => options.orphan_dependents = Some(boolean(&value)),
            "propagationPolicy" => options.propagation_policy = Some(value),
            "dryRun" => options.dry_run.push(value),
            _ => {}
        }
    }
    Ok(options)
}
