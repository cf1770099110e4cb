//! What is done to pods by a POST of something else: binding to a node, and eviction.

use async_trait::async_trait;
use hyper::{Request, Response, StatusCode};
use object_model::{
    identity::{GroupKind, GroupResource},
    meta::{Meta, MetaMut},
    selector::LabelSelector,
    status::{Cause, Details, Reason, Status},
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
    catalogue::{Served, Target},
    options::{Write, WriteOptions},
    registry::{Change, DeleteOptions, Items, Preconditions, Selection},
    request_info::RequestInfo,
};

/// The pods that a budget has let go but that are still there, at the most.
const MOST_DISRUPTED: usize = 2000;
/// When to try again after a budget refused.
const RETRY_SECONDS: i32 = 10;

async fn read(
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

/// `pods/NAME/binding`: the scheduler's verdict.
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
fn set_condition(pod: &mut Value, mut condition: Value) {
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

/// `pods/NAME/eviction`: a deletion that respects disruption budgets.
pub async fn evict(call: &Call<'_>, request: Request<RequestBody>) -> Result<Response<Body>, Status> {
    let (eviction, options) = read(call, request, ("policy", "Eviction")).await?;
    let name = call.info.name.as_str();
    if Meta::of(&eviction).name() != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let strategy = &api::kinds::policy::eviction::STRATEGY;
    let eviction = call.server.registry.ask(&call.target(), strategy, call.context, eviction, &options).await?;
    let context = &call.context.admitted();
    let mut delete: DeleteOptions = match eviction.field("deleteOptions") {
        Some(options) => serde_json::from_value(options.clone()).map_err(|e| Status::bad_request(e.to_string()))?,
        None => DeleteOptions::default(),
    };
    if options.dry_run && !delete.is_dry_run() {
        delete.dry_run = vec!["All".to_owned()];
    }
    let registry = &call.server.registry;
    let target = Target { subresource: "", ..call.target() };
    let pod = registry.get(&target, "").await?.object(&call.resource.kind);
    let guarded = !may_go(&pod);
    if guarded && let Some(budget) = budget_of(call, &pod).await? {
        if !is_spare(&pod, &budget) {
            spend(call, &pod, &budget, delete.is_dry_run()).await?;
        }
        // Not if it changed since it was judged.
        let preconditions = delete.preconditions.get_or_insert_with(Preconditions::default);
        preconditions.uid.get_or_insert_with(|| Meta::of(&pod).uid().to_owned());
    }
    if !delete.is_dry_run() {
        let condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": registry.clock.seconds().to_string(),
        });
        let mut mark = Mark { condition };
        let status = Target { subresource: "status", ..target };
        registry.update(&status, context, &mut mark, &WriteOptions::default()).await?;
    }
    registry.delete(&target, context, &delete).await?;
    let mut status = Status::success(None);
    status.code = i32::from(StatusCode::CREATED.as_u16());
    Ok(respond::status(&status))
}

/// Sets a condition of a pod.
struct Mark {
    condition: Value,
}

#[async_trait]
impl Change for Mark {
    async fn apply(&mut self, current: Option<&Value>) -> Result<Value, Status> {
        let Some(current) = current else { return Err(Status::internal("the pod is gone")) };
        let mut pod = current.clone();
        set_condition(&mut pod, self.condition.clone());
        Ok(pod)
    }
}

/// Nobody misses a pod that has ended, has not begun or is on its way out.
fn may_go(pod: &Value) -> bool {
    matches!(pod.text_at(&["status", "phase"]), "Succeeded" | "Failed" | "Pending") || Meta::of(pod).is_deleting()
}

