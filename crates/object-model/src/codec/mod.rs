//! Objects as bytes: JSON, YAML and Kubernetes protobuf, and their canonical form.

pub mod json;
