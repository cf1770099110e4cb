//! A pod's claims must be bound, and it goes only where its volumes can be reached.
//!
//! Nothing here binds claims, whenever their class wants it: a pod waits until all of its claims are bound.

use controller_runtime::Key;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::Lookup;
use crate::{
    framework::{Event, Filter, Plugin, PreFilter, PreFiltered, Rejection},
    pod::PodInfo,
    selection::NodeSelection,
    snapshot::{NodeInfo, Snapshot},
};

pub struct VolumeBinding {
    pub claim: Lookup<PersistentVolumeClaim>,
    pub volume: Lookup<PersistentVolume>,
}

const NAME: &str = "VolumeBinding";

impl VolumeBinding {
    /// What the volumes of a pod's claims say about nodes.
    fn volumes_of(&self, pod: &PodInfo) -> Result<Vec<NodeSelection>, String> {
        let mut selections = Vec::new();
        for (claim, is_made_for_it) in claims_of(pod) {
            let Some(known) = (self.claim)(&Key::new(&*pod.key.namespace, &*claim)) else {
                return Err(match is_made_for_it {
                    true => {
                        format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {claim:?}")
                    }
                    false => format!("persistentvolumeclaim {claim:?} not found"),
                });
            };
            if known.metadata.deletion_timestamp.is_some() {
                return Err(format!("persistentvolumeclaim {claim:?} is being deleted"));
            }
            let volume = known.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
            match known.status.as_ref().and_then(|status| status.phase.as_deref()) {
                Some("Bound") if !volume.is_empty() => {}
                Some("Lost") => {
                    return Err(format!(
                        "persistentvolumeclaim {claim:?} bound to non-existent persistentvolume {volume:?}"
                    ));
                }
                _ => return Err("pod has unbound immediate PersistentVolumeClaims".to_owned()),
            }
            let Some(volume) = (self.volume)(&Key::new("", volume)) else {
                return Err("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)".to_owned());
            };
            let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
            selections.extend(affinity.map(|required| NodeSelection::required(&required.node_selector_terms)));
        }
        Ok(selections)
    }
}

/// The names of a pod's claims, and whether each is made for this pod.
fn claims_of(pod: &PodInfo) -> impl Iterator<Item = (String, bool)> {
    let volumes = pod.spec().into_iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some((claim.claim_name.clone(), false)),
        (None, Some(_)) => Some((format!("{}-{}", pod.key.name, volume.name), true)),
        (None, None) => None,
    })
}

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        NAME
    }

    fn helps(&self, event: &Event<'_>, pod: &PodInfo) -> bool {
        match event {
            Event::VolumesChanged { namespace } => namespace.is_none_or(|namespace| namespace == pod.key.namespace),
            Event::NodeAdded(_) => true,
            Event::NodeChanged { what, .. } => what.labels,
            _ => false,
        }
    }
}

impl PreFilter for VolumeBinding {
    fn pre_filter<'a>(&'a self, pod: &'a PodInfo, _snapshot: &'a Snapshot) -> PreFiltered<'a> {
        match self.volumes_of(pod) {
            Err(reason) => PreFiltered::Reject(Rejection::for_good(NAME, reason)),
            Ok(selections) if selections.is_empty() => PreFiltered::Skip,
            Ok(selections) => PreFiltered::Filter(Box::new(Reachable(selections))),
        }
    }
}

#[derive(Clone)]
struct Reachable(Vec<NodeSelection>);

impl Filter for Reachable {
    fn filter(&self, _slot: usize, node: &NodeInfo) -> Result<(), Rejection> {
        if self.0.iter().all(|selection| selection.allows(node)) {
            return Ok(());
        }
        Err(Rejection::for_good(NAME, "node(s) didn't match PersistentVolume's node affinity"))
    }

    fn suppose(&mut self, _pod: &PodInfo, _slot: usize, _came: bool) {}

    fn copy(&self) -> Box<dyn Filter + '_> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{cluster, in_zone, judged, pod};

    fn plugin(status: Value, volume: Value) -> VolumeBinding {
        let claim = json!({"metadata": {"name": "data"}, "spec": {"volumeName": "disk"}, "status": status});
        let claim: Arc<PersistentVolumeClaim> = Arc::new(serde_json::from_value(claim).expect("a claim"));
        let volume: Option<Arc<PersistentVolume>> = serde_json::from_value(volume).ok().map(Arc::new);
        VolumeBinding {
            claim: Box::new(move |key| (key.name == "data").then(|| claim.clone())),
            volume: Box::new(move |_| volume.clone()),
        }
    }

    fn using(volume: Value) -> Arc<PodInfo> {
        pod("web", json!({"spec": {"volumes": [volume]}}))
    }

    #[test]
    fn claims_must_be_bound_and_volumes_in_reach() {
        let snapshot = cluster([in_zone("a1", "a"), in_zone("b1", "b")], []);
        let term = json!([{"matchExpressions": [
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]},
        ]}]);
        let volume =
            json!({"metadata": {"name": "disk"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": term}}}});
        let claiming = |name: &str| using(json!({"name": "v", "persistentVolumeClaim": {"claimName": name}}));
        let bound = plugin(json!({"phase": "Bound"}), volume.clone());
        let why = judged(&bound, &claiming("data"), &snapshot);
        assert_eq!(
            (why["a1"].as_str(), why["b1"].as_str()),
            ("", "node(s) didn't match PersistentVolume's node affinity")
        );
        assert_eq!(judged(&bound, &claiming("gone"), &snapshot)["a1"], "persistentvolumeclaim \"gone\" not found");
        let ephemeral = using(json!({"name": "v", "ephemeral": {}}));
        assert_eq!(
            judged(&bound, &ephemeral, &snapshot)["a1"],
            "waiting for ephemeral volume controller to create the persistentvolumeclaim \"web-v\""
        );
        let unbound = plugin(json!({"phase": "Pending"}), volume);
        assert_eq!(
            judged(&unbound, &claiming("data"), &snapshot)["a1"],
            "pod has unbound immediate PersistentVolumeClaims"
        );
        let plain = using(json!({"name": "v", "emptyDir": {}}));
        assert_eq!(judged(&unbound, &plain, &snapshot)["b1"], "");
    }
}
