//! What controllers ask of pods.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{Pod, PodCondition, PodTemplateSpec, Taint, Toleration},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference, Time},
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api, Resource,
    api::{ObjectMeta, Patch, PatchParams},
    core::{Selector, SelectorExt},
};
use serde_json::{Value, json};

/// The condition of a pod that goes for want of the place it is in.
pub const DISRUPTED: &str = "DisruptionTarget";
/// The longest name an object may have.
const LONGEST_NAME: usize = 253;

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// The node of a pod, empty while it has none.
pub fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// The name of the index [`by_node`].
pub const NODE: &str = "node";

/// Pods by the node they are bound to.
pub fn by_node(pod: &Pod) -> Vec<String> {
    Some(node(pod)).filter(|node| !node.is_empty()).map(str::to_owned).into_iter().collect()
}

/// The condition that says that it is not a pod's own fault that it goes, or `None` if it has it.
pub fn disrupted(pod: &Pod, reason: &str, message: &str, now: Time) -> Option<PodCondition> {
    let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    let said = conditions.into_iter().find(|found| found.type_ == DISRUPTED && found.status == "True");
    let facts =
        |said: &PodCondition| (said.reason.as_deref(), said.message.as_deref()) == (Some(reason), Some(message));
    if said.is_some_and(facts) {
        return None;
    }
    Some(PodCondition {
        type_: DISRUPTED.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        observed_generation: pod.metadata.generation,
        last_transition_time: said.map_or(Some(now), |said| said.last_transition_time.clone()),
        ..PodCondition::default()
    })
}

/// Changes the status of this very pod.
pub async fn patch_status(api: &Api<Pod>, pod: &Pod, status: Value) -> kube::Result<Pod> {
    let change = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    api.patch_status(name, &PatchParams::default(), &Patch::Strategic(change)).await
}

/// Whether a pod does, or will do, what it is for.
pub fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

pub fn is_terminating(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_some()
}

/// Since when a pod is ready, if it is. The time may be missing.
pub fn ready(pod: &Pod) -> Option<Option<Timestamp>> {
    let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    Some(ready.last_transition_time.as_ref().map(|time| time.0))
}

/// Whether a pod has been ready for long enough.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    match ready(pod) {
        None => false,
        Some(_) if min_ready_seconds == 0 => true,
        Some(since) => since.is_some_and(|since| now.duration_since(since) >= seconds(min_ready_seconds)),
    }
}

/// How long until the next of the pods that are ready has been so for long enough.
pub fn until_available(pods: &[Arc<Pod>], min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    let waiting = pods.iter().filter(|pod| !is_available(pod, min_ready_seconds, now)).filter_map(|pod| ready(pod)?);
    let soonest = waiting.map(|since| seconds(min_ready_seconds).saturating_sub(now.duration_since(since))).min()?;
    Some(Duration::try_from(soonest).unwrap_or_default())
}

pub fn seconds(seconds: i32) -> SignedDuration {
    SignedDuration::from_secs(i64::from(seconds))
}

/// What a selector selects. One that cannot be read selects nothing.
pub fn selector(selector: &LabelSelector) -> impl Fn(&ObjectMeta) -> bool + use<> {
    let selector = Selector::try_from(selector.clone()).ok();
    let none = BTreeMap::new();
    move |meta| selector.as_ref().is_some_and(|selector| selector.matches(meta.labels.as_ref().unwrap_or(&none)))
}

/// A new pod of a template, whose name begins with its owner's.
pub fn from_template<O: Resource>(template: &PodTemplateSpec, owner: &O, reference: OwnerReference) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    let name = owner.meta().name.as_deref().unwrap_or_default();
    let dash = if name.len() < LONGEST_NAME { "-" } else { "" };
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}{dash}")),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![reference]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Whether a toleration is about a taint. An operator that is not known here tolerates nothing.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let said = |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(str::to_owned);
    let fits = |wanted: Option<String>, is: &str| wanted.is_none_or(|wanted| wanted == is);
    fits(said(&toleration.effect), &taint.effect)
        && fits(said(&toleration.key), &taint.key)
        && match said(&toleration.operator).as_deref() {
            None | Some("Equal") => said(&toleration.value) == said(&taint.value),
            Some(operator) => operator == "Exists",
        }
}
