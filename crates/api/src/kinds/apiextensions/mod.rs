//! apiextensions.k8s.io: kinds that are defined while the server runs.

pub mod custom_resource_definition;
mod definition_spec;

const GROUP: &str = "apiextensions.k8s.io";
