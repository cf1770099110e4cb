//! What happens in the cluster that could help a pod that fitted nowhere.

use k8s_openapi::api::core::v1::Node;

use crate::pod::PodInfo;

pub enum Event<'a> {
    NodeAdded(&'a Node),
    NodeChanged {
        old: &'a Node,
        new: &'a Node,
        what: NodeChange,
    },
    NodeRemoved(&'a Node),
    /// A pod has come to a node.
    PodAdded(&'a PodInfo),
    /// The labels or requests of a pod on a node have changed.
    PodChanged {
        old: &'a PodInfo,
        new: &'a PodInfo,
    },
    /// A pod has gone from a node, or does not wait for the room any more that was made for it there.
    PodRemoved(&'a PodInfo),
    /// The labels of a namespace have changed, or it is new.
    NamespaceChanged,
    /// A claim of a namespace, or a volume, has changed.
    VolumesChanged {
        namespace: Option<&'a str>,
    },
}

impl Event<'_> {
    /// Whether a node is new or has changed.
    pub fn is_about_a_node(&self) -> bool {
        matches!(self, Event::NodeAdded(_) | Event::NodeChanged { .. })
    }
}

/// What has changed of a node. Heartbeats and the like change nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeChange {
    pub allocatable: bool,
    pub labels: bool,
    /// Or whether it takes new pods at all.
    pub taints: bool,
}

impl NodeChange {
    pub fn between(old: &Node, new: &Node) -> Self {
        let (old_status, new_status) = (old.status.as_ref(), new.status.as_ref());
        let (old_spec, new_spec) = (old.spec.as_ref(), new.spec.as_ref());
        Self {
            allocatable: old_status.and_then(|s| s.allocatable.as_ref())
                != new_status.and_then(|s| s.allocatable.as_ref()),
            labels: old.metadata.labels != new.metadata.labels,
            taints: old_spec.and_then(|s| s.taints.as_ref()) != new_spec.and_then(|s| s.taints.as_ref())
                || old_spec.and_then(|s| s.unschedulable) != new_spec.and_then(|s| s.unschedulable),
        }
    }

    pub fn is_any(self) -> bool {
        self.allocatable || self.labels || self.taints
    }
}
