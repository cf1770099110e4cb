//! What controllers ask of pods.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference},
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Resource,
    api::ObjectMeta,
    core::{Selector, SelectorExt},
};

/// The longest name an object may have.
const LONGEST_NAME: usize = 253;

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
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
        Some(since) => since.is_some_and(|since| since + seconds(min_ready_seconds) <= now),
    }
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
