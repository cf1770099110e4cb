//! Event: something that happened to an object. Served by the core group and by `events.k8s.io`, each with its own rules.
//!
//! Both are stored in the core form; the newer API is stricter about what it writes.

use std::time::Duration;

use object_model::names;
use serde_json::Value;

use crate::kinds::{Create, GarbageCollection, Selectable, Strategy, Update};
use crate::validation::{Field, meta};

/// Events are history: they are kept for an hour.
const TTL: Duration = Duration::from_secs(3600);

pub static STRATEGY: Strategy = Strategy {
    garbage_collection: GarbageCollection::Unsupported,
    ttl: Some(TTL),
    create_on_update: true,
    create: Create::new(|_, _| {}, |event| shared(event, "reportingComponent")),
    update: Update::new(|_, _, _| {}, |event, _| shared(event, "reportingComponent")),
    fields: FIELDS,
    ..Strategy::new("", "Event")
};

/// The `events.k8s.io` view of the same objects.
pub static EVENTS_STRATEGY: Strategy = Strategy {
    garbage_collection: GarbageCollection::Unsupported,
    ttl: Some(TTL),
    create: Create::new(|_, _| {}, validate_strictly),
    update: Update::new(|_, _, _| {}, validate_update_strictly),
    create_on_update: true,
    fields: FIELDS,
    field_names: &[
        ("reason", "reason"),
        ("regarding.kind", "involvedObject.kind"),
        ("regarding.namespace", "involvedObject.namespace"),
        ("regarding.name", "involvedObject.name"),
        ("regarding.uid", "involvedObject.uid"),
        ("regarding.apiVersion", "involvedObject.apiVersion"),
        ("regarding.resourceVersion", "involvedObject.resourceVersion"),
        ("regarding.fieldPath", "involvedObject.fieldPath"),
        ("reportingController", "reportingComponent"),
        ("type", "type"),
    ],
    ..Strategy::new("events.k8s.io", "Event")
};

macro_rules! involved {
    ($field:literal) => {
        Selectable {
            name: concat!("involvedObject.", $field),
            read: |event| event["involvedObject"][$field].as_str().unwrap_or_default().to_owned(),
        }
    };
}

const FIELDS: &[Selectable] = &[
    involved!("kind"),
    involved!("namespace"),
    involved!("name"),
    involved!("uid"),
    involved!("apiVersion"),
    involved!("resourceVersion"),
    involved!("fieldPath"),
    Selectable { name: "reason", read: |event| text(event, "reason") },
    Selectable { name: "reportingComponent", read: |event| text(event, "reportingComponent") },
    Selectable {
        name: "source",
        read: |event| match event["source"]["component"].as_str() {
            None | Some("") => text(event, "reportingComponent"),
            Some(component) => component.to_owned(),
        },
    },
    Selectable { name: "type", read: |event| text(event, "type") },
];

fn text(event: &Value, name: &str) -> String {
    event[name].as_str().unwrap_or_default().to_owned()
}

fn shared(event: &Field, controller_name: &str) {
    let namespace = event.at("metadata").at("namespace").text();
    let involved = event.at("involvedObject");
    let involved_namespace = involved.at("namespace");
    let mismatch = |allowed: &[&str]| {
        if involved_namespace.is_empty() && !allowed.contains(&namespace) {
            involved_namespace.invalid_value("", "does not match event.namespace");
        }
    };
    if !event.at("eventTime").is_set() {
        mismatch(&["", "default"]);
        if !involved_namespace.is_empty() && !involved_namespace.is(namespace) {
            involved_namespace.invalid("does not match event.namespace");
        }
    } else {
        mismatch(&["default", "kube-system"]);
        let controller = event.at(controller_name).with(event.at("reportingComponent").value());
        controller.required();
        controller.qualified_name();
        for name in ["reportingInstance", "action", "reason"] {
            event.at(name).required();
            at_most(&event.at(name), 128);
        }
        at_most(&event.at("message"), 1024);
    }
    for message in names::dns_subdomain(namespace) {
        event.at("namespace").invalid_value(namespace, message);
    }
}

fn at_most(field: &Field, length: usize) {
    if field.text().len() > length {
        field.invalid_value("", format!("can have at most {length} characters"));
    }
}

fn validate_strictly(event: &Field) {
    shared(event, "reportingController");
    meta::builtin_meta(&event.at("metadata"), true, names::name_is_dns_subdomain);
    series(event);
    event.at("eventTime").required();
    if !event.at("type").is_one_of(&["Normal", "Warning"]) {
        event.at("type").invalid_value("", format!("has invalid value: {}", event.at("type").text()));
    }
    for name in ["firstTimestamp", "lastTimestamp"] {
        if event.at(name).is_set() {
            event.at(name).invalid_value("", "needs to be unset");
        }
    }
    if event.at("count").number() != 0 {
        event.at("count").invalid_value("", "needs to be unset");
    }
    let source = event.at("source");
    if !source.at("component").is_empty() || !source.at("host").is_empty() {
        source.invalid_value("", "needs to be unset");
    }
}

fn series(event: &Field) {
    let series = event.at("series");
    if series.is_set() {
        if series.at("count").number() < 2 {
            event.at("series.count").invalid_value("", "should be at least 2");
        }
        if !series.at("lastObservedTime").is_set() {
            event.at("series.lastObservedTime").missing("");
        }
    }
}

fn validate_update_strictly(event: &Field, old: &Value) {
    shared(event, "reportingController");
    meta::builtin_meta_update(&event.at("metadata"), &old["metadata"]);
    if event.at("series").value() != &old["series"] {
        series(event);
    }
    for name in [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "reason",
        "type",
        "eventTime",
        "action",
        "related",
    ] {
        event.immutable_at(name, old);
    }
    event.at("reportingController").with(event.at("reportingComponent").value()).immutable(&old["reportingComponent"]);
    event.immutable_at("reportingInstance", old);
}
