//! How pods are spread that say nothing about it: those of the same services and the same owner, over nodes and zones.

use controller_runtime::{Informer, Informers, Key, adoption::controller_of};
use k8s_openapi::api::{
    apps::v1::{ReplicaSet, StatefulSet},
    core::v1::{ReplicationController, Service},
};
use object_model::selector::LabelSelector;

use crate::{
    pod::PodInfo,
    selection::{Labels, label_selector, selects},
    snapshot::ZONE,
    spreading::{Constraint, HOSTNAME},
};

/// Gives the selector of the pods that belong together with one, if any do.
pub type Together = Box<dyn Fn(&PodInfo) -> Option<LabelSelector> + Send + Sync>;

/// Those of the same services and of the same owner.
pub fn together(informers: &Informers) -> Together {
    let owners = Owners {
        services: informers.of(),
        controllers: informers.of(),
        replica_sets: informers.of(),
        stateful_sets: informers.of(),
    };
    Box::new(move |pod| owners.together(pod).filter(|together| !together.is_everything()))
}

/// How those are spread that belong together.
pub fn constraints(together: &LabelSelector) -> Vec<Constraint> {
    let constraint = |topology: &str, max_skew: i64| Constraint {
        max_skew,
        topology: topology.into(),
        pods: Some(together.clone()),
        min_domains: 1,
        honours_affinity: true,
        honours_taints: false,
        required: false,
    };
    vec![constraint(HOSTNAME, 3), constraint(ZONE, 5)]
}

struct Owners {
    services: Informer<Service>,
    controllers: Informer<ReplicationController>,
    replica_sets: Informer<ReplicaSet>,
    stateful_sets: Informer<StatefulSet>,
}

impl Owners {
    fn together(&self, pod: &PodInfo) -> Option<LabelSelector> {
        let mut labels = Labels::new();
        for service in self.services.in_namespace(&pod.key.namespace) {
            let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let Some(selector) = selector.filter(|selector| !selector.is_empty()) else { continue };
            if selector.iter().all(|(key, value)| pod.labels().get(key) == Some(value)) {
                labels.extend(selector.clone());
            }
        }
        let mut of_owner = None;
        if let Some(owner) = controller_of(&*pod.pod) {
            let key = Key::new(&*pod.key.namespace, &*owner.name);
            match (owner.api_version.as_str(), owner.kind.as_str()) {
                ("v1", "ReplicationController") => {
                    let owner = self.controllers.get(&key);
                    let selector = owner.as_ref().and_then(|owner| owner.spec.as_ref()?.selector.clone());
                    labels.extend(selector.unwrap_or_default());
                }
                ("apps/v1", "ReplicaSet") => {
                    let owner = self.replica_sets.get(&key);
                    of_owner = owner.and_then(|owner| label_selector(&owner.spec.as_ref()?.selector));
                }
                ("apps/v1", "StatefulSet") => {
                    let owner = self.stateful_sets.get(&key);
                    of_owner = owner.and_then(|owner| label_selector(&owner.spec.as_ref()?.selector));
                }
                _ => {}
            }
        }
        let of_services = LabelSelector::from_labels(labels.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        let of_owner = of_owner.unwrap_or_default();
        let both = of_services.requirements().iter().chain(of_owner.requirements()).cloned();
        Some(both.collect::<LabelSelector>()).filter(|together| selects(together, pod.labels()))
    }
}
