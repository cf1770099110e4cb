//! A pod as the scheduler sees it: everything that plugins ask for, read once.

use std::{collections::HashSet, sync::Arc};

use controller_runtime::Key;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus, Toleration};

use crate::{
    affinity::{self, Affinity},
    resources::Requests,
    selection::{Labels, NodeSelection, labels_of},
    spreading::{self, Constraint},
};

/// What a single node is judged by. Pods of the same shape share that work, so a shape has nothing of a single pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    pub requests: Requests,
    pub ports: Vec<HostPort>,
    pub tolerations: Vec<Tolerated>,
    pub nodes: NodeSelection,
}

/// A port of the node that a pod takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    pub address: String,
    pub protocol: String,
    pub port: i32,
}

impl HostPort {
    /// Whether both cannot be on one node. Nothing said of the address means all of them.
    pub fn collides(&self, other: &Self) -> bool {
        const ALL: &str = "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address || self.address == ALL || other.address == ALL)
    }
}

/// A toleration, without for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tolerated {
    pub key: String,
    pub operator: String,
    pub value: String,
    pub effect: String,
}

impl Tolerated {
    fn of(toleration: &Toleration) -> Self {
        Self {
            key: toleration.key.clone().unwrap_or_default(),
            operator: toleration.operator.clone().unwrap_or_default(),
            value: toleration.value.clone().unwrap_or_default(),
            effect: toleration.effect.clone().unwrap_or_default(),
        }
    }
}

/// Equal shapes are one, so that they are compared by their address.
#[derive(Default)]
pub struct Shapes {
    known: HashSet<Arc<Shape>>,
    /// Those nobody has any more are let go at this size.
    sweep_at: usize,
}

impl Shapes {
    fn intern(&mut self, shape: Shape) -> Arc<Shape> {
        if let Some(known) = self.known.get(&shape) {
            return known.clone();
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|shape| Arc::strong_count(shape) > 1);
            self.sweep_at = (2 * self.known.len()).max(64);
        }
        let shape = Arc::new(shape);
        self.known.insert(shape.clone());
        shape
    }
}

pub struct PodInfo {
    pub pod: Arc<Pod>,
    pub key: Key,
    pub uid: String,
    pub priority: i32,
    pub shape: Arc<Shape>,
    /// What it says about other pods near it.
    pub affinity: Affinity,
    /// How it is to be spread, as it says itself.
    pub spread: Vec<Constraint>,
}

impl PodInfo {
    pub fn new(pod: Arc<Pod>, shapes: &mut Shapes) -> Self {
        let none = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&none);
        let shape = Shape {
            requests: Requests::of(&pod),
            ports: host_ports(spec),
            tolerations: spec.tolerations.iter().flatten().map(Tolerated::of).collect(),
            nodes: NodeSelection::of(spec),
        };
        Self {
            key: Key::of(&*pod),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            priority: spec.priority.unwrap_or(0),
            shape: shapes.intern(shape),
            affinity: affinity::of(&pod),
            spread: spreading::of(&pod),
            pod,
        }
    }

    pub fn labels(&self) -> &Labels {
        labels_of(&self.pod.metadata)
    }

    pub fn spec(&self) -> Option<&PodSpec> {
        self.pod.spec.as_ref()
    }

    pub fn status(&self) -> Option<&PodStatus> {
        self.pod.status.as_ref()
    }

    pub fn is_terminating(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    /// Where preemption made room for it.
    pub fn nominated_node(&self) -> Option<&str> {
        self.status()?.nominated_node_name.as_deref().filter(|name| !name.is_empty())
    }
}

/// The node a pod is bound to.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

pub fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Ports of the node taken by containers, sidecars included.
fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let taken = ports.filter_map(|port| {
        let number = port.host_port.filter(|number| *number > 0)?;
        let of = |text: &Option<String>, unsaid: &str| {
            text.clone().filter(|text| !text.is_empty()).unwrap_or_else(|| unsaid.to_owned())
        };
        Some(HostPort { address: of(&port.host_ip, "0.0.0.0"), protocol: of(&port.protocol, "TCP"), port: number })
    });
    taken.collect()
}
