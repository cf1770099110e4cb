//! Binding pods to nodes: the scheduler's verdict.

use async_trait::async_trait;
use hyper::{Request, Response};
use object_model::{
    identity::{GroupKind, GroupResource},
    meta::{Meta, MetaMut},
    status::Status,
    value::Fields,
};
use serde_json::{Value, json};

use super::{
    Call,
    body::{self, MediaType},
    decode::{self, Strictness},
    respond,
};
use crate::{
    admission::{Attributes, Operation},
    body::{Body, RequestBody},
    catalogue::Served,
    options::{Write, WriteOptions},
    registry::Change,
    request_info::RequestInfo,
};

/// The body of a POST to a pod, which is of a kind of its own.
pub(super) async fn read(
    call: &Call<'_>,
    request: Request<RequestBody>,
    (group, kind): (&str, &str),
) -> Result<(Value, WriteOptions), Status> {
    let options = WriteOptions::read(&call.query, Write::Create)?;
    let media = MediaType::of(request.headers())?;
    let bytes = body::read(request.into_body()).await?;
    let strictness = Strictness::new(&options, &call.context.warnings);
    Ok((decode::plain(group, "v1", kind, media, &bytes, &strictness)?, options))
}

/// `pods/NAME/binding`.
pub async fn bind(call: &Call<'_>, request: Request<RequestBody>) -> Result<Response<Body>, Status> {
    let (binding, options) = read(call, request, ("", "Binding")).await?;
    let name = Meta::of(&binding).name();
    if !name.is_empty() && name != call.info.name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    assign(call, binding, &options).await
}

/// `bindings`: the same, of the pod that has the binding's name.
pub async fn bind_by_name(
    call: &Call<'_>,
    served: &Served,
    request: Request<RequestBody>,
) -> Result<Response<Body>, Status> {
    let (binding, options) = read(call, request, ("", "Binding")).await?;
    let name = Meta::of(&binding).name().to_owned();
    if name.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
    let pods = served.find("", "v1", "pods").ok_or_else(Status::path_not_found)?.clone();
    let info = RequestInfo { resource: "pods".into(), subresource: "binding".into(), name, ..call.info.clone() };
    let call = Call { info: &info, resource: pods, query: call.query.clone(), ..*call };
    assign(&call, binding, &options).await
}

async fn assign(call: &Call<'_>, mut binding: Value, options: &WriteOptions) -> Result<Response<Body>, Status> {
    let (target, registry) = (call.target(), &call.server.registry);
    let (context, dry_run) = (call.context, options.dry_run);
    let attributes = Attributes { operation: Operation::Create, target: &target, old: None, context, dry_run };
    registry.admission.mutate(&attributes, &mut binding).await?;
    let name = &call.info.name;
    let errors = api::validation::Field::check(&binding, api::kinds::core::pod::validate_binding);
    if !errors.is_empty() {
        return Err(Status::invalid(&GroupKind::new("", "Binding"), name, &errors));
    }
    registry.admission.validate(&attributes, &binding).await?;
    let mut change = Bind { call, binding: &binding };
    registry.update(&target, &context.admitted(), &mut change, options).await?;
    let mut status = Status::success(None);
    status.code = 201;
    Ok(respond::status(&status))
}

struct Bind<'a> {
    call: &'a Call<'a>,
    binding: &'a Value,
}

#[async_trait]
impl Change for Bind<'_> {
    async fn apply(&mut self, current: Option<&Value>) -> Result<Value, Status> {
        let name = &self.call.info.name;
        let Some(current) = current else { return Err(Status::not_found(&GroupResource::new("", "pods"), name)) };
        let refused = |why: String| Err(Status::conflict(&GroupResource::new("", "pods/binding"), name, why));
        let (wanted, meta) = (Meta::of(self.binding), Meta::of(current));
        if !wanted.uid().is_empty() && wanted.uid() != meta.uid() {
            return refused(format!(
                "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                wanted.uid(),
                meta.uid()
            ));
        }
        let version = wanted.resource_version();
        if !version.is_empty() && version != meta.resource_version() {
            return refused(format!(
                "Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta: {}",
                meta.resource_version()
            ));
        }
        let node = current.text_at(&["spec", "nodeName"]);
        if meta.is_deleting() {
            return refused(format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        if !node.is_empty() {
            return refused(format!("pod {name} is already assigned to node {node:?}"));
        }
        if current.at(&["spec", "schedulingGates"]).is_some_and(|g| g.as_array().is_some_and(|g| !g.is_empty())) {
            return refused(format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        let mut pod = current.clone();
        pod["spec"]["nodeName"] = self.binding.text_at(&["target", "name"]).into();
        if let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) {
            status.remove("nominatedNodeName");
        }
        if let Some(fields) = pod.as_object_mut() {
            let mut meta = MetaMut::of(fields);
            wanted.annotations().iter().for_each(|(key, value)| meta.set_annotation(key, value));
            wanted.labels().iter().for_each(|(key, value)| meta.set_label(key, value));
        }
        let now = self.call.server.registry.clock.seconds().to_string();
        set_condition(&mut pod, json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now}));
        Ok(pod)
    }
}

/// Sets a condition of a pod; the time of its last transition stays if its status does.
pub(super) fn set_condition(pod: &mut Value, mut condition: Value) {
    if condition.get("lastProbeTime").is_none() {
        condition["lastProbeTime"] = Value::Null;
    }
    let kind = condition.text("type").to_owned();
    if !pod["status"].is_object() {
        pod["status"] = json!({});
    }
    let conditions = &mut pod["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return };
    match list.iter_mut().find(|c| c.text("type") == kind) {
        Some(known) => {
            if known.text("status") == condition.text("status")
                && let Some(since) = known.get("lastTransitionTime").cloned()
            {
                condition["lastTransitionTime"] = since;
            }
            *known = condition;
        }
        None => list.push(condition),
    }
}
