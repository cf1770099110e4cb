//! `HorizontalPodAutoscaler`: `autoscaling/v1` has one metric, CPU, and neither behavior nor conditions. It carries the
//! rest in annotations, so that nothing is lost on the way through it; in `v2` these annotations mean nothing and go.
//!
//! As in Kubernetes, the CPU metric comes last after a way through `v1`, and the type of a target follows from the
//! values it has.

use object_model::codec::canonical::canonicalise;
use object_model::codec::json;
use object_model::schema::{Ref, Shape};
use serde_json::{Value, json};

use super::shift;
use crate::kinds::autoscaling::horizontal_pod_autoscaler::{DEFAULT_CPU_UTILIZATION, cpu_metric};
use crate::kinds::prepare::put;
use crate::schemas::definition;
use crate::validation::go_form::shown;
use crate::validation::quantity;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const ALL: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// Where `v2` has a field of a source, and what `v1` calls it.
type Names = &'static [(&'static [&'static str], &'static str)];

const SOURCES: &[(&str, Names)] = &[
    (
        "object",
        &[
            (&["describedObject"], "target"),
            (&["metric", "name"], "metricName"),
            (&["metric", "selector"], "selector"),
            (&["target", "value"], "targetValue"),
            (&["target", "averageValue"], "averageValue"),
        ],
    ),
    (
        "pods",
        &[
            (&["metric", "name"], "metricName"),
            (&["metric", "selector"], "selector"),
            (&["target", "averageValue"], "targetAverageValue"),
        ],
    ),
    (
        "resource",
        &[
            (&["name"], "name"),
            (&["target", "averageUtilization"], "targetAverageUtilization"),
            (&["target", "averageValue"], "targetAverageValue"),
        ],
    ),
    (
        "containerResource",
        &[
            (&["name"], "name"),
            (&["container"], "container"),
            (&["target", "averageUtilization"], "targetAverageUtilization"),
            (&["target", "averageValue"], "targetAverageValue"),
        ],
    ),
    (
        "external",
        &[
            (&["metric", "name"], "metricName"),
            (&["metric", "selector"], "metricSelector"),
            (&["target", "value"], "targetValue"),
            (&["target", "averageValue"], "targetAverageValue"),
        ],
    ),
];

const STATUSES: &[(&str, Names)] = &[
    (
        "object",
        &[
            (&["describedObject"], "target"),
            (&["metric", "name"], "metricName"),
            (&["metric", "selector"], "selector"),
            (&["current", "value"], "currentValue"),
            (&["current", "averageValue"], "averageValue"),
        ],
    ),
    (
        "pods",
        &[
            (&["metric", "name"], "metricName"),
            (&["metric", "selector"], "selector"),
            (&["current", "averageValue"], "currentAverageValue"),
        ],
    ),
    (
        "resource",
        &[
            (&["name"], "name"),
            (&["current", "averageUtilization"], "currentAverageUtilization"),
            (&["current", "averageValue"], "currentAverageValue"),
        ],
    ),
    (
        "containerResource",
        &[
            (&["name"], "name"),
            (&["container"], "container"),
            (&["current", "averageUtilization"], "currentAverageUtilization"),
            (&["current", "averageValue"], "currentAverageValue"),
        ],
    ),
    (
        "external",
        &[
            (&["metric", "name"], "metricName"),
            (&["metric", "selector"], "metricSelector"),
            (&["current", "value"], "currentValue"),
            (&["current", "averageValue"], "currentAverageValue"),
        ],
    ),
];

