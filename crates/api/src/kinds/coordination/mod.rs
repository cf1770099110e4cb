//! coordination.k8s.io: who leads, and who is alive.

pub mod lease;

const GROUP: &str = "coordination.k8s.io";
