//! LimitRange: bounds and defaults for the resources of objects in a namespace.

use std::collections::HashSet;

use object_model::names;
use serde_json::{Value, json};

use crate::defaults::{Defaults, resource_list};
use crate::kinds::{Context, Create, Strategy, Update};
use crate::validation::resources::{container_resource_name, is_overcommit_allowed, resource_name};
use crate::validation::{Field, meta};

const LISTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

pub static STRATEGY: Strategy = Strategy {
    create_on_update: true,
    defaults: |range| {
        for item in range.child("spec").into_iter().flat_map(|spec| spec.each("limits")) {
            default_item(item);
        }
    },
    create: Create::new(name_after_uid, validate),
    update: Update::new(|_, _, _| {}, |range, _| validate(range)),
    ..Strategy::new("", "LimitRange")
};

/// A LimitRange without a name gets its uid for one.
fn name_after_uid(range: &mut Value, _: &Context) {
    let uid = range["metadata"]["uid"].clone();
    if let Some(metadata) = range.child("metadata").filter(|_| uid.is_string()) {
        metadata.default_to("name", uid);
    }
}

/// For containers, the limit defaults to the maximum, and the request to the limit or else the minimum.
fn default_item(item: &mut Value) {
    if item["type"] == "Container" {
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            for (name, amount) in item[from].as_object().cloned().into_iter().flatten() {
                item.default_if_absent(to, json!({}));
                item[to].default_if_absent(&name, amount);
            }
        }
    }
    for list in LISTS {
        resource_list(item, list);
    }
}

fn validate(range: &Field) {
    meta::builtin_meta(&range.at("metadata"), true, names::name_is_dns_subdomain);
    let spec = range.at("spec");
    let mut seen = HashSet::new();
    for item in spec.at("limits").each() {
        let kind = item.at("type");
        type_name(&kind);
        if seen.contains(&kind.text()) {
            kind.duplicate();
        }
        seen.insert(kind.text());
        for list in LISTS {
            if kind.is("Pod") && list.starts_with("default") {
                if !item.at(list).is_empty() {
                    item.at(list).forbidden("may not be specified when `type` is 'Pod'");
                }
                continue;
            }
            if list == "maxLimitRequestRatio" {
                storage_bound(&item);
            }
            for (name, entry) in item.at(list).entries() {
                match kind.text() {
                    "Pod" | "Container" => container_resource_name(name, &entry),
                    _ => resource_name(name, &entry),
                }
            }
        }
        amounts(&item);
    }
}

fn type_name(kind: &Field) {
    let wrong = names::qualified_name(kind.text());
    let standard = ["Pod", "Container", "PersistentVolumeClaim"];
    if wrong.is_empty() && !kind.text().contains('/') && !kind.is_one_of(&standard) {
        kind.invalid("must be a standard limit type or fully qualified");
    }
    kind.invalid_for(wrong);
}

fn storage_bound(item: &Field) {
    if item.at("type").is("PersistentVolumeClaim")
        && !item.at("min").key("storage").is_set()
        && !item.at("max").key("storage").is_set()
    {
        item.at("limits").missing("either minimum or maximum storage value is required, but neither was provided");
    }
}

/// min ≤ default request ≤ default ≤ max, and the ratio between 1 and max/min.
fn amounts(item: &Field) {
    let mut keys: Vec<&str> = LISTS
        .iter()
        .flat_map(|list| item.value().get(list).and_then(Value::as_object).into_iter().flatten())
        .map(|(name, _)| name.as_str())
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let is_pod = item.at("type").is("Pod");
    for name in keys {
        let read = |list: &'static str| {
            let set = item.at(list).key(name).is_set() && !(is_pod && list.starts_with("default"));
            set.then(|| item.at(list).key(name).quantity())
        };
        let (min, max) = (read("min"), read("max"));
        let (limit, request, ratio) = (read("default"), read("defaultRequest"), read("maxLimitRequestRatio"));
        let order = [
            (&min, &max, "min", &min, "min value {} is greater than max value {}"),
            (&min, &request, "defaultRequest", &request, "min value {} is greater than default request value {}"),
            (&request, &max, "defaultRequest", &request, "default request value {} is greater than max value {}"),
            (
                &request,
                &limit,
                "defaultRequest",
                &request,
                "default request value {} is greater than default limit value {}",
            ),
            (&min, &limit, "default", &min, "min value {} is greater than default value {}"),
            (&limit, &max, "default", &max, "default value {} is greater than max value {}"),
        ];
        for (low, high, list, shown, words) in order {
            if let (Some(low), Some(high), Some(shown)) = (low, high, shown)
                && low > high
            {
                let detail = words.replacen("{}", &low.to_string(), 1).replacen("{}", &high.to_string(), 1);
                item.at(list).key(name).invalid_value(shown.to_string(), detail);
            }
        }
        if let Some(ratio) = &ratio {
            let list = item.at("maxLimitRequestRatio");
            if ratio.milli_value() < 1000 {
                list.key(name).invalid(format!("ratio {ratio} is less than 1"));
            }
            if let (Some(min), Some(max)) = (&min, &max) {
                let bound = max.as_f64() / min.as_f64();
                if ratio.as_f64() > bound {
                    list.key(name).invalid(format!("ratio {ratio} is greater than max/min = {bound:.6}"));
                }
            }
        }
        if let (Some(limit), Some(request), false) = (&limit, &request, is_overcommit_allowed(name))
            && limit != request
        {
            item.at("defaultRequest").key(name).invalid_value(
                request.to_string(),
                format!("default value {limit} must equal to defaultRequest value {request} in {name}"),
            );
        }
    }
}
