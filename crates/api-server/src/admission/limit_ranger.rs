//! LimitRanger: containers get the default requests and limits of their namespace, and nothing is larger or smaller than
//! the namespace's LimitRanges allow.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use object_model::{meta::MetaMut, quantity::Quantity, status::Status, value::Fields};
use serde_json::{Value, json};

use super::{Attributes, Lookup, Operation, Plugin};
use crate::watch_cache::WatchCache;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
const CONTAINER_LISTS: [(&str, &str); 2] = [("containers", "container"), ("initContainers", "init container")];

pub struct LimitRanger {
    ranges: Lookup,
}

impl LimitRanger {
    pub fn new(cache: &Arc<WatchCache>) -> Self {
        Self { ranges: Lookup::new(cache, "", "limitranges", "LimitRange") }
    }

    /// All limits of a namespace.
    fn limits(&self, namespace: &str) -> Vec<Value> {
        self.ranges.of_namespace(namespace).iter().flat_map(|range| spec(range).items("limits").to_vec()).collect()
    }
}

#[async_trait]
impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    async fn mutate(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        if attributes.is(Operation::Create, "", "pods") {
            for range in self.ranges.of_namespace(attributes.target.namespace) {
                fill(spec(&range).items("limits"), object);
            }
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        let pods = attributes.is(Operation::Create, "", "pods");
        let claims = |operation| attributes.is(operation, "", "persistentvolumeclaims");
        let claims = claims(Operation::Create) || claims(Operation::Update);
        if !pods && !claims {
            return Ok(());
        }
        let mut problems = Vec::new();
        for limit in self.limits(attributes.target.namespace) {
            if pods {
                check_pod(&limit, object, &mut problems);
            } else if limit.text("type") == "PersistentVolumeClaim" {
                check_claim(&limit, object, &mut problems);
            }
        }
        match problems.as_slice() {
            [] => Ok(()),
            [one] => Err(attributes.forbidden(object, one)),
            several => Err(attributes.forbidden(object, format!("[{}]", several.join(", ")))),
        }
    }
}

fn spec(object: &Value) -> &Value {
    object.field("spec").unwrap_or(&Value::Null)
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

type Amounts = BTreeMap<String, Quantity>;

fn amounts(resources: Option<&Value>, kind: &str) -> Amounts {
    let Some(resources) = resources else { return Amounts::new() };
    resources.entries(kind).filter_map(|(k, v)| Some((k.clone(), Quantity::of(v).ok()?))).collect()
}

fn check_pod(limit: &Value, pod: &Value, problems: &mut Vec<String>) {
    let spec = spec(pod);
    match limit.text("type") {
        "Container" => {
            for container in CONTAINER_LISTS.iter().flat_map(|(list, _)| spec.items(list)) {
                let of = |kind| amounts(container.field("resources"), kind);
                check(limit, &of("requests"), &of("limits"), problems);
            }
        }
        "Pod" => check(limit, &of_pod(spec, "requests"), &of_pod(spec, "limits"), problems),
        _ => {}
    }
}

/// What a whole pod asks for: all containers and sidecars together, or the largest init container with the sidecars
/// before it, whichever is more; and what it says for itself.
fn of_pod(spec: &Value, kind: &str) -> Amounts {
    let mut running = Amounts::new();
    let mut peak = Amounts::new();
    for container in spec.items("initContainers") {
        let own = amounts(container.field("resources"), kind);
        if container.text("restartPolicy") == "Always" {
            add(&mut running, own);
            raise(&mut peak, &running);
        } else {
            let mut together = running.clone();
            add(&mut together, own);
            raise(&mut peak, &together);
        }
    }
    for container in spec.items("containers") {
        add(&mut running, amounts(container.field("resources"), kind));
    }
    raise(&mut running, &peak);
    running.extend(amounts(spec.field("resources"), kind));
    running
}

fn add(total: &mut Amounts, more: Amounts) {
    for (name, amount) in more {
        total.entry(name).and_modify(|a| a.add(&amount)).or_insert(amount);
    }
}

fn raise(most: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let known = most.entry(name.clone()).or_insert(*amount);
        if amount > known {
            *known = *amount;
        }
    }
}

fn check(limit: &Value, requests: &Amounts, limits: &Amounts, problems: &mut Vec<String>) {
    let kind = limit.text("type");
    let bounds = |field| limit.entries(field).filter_map(|(k, v)| Some((k.clone(), Quantity::of(v).ok()?)));
    for (name, least) in bounds("min") {
        let start = format!("minimum {name} usage per {kind} is {least}");
        match (requests.get(&name), limits.get(&name)) {
            (None, _) => problems.push(format!("{start}.  No request is specified")),
            (Some(request), _) if *request < least => problems.push(format!("{start}, but request is {request}")),
            (_, Some(limit)) if *limit < least => problems.push(format!("{start}, but limit is {limit}")),
            _ => {}
        }
    }
    for (name, most) in bounds("max") {
        let start = format!("maximum {name} usage per {kind} is {most}");
        match (requests.get(&name), limits.get(&name)) {
            (_, None) => problems.push(format!("{start}.  No limit is specified")),
            (_, Some(limit)) if *limit > most => problems.push(format!("{start}, but limit is {limit}")),
            (Some(request), _) if *request > most => problems.push(format!("{start}, but request is {request}")),
            _ => {}
        }
    }
    for (name, ratio) in bounds("maxLimitRequestRatio") {
        let start = format!("{name} max limit to request ratio per {kind} is {ratio}");
        match (requests.get(&name), limits.get(&name)) {
            (request, _) if request.is_none_or(Quantity::is_zero) => {
                problems.push(format!("{start}, but no request is specified or request is 0"));
            }
            (_, limit) if limit.is_none_or(Quantity::is_zero) => {
                problems.push(format!("{start}, but no limit is specified or limit is 0"));
            }
            (Some(request), Some(limit)) => {
                let found = limit.as_f64() / request.as_f64();
                if found > ratio.as_f64() {
                    problems.push(format!("{start}, but provided ratio is {found:.6}"));
                }
            }
            _ => {}
        }
    }
}

fn check_claim(limit: &Value, claim: &Value, problems: &mut Vec<String>) {
    let requests = amounts(spec(claim).field("resources"), "requests");
    for (field, word) in [("min", "minimum"), ("max", "maximum")] {
        for (name, bound) in limit.entries(field) {
            let Ok(bound) = Quantity::of(bound) else { continue };
            let start = format!("{word} {name} usage per PersistentVolumeClaim is {bound}");
            match requests.get(name) {
                None => problems.push(format!("{start}.  No request is specified")),
                Some(request) if (field == "min" && *request < bound) || (field == "max" && *request > bound) => {
                    problems.push(format!("{start}, but request is {request}"));
                }
                Some(_) => {}
            }
        }
    }
}
