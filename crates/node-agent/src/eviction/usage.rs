//! What the node's pods use of it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use container_runtime::{
    measure,
    services::{ContainerFilter, ContainerStats, Labels, ServiceError},
};
use k8s_openapi::api::core::v1::Pod;

use super::limits;
use crate::{
    configuration::labels,
    pods::{containers::uid, context::Context, logs},
};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerUsage {
    pub memory: u64,
    /// What it wrote into its own file system.
    pub layer: u64,
    /// What it wrote to its log.
    pub log: u64,
}

impl ContainerUsage {
    pub fn disk(&self) -> u64 {
        self.layer + self.log
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    pub containers: BTreeMap<String, ContainerUsage>,
    /// Of its volumes on disk, by their names.
    pub volumes: BTreeMap<String, u64>,
    pub inodes: u64,
}

impl Usage {
    pub fn memory(&self) -> u64 {
        self.containers.values().map(|container| container.memory).sum()
    }

    pub fn disk(&self) -> u64 {
        self.containers.values().map(ContainerUsage::disk).sum::<u64>() + self.volumes.values().sum::<u64>()
    }
}

/// By the uids of pods.
#[derive(Debug, Default)]
pub struct Usages(HashMap<String, Usage>);

impl Usages {
    #[cfg(test)]
    pub fn new(all: impl IntoIterator<Item = (String, Usage)>) -> Self {
        Self(all.into_iter().collect())
    }

    /// Disks are read where it matters: of pods that have limits there, or of all.
    pub async fn look(context: &Arc<Context>, pods: &[Arc<Pod>], all: bool) -> Result<Self, ServiceError> {
        let mut looks = Vec::new();
        for pod in pods.iter().filter(|pod| all || limits::has_any(pod)) {
            let label_selector = Labels::from([(labels::POD_UID.to_owned(), uid(pod).to_owned())]);
            let filter = ContainerFilter { label_selector, ..ContainerFilter::default() };
            looks.push((pod.clone(), context.runtime().list_container_stats(&filter).await?));
        }
        let context = context.clone();
        let measured = tokio::task::spawn_blocking(move || {
            let usages = looks.iter().map(|(pod, stats)| (uid(pod).to_owned(), of_pod(&context, pod, stats)));
            Self(usages.collect())
        });
        measured.await.map_err(|error| ServiceError::Internal(error.to_string()))
    }

    pub fn of(&self, pod: &Pod) -> Usage {
        self.0.get(uid(pod)).cloned().unwrap_or_default()
    }
}

fn of_pod(context: &Context, pod: &Pod, stats: &[ContainerStats]) -> Usage {
    let mut usage = Usage::default();
    for one in stats {
        let container = usage.containers.entry(one.metadata.name.clone()).or_default();
        container.memory += one.usage.memory_working_set_bytes;
        container.layer += one.writable_layer.used_bytes;
        usage.inodes += one.writable_layer.inodes_used;
    }
    for (container, folder) in logs::containers(&context.settings.root, uid(pod)) {
        let (bytes, inodes) = measure(folder);
        usage.containers.entry(container).or_default().log += bytes;
        usage.inodes += inodes;
    }
    for (volume, folder) in context.volumes.empty_dirs(pod) {
        let (bytes, inodes) = measure(folder);
        usage.volumes.insert(volume, bytes);
        usage.inodes += inodes;
    }
    usage
}
