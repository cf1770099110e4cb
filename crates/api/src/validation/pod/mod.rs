//! The pod specification, wherever it stands: in a Pod, or in a template of a controller.
//!
//! [`spec`] holds the whole of it together; every other file is one part. [`Options`] carries what an old object is
//! still allowed although a new one is not.

mod affinity;
mod annotations;
mod container;
mod env;
mod features;
mod lifecycle;
mod mounts;
mod options;
mod os;
mod pod_resources;
mod projected;
mod restart;
mod security;
mod spec;
mod template;
mod tolerations;
mod topology_spread;
mod volume_sources;
mod volumes;
mod warnings;

pub mod ephemeral_containers;
pub mod pod_object;
pub mod resize;
pub mod status;
pub mod update;

pub use annotations::{APP_ARMOR as APP_ARMOR_ANNOTATION, app_armor_profile_of_annotation};
pub use features::{drop_disabled, drop_disabled_status};
pub use options::Options;
pub use pod_resources::aggregate;
pub use spec::pod_spec;
pub use template::{controller_template, matches_selector, pod_template, runs_forever, template_metadata};
pub use tolerations::{taints, tolerations};
pub use volume_sources::{PERSISTENT_SOURCES, csi_driver_name};
pub use warnings::{
    deprecated_node_label, hostname_warning, node_selector_term_warnings, pod_warnings, template_warnings,
};

use super::Field;

/// The three lists of containers, in the order Kubernetes visits them.
pub const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Calls `visit` for every container of a pod specification.
pub fn each_container<'v>(spec: &Field<'v, '_>, mut visit: impl FnMut(&Field<'v, '_>)) {
    for list in CONTAINER_LISTS {
        for container in spec.at(list).each() {
            visit(&container);
        }
    }
}

/// An init container that keeps running beside the others.
pub fn is_sidecar(container: &Field) -> bool {
    container.at("restartPolicy").is("Always")
}
