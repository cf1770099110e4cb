//! node.k8s.io: ways to run pods.

pub mod runtime_class;

const GROUP: &str = "node.k8s.io";
