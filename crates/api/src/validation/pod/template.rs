//! Pod templates of controllers.

use serde_json::Value;

use super::{Options, annotations, pod_spec};
use crate::validation::{Field, meta, selectors};

/// A `PodTemplateSpec`.
pub fn pod_template(template: &Field, options: &Options) {
    let (meta, spec) = (template.at("metadata"), template.at("spec"));
    // Kubernetes tells these beside the template's metadata, not in it.
    let told = template.with(meta.value());
    selectors::labels(&told.at("labels"));
    meta::annotations(&told.at("annotations"));
    annotations::pod_annotations(&told.at("annotations"), &spec, options.invalid_deletion_cost);
    pod_spec(&spec, None, options);
    annotations::match_fields(&meta, &spec);
    if !spec.at("ephemeralContainers").is_empty() {
        spec.at("ephemeralContainers").forbidden("ephemeral containers not allowed in pod template");
    }
}

/// The template of a controller that keeps pods running: it must match the selector and restart always.
///
/// `matches` says whether the controller's selector selects the labels given, `None` if the selector is empty or bad.
pub fn controller_template(
    template: &Field,
    options: &Options,
    matches: impl FnOnce(&Value) -> Option<bool>,
    no_deadline: &str,
) {
    let (meta, spec) = (template.at("metadata"), template.at("spec"));
    if matches(meta.value().get("labels").unwrap_or(&Value::Null)) == Some(false) {
        meta.at("labels").invalid("`selector` does not match template `labels`");
    }
    pod_template(template, options);
    if !spec.at("restartPolicy").is("Always") {
        spec.at("restartPolicy").not_supported(&["Always"]);
    }
    if spec.at("activeDeadlineSeconds").is_set() {
        spec.at("activeDeadlineSeconds").forbidden(no_deadline);
    }
}
