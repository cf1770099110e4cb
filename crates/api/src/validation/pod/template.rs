//! Pod templates of controllers.

use super::{Options, annotations, pod_spec};
use crate::validation::selectors::Selection;
use crate::validation::{Field, meta, selectors};

/// A `PodTemplateSpec`.
pub fn pod_template(template: &Field, options: &Options) {
    let (meta, spec) = (template.at("metadata"), template.at("spec"));
    template_metadata(template, options);
    pod_spec(&spec, None, options);
    annotations::match_fields(&meta, &spec);
    if !spec.at("ephemeralContainers").is_empty() {
        spec.at("ephemeralContainers").forbidden("ephemeral containers not allowed in pod template");
    }
}

/// The labels and annotations of a template.
pub fn template_metadata(template: &Field, options: &Options) {
    // Kubernetes tells these beside the template's metadata, not in it.
    let (meta, spec) = (template.at("metadata"), template.at("spec"));
    let told = template.with(meta.value());
    selectors::labels(&told.at("labels"));
    meta::annotations(&told.at("annotations"));
    annotations::pod_annotations(&told.at("annotations"), &spec, options.invalid_deletion_cost);
}

/// The template of a controller that keeps pods running: it must match the selector and restart always.
pub fn controller_template(template: &Field, options: &Options, selection: Selection, no_deadline: &str) {
    matches_selector(template, selection);
    pod_template(template, options);
    runs_forever(template, no_deadline);
}

/// The labels of the pods must be those the controller looks for.
pub fn matches_selector(template: &Field, selection: Selection) {
    if selection == Selection::NotSelected {
        let meta = template.at("metadata");
        meta.at("labels").invalid("`selector` does not match template `labels`");
    }
}

/// Pods of such controllers restart always and have no deadline.
pub fn runs_forever(template: &Field, no_deadline: &str) {
    let spec = template.at("spec");
    if !spec.at("restartPolicy").is("Always") {
        spec.at("restartPolicy").not_supported(&["Always"]);
    }
    if spec.at("activeDeadlineSeconds").is_set() {
        spec.at("activeDeadlineSeconds").forbidden(no_deadline);
    }
}