pub fn to_v1(autoscaler: &mut Value) {
    drop_annotations(autoscaler);
    let metrics = take_list(&mut autoscaler["spec"], "metrics");
    let (cpu, others): (Vec<_>, Vec<_>) =
        metrics.into_iter().partition(|metric| cpu_percentage(metric, "target").is_some());
    if let Some(percentage) = cpu.first().and_then(|metric| cpu_percentage(metric, "target")) {
        put(autoscaler, &["spec", "targetCPUUtilizationPercentage"], Some(percentage));
    }
    let current = take_list(&mut autoscaler["status"], "currentMetrics");
    if let Some(percentage) = current.iter().rev().find_map(|metric| cpu_percentage(metric, "current")) {
        put(autoscaler, &["status", "currentCPUUtilizationPercentage"], Some(percentage));
    }
    let older = |metrics: &[Value], names| metrics.iter().map(|metric| metric_to_v1(metric, names)).collect();
    annotate(autoscaler, METRICS, "MetricSpec", older(&others, SOURCES));
    annotate(autoscaler, CURRENT_METRICS, "MetricStatus", older(&current, STATUSES));
    let conditions = take_list(&mut autoscaler["status"], "conditions");
    annotate(autoscaler, CONDITIONS, "HorizontalPodAutoscalerCondition", conditions);
    let behavior = autoscaler["spec"].as_object_mut().and_then(|spec| spec.remove("behavior"));
    if let Some(behavior) = behavior.filter(Value::is_object) {
        let text = shown("HorizontalPodAutoscalerBehavior", &behavior);
        put(autoscaler, &["metadata", "annotations", BEHAVIOR], Some(&text.into()));
    }
}

pub fn to_v2(autoscaler: &mut Value) {
    let newer = |metrics: Vec<Value>, names| -> Vec<Value> {
        metrics.iter().map(|metric| metric_to_v2(metric, names)).collect()
    };
    let mut metrics = annotated(autoscaler, METRICS, "MetricSpec").map(|m| newer(m, SOURCES)).unwrap_or_default();
    let percentage = autoscaler["spec"]["targetCPUUtilizationPercentage"].take();
    if !percentage.is_null() {
        metrics.push(cpu_metric(&percentage));
    }
    if metrics.is_empty() {
        metrics.push(cpu_metric(&json!(DEFAULT_CPU_UTILIZATION)));
    }
    put(autoscaler, &["spec", "metrics"], Some(&metrics.into()));
    if let Some(behavior) = annotated_behavior(autoscaler) {
        put(autoscaler, &["spec", "behavior"], Some(&behavior));
    }
    let percentage = autoscaler["status"]["currentCPUUtilizationPercentage"].take();
    let current = match annotated(autoscaler, CURRENT_METRICS, "MetricStatus") {
        // They say more than the percentage does.
        Some(current) => newer(current, STATUSES),
        None if percentage.is_null() => Vec::new(),
        None => {
            vec![
                json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percentage}}}),
            ]
        }
    };
    if !current.is_empty() {
        put(autoscaler, &["status", "currentMetrics"], Some(&current.into()));
    }
    if let Some(conditions) = annotated(autoscaler, CONDITIONS, "HorizontalPodAutoscalerCondition") {
        put(autoscaler, &["status", "conditions"], Some(&conditions.into()));
    }
    drop_annotations(autoscaler);
}

/// Removes the annotations that stand for fields.
pub fn drop_annotations(autoscaler: &mut Value) {
    let Some(metadata) = autoscaler.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    ALL.iter().for_each(|name| drop(annotations.remove(*name)));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

fn take_list(owner: &mut Value, name: &str) -> Vec<Value> {
    match owner.as_object_mut().and_then(|fields| fields.remove(name)) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// The percentage, of a metric that is about CPU.
fn cpu_percentage<'a>(metric: &'a Value, part: &str) -> Option<&'a Value> {
    let is_cpu = metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
    Some(&metric["resource"][part]["averageUtilization"]).filter(|percentage| is_cpu && !percentage.is_null())
}

fn metric_to_v1(metric: &Value, names: &[(&str, Names)]) -> Value {
    let mut older = json!({"type": metric["type"]});
    for (source, names) in names.iter().filter(|(source, _)| metric[*source].is_object()) {
        older[*source] = json!({});
        names.iter().for_each(|(path, name)| shift(&metric[*source], path, &mut older[*source], &[name]));
    }
    older
}

