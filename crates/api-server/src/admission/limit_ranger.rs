//! LimitRanger: containers get the default requests and limits of their namespace, and nothing is larger or smaller than
//! the namespace's LimitRanges allow.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use object_model::{
    meta::{Meta, MetaMut},
    quantity::Quantity,
    status::Status,
    value::Fields,
};
use serde_json::{Value, json};

use super::{
    Attributes, Lookup, Plugin, Request,
    pod_resources::{Amounts, Counting, Of, amounts, of_pod},
    together,
};
use crate::watch_cache::WatchCache;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
const CONTAINER_LISTS: [(&str, &str); 2] = [("containers", "container"), ("initContainers", "init container")];
/// A pod is judged by its own words.
const COUNTING: Counting = Counting { status: false, overhead: false, huge_pages: false };

pub struct LimitRanger {
    ranges: Lookup,
}

impl LimitRanger {
    pub fn new(cache: &Arc<WatchCache>) -> Self {
        Self { ranges: Lookup::new(cache, "", "limitranges", "LimitRange") }
    }

    /// The limits of each LimitRange that the request has to keep; what is being deleted need not.
    fn ranges(&self, attributes: &Attributes<'_>) -> Vec<Value> {
        if attributes.old.is_some_and(|old| Meta::of(old).is_deleting()) {
            return Vec::new();
        }
        self.ranges.of_namespace(attributes.target.namespace)
    }
}

#[async_trait]
impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        // The containers of a pod change by resizing only.
        request.creates("", "pods")
            || request.updates("", "pods", "resize")
            || request.writes("", "persistentvolumeclaims", "")
    }

    async fn mutate(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        if &*attributes.target.resource.plural == "pods" {
            self.ranges(attributes).iter().for_each(|range| fill(limits(range), object));
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        let pods = &*attributes.target.resource.plural == "pods";
        for range in self.ranges(attributes) {
            let mut problems = Vec::new();
            for limit in limits(&range) {
                if pods {
                    check_pod(limit, object, &mut problems);
                } else if limit.text("type") == "PersistentVolumeClaim" {
                    check_claim(limit, object, &mut problems);
                }
            }
            if !problems.is_empty() {
                return Err(attributes.forbidden(object, together(&problems)));
            }
        }
        Ok(())
    }
}

fn limits(range: &Value) -> &[Value] {
    range.field("spec").map(|spec| spec.items("limits")).unwrap_or_default()
}

/// Sets the default requests and limits of every container that has none, and says so in an annotation.
fn fill(limits: &[Value], pod: &mut Value) {
    let mut defaults = [("requests", BTreeMap::new()), ("limits", BTreeMap::new())];
    for limit in limits.iter().filter(|l| l.text("type") == "Container") {
        defaults[0].1.extend(limit.entries("defaultRequest").map(|(k, v)| (k.clone(), v.clone())));
        defaults[1].1.extend(limit.entries("default").map(|(k, v)| (k.clone(), v.clone())));
    }
    let mut said = Vec::new();
    for (list, words) in CONTAINER_LISTS {
        let containers = pod.get_mut("spec").and_then(|s| s.get_mut(list)).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = container.text("name").to_owned();
            for (kind, values) in &defaults {
                let missing: Vec<&String> =
                    values.keys().filter(|k| container.at(&["resources", kind, k]).is_none()).collect();
                if missing.is_empty() {
                    continue;
                }
                let names: Vec<&str> = missing.iter().map(|k| k.as_str()).collect();
                said.push(format!("{} {} for {words} {name}", names.join(", "), kind.trim_end_matches('s')));
                let Some(fields) = container.as_object_mut() else { continue };
                let resources = fields.entry("resources").or_insert_with(|| json!({}));
                for key in missing {
                    resources[kind][key] = values[key].clone();
                }
            }
        }
    }
    if let (false, Some(fields)) = (said.is_empty(), pod.as_object_mut()) {
        let text = format!("LimitRanger plugin set: {}", said.join("; "));
        MetaMut::of(fields).set_annotation(ANNOTATION, &text);
    }
}

fn check_pod(limit: &Value, pod: &Value, problems: &mut Vec<String>) {
    let spec = pod.field("spec").unwrap_or(&Value::Null);
    match limit.text("type") {
        "Container" => {
            for container in CONTAINER_LISTS.iter().flat_map(|(list, _)| spec.items(list)) {
                check(limit, &Of::Requests.stated(container), &Of::Limits.stated(container), problems);
            }
        }
        "Pod" => {
            check(limit, &of_pod(pod, Of::Requests, COUNTING), &of_pod(pod, Of::Limits, COUNTING), problems);
        }
        _ => {}
    }
}

fn check(limit: &Value, requests: &Amounts, limits: &Amounts, problems: &mut Vec<String>) {
    let kind = limit.text("type");
    for (name, least) in amounts(limit.field("min")) {
        let start = format!("minimum {name} usage per {kind} is {least}");
        match (requests.get(&name), limits.get(&name)) {
            (None, _) => problems.push(format!("{start}.  No request is specified")),
            (Some(request), _) if *request < least => problems.push(format!("{start}, but request is {request}")),
            (_, Some(limit)) if *limit < least => problems.push(format!("{start}, but limit is {limit}")),
            _ => {}
        }
    }
    for (name, most) in amounts(limit.field("max")) {
        let start = format!("maximum {name} usage per {kind} is {most}");
        match (requests.get(&name), limits.get(&name)) {
            (_, None) => problems.push(format!("{start}.  No limit is specified")),
            (_, Some(limit)) if *limit > most => problems.push(format!("{start}, but limit is {limit}")),
            (Some(request), _) if *request > most => problems.push(format!("{start}, but request is {request}")),
            _ => {}
        }
    }
    for (name, ratio) in amounts(limit.field("maxLimitRequestRatio")) {
        let start = format!("{name} max limit to request ratio per {kind} is {ratio}");
        match (requests.get(&name), limits.get(&name)) {
            (request, _) if request.is_none_or(Quantity::is_zero) => {
                problems.push(format!("{start}, but no request is specified or request is 0"));
            }
            (_, limit) if limit.is_none_or(Quantity::is_zero) => {
                problems.push(format!("{start}, but no limit is specified or limit is 0"));
            }
            (Some(request), Some(limit)) => {
                // In thousandths, so that what is written in them is compared exactly.
                let found = limit.milli_value() as f64 / request.milli_value() as f64;
                if found * 1000.0 > ratio.milli_value() as f64 {
                    problems.push(format!("{start}, but provided ratio is {found:.6}"));
                }
            }
            _ => {}
        }
    }
}

fn check_claim(limit: &Value, claim: &Value, problems: &mut Vec<String>) {
    let requests = amounts(claim.at(&["spec", "resources", "requests"]));
    for (field, word) in [("min", "minimum"), ("max", "maximum")] {
        for (name, bound) in amounts(limit.field(field)) {
            let start = format!("{word} {name} usage per PersistentVolumeClaim is {bound}");
            match requests.get(&name) {
                None => problems.push(format!("{start}.  No request is specified")),
                Some(request) if (field == "min" && *request < bound) || (field == "max" && *request > bound) => {
                    problems.push(format!("{start}, but request is {request}"));
                }
                Some(_) => {}
            }
        }
    }
}
