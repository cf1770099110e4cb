//! `pods/NAME/eviction`: a deletion that respects disruption budgets.
//!
//! A pod that counts is taken out of its budget first. One that does not (it has not begun, has ended or is not ready) goes
//! without, but only as it was when that was found: if it changed meanwhile, it is judged again.

use std::time::Duration;

use async_trait::async_trait;
use hyper::{Request, Response};
use object_model::{
    identity::GroupResource,
    meta::Meta,
    selector::LabelSelector,
    status::{Cause, Details, Reason, Status},
    value::Fields,
};
use serde_json::{Value, json};

use super::{
    Call,
    pods::{read, set_condition},
    respond,
};
use crate::{
    body::{Body, RequestBody},
    catalogue::Target,
    options::WriteOptions,
    registry::{Change, DeleteOptions, Items, Preconditions, Selection},
};

/// The pods that a budget has let go but that are still there, at the most.
const MOST_DISRUPTED: usize = 2000;
/// How often a pod is looked at anew that changes while it is to go, and how long after.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);
/// When to try again after a budget that is not up to date.
const RETRY_SECONDS: i32 = 10;
/// The condition of a budget that says whether another pod may go.
const ALLOWED: &str = "DisruptionAllowed";

pub async fn evict(call: &Call<'_>, request: Request<RequestBody>) -> Result<Response<Body>, Status> {
    let (eviction, options) = read(call, request, ("policy", "Eviction")).await?;
    if Meta::of(&eviction).name() != call.info.name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let strategy = &api::kinds::policy::eviction::STRATEGY;
    let eviction = call.server.registry.ask(&call.target(), strategy, call.context, eviction, &options).await?;
    let mut delete: DeleteOptions = match eviction.field("deleteOptions") {
        Some(options) => serde_json::from_value(options.clone()).map_err(|e| Status::bad_request(e.to_string()))?,
        None => DeleteOptions::default(),
    };
    if options.dry_run && !delete.is_dry_run() {
        delete.dry_run = vec!["All".to_owned()];
    }
    let asked = delete.preconditions.clone().unwrap_or_default();
    let target = Target { subresource: "", ..call.target() };
    let mut tries = 0;
    loop {
        let pod = call.server.registry.get(&target, "").await?.object(&call.resource.kind);
        let verdict = judge(call, &pod, delete.is_dry_run()).await?;
        let mut delete = delete.clone();
        let preconditions = delete.preconditions.get_or_insert_with(Preconditions::default);
        preconditions.uid.get_or_insert_with(|| Meta::of(&pod).uid().to_owned());
        if !matches!(verdict, MayGo::Anyway) {
            preconditions.resource_version.get_or_insert_with(|| Meta::of(&pod).resource_version().to_owned());
        }
        // It never becomes another one.
        let is_another = asked.uid.as_deref().is_some_and(|uid| uid != Meta::of(&pod).uid());
        tries += 1;
        let goes_on = !is_another && asked.resource_version.is_none() && tries < TRIES;
        match (mark_and_delete(call, &target, delete).await, verdict) {
            (Err(status), _) if !goes_on || !status.is(Reason::CONFLICT) => return Err(status),
            (Err(_), MayGo::Unbegun) => tokio::time::sleep(PAUSE).await,
            (Err(_), MayGo::Unready { budget }) => return Err(still_processed(&budget)),
            (Err(status), MayGo::Anyway) => return Err(status),
            (Ok(()), _) => {
                let mut status = Status::success(None);
                status.code = 201;
                return Ok(respond::status(&status));
            }
        }
    }
}

/// Why a pod may go.
enum MayGo {
    /// Whatever becomes of it: its budget has let it go, or nobody misses it.
    Anyway,
    /// As long as it has not begun.
    Unbegun,
    /// As long as it is not ready.
    Unready { budget: String },
}

/// Whether a pod may go; a budget that it counts for is spent.
async fn judge(call: &Call<'_>, pod: &Value, dry_run: bool) -> Result<MayGo, Status> {
    match pod.text_at(&["status", "phase"]) {
        "Succeeded" | "Failed" => return Ok(MayGo::Anyway),
        _ if Meta::of(pod).is_deleting() => return Ok(MayGo::Anyway),
        "Pending" => return Ok(MayGo::Unbegun),
        _ => {}
    }
    let Some(budget) = budget_of(call, pod).await? else { return Ok(MayGo::Anyway) };
    if is_spare(pod, &budget) {
        return Ok(MayGo::Unready { budget: Meta::of(&budget).name().to_owned() });
    }
    spend(call, pod, &budget, dry_run).await?;
    Ok(MayGo::Anyway)
}

