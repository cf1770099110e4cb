//! ResourceClaimTemplate: what claims are made from, one for each pod.

use object_model::names;

use super::{GROUP, claim};
use crate::defaults::Defaults;
use crate::kinds::{Create, Strategy, Update};
use crate::validation::{Field, meta};

pub static STRATEGY: Strategy = Strategy {
    returns_deleted: true,
    defaults: |template| {
        if let Some(spec) = template.child("spec").and_then(|outer| outer.child("spec")) {
            claim::defaults(spec);
        }
    },
    create: Create::new(|_, _| {}, validate),
    update: Update::new(
        |_, _, _| {},
        |template, old| {
            validate(template);
            meta::builtin_meta_update(&template.at("metadata"), &old["metadata"]);
            template.at("spec").immutable_as("ResourceClaimTemplateSpec", &old["spec"]);
        },
    ),
    ..Strategy::new(GROUP, "ResourceClaimTemplate")
};

fn validate(template: &Field) {
    meta::builtin_meta(&template.at("metadata"), true, names::name_is_dns_subdomain);
    let spec = template.at("spec");
    meta::template_meta(&spec.at("metadata"));
    claim::spec(&spec.at("spec"));
}
