//! discovery.k8s.io: where the endpoints of Services are.

pub mod endpoint_slice;

const GROUP: &str = "discovery.k8s.io";
