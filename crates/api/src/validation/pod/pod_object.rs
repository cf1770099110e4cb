//! A Pod as an object of its own.

use object_model::names;

use super::{Options, annotations, pod_spec};
use crate::validation::{Field, meta};

/// What holds for a Pod on creation and on every change.
pub fn metadata_and_spec(pod: &Field, options: &Options) {
    let (metadata, spec) = (pod.at("metadata"), pod.at("spec"));
    meta::builtin_meta(&metadata, true, names::name_is_dns_subdomain);
    annotations::pod_annotations(&metadata.at("annotations"), &spec, options.invalid_deletion_cost);
    pod_spec(&spec, Some(metadata.value()), options);
    if spec.at("serviceAccountName").is_empty() {
        for volume in spec.at("volumes").each() {
            let projected = volume.at("projected");
            for source in projected.at("sources").each() {
                if source.at("serviceAccountToken").is_set() {
                    source
                        .at("serviceAccountToken")
                        .forbidden("must not be specified when serviceAccountName is not set");
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        for container in spec.at(list).each() {
            image_without_spaces(&container);
        }
    }
}

pub fn image_without_spaces(container: &Field) {
    let image = container.at("image");
    if image.text().trim() != image.text() {
        image.invalid("must not have leading or trailing whitespace");
    }
}

pub fn create(pod: &Field) {
    metadata_and_spec(pod, &Options::of_pod(None));
    let spec = pod.at("spec");
    if !spec.at("ephemeralContainers").is_empty() {
        spec.at("ephemeralContainers").forbidden("cannot be set on create");
    }
    if !spec.at("nodeName").is_empty() && !spec.at("schedulingGates").is_empty() {
        spec.at("nodeName").forbidden("cannot be set until all schedulingGates have been cleared");
    }
    annotations::match_fields(&pod.at("metadata"), &spec);
}
