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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{cluster, node, pod};

    fn taking(name: &str, port: Value) -> std::sync::Arc<PodInfo> {
        pod(name, json!({"spec": {"containers": [{"name": "main", "image": "web", "ports": [port]}]}}))
    }

    #[test]
    fn a_port_is_taken_once() {
        let there = taking("there", json!({"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}));
        let mut snapshot = cluster([node("one", json!({}))], [(there, "one")]);
        let cases = [
            (json!({"containerPort": 80}), true),
            (json!({"containerPort": 80, "hostPort": 81}), true),
            (json!({"containerPort": 80, "hostPort": 80}), false),
            (json!({"containerPort": 80, "hostPort": 80, "protocol": "UDP"}), true),
            (json!({"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}), false),
            (json!({"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.2"}), true),
        ];
        for (port, fits) in cases {
            let fits_ = NodePorts.filter(&taking("new", port.clone()).shape, snapshot.node(0)).is_ok();
            assert_eq!(fits_, fits, "{port}");
        }
        let gone = snapshot.remove_pod("there").expect("the pod");
        let waiting = taking("new", json!({"containerPort": 80, "hostPort": 80}));
        assert!(NodePorts.filter(&waiting.shape, snapshot.node(0)).is_ok());
        assert!(NodePorts.helps(&Event::PodRemoved(&gone), &waiting));
        assert!(!NodePorts.helps(&Event::PodRemoved(&pod("other", json!({}))), &waiting));
    }
}
