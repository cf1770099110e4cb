//! networking.k8s.io: ways into and within the cluster.

pub mod ingress;
pub mod ingress_class;
pub mod ip_address;
pub mod network_policy;
pub mod service_cidr;

const GROUP: &str = "networking.k8s.io";
