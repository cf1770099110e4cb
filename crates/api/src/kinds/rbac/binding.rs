//! RoleBinding and ClusterRoleBinding: give a role to users, groups and service accounts.

use serde_json::Value;

use super::GROUP;
use crate::defaults::Defaults;
use crate::kinds::{Create, Strategy, Update};
use crate::validation::{Field, meta, same};

pub static STRATEGY: Strategy = Strategy {
    create_on_update: true,
    defaults,
    create: Create::new(|_, _| {}, |object| binding(object, true)),
    update: Update::new(|_, _, _| {}, |object, old| changed(object, old, true)),
    ..Strategy::new(GROUP, "RoleBinding")
};

pub static CLUSTER_STRATEGY: Strategy = Strategy {
    create_on_update: true,
    defaults,
    create: Create::new(|_, _| {}, |object| binding(object, false)),
    update: Update::new(|_, _, _| {}, |object, old| changed(object, old, false)),
    ..Strategy::cluster(GROUP, "ClusterRoleBinding")
};

fn defaults(binding: &mut Value) {
    if let Some(role) = binding.child("roleRef") {
        role.default_to("apiGroup", GROUP);
    }
    for subject in binding.each("subjects") {
        if subject["kind"] == "User" || subject["kind"] == "Group" {
            subject.default_to("apiGroup", GROUP);
        }
    }
}

fn binding(binding: &Field, namespaced: bool) {
    meta::builtin_meta(&binding.at("metadata"), namespaced, super::name);
    let role = binding.at("roleRef");
    role.at("apiGroup").one_of(&[GROUP]);
    role.at("kind").one_of(if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] });
    role.at("name").required_path_segment();
    for one in binding.at("subjects").each() {
        subject(&one, namespaced);
    }
}

fn subject(subject: &Field, namespaced: bool) {
    let (name, group) = (subject.at("name"), subject.at("apiGroup"));
    name.required();
    match subject.at("kind").text() {
        "ServiceAccount" => {
            name.dns_subdomain_if_any();
            if !group.is_empty() {
                group.not_supported(&[""]);
            }
            if !namespaced {
                subject.at("namespace").required();
            }
        }
        "User" | "Group" => group.one_of(&[GROUP]),
        _ => subject.at("kind").not_supported(&["ServiceAccount", "User", "Group"]),
    }
}

/// What is bound never changes, for else a binding someone approved could come to mean more.
fn changed(object: &Field, old: &Value, namespaced: bool) {
    binding(object, namespaced);
    meta::builtin_meta_update(&object.at("metadata"), &old["metadata"]);
    let role = object.at("roleRef");
    if !same(role.value(), &old["roleRef"]) {
        role.invalid_as("RoleRef", "cannot change roleRef");
    }
}
