//! rbac.authorization.k8s.io: who may do what.

pub mod binding;
pub mod role;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Names of roles and bindings are free, as long as they fit in a path; prefixes too.
fn name(name: &str, _: bool) -> Vec<String> {
    object_model::names::name_is_path_segment(name, false)
}
