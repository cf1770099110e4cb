//! A node with its pods, and the sums that plugins ask for.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};

use crate::{
    pod::{HostPort, PodInfo},
    resources::Resources,
    selection::{Labels, NO_LABELS, labels_of},
};

#[derive(Clone, Default)]
pub struct NodeInfo {
    name: String,
    /// Nothing while only its pods are known.
    node: Option<Arc<Node>>,
    /// Grows with every change that a plugin could see, over all nodes.
    pub(super) generation: u64,
    pods: Vec<Arc<PodInfo>>,
    /// The priority of the least important pod.
    least_priority: Option<i32>,
    pub allocatable: Resources,
    pub most_pods: usize,
    pub requested: Resources,
    /// The same for scores, see [`crate::resources::Requests::assumed`].
    pub assumed: Resources,
    ports: Vec<HostPort>,
    /// Numbers of images with their sizes, sorted.
    pub(super) images: Vec<(u32, i64)>,
}

impl NodeInfo {
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_known(&self) -> bool {
        self.node.is_some()
    }

    pub fn node(&self) -> Option<&Arc<Node>> {
        self.node.as_ref()
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub fn labels(&self) -> &Labels {
        self.node.as_ref().map_or(&NO_LABELS, |node| labels_of(&node.metadata))
    }

    pub fn taints(&self) -> &[Taint] {
        self.spec().and_then(|spec| spec.taints.as_deref()).unwrap_or(&[])
    }

    pub fn is_unschedulable(&self) -> bool {
        self.spec().is_some_and(|spec| spec.unschedulable == Some(true))
    }

    pub fn pods(&self) -> &[Arc<PodInfo>] {
        &self.pods
    }

    /// Whether there is a pod that is less important.
    pub fn has_lesser(&self, priority: i32) -> bool {
        self.least_priority.is_some_and(|least| least < priority)
    }

    /// Whether a port is taken already.
    pub fn has_port(&self, port: &HostPort) -> bool {
        self.ports.iter().any(|taken| taken.collides(port))
    }

    /// The size of an image, if the node has it.
    pub fn image(&self, number: u32) -> Option<i64> {
        self.images.binary_search_by_key(&number, |(number, _)| *number).ok().map(|at| self.images[at].1)
    }

    fn spec(&self) -> Option<&NodeSpec> {
        self.node.as_ref()?.spec.as_ref()
    }

    pub fn set(&mut self, node: Option<Arc<Node>>) {
        let status = node.as_ref().and_then(|node| node.status.as_ref());
        (self.allocatable, self.most_pods) = capacity(status);
        self.node = node;
    }

    pub fn add(&mut self, pod: Arc<PodInfo>) {
        self.requested.add(&pod.shape.requests.said);
        self.assumed.add(&pod.shape.requests.assumed);
        self.ports.extend(pod.shape.ports.iter().cloned());
        self.least_priority = self.least_priority.into_iter().chain([pod.priority]).min();
        self.pods.push(pod);
    }

    pub fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let at = self.pods.iter().position(|pod| pod.uid == uid)?;
        let pod = self.pods.swap_remove(at);
        self.requested.subtract(&pod.shape.requests.said);
        self.assumed.subtract(&pod.shape.requests.assumed);
        for port in &pod.shape.ports {
            if let Some(at) = self.ports.iter().position(|taken| taken == port) {
                self.ports.swap_remove(at);
            }
        }
        if self.least_priority == Some(pod.priority) {
            self.least_priority = self.pods.iter().map(|pod| pod.priority).min();
        }
        Some(pod)
    }

    /// Puts a pod in the place of what it was. What plugins see of a node is the same when the shapes are.
    pub(super) fn replace(&mut self, pod: Arc<PodInfo>) {
        if let Some(was) = self.pods.iter_mut().find(|was| was.uid == pod.uid) {
            *was = pod;
        }
    }
}

/// What a node offers, and how many pods it takes.
pub fn capacity(status: Option<&NodeStatus>) -> (Resources, usize) {
    let offered = status.and_then(|status| status.allocatable.as_ref());
    let pods = offered.and_then(|offered| offered.get("pods"));
    let pods = pods.and_then(|pods| object_model::quantity::Quantity::parse(&pods.0).ok());
    let most = pods.and_then(|pods| usize::try_from(pods.value()).ok()).unwrap_or(0);
    (Resources::of(offered), most)
}
