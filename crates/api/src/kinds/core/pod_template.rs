//! PodTemplate: a template of pods as an object of its own.

use object_model::names;

use crate::defaults;
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::{meta, pod};

pub static STRATEGY: Strategy = Strategy {
    returns_deleted: true,
    defaults: defaults::pod_template,
    create: Create {
        warnings: |object| pod::template_warnings("template", &object["template"]),
        ..Create::new(
            |object, _| {
                prepare::first_generation(object);
                pod::drop_disabled(object, &["template"], None);
            },
            |object| {
                meta::builtin_meta(&object.at("metadata"), true, names::name_is_dns_subdomain);
                pod::pod_template(&object.at("template"), &pod::Options::of(None));
            },
        )
    },
    update: Update {
        warnings: |object, old| match object["metadata"]["generation"] != old["metadata"]["generation"] {
            true => pod::template_warnings("template", &object["template"]),
            false => Vec::new(),
        },
        ..Update::new(
            |object, old, _| {
                pod::drop_disabled(object, &["template"], Some(old));
                prepare::next_generation(object, old, &["template"]);
            },
            |object, old| {
                meta::builtin_meta_update(&object.at("metadata"), &old["metadata"]);
                pod::pod_template(&object.at("template"), &pod::Options::of(Some(&old["template"])));
            },
        )
    },
    ..Strategy::new("", "PodTemplate")
};