/// The one budget that guards a pod.
async fn budget_of(call: &Call<'_>, pod: &Value) -> Result<Option<Value>, Status> {
    let served = call.server.catalogue.served();
    let Some(resource) = served.find("policy", "v1", "poddisruptionbudgets") else { return Ok(None) };
    let namespace = call.info.namespace.as_str();
    let target = Target { resource, subresource: "", namespace, name: "" };
    let selection = Selection::new(&target, &Default::default())?;
    let (snapshot, _) = call.server.registry.cache.snapshot(&resource.cache);
    let prefix = selection.prefix();
    let mut found = Vec::new();
    Items::Snapshot { snapshot, prefix, after: None, selection }.each(|entry| {
        let budget = entry.object(&resource.kind);
        let selector = budget.at(&["spec", "selector"]).and_then(|s| LabelSelector::from_object(s).ok());
        if selector.is_some_and(|s| s.matches_object(pod)) {
            found.push(budget);
        }
        true
    });
    if found.len() > 1 {
        let message =
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(Status::failure(500, Reason::UNKNOWN, message, None));
    }
    Ok(found.pop())
}

/// May the pod go without the budget being spent, since it does not count as healthy anyway?
fn is_spare(pod: &Value, budget: &Value) -> bool {
    let conditions = pod.field("status").map(|s| s.items("conditions")).unwrap_or_default();
    if conditions.iter().any(|c| c.text("type") == "Ready" && c.text("status") == "True") {
        return false;
    }
    let status = |field| budget.at(&["status", field]).and_then(Value::as_i64).unwrap_or_default();
    budget.text_at(&["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow"
        || (status("desiredHealthy") > 0 && status("currentHealthy") >= status("desiredHealthy"))
}

/// Takes one disruption out of a budget, or says why it cannot be had.
async fn spend(call: &Call<'_>, pod: &Value, budget: &Value, dry_run: bool) -> Result<(), Status> {
    let served = call.server.catalogue.served();
    let Some(resource) = served.find("policy", "v1", "poddisruptionbudgets") else { return Ok(()) };
    let name = Meta::of(budget).name().to_owned();
    let target = Target { resource, subresource: "status", namespace: &call.info.namespace, name: &name };
    let now = call.server.registry.clock.seconds().to_string();
    let mut change = Spend { pod: Meta::of(pod).name().to_owned(), now };
    let options = WriteOptions { dry_run, ..WriteOptions::default() };
    call.server.registry.update(&target, call.context, &mut change, &options).await.map(drop)
}

struct Spend {
    pod: String,
    now: String,
}

#[async_trait]
impl Change for Spend {
    async fn apply(&mut self, current: Option<&Value>) -> Result<Value, Status> {
        let Some(current) = current else { return Err(Status::internal("the disruption budget is gone")) };
        let meta = Meta::of(current);
        let status = |field| current.at(&["status", field]).and_then(Value::as_i64).unwrap_or_default();
        if status("observedGeneration") < meta.generation() {
            return Err(refused(format!(
                "The disruption budget {} is still being processed by the server.",
                meta.name()
            )));
        }
        let disrupted = current.at(&["status", "disruptedPods"]).and_then(Value::as_object).map_or(0, |m| m.len());
        let forbidden =
            |why: &str| Status::forbidden(&GroupResource::new("policy", "poddisruptionbudget"), meta.name(), why);
        match status("disruptionsAllowed") {
            ..0 => return Err(forbidden("pdb disruptions allowed is negative")),
            _ if disrupted > MOST_DISRUPTED => {
                return Err(forbidden(
                    "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
                ));
            }
            0 => {
                return Err(refused(format!(
                    "The disruption budget {} needs {} healthy pods and has {} currently",
                    meta.name(),
                    status("desiredHealthy"),
                    status("currentHealthy")
                )));
            }
            _ => {}
        }
        let mut budget = current.clone();
        budget["status"]["disruptionsAllowed"] = (status("disruptionsAllowed") - 1).into();
        budget["status"]["disruptedPods"][&self.pod] = self.now.as_str().into();
        Ok(budget)
    }
}

/// The budget does not allow it now; later it may.
fn refused(why: String) -> Status {
    let cause = Cause { reason: "DisruptionBudget".into(), message: why, field: String::new() };
    let details = Details { causes: vec![cause], retry_after_seconds: RETRY_SECONDS, ..Details::default() };
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    Status::failure(429, Reason::TOO_MANY_REQUESTS, message, Some(details))
}
