//! apiregistration.k8s.io: who serves a version of a group.

pub mod api_service;

const GROUP: &str = "apiregistration.k8s.io";
