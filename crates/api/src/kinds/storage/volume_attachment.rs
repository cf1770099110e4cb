//! VolumeAttachment: the wish to attach a volume to a node, and what came of it.

use object_model::names;
use serde_json::{Value, json};

use super::{GROUP, texts_size};
use crate::defaults::{self, Defaults};
use crate::kinds::core::persistent_volume::{self, Inline};
use crate::kinds::{Create, Reset, Strategy, Update, prepare};
use crate::validation::{Field, meta, pod};

const MAX_METADATA: usize = 256 * 1024;
const MAX_MESSAGE: usize = 1024;

pub static STRATEGY: Strategy = Strategy {
    returns_deleted: true,
    unconditional_update: false,
    defaults: |attachment| {
        let source = attachment.child("spec").and_then(|spec| spec.child("source"));
        if let Some(volume) = source.and_then(|source| source.child("inlineVolumeSpec")) {
            defaults::resource_list(volume, "capacity");
            defaults::volume_source(volume);
        }
    },
    create: Create::new(
        |attachment, _| prepare::put(attachment, &["status"], Some(&json!({"attached": false}))),
        validate,
    ),
    update: Update::of_spec(|attachment, old, _| prepare::keep(attachment, old, "status"), validate_update),
    subresources: &[(
        "status",
        Update {
            reset: Reset::Fields(&[&["metadata"], &["spec"]]),
            ..Update::new(prepare::status_and_nothing_else, validate_update)
        },
    )],
    ..Strategy::cluster(GROUP, "VolumeAttachment")
};

fn validate(attachment: &Field) {
    meta::builtin_meta(&attachment.at("metadata"), false, names::name_is_dns_subdomain);
    let spec = attachment.at("spec");
    pod::csi_driver_name(&spec.at("attacher"));
    let volume = spec.at("source");
    source(&volume);
    spec.at("nodeName").dns_subdomain();
    let status = attachment.at("status");
    let metadata = status.at("attachmentMetadata");
    if texts_size(&metadata) > MAX_METADATA {
        metadata.too_long(MAX_METADATA);
    }
    volume_error(&status.at("attachError"));
    volume_error(&status.at("detachError"));
    if volume.at("persistentVolumeName").is_set() {
        volume.at("persistentVolumeName").dns_subdomain();
    }
}

fn source(source: &Field) {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let (inline, name) = (source.at("inlineVolumeSpec"), source.at("persistentVolumeName"));
    match (inline.is_set(), name.is_set()) {
        (false, false) => source.missing(ONE),
        (true, true) => source.forbidden(ONE),
        (false, true) if name.is_empty() => name.missing("must specify non empty persistentVolumeName"),
        (false, true) => {}
        (true, false) => persistent_volume::spec(&inline, Inline::Yes, false),
    }
}

fn volume_error(error: &Field) {
    if error.at("message").text().len() > MAX_MESSAGE {
        // Kubernetes names the other limit here.
        error.at("message").too_long(MAX_METADATA);
    }
    if error.at("errorCode").is_set() {
        error.at("errorCode").in_range(0, i64::from(i32::MAX));
    }
}

fn validate_update(attachment: &Field, old: &Value) {
    validate(attachment);
    attachment.at("spec").immutable_as("VolumeAttachmentSpec", &old["spec"]);
}
