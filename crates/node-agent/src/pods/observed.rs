//! What the runtime knows of one pod.

use std::{borrow::Cow, net::IpAddr};

use container_runtime::services::{
    ContainerFilter, ContainerState, ContainerStatus, Labels, NamespaceMode, PodSandboxFilter, PodSandboxState,
    PodSandboxStatus, RuntimeService, ServiceError,
};
use k8s_openapi::api::core::v1::{Container, Pod};

use super::{
    containers::{self, is_on_host_network, restarts_after},
    termination_message,
};
use crate::configuration::{annotations, labels};

/// The pod's sandboxes and containers, the newest first.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    pub sandboxes: Vec<PodSandboxStatus>,
    /// Those that have exited have the message that they left.
    pub containers: Vec<ContainerStatus>,
}

impl Observed {
    /// Asks the runtime. What had exited before is not looked at again: `before` has it.
    pub async fn look(runtime: &dyn RuntimeService, pod: &Pod, before: &Observed) -> Result<Self, ServiceError> {
        let label_selector = Labels::from([(labels::POD_UID.to_owned(), containers::uid(pod).to_owned())]);
        let mut observed = Self::default();
        let filter = PodSandboxFilter { label_selector: label_selector.clone(), ..PodSandboxFilter::default() };
        for sandbox in runtime.list_pod_sandbox(&filter).await? {
            match runtime.pod_sandbox_status(&sandbox.id).await {
                Ok(status) => observed.sandboxes.push(status),
                Err(ServiceError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let filter = ContainerFilter { label_selector, ..ContainerFilter::default() };
        for container in runtime.list_containers(&filter).await? {
            let ended = before.containers.iter().find(|known| known.id == container.id && has_exited(known));
            if let Some(known) = ended {
                observed.containers.push(known.clone());
                continue;
            }
            match runtime.container_status(&container.id).await {
                Ok(mut status) => {
                    if has_exited(&status) {
                        termination_message::add(&mut status, pod).await;
                    }
                    observed.containers.push(status);
                }
                Err(ServiceError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        observed.sandboxes.sort_by_key(|sandbox| std::cmp::Reverse((sandbox.created_at, sandbox.metadata.attempt)));
        observed
            .containers
            .sort_by_key(|container| std::cmp::Reverse((container.created_at, container.metadata.attempt)));
        Ok(observed)
    }

    /// The same with other containers for the newest of their names.
    pub fn with_instead(&self, others: &[ContainerStatus]) -> Cow<'_, Self> {
        if others.is_empty() {
            return Cow::Borrowed(self);
        }
        // What came after them has not happened.
        let stays = |container: &&ContainerStatus| {
            let other = others.iter().find(|other| other.metadata.name == container.metadata.name);
            other.is_none_or(|other| container.metadata.attempt < other.metadata.attempt)
        };
        let containers = others.iter().chain(self.containers.iter().filter(stays)).cloned().collect();
        Cow::Owned(Self { sandboxes: self.sandboxes.clone(), containers })
    }

    /// The newest container of a name.
    pub fn latest(&self, name: &str) -> Option<&ContainerStatus> {
        self.containers.iter().find(|container| container.metadata.name == name)
    }

    /// The newest container of a name that has ended.
    pub fn latest_exited(&self, name: &str) -> Option<&ContainerStatus> {
        self.containers.iter().find(|container| container.metadata.name == name && has_exited(container))
    }

    pub fn running(&self) -> impl Iterator<Item = &ContainerStatus> {
        self.containers.iter().filter(|container| container.state == ContainerState::Running)
    }

    pub fn has_anything_running(&self) -> bool {
        self.running().next().is_some() || self.sandboxes.iter().any(|sandbox| sandbox.state == PodSandboxState::Ready)
    }

    /// The newest sandbox, if it is ready.
    pub fn ready_sandbox(&self) -> Option<&PodSandboxStatus> {
        self.sandboxes.first().filter(|sandbox| sandbox.state == PodSandboxState::Ready)
    }

    /// The sandbox that the pod's containers can be started in: ready, the only one that is, and on the right network.
    pub fn usable_sandbox(&self, pod: &Pod) -> Option<&PodSandboxStatus> {
        let ready = self.sandboxes.iter().filter(|sandbox| sandbox.state == PodSandboxState::Ready).count();
        let network = if is_on_host_network(pod) { NamespaceMode::Node } else { NamespaceMode::Pod };
        self.ready_sandbox().filter(|sandbox| ready == 1 && sandbox.linux.network == network)
    }

    pub fn addresses(&self) -> &[IpAddr] {
        self.ready_sandbox().map(|sandbox| sandbox.ips.as_slice()).unwrap_or_default()
    }

    /// How many sandboxes the pod has had.
    pub fn next_attempt(&self) -> u32 {
        self.sandboxes.first().map_or(0, |sandbox| sandbox.metadata.attempt + 1)
    }

    /// Whether a container should be started that does not run.
    pub fn is_to_be_started(&self, pod: &Pod, container: &Container) -> bool {
        if pod.metadata.deletion_timestamp.is_some() {
            return false;
        }
        match self.latest(&container.name) {
            None => true,
            Some(latest) => match latest.state {
                ContainerState::Running => false,
                ContainerState::Created | ContainerState::Unknown => true,
                ContainerState::Exited => restarts_after(pod, container, latest.exit_code),
            },
        }
    }

    /// Whether a main container was ever made.
    pub fn has_main_container(&self, pod: &Pod) -> bool {
        containers::main_containers(pod).iter().any(|container| self.latest(&container.name).is_some())
    }

    /// Whether a main container runs, or is about to.
    pub fn has_active_main_container(&self, pod: &Pod) -> bool {
        containers::main_containers(pod).iter().any(|container| {
            let state = self.latest(&container.name).map(|latest| latest.state);
            matches!(state, Some(ContainerState::Created | ContainerState::Running))
        })
    }
}

pub fn has_exited(container: &ContainerStatus) -> bool {
    container.state == ContainerState::Exited
}

/// The image that a container was made with, by the name that its pod gave it then.
pub fn image_of(container: &ContainerStatus) -> Option<&str> {
    container.annotations.get(annotations::IMAGE).map(String::as_str)
}
