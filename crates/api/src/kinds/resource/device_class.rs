//! DeviceClass: devices to choose from, and how they are set up.

use object_model::names;
use serde_json::Value;

use super::{GROUP, MAX_CONFIGS, configuration, list, selectors};
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::resources::is_extended;
use crate::validation::{Field, meta, same_at};

pub static STRATEGY: Strategy = Strategy {
    returns_deleted: true,
    create: Create::new(|class, _| prepare::first_generation(class), |class| validate(class, &Value::Null)),
    update: Update::new(|class, old, _| prepare::next_generation(class, old, &["spec"]), validate),
    ..Strategy::cluster(GROUP, "DeviceClass")
};

fn validate(class: &Field, old: &Value) {
    meta::declared_meta(&class.at("metadata"), false, names::name_is_declared_long_name);
    if !old.is_null() {
        meta::builtin_meta_update(&class.at("metadata"), &old["metadata"]);
    }
    let spec = class.at("spec");
    selectors(&spec.at("selectors"));
    let stored = !old.is_null() && same_at(spec.value(), &old["spec"], "config");
    list(&spec.at("config"), MAX_CONFIGS, |config| configuration(config, stored));
    let name = spec.at("extendedResourceName");
    if name.is_set() && !is_extended(name.text()) {
        name.invalid("must be a valid extended resource name");
    }
}