/// Says on the pod why it goes, and deletes it.
async fn mark_and_delete(call: &Call<'_>, target: &Target<'_>, mut delete: DeleteOptions) -> Result<(), Status> {
    let registry = &call.server.registry;
    if !delete.is_dry_run() {
        let condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": registry.clock.seconds().to_string(),
        });
        let preconditions = delete.preconditions.clone().unwrap_or_default();
        let status = Target { subresource: "status", ..*target };
        let mut mark = Mark { target, condition, preconditions };
        let marked = registry.update(&status, call.context, &mut mark, &WriteOptions::default()).await?;
        // Its version has changed since, by ourselves.
        if let Some(version) = delete.preconditions.as_mut().and_then(|p| p.resource_version.as_mut()) {
            *version = Meta::of(&marked.object(&call.resource.kind)).resource_version().to_owned();
        }
    }
    registry.delete(target, call.context, &delete).await.map(drop)
}

/// Sets a condition of a pod that is as it should be.
struct Mark<'a> {
    target: &'a Target<'a>,
    condition: Value,
    preconditions: Preconditions,
}

#[async_trait]
impl Change for Mark<'_> {
    async fn apply(&mut self, current: Option<&Value>) -> Result<Value, Status> {
        let Some(current) = current else { return Err(Status::internal("the pod is gone")) };
        self.preconditions.check(self.target, current)?;
        let mut pod = current.clone();
        set_condition(&mut pod, self.condition.clone());
        Ok(pod)
    }
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
            return Err(still_processed(meta.name()));
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
            0 => return Err(refused(why_none(current), 0)),
            _ => {}
        }
        let mut budget = current.clone();
        let left = status("disruptionsAllowed") - 1;
        budget["status"]["disruptionsAllowed"] = left.into();
        if left == 0 {
            close(&mut budget, &self.now);
        }
        budget["status"]["disruptedPods"][&self.pod] = self.now.as_str().into();
        Ok(budget)
    }
}

/// Says on a budget that nothing is left of it.
fn close(budget: &mut Value, now: &str) {
    let generation = budget.at(&["status", "observedGeneration"]).cloned().unwrap_or_default();
    let conditions = &mut budget["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return };
    let known = list.iter().position(|c| c.text("type") == ALLOWED);
    let since =
        known.and_then(|at| (list[at].text("status") == "False").then(|| list[at]["lastTransitionTime"].clone()));
    let condition = json!({
        "type": ALLOWED, "status": "False", "reason": "InsufficientPods", "message": "",
        "observedGeneration": generation, "lastTransitionTime": since.unwrap_or_else(|| now.into()),
    });
    match known {
        Some(at) => list[at] = condition,
        None => list.push(condition),
    }
}

/// Why a budget lets no pod go.
fn why_none(budget: &Value) -> String {
    let name = Meta::of(budget).name();
    let conditions = budget.field("status").map(|s| s.items("conditions")).unwrap_or_default();
    let told = conditions.iter().find(|c| c.text("type") == ALLOWED && c.text("status") == "False");
    let told = told.map(|c| (c.text("reason"), c.text("message"))).filter(|(_, message)| !message.is_empty());
    let count = |field| budget.at(&["status", field]).and_then(Value::as_i64).unwrap_or_default();
    let (desired, healthy) = (count("desiredHealthy"), count("currentHealthy"));
    match told {
        Some(("SyncFailed", message)) => {
            format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
            )
        }
        _ if healthy <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
        }
        Some((reason, message)) => {
            format!("The disruption budget {name} does not allow evicting pods currently ({reason}): {message}")
        }
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

fn still_processed(budget: &str) -> Status {
    refused(format!("The disruption budget {budget} is still being processed by the server."), RETRY_SECONDS)
}

/// The budget does not allow it now; later it may.
fn refused(why: String, retry_after_seconds: i32) -> Status {
    let cause = Cause { reason: "DisruptionBudget".into(), message: why, field: String::new() };
    let details = Details { causes: vec![cause], retry_after_seconds, ..Details::default() };
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    Status::failure(429, Reason::TOO_MANY_REQUESTS, message, Some(details))
}
