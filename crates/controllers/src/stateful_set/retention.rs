//! Who owns a claim, and with whom it goes: by the set's retention policy, with the set, with a pod that is too many, or
//! with nobody.

use controller_runtime::adoption::controller_reference;
use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        core::v1::{PersistentVolumeClaim, Pod},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::Resource;

use super::identity::is_wanted;

/// What a claim's owners say.
#[derive(Debug, PartialEq)]
pub enum Owners {
    AsTheyShould,
    /// These they should be.
    Should(Vec<OwnerReference>),
}

fn refers<O: Resource<DynamicType = ()>>(reference: &OwnerReference, object: &O) -> bool {
    reference.api_version == O::api_version(&())
        && reference.kind == O::kind(&())
        && Some(&reference.name) == object.meta().name.as_ref()
}

fn is<O: Resource>(reference: &OwnerReference, object: &O) -> bool {
    Some(&reference.uid) == object.meta().uid.as_ref()
}

/// Whether a claim belongs to an earlier object of the same name: it is on its way out.
pub fn is_stale<O: Resource<DynamicType = ()>>(claim: &PersistentVolumeClaim, object: &O) -> bool {
    let mut references = claim.metadata.owner_references.iter().flatten();
    references.find(|reference| refers(reference, object)).is_some_and(|reference| !is(reference, object))
}

/// What the policy says: whether claims go when the set is deleted, and when it is scaled down.
fn policy(set: &StatefulSet) -> (bool, bool) {
    let policy = set.spec.as_ref().and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
    let goes = |when: Option<&String>| when.is_some_and(|when| when == "Delete");
    let of = |policy: &k8s_openapi::api::apps::v1::StatefulSetPersistentVolumeClaimRetentionPolicy| {
        (goes(policy.when_deleted.as_ref()), goes(policy.when_scaled.as_ref()))
    };
    policy.map(of).unwrap_or_default()
}

pub fn goes_when_scaled(set: &StatefulSet) -> bool {
    policy(set).1
}

/// Whether somebody else controls a claim, so that the policy cannot be kept.
pub fn is_foreign(claim: &PersistentVolumeClaim, set: &StatefulSet, pod: &Pod) -> bool {
    let foreign = |reference: &OwnerReference| {
        if refers(reference, set) {
            !is(reference, set)
        } else if refers(reference, pod) {
            !is(reference, pod)
        } else {
            reference.controller == Some(true)
        }
    };
    policy(set) != (false, false) && claim.metadata.owner_references.iter().flatten().any(foreign)
}

/// Judges the owners of a claim of a pod.
pub fn judge(claim: &PersistentVolumeClaim, set: &StatefulSet, pod: &Pod) -> Owners {
    if is_stale(claim, set) || is_stale(claim, pod) {
        return Owners::AsTheyShould;
    }
    let have = claim.metadata.owner_references.clone().unwrap_or_default();
    let (when_deleted, when_scaled) = policy(set);
    let surplus = !set.spec.as_ref().is_some_and(|spec| is_wanted(spec, pod));
    let foreign = is_foreign(claim, set, pod);
    let (with_pod, with_set) = (when_scaled && surplus, when_deleted && !(when_scaled && surplus));
    let mut should: Vec<OwnerReference> =
        have.iter().filter(|reference| !refers(reference, set) && !refers(reference, pod)).cloned().collect();
    if with_set && !foreign {
        should.push(controller_reference(set));
    }
    if with_pod && !foreign {
        should.push(controller_reference(pod));
    }
    let ours = |all: &[OwnerReference]| {
        let controls = |object_is: &dyn Fn(&OwnerReference) -> bool| {
            all.iter().find(|reference| object_is(reference)).map(|reference| reference.controller == Some(true))
        };
        (controls(&|reference| is(reference, set)), controls(&|reference| is(reference, pod)))
    };
    if ours(&have) == ours(&should) { Owners::AsTheyShould } else { Owners::Should(should) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(deleted: &str, scaled: &str) -> StatefulSet {
        let policy = json!({"whenDeleted": deleted, "whenScaled": scaled});
        let spec = json!({"replicas": 1, "selector": {}, "template": {}, "serviceName": "s",
            "persistentVolumeClaimRetentionPolicy": policy});
        serde_json::from_value(json!({"metadata": {"name": "s", "uid": "set"}, "spec": spec})).expect("a set")
    }

    fn pod(name: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name, "uid": "pod"}})).expect("a pod")
    }

    fn reference(kind: &str, name: &str, uid: &str) -> Value {
        let version = if kind == "Pod" { "v1" } else { "apps/v1" };
        json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true})
    }

    fn claim(owners: Value) -> PersistentVolumeClaim {
        serde_json::from_value(json!({"metadata": {"name": "c", "ownerReferences": owners}})).expect("a claim")
    }

    #[test]
    fn claims_go_with_whom_the_policy_says() {
        for (deleted, scaled, name, owner) in [
            ("Retain", "Retain", "s-0", ""),
            ("Retain", "Retain", "s-1", ""),
            ("Delete", "Retain", "s-0", "set"),
            ("Delete", "Retain", "s-1", "set"),
            ("Retain", "Delete", "s-0", ""),
            ("Retain", "Delete", "s-1", "pod"),
            ("Delete", "Delete", "s-0", "set"),
            ("Delete", "Delete", "s-1", "pod"),
        ] {
            let (set, pod) = (set(deleted, scaled), pod(name));
            let mut claim = claim(json!([reference("StatefulSet", "s", "set"), reference("Pod", name, "pod")]));
            let Owners::Should(should) = judge(&claim, &set, &pod) else { panic!("two are never right") };
            let owners: Vec<&str> = should.iter().map(|reference| reference.uid.as_str()).collect();
            assert_eq!(owners.join(","), owner, "{deleted} {scaled} {name}");
            claim.metadata.owner_references = Some(should);
            assert_eq!(judge(&claim, &set, &pod), Owners::AsTheyShould, "{deleted} {scaled} {name}");
        }
    }

    #[test]
    fn what_is_not_ours_stays_as_it_is() {
        let (set, pod) = (set("Delete", "Delete"), pod("s-0"));
        let old = claim(json!([reference("StatefulSet", "s", "earlier")]));
        assert!(is_stale(&old, &set) && judge(&old, &set, &pod) == Owners::AsTheyShould);
        let theirs = claim(json!([reference("ReplicaSet", "x", "x")]));
        assert!(is_foreign(&theirs, &set, &pod) && judge(&theirs, &set, &pod) == Owners::AsTheyShould);
        let both = claim(json!([reference("ReplicaSet", "x", "x"), reference("StatefulSet", "s", "set")]));
        let Owners::Should(left) = judge(&both, &set, &pod) else { panic!("ours goes") };
        assert_eq!(left.len(), 1);
    }
}
