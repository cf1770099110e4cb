//! HorizontalPodAutoscaler: changes the number of replicas of something by what is measured.
//!
//! Stored as `autoscaling/v2`, which can say everything; `v1` comes here converted ([`crate::conversion`]).

use object_model::identity::GroupVersion;
use object_model::names;
use serde_json::{Value, json};

use super::GROUP;
use crate::conversion::drop_autoscaler_annotations;
use crate::defaults::Defaults;
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::resources::container_resource_name;
use crate::validation::{Field, meta};

const LONGEST_PERIOD: i64 = 1800;
const LONGEST_WINDOW: i64 = 3600;
/// The percentage of CPU that is aimed at if nothing else is.
pub(crate) const DEFAULT_CPU_UTILIZATION: i64 = 80;

pub static STRATEGY: Strategy = Strategy {
    defaults,
    create: Create::new(
        |autoscaler, _| prepare::put(autoscaler, &["status"], Some(&new_status())),
        |autoscaler| {
            meta::builtin_meta(&autoscaler.at("metadata"), true, names::name_is_dns_subdomain);
            spec(&autoscaler.at("spec"), &Value::Null);
        },
    ),
    update: Update::of_spec(
        |autoscaler, old, _| prepare::keep(autoscaler, old, "status"),
        |autoscaler, old| {
            meta::builtin_meta_update(&autoscaler.at("metadata"), &old["metadata"]);
            spec(&autoscaler.at("spec"), &old["spec"]);
        },
    ),
    subresources: &[(
        "status",
        Update::of_status(|autoscaler, old| {
            meta::builtin_meta_update(&autoscaler.at("metadata"), &old["metadata"]);
            autoscaler.at("status").at("currentReplicas").non_negative();
            autoscaler.at("status").at("desiredReplicas").non_negative();
        }),
    )],
    ..Strategy::new(GROUP, "HorizontalPodAutoscaler")
};

fn new_status() -> Value {
    json!({"desiredReplicas": 0, "currentMetrics": null})
}

/// The metric that aims at a share of the requested CPU.
pub(crate) fn cpu_metric(percentage: &Value) -> Value {
    json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percentage}},
    })
}

fn defaults(autoscaler: &mut Value) {
    // They stand for fields in v1 only.
    drop_autoscaler_annotations(autoscaler);
    let Some(spec) = autoscaler.child("spec") else { return };
    spec.default_if_absent("minReplicas", 1);
    if spec["metrics"].as_array().is_none_or(Vec::is_empty) {
        spec["metrics"] = json!([cpu_metric(&json!(DEFAULT_CPU_UTILIZATION))]);
    }
    let Some(behavior) = spec.child("behavior") else { return };
    let policy = |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 15});
    behavior.default_if_absent("scaleUp", json!({}));
    if let Some(up) = behavior.child("scaleUp") {
        up.default_if_absent("stabilizationWindowSeconds", 0);
        up.default_if_absent("selectPolicy", "Max");
        up.default_if_absent("policies", json!([policy("Pods", 4), policy("Percent", 100)]));
    }
    behavior.default_if_absent("scaleDown", json!({}));
    if let Some(down) = behavior.child("scaleDown") {
        // The window of scaling down is the controller's setting.
        down.default_if_absent("selectPolicy", "Max");
        down.default_if_absent("policies", json!([policy("Percent", 100)]));
    }
}

/// `old` is null for a new autoscaler. What it had wrong already may stay.
fn spec(spec: &Field, old: &Value) {
    let (least, most) = (spec.at("minReplicas"), spec.at("maxReplicas"));
    // Scaling to zero is off by default; an autoscaler that has it keeps it.
    let bound = if old["minReplicas"] == 0 { 0 } else { 1 };
    if least.int().is_some_and(|least| least < bound) {
        least.invalid(format!("must be greater than or equal to {bound}"));
    }
    match most.number() {
        0 => most.missing("must be set and greater than 0"),
        number if number < 0 => most.invalid("must be greater than or equal to 1"),
        _ => {}
    }
    if least.int().is_some_and(|least| most.number() < least) {
        most.invalid_value(most.number(), "must be greater than or equal to `minReplicas`");
    }
    let target = spec.at("scaleTargetRef");
    let before = &old["scaleTargetRef"];
    let same = |name: &str| target.at(name).text() == before[name].as_str().unwrap_or_default();
    reference(
        &target,
        match target.at("kind").text() {
            _ if !old.is_null() && same("apiVersion") && same("kind") => Group::Anything,
            // The one thing of the core group that scales.
            "ReplicationController" => Group::MayBeCore,
            _ => Group::Named,
        },
    );
    metrics(&spec.at("metrics"), &least, old);
    let behavior = spec.at("behavior");
    scaling_rules(&behavior.at("scaleUp"));
    scaling_rules(&behavior.at("scaleDown"));
}

/// What the `apiVersion` of a reference must say of its group.
#[derive(Clone, Copy)]
enum Group {
    Anything,
    MayBeCore,
    Named,
}

fn reference(reference: &Field, group: Group) {
    reference.at("kind").required_path_segment();
    reference.at("name").required_path_segment();
    let api_version = reference.at("apiVersion");
    if let Some(wrong) = wrong_group(api_version.text(), group) {
        api_version.invalid_value(api_version.text(), wrong);
    }
}

fn wrong_group(api_version: &str, group: Group) -> Option<String> {
    match (group, GroupVersion::parse(api_version)) {
        (Group::Anything, _) => None,
        (_, Err(error)) => Some(error.to_string()),
        (Group::Named, Ok(parsed)) if parsed.group.as_str().is_empty() => {
            Some("apiVersion must specify API group".to_owned())
        }
        _ => None,
    }
}

