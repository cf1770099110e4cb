//! What makes a pod of a StatefulSet the one it is: its number, its name, its labels, and its claims.

use std::ops::Range;

use controller_runtime::adoption::controller_reference;
use k8s_openapi::api::{
    apps::v1::{StatefulSet, StatefulSetSpec},
    core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume},
};

use crate::{
    history::{POD_REVISION, label},
    pods,
};

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The name of the set and the number in the name of a pod.
fn parent_and_ordinal(pod: &Pod) -> Option<(&str, i32)> {
    let (parent, ordinal) = pod.metadata.name.as_deref()?.rsplit_once('-')?;
    let digits = !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| ordinal.parse().ok().map(|ordinal| (parent, ordinal)))?
}

pub fn ordinal(pod: &Pod) -> Option<i32> {
    parent_and_ordinal(pod).map(|(_, ordinal)| ordinal)
}

pub fn is_member(set: &StatefulSet, pod: &Pod) -> bool {
    parent_and_ordinal(pod).is_some_and(|(parent, _)| Some(parent) == set.metadata.name.as_deref())
}

pub fn start(spec: &StatefulSetSpec) -> i32 {
    spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0)
}

pub fn replicas(spec: &StatefulSetSpec) -> i32 {
    spec.replicas.unwrap_or(1)
}

/// The numbers that the set asks for.
pub fn numbers(spec: &StatefulSetSpec) -> Range<i32> {
    start(spec)..start(spec).saturating_add(replicas(spec))
}

/// Whether a pod is among those the set asks for.
pub fn is_wanted(spec: &StatefulSetSpec, pod: &Pod) -> bool {
    ordinal(pod).is_some_and(|ordinal| numbers(spec).contains(&ordinal))
}

pub fn pod_revision(pod: &Pod) -> Option<&str> {
    label(&pod.metadata, POD_REVISION)
}

/// A new pod of a template, which is of a revision.
pub fn new_pod(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i32) -> Pod {
    let mut pod = pods::from_template(template, set, controller_reference(set));
    let name = format!("{}-{ordinal}", set.metadata.name.as_deref().unwrap_or_default());
    pod.metadata.generate_name = None;
    pod.metadata.namespace.clone_from(&set.metadata.namespace);
    pod.metadata.labels.get_or_insert_default().insert(POD_REVISION.to_owned(), revision.to_owned());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name.clone());
    spec.subdomain = set.spec.as_ref().and_then(|spec| spec.service_name.clone());
    pod.metadata.name = Some(name);
    give_identity(set, &mut pod);
    pod
}

/// Gives a pod back what makes it the one it is.
pub fn give_identity(set: &StatefulSet, pod: &mut Pod) {
    let (Some(ordinal), Some(name)) = (ordinal(pod), pod.metadata.name.clone()) else { return };
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME.to_owned(), name);
    labels.insert(POD_INDEX.to_owned(), ordinal.to_string());
    let claims = claims(set, ordinal);
    if claims.is_empty() {
        return;
    }
    let volume = |(template, claim): &(String, PersistentVolumeClaim)| Volume {
        name: template.clone(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim.metadata.name.clone().unwrap_or_default(),
            read_only: None,
        }),
        ..Volume::default()
    };
    let volumes = pod.spec.get_or_insert_default().volumes.get_or_insert_default();
    volumes.retain(|volume| !claims.iter().any(|(template, _)| *template == volume.name));
    volumes.splice(0..0, claims.iter().map(volume));
}

/// Whether a pod has what makes it the one it is.
pub fn has_identity(set: &StatefulSet, pod: &Pod) -> bool {
    let Some(ordinal) = ordinal(pod).filter(|_| is_member(set, pod)) else { return false };
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let has = |(template, claim): &(String, PersistentVolumeClaim)| {
        let volume = volumes.iter().find(|volume| volume.name == *template);
        let named = volume.and_then(|volume| volume.persistent_volume_claim.as_ref()).map(|source| &source.claim_name);
        named == claim.metadata.name.as_ref()
    };
    label(&pod.metadata, POD_NAME) == pod.metadata.name.as_deref() && claims(set, ordinal).iter().all(has)
}

/// Whether a claim is one that a pod of the set has or had.
pub fn is_claim(set: &StatefulSet, claim: &PersistentVolumeClaim) -> bool {
    let Some((name, number)) = claim.metadata.name.as_deref().and_then(|name| name.rsplit_once('-')) else {
        return false;
    };
    let owner = set.metadata.name.as_deref().unwrap_or_default();
    let templates = set.spec.iter().filter_map(|spec| spec.volume_claim_templates.as_ref()).flatten();
    let mut names = templates.filter_map(|template| template.metadata.name.as_deref());
    number.parse::<i32>().is_ok() && names.any(|template| name == format!("{template}-{owner}"))
}

/// The claims of a pod, each with the name of its template.
pub fn claims(set: &StatefulSet, ordinal: i32) -> Vec<(String, PersistentVolumeClaim)> {
    let Some(spec) = &set.spec else { return Vec::new() };
    let owner = set.metadata.name.as_deref().unwrap_or_default();
    let claim = |template: &PersistentVolumeClaim| {
        let mut claim = template.clone();
        let name = template.metadata.name.clone().unwrap_or_default();
        claim.metadata.name = Some(format!("{name}-{owner}-{ordinal}"));
        claim.metadata.namespace.clone_from(&set.metadata.namespace);
        let selected = spec.selector.match_labels.clone().unwrap_or_default();
        claim.metadata.labels.get_or_insert_default().extend(selected);
        claim.status = None;
        (name, claim)
    };
    spec.volume_claim_templates.iter().flatten().map(claim).collect()
}
