//! The volumes of a pod.

use std::collections::BTreeMap;

use object_model::names;
use serde_json::Value;

use super::Options;
use super::volume_sources::POD_SOURCES;
use crate::validation::Field;

/// The volumes that are valid, by name.
pub type VolumeKinds<'v> = BTreeMap<&'v str, &'v Value>;

pub fn volumes<'v>(volumes: &Field<'v, '_>, meta: Option<&Value>, options: &Options) -> VolumeKinds<'v> {
    let pod_name = meta.and_then(|m| m.get("name")?.as_str()).filter(|name| !name.is_empty());
    let created_claims: Vec<String> = match pod_name {
        Some(pod) => volumes
            .each()
            .filter(|v| v.at("ephemeral").is_set())
            .map(|v| format!("{pod}-{}", v.at("name").text()))
            .collect(),
        None => Vec::new(),
    };
    let mut valid = VolumeKinds::new();
    for volume in volumes.each() {
        let before = volume.problem_count();
        let name = volume.at("name");
        POD_SOURCES.validate(&volume, name.text(), options);
        claim_of_ephemeral_volume(&volume, pod_name);
        name.required_dns_label();
        if valid.contains_key(name.text()) {
            name.duplicate();
        }
        if volume.problem_count() == before {
            valid.insert(name.text(), volume.value());
        }
        let claim = volume.at("persistentVolumeClaim");
        if claim.is_set() && created_claims.iter().any(|c| claim.at("claimName").is(c)) {
            claim.at("claimName").invalid("must not reference a PVC that gets created for an ephemeral volume");
        }
    }
    valid
}

/// An ephemeral volume makes a claim that is named after the pod and the volume.
fn claim_of_ephemeral_volume(volume: &Field, pod_name: Option<&str>) {
    let name = volume.at("name");
    if let Some(pod) = pod_name.filter(|_| POD_SOURCES.chosen(volume) == Some("ephemeral") && !name.is_empty()) {
        let claim = format!("{pod}-{}", name.text());
        for message in names::dns_subdomain(&claim) {
            name.invalid(format!("PVC name {claim:?}: {message}"));
        }
    }
}
