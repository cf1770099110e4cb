//! A pod that names its node goes nowhere else.
//!
//! Such a pod is bound already, and nobody schedules it: the plugin is there for those who ask for its name.

use std::collections::BTreeSet;

use crate::{
    framework::{Event, Plugin, PreFilter, PreFiltered},
    pod::{PodInfo, node_of},
    snapshot::Snapshot,
};

pub struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn helps(&self, event: &Event<'_>, _pod: &PodInfo) -> bool {
        matches!(event, Event::NodeAdded(_))
    }
}

impl PreFilter for NodeName {
    fn pre_filter<'a>(&'a self, pod: &'a PodInfo, _snapshot: &'a Snapshot) -> PreFiltered<'a> {
        node_of(&pod.pod).map_or(PreFiltered::Skip, |name| PreFiltered::Only(BTreeSet::from([name])))
    }
}
