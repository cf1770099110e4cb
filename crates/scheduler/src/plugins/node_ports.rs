//! Two pods cannot take the same port of a node.

use crate::{
    framework::{Event, NodeFilter, Plugin, Rejection},
    pod::{PodInfo, Shape},
    snapshot::NodeInfo,
};

pub struct NodePorts;

const NAME: &str = "NodePorts";

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        NAME
    }

    fn helps(&self, event: &Event<'_>, pod: &PodInfo) -> bool {
        match event {
            Event::NodeAdded(_) => true,
            Event::PodRemoved(gone) => {
                gone.shape.ports.iter().any(|free| pod.shape.ports.iter().any(|port| free.collides(port)))
            }
            _ => false,
        }
    }
}

impl NodeFilter for NodePorts {
    fn filter(&self, shape: &Shape, node: &NodeInfo) -> Result<(), Rejection> {
        if shape.ports.iter().any(|port| node.has_port(port)) {
            return Err(Rejection::for_now(NAME, "node(s) didn't have free ports for the requested pod ports"));
        }
        Ok(())
    }
}
