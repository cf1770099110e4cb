//! Pods for whom room was made on a node, until they are there.

use std::{collections::HashMap, sync::Arc};

use crate::pod::PodInfo;

#[derive(Default)]
pub struct Nominations {
    by_node: HashMap<String, Vec<Arc<PodInfo>>>,
    /// The node of each, by uid.
    nodes: HashMap<String, String>,
}

impl Nominations {
    /// Nominates a pod, or says that it is nominated nowhere.
    pub fn set(&mut self, pod: &Arc<PodInfo>, node: Option<&str>) {
        self.remove(&pod.uid);
        if let Some(node) = node {
            self.nodes.insert(pod.uid.clone(), node.to_owned());
            self.by_node.entry(node.to_owned()).or_default().push(pod.clone());
        }
    }

    pub fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let node = self.nodes.remove(uid)?;
        let pods = self.by_node.get_mut(&node)?;
        let pod = pods.iter().position(|pod| pod.uid == uid).map(|at| pods.swap_remove(at));
        if pods.is_empty() {
            self.by_node.remove(&node);
        }
        pod
    }

    pub fn node_of(&self, uid: &str) -> Option<&str> {
        self.nodes.get(uid).map(String::as_str)
    }

    fn on(&self, node: &str) -> &[Arc<PodInfo>] {
        self.by_node.get(node).map_or(&[], Vec::as_slice)
    }

    /// Those on a node who are no less important than a pod.
    pub fn before<'a>(&'a self, node: &str, pod: &'a PodInfo) -> impl Iterator<Item = &'a Arc<PodInfo>> + use<'a> {
        self.on(node).iter().filter(|other| other.priority >= pod.priority && other.uid != pod.uid)
    }

    /// Whether there are such.
    pub fn concern(&self, node: &str, pod: &PodInfo) -> bool {
        !self.by_node.is_empty() && self.before(node, pod).next().is_some()
    }

    /// Those on a node who are less important.
    pub fn below(&self, node: &str, priority: i32) -> Vec<Arc<PodInfo>> {
        self.on(node).iter().filter(|other| other.priority < priority).cloned().collect()
    }
}