fn metrics(metrics: &Field, least: &Field, old: &Value) {
    let was_wrong = old["metrics"].as_array().into_iter().flatten().any(|metric| {
        let api_version = metric["object"]["describedObject"]["apiVersion"].as_str().unwrap_or_default();
        metric["type"] == "Object"
            && metric["object"].is_object()
            && wrong_group(api_version, Group::MayBeCore).is_some()
    });
    let described = if was_wrong { Group::Anything } else { Group::MayBeCore };
    metrics.each().for_each(|each| metric(&each, described));
    let measures_elsewhere = metrics.each().any(|metric| metric.at("type").is_one_of(&["Object", "External"]));
    if least.int() == Some(0) && !measures_elsewhere {
        metrics.forbidden("must specify at least one Object or External metric to support scaling to zero replicas");
    }
}

/// Each source by the type that names it, in the order in which they are looked at.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

fn metric(metric: &Field, described: Group) {
    let kind = metric.at("type");
    if kind.is_empty() {
        kind.missing("must specify a metric source type");
    }
    let types = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    kind.one_of(&types);
    let present: Vec<&str> =
        SOURCES.iter().map(|(_, source)| *source).filter(|name| metric.at(name).is_set()).collect();
    if let Some(first) = present.first() {
        source(&metric.at(first), first, described);
    }
    let expected = SOURCES.iter().find(|(name, _)| kind.is(name)).map(|(_, source)| *source);
    match expected {
        Some(name) if !present.contains(&name) => {
            metric.at(name).missing("must populate information for the given metric source");
        }
        Some(_) => {}
        None => kind.not_supported(&types),
    }
    if present.len() != 1 {
        for other in present.iter().filter(|name| Some(**name) != expected) {
            metric.at(other).forbidden("must populate the given metric source only");
        }
    }
}

fn source(source: &Field, name: &str, described: Group) {
    let goal = source.at("target");
    let (value, average) = (goal.at("value"), goal.at("averageValue"));
    match name {
        "object" => {
            reference(&source.at("describedObject"), described);
            identifier(&source.at("metric"));
            target(&goal);
            if !value.is_set() && !average.is_set() {
                average.missing("must set either a target value or averageValue");
            }
        }
        "external" => {
            identifier(&source.at("metric"));
            target(&goal);
            match (value.is_set(), average.is_set()) {
                (false, false) => average.missing("must set either a target value for metric or a per-pod target"),
                (true, true) => value.forbidden("may not set both a target value for metric and a per-pod target"),
                _ => {}
            }
        }
        "pods" => {
            identifier(&source.at("metric"));
            target(&goal);
            if !average.is_set() {
                average.missing("must specify a positive target averageValue");
            }
        }
        _ => resource(source, name == "containerResource"),
    }
}

fn resource(source: &Field, of_container: bool) {
    let name = source.at("name");
    if name.is_empty() {
        name.missing("must specify a resource name");
    } else if of_container {
        container_resource_name(name.text(), &name);
    }
    if of_container {
        let container = source.at("container");
        if container.is_empty() {
            container.missing("must specify a container");
        } else {
            container.dns_label();
        }
    }
    let goal = source.at("target");
    target(&goal);
    let (utilization, average) = (goal.at("averageUtilization"), goal.at("averageValue"));
    match (utilization.is_set(), average.is_set()) {
        (false, false) => utilization.missing("must set either a target raw value or a target utilization"),
        (true, true) => average.forbidden("may not set both a target raw value and a target utilization"),
        _ => {}
    }
}

fn target(target: &Field) {
    let kind = target.at("type");
    if kind.is_empty() {
        kind.missing("must specify a metric target type");
    }
    if !kind.is_one_of(&["Utilization", "Value", "AverageValue"]) {
        kind.invalid_value(kind.text(), "must be either Utilization, Value, or AverageValue");
    }
    for name in ["value", "averageValue"] {
        let amount = target.at(name);
        if amount.is_set() && amount.quantity().sign() <= 0 {
            amount.invalid("must be positive");
        }
    }
    let utilization = target.at("averageUtilization");
    if utilization.int().is_some_and(|percentage| percentage < 1) {
        utilization.invalid("must be greater than 0");
    }
}

fn identifier(identifier: &Field) {
    let name = identifier.at("name");
    if name.is_empty() {
        name.missing("must specify a metric name");
    } else {
        name.path_segment();
    }
}

fn scaling_rules(rules: &Field) {
    if !rules.is_set() {
        return;
    }
    let window = rules.at("stabilizationWindowSeconds");
    if window.number() < 0 {
        window.invalid("must be greater than or equal to zero");
    }
    at_most(&window, LONGEST_WINDOW);
    rules.at("selectPolicy").one_of_if_set(&["Disabled", "Max", "Min"]);
    let policies = rules.at("policies");
    if policies.is_empty() {
        policies.missing("must specify at least one Policy");
    }
    for policy in policies.each() {
        policy.at("type").one_of(&["Percent", "Pods"]);
        policy.at("value").positive();
        let period = policy.at("periodSeconds");
        period.positive();
        at_most(&period, LONGEST_PERIOD);
    }
    if rules.at("tolerance").is_set() {
        rules.at("tolerance").non_negative_quantity();
    }
}

fn at_most(seconds: &Field, most: i64) {
    if seconds.number() > most {
        seconds.invalid(format!("must be less than or equal to {most}"));
    }
}