fn metric_to_v2(metric: &Value, names: &[(&str, Names)]) -> Value {
    let mut newer = json!({"type": metric["type"]});
    for (source, names) in names.iter().filter(|(source, _)| metric[*source].is_object()) {
        newer[*source] = json!({});
        names.iter().for_each(|(path, name)| shift(&metric[*source], &[name], &mut newer[*source], path));
        if newer[*source]["target"].is_object() || names.iter().any(|(path, _)| path.first() == Some(&"target")) {
            settle_target(source, &mut newer[*source]["target"]);
        }
    }
    newer
}

/// The type of a target, which `v1` does not say.
fn settle_target(source: &str, target: &mut Value) {
    let by_type = match source {
        "object" if target["averageValue"].is_null() => "Value",
        "external" if !target["value"].is_null() => "Value",
        "resource" | "containerResource" if !target["averageUtilization"].is_null() => "Utilization",
        _ => "AverageValue",
    };
    // v1 writes a value always, an absent one as zero.
    let absent = source == "object" && by_type == "AverageValue" && quantity(&target["value"]).is_zero();
    if absent && let Some(fields) = target.as_object_mut() {
        fields.remove("value");
    }
    put(target, &["type"], Some(&by_type.into()));
}

fn v1_type(name: &str) -> Option<object_model::schema::Schema> {
    definition(&format!("io.k8s.api.autoscaling.v1.{name}"))
}

/// Writes a list into an annotation, unless it is empty.
fn annotate(autoscaler: &mut Value, name: &str, item: &str, mut items: Vec<Value>) {
    let Some(schema) = v1_type(item).filter(|_| !items.is_empty()) else { return };
    let mut text = String::from("[");
    for (i, item) in items.iter_mut().enumerate() {
        // The parts come from a canonical object and are of their types.
        let _ = canonicalise(&schema, item);
        text.push_str(if i == 0 { "" } else { "," });
        write_in_order(schema.root(), item, &mut text);
    }
    text.push(']');
    put(autoscaler, &["metadata", "annotations", name], Some(&text.into()));
}

/// The list in an annotation, if there is one that can be read.
fn annotated(autoscaler: &Value, name: &str, item: &str) -> Option<Vec<Value>> {
    let text = autoscaler["metadata"]["annotations"][name].as_str()?;
    let Value::Array(mut items) = json::read(text.as_bytes()).ok()? else { return None };
    let schema = v1_type(item)?;
    items.iter_mut().try_for_each(|item| canonicalise(&schema, item).map(drop)).ok()?;
    Some(items)
}

/// Behavior is annotated with the names that Kubernetes has inside, which begin with capitals.
fn annotated_behavior(autoscaler: &Value) -> Option<Value> {
    let text = autoscaler["metadata"]["annotations"][BEHAVIOR].as_str()?;
    let mut behavior = in_lower_camel(json::read(text.as_bytes()).ok()?);
    canonicalise(&definition("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerBehavior")?, &mut behavior).ok()?;
    Some(behavior).filter(|behavior| behavior.as_object().is_some_and(|fields| !fields.is_empty()))
}

fn in_lower_camel(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(in_lower_camel).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| {
                let mut letters = name.chars();
                let first = letters.next().map(|letter| letter.to_ascii_lowercase());
                (first.into_iter().chain(letters).collect(), in_lower_camel(value))
            })
            .collect::<serde_json::Map<_, _>>()
            .into(),
        scalar => scalar,
    }
}

/// JSON with the fields in the order of the type, which in annotations is seen.
fn write_in_order(at: Ref<'_>, value: &Value, out: &mut String) {
    match (at.shape(), value) {
        (Shape::Struct(shape), Value::Object(fields)) => {
            let mut known: Vec<_> = shape.fields.iter().filter(|field| fields.contains_key(&*field.name)).collect();
            known.sort_by_key(|field| field.number);
            out.push('{');
            for (i, field) in known.into_iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                out.push_str(&json::to_string(&*field.name));
                out.push(':');
                write_in_order(at.to(field.r#type), &fields[&*field.name], out);
            }
            out.push('}');
        }
        (Shape::List(list), Value::Array(items)) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                write_in_order(at.to(list.item), item, out);
            }
            out.push(']');
        }
        _ => out.push_str(&json::to_string(value)),
    }
}

#[cfg(test)]
mod tests;
