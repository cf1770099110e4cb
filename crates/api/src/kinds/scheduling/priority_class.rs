//! PriorityClass: a name for a priority of pods.

use object_model::names;

use super::GROUP;
use crate::defaults::Defaults;
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::{Field, meta, same_at};

/// The highest priority that is not the system's own.
const HIGHEST: i64 = 1_000_000_000;
/// The classes that the system has, and their priorities.
pub const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2 * HIGHEST + 1000), ("system-cluster-critical", 2 * HIGHEST)];

pub static STRATEGY: Strategy = Strategy {
    defaults: |class| class.default_if_absent("preemptionPolicy", "PreemptLowerPriority"),
    create: Create::new(|class, _| prepare::first_generation(class), validate),
    update: Update::new(
        |_, _, _| {},
        |class, old| {
            meta::builtin_meta_update(&class.at("metadata"), &old["metadata"]);
            if !same_at(class.value(), old, "value") {
                class.at("value").forbidden("may not be changed in an update.");
            }
            class.immutable_at("preemptionPolicy", old);
        },
    ),
    ..Strategy::cluster(GROUP, "PriorityClass")
};

fn validate(class: &Field) {
    let metadata = class.at("metadata");
    meta::builtin_meta(&metadata, false, names::name_is_dns_subdomain);
    let (name, value) = (metadata.at("name"), class.at("value"));
    if name.text().starts_with("system-") {
        if let Err(message) = system_class(name.text(), value.number(), class.at("globalDefault").is_true()) {
            name.forbidden(format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {message}"
            ));
        }
    } else if value.number() > HIGHEST {
        value.forbidden(format!("maximum allowed value of a user defined priority is {HIGHEST}"));
    }
    let policy = class.at("preemptionPolicy");
    if policy.is_set() {
        policy.required_one_of(&["PreemptLowerPriority", "Never"]);
    }
}

fn system_class(name: &str, value: i64, global_default: bool) -> Result<(), String> {
    match SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) {
        None => Err(format!("{name} is not a known system priority class")),
        Some((_, known)) if *known != value => Err(format!("value of {name} PriorityClass must be {known}")),
        Some(_) if global_default => Err(format!("globalDefault of {name} PriorityClass must be false")),
        Some(_) => Ok(()),
    }
}
