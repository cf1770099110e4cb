//! What the node's pods are like, for whoever asks: the agent's server.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use k8s_openapi::api::core::v1::{Pod, PodStatus};

use super::{
    containers::{name, namespace, uid},
    observed::Observed,
};
use crate::server::Host;

/// Kept up to date by the workers, each its own pod.
#[derive(Default)]
pub struct Registry {
    pods: RwLock<HashMap<String, Entry>>,
}

struct Entry {
    pod: Arc<Pod>,
    sandbox: Option<String>,
    /// Names and ids, the newest first.
    containers: Vec<(String, String)>,
}

impl Registry {
    pub fn update(&self, pod: &Pod, status: &Arc<PodStatus>, observed: &Observed) {
        let entry = Entry {
            pod: Arc::new(Pod { status: Some((**status).clone()), ..pod.clone() }),
            sandbox: observed.sandboxes.first().map(|sandbox| sandbox.id.clone()),
            containers: observed
                .containers
                .iter()
                .map(|container| (container.metadata.name.clone(), container.id.clone()))
                .collect(),
        };
        self.pods.write().unwrap_or_else(PoisonError::into_inner).insert(uid(pod).to_owned(), entry);
    }

    pub fn remove(&self, uid: &str) {
        self.pods.write().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    fn read<T>(&self, look: impl FnOnce(&HashMap<String, Entry>) -> T) -> T {
        look(&self.pods.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Host for Registry {
    fn pods(&self) -> Vec<Arc<Pod>> {
        self.read(|pods| pods.values().map(|entry| entry.pod.clone()).collect())
    }

    fn pod(&self, in_namespace: &str, named: &str) -> Option<Arc<Pod>> {
        self.read(|pods| {
            let pods = pods.values().map(|entry| &entry.pod);
            // One that ends may have given its name to the next.
            let newest = |pod: &&Arc<Pod>| {
                let metadata = &pod.metadata;
                (metadata.creation_timestamp.clone(), metadata.deletion_timestamp.is_none())
            };
            pods.filter(|pod| namespace(pod) == in_namespace && name(pod) == named).max_by_key(newest).cloned()
        })
    }

    fn sandbox(&self, uid: &str) -> Option<String> {
        self.read(|pods| pods.get(uid)?.sandbox.clone())
    }

    fn container(&self, uid: &str, name: &str) -> Option<String> {
        self.read(|pods| {
            let found = pods.get(uid)?.containers.iter().find(|(named, _)| named == name);
            found.map(|(_, id)| id.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_means_the_newest_pod() {
        let registry = Registry::default();
        for (uid, second) in [("old", "01"), ("new", "02"), ("older", "00")] {
            let created = format!("2026-01-01T00:00:{second}Z");
            let metadata = json!({"name": "web-0", "namespace": "ns", "uid": uid, "creationTimestamp": created});
            let pod: Pod = serde_json::from_value(json!({"metadata": metadata})).expect("a pod");
            registry.update(&pod, &Arc::default(), &Observed::default());
        }
        assert_eq!(registry.pod("ns", "web-0").and_then(|pod| pod.metadata.uid.clone()).as_deref(), Some("new"));
    }
}
