//! Job: pods that run to completion.

mod status;

use std::collections::HashSet;

use object_model::field::ErrorKind;
use object_model::names;
use serde_json::{Value, json};

use super::GROUP;
use crate::defaults::{self, Defaults};
use crate::kinds::{Context, Create, Selectable, Strategy, Update, prepare};
use crate::validation::selectors::{Selection, SelectorOptions, label_selector_with, select};
use crate::validation::{Field, meta, pod, same_at};

const TEMPLATE: &[&str] = &["spec", "template"];
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
/// Beyond this many completions the number of pods that run or fail is bounded.
const MANY_COMPLETIONS: i64 = 100_000;

pub static STRATEGY: Strategy = Strategy {
    defaults,
    create: Create {
        warnings: |job| {
            let mut warnings = pod::hostname_warning("Pod names and hostnames", &job["metadata"]);
            warnings.extend(spec_warnings("spec", &job["spec"]));
            warnings
        },
        ..Create::new(prepare_create, |job| validate(job, &Ratchet::default()))
    },
    update: Update {
        warnings: |job, old| match job["metadata"]["generation"] != old["metadata"]["generation"] {
            true => spec_warnings("spec", &job["spec"]),
            false => Vec::new(),
        },
        ..Update::of_spec(
            |job, old, context| {
                pod::drop_disabled(job, TEMPLATE, Some(old));
                prepare::spec_only(job, old, context);
            },
            validate_update,
        )
    },
    subresources: &[("status", Update::of_status(status::update))],
    fields: &[Selectable {
        name: "status.successful",
        read: |job| job["status"]["succeeded"].as_i64().unwrap_or_default().to_string(),
    }],
    ..Strategy::new(GROUP, "Job")
};

fn defaults(job: &mut Value) {
    let labels = job["spec"]["template"]["metadata"]["labels"].clone();
    let empty = |value: &Value| value.as_object().is_none_or(|map| map.is_empty());
    if !empty(&labels) && empty(&job["metadata"]["labels"]) {
        prepare::put(job, &["metadata", "labels"], Some(&labels));
    }
    let Some(spec) = job.child("spec") else { return };
    if spec["parallelism"].is_null() {
        spec.default_if_absent("completions", 1);
    }
    spec.default_if_absent("parallelism", 1);
    let limit = if spec["backoffLimitPerIndex"].is_null() { 6 } else { i32::MAX };
    spec.default_if_absent("backoffLimit", limit);
    spec.default_if_absent("completionMode", "NonIndexed");
    spec.default_if_absent("suspend", false);
    let replacement = if spec["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
    spec.default_if_absent("podReplacementPolicy", replacement);
    spec.default_if_absent("manualSelector", false);
    default_patterns(spec);
    defaults::pod_template(spec);
}

/// A pattern of a pod's condition means that it is true.
pub fn default_patterns(spec: &mut Value) {
    let rules = spec.child("podFailurePolicy").into_iter().flat_map(|policy| policy.each("rules"));
    rules.flat_map(|rule| rule.each("onPodConditions")).for_each(|pattern| pattern.default_to("status", "True"));
}

fn prepare_create(job: &mut Value, context: &Context) {
    if job["spec"]["manualSelector"] != true {
        generate_selector(job);
    }
    prepare::new_with_status(job, context);
    pod::drop_disabled(job, TEMPLATE, None);
}

/// A Job finds its pods by a label with its uid.
fn generate_selector(job: &mut Value) {
    let text = |name: &str| json!(job["metadata"][name].as_str().unwrap_or_default());
    let (name, uid) = (text("name"), text("uid"));
    let mut set = |path: &[&str], value: &Value| {
        let there = path.iter().fold(&*job, |at, name| &at[*name]);
        if there.is_null() {
            prepare::put(job, path, Some(value));
        }
    };
    for (labels, value) in [(NAME_LABELS, &name), (UID_LABELS, &uid)] {
        for label in labels {
            set(&["spec", "template", "metadata", "labels", label], value);
        }
    }
    set(&["spec", "selector", "matchLabels", UID_LABELS[1]], &uid);
}

/// What an old Job allows.
#[derive(Default)]
struct Ratchet<'a> {
    old_template: Option<&'a Value>,
    invalid_selector_values: bool,
    /// The prefixed labels are newer than the others.
    without_prefixed_labels: bool,
}

fn validate(job: &Field, ratchet: &Ratchet) {
    let (metadata, spec) = (job.at("metadata"), job.at("spec"));
    meta::builtin_meta(&metadata, true, names::name_is_dns_subdomain);
    generated_selector(job, ratchet);
    spec_with_selector(&spec, ratchet);
    let completions = spec.at("completions").number();
    if spec.at("completionMode").is("Indexed") && completions > 0 {
        let last = format!("{}-{}", metadata.at("name").text(), completions - 1);
        if !names::dns_label(&last).is_empty() {
            metadata
                .at("name")
                .with_text()
                .invalid(format!("will not able to create pod with invalid DNS label: {last}"));
        }
    }
}

/// Unless the selector is the user's own, it must be the generated one.
fn generated_selector(job: &Field, ratchet: &Ratchet) {
    let (metadata, spec) = (job.at("metadata"), job.at("spec"));
    if spec.at("manualSelector").is_true() || !spec.at("selector").is_set() {
        return;
    }
    metadata.at("uid").required();
    let (name, uid) = (metadata.at("name").text(), metadata.at("uid").text());
    let template = spec.at("template");
    let template_meta = template.at("metadata");
    let labels = template_meta.at("labels");
    let mut expected = json!({});
    for i in 0..if ratchet.without_prefixed_labels { 1 } else { 2 } {
        for (label, value) in [(UID_LABELS[i], uid), (NAME_LABELS[i], name)] {
            let entry = labels.key(label);
            if !entry.is_set() {
                entry.missing(format!("must be '{value}'"));
            } else if !entry.is(value) {
                entry.invalid_value(labels.value().clone(), format!("must be '{value}'"));
            }
            expected[label] = json!(value);
        }
    }
    if select(spec.at("selector").value(), &expected) == Selection::NotSelected {
        spec.at("selector").invalid("`selector` not auto-generated");
    }
}

fn spec_with_selector(spec: &Field, ratchet: &Ratchet) {
    spec_of_any_job(spec, ratchet.old_template);
    let selector = spec.at("selector");
    if selector.is_set() {
        let options = SelectorOptions { allow_invalid_values: ratchet.invalid_selector_values, ..Default::default() };
        label_selector_with(&selector, options);
    } else {
        selector.missing("");
    }
    let selection = select(selector.value(), &spec.value()["template"]["metadata"]["labels"]);
    pod::matches_selector(&spec.at("template"), selection);
}

/// What holds for a Job and for the template of one.
pub fn spec_of_any_job(spec: &Field, old_template: Option<&Value>) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        spec.at(name).non_negative();
    }
    if spec.at("maxFailedIndexes").is_set() && !spec.at("backoffLimitPerIndex").is_set() {
        spec.at("backoffLimitPerIndex").missing("when maxFailedIndexes is specified");
    }
    managed_by(&spec.at("managedBy"));
    let mode = spec.at("completionMode");
    mode.one_of_if_set(&["NonIndexed", "Indexed"]);
    if mode.is("Indexed") {
        indexed(spec);
    }
    if !mode.is_set() || mode.is("NonIndexed") {
        for name in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if spec.at(name).is_set() {
                spec.at(name).invalid("requires indexed completion mode");
            }
        }
    }
    let (failure, success) = (spec.at("podFailurePolicy"), spec.at("successPolicy"));
    if failure.is_set() {
        failure_policy(&failure, spec);
    }
    if success.is_set() {
        if mode.is("Indexed") {
            success_policy(&success, spec.at("completions").number());
        } else {
            success.invalid_as("SuccessPolicy", "requires indexed completion mode");
        }
    }
    let supported: &[&str] = if failure.is_set() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    spec.at("podReplacementPolicy").one_of_if_set(supported);
    let template = spec.at("template");
    pod::pod_template(&template, &pod::Options::of(old_template));
    let inner = template.at("spec");
    let restart = inner.at("restartPolicy");
    match restart.text() {
        "Always" | "" => restart.missing("valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if failure.is_set() => {
            restart.invalid("only \"Never\" is supported when podFailurePolicy is specified")
        }
        "OnFailure" | "Never" => {}
        _ => restart.not_supported(&["OnFailure", "Never"]),
    }
}

fn managed_by(name: &Field) {
    if name.is_set() {
        let mut errors = object_model::field::Errors::new();
        names::domain_prefixed_path(name.path(), name.text(), &mut errors);
        errors.into_iter().for_each(|error| name.push(error));
        if name.text().len() > 63 {
            name.too_long(63);
        }
    }
}

fn indexed(spec: &Field) {
    let (completions, parallelism) = (spec.at("completions"), spec.at("parallelism"));
    let (failed, per_index) = (spec.at("maxFailedIndexes"), spec.at("backoffLimitPerIndex"));
    if !completions.is_set() {
        completions.missing("when completion mode is Indexed");
    }
    if parallelism.number() > MANY_COMPLETIONS {
        parallelism
            .invalid(format!("must be less than or equal to {MANY_COMPLETIONS} when completion mode is Indexed"));
    }
    if completions.is_set() && failed.number() > completions.number() {
        failed.invalid("must be less than or equal to completions");
    }
    if failed.number() > MANY_COMPLETIONS {
        failed.invalid(format!("must be less than or equal to {MANY_COMPLETIONS}"));
    }
    if completions.number() > MANY_COMPLETIONS && per_index.is_set() {
        if !failed.is_set() {
            failed.missing(format!("must be specified when completions is above {MANY_COMPLETIONS}"));
        }
        for bounded in [parallelism, failed] {
            if bounded.number() > 10_000 {
                bounded.invalid(format!(
                    "must be less than or equal to 10000 when completions are above {MANY_COMPLETIONS} and used with \
                     backoff limit per index"
                ));
            }
        }
    }
}

fn failure_policy(policy: &Field, spec: &Field) {
    const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
    let rules = policy.at("rules");
    if rules.len() > 20 {
        rules.too_many(20);
    }
    let pod = &spec.value()["template"]["spec"];
    let containers = ["containers", "initContainers"].iter().flat_map(|l| pod[*l].as_array().into_iter().flatten());
    let names: HashSet<&str> = containers.filter_map(|container| container["name"].as_str()).collect();
    for rule in rules.each() {
        let action = rule.at("action");
        match action.text() {
            "" => action.missing("valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"),
            "FailIndex" if !spec.at("backoffLimitPerIndex").is_set() => {
                action.invalid("requires the backoffLimitPerIndex to be set")
            }
            _ => action.one_of(ACTIONS),
        }
        let (codes, conditions) = (rule.at("onExitCodes"), rule.at("onPodConditions"));
        if codes.is_set() {
            exit_codes(&codes, &names);
        }
        pod_conditions(&conditions);
        match (codes.is_set(), !conditions.is_empty()) {
            (true, true) => no_value(&rule, "specifying both OnExitCodes and OnPodConditions is not supported"),
            (false, false) => no_value(&rule, "specifying one of OnExitCodes and OnPodConditions is required"),
            _ => {}
        }
    }
}

/// Invalid, without showing the value.
fn no_value(field: &Field, detail: &str) {
    field.tell(ErrorKind::Invalid, None, detail.to_owned());
}

fn exit_codes(codes: &Field, names: &HashSet<&str>) {
    let (operator, values, container) = (codes.at("operator"), codes.at("values"), codes.at("containerName"));
    if operator.is_empty() {
        operator.missing("valid values: [\"In\" \"NotIn\"]");
    } else {
        operator.one_of(&["In", "NotIn"]);
    }
    if container.is_set() && !names.contains(container.text()) {
        container.invalid("must be one of the container or initContainer names in the pod template");
    }
    if values.is_empty() {
        values.invalid("at least one value is required");
    } else if values.len() > 255 {
        values.too_many(255);
    }
    let numbers: Vec<i64> = values.each().map(|value| value.number()).collect();
    let mut seen = HashSet::new();
    for value in values.each() {
        if operator.is("In") && value.number() == 0 {
            value.invalid("must not be 0 for the In operator");
        }
        if !seen.insert(value.number()) {
            value.duplicate();
        }
    }
    if !numbers.is_sorted() {
        values.invalid("must be ordered");
    }
}

fn pod_conditions(conditions: &Field) {
    if conditions.len() > 20 {
        conditions.too_many(20);
    }
    for pattern in conditions.each() {
        pattern.at("type").qualified_name();
        let status = pattern.at("status");
        if status.is_empty() {
            status.missing("valid values: [\"False\" \"True\" \"Unknown\"]");
        } else {
            status.one_of(&["False", "True", "Unknown"]);
        }
    }
}

fn success_policy(policy: &Field, completions: i64) {
    let rules = policy.at("rules");
    if rules.is_empty() {
        rules.missing("at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > 20 {
        rules.too_many(20);
    }
    for rule in rules.each() {
        let (count, indexes) = (rule.at("succeededCount"), rule.at("succeededIndexes"));
        if !count.is_set() && !indexes.is_set() {
            rule.missing("at least one of succeededCount or succeededIndexes must be specified");
        }
        let mut total = 0;
        if indexes.is_set() {
            if indexes.text().len() > 64 * 1024 {
                indexes.too_long(64 * 1024);
            }
            match status::count_indexes(indexes.text(), completions) {
                Ok(count) => total = count,
                Err(error) => indexes.invalid(format!("error parsing succeededIndexes: {error}")),
            }
        }
        if count.is_set() {
            count.non_negative();
            let at_most = |limit: i64, what: &str| {
                if count.number() > limit {
                    count.invalid(format!("must be less than or equal to {limit} (the number of {what})"));
                }
            };
            at_most(completions, "specified completions");
            if indexes.is_set() {
                at_most(total, "indexes in the specified succeededIndexes field");
            }
        }
    }
}

fn validate_update(job: &Field, old: &Value) {
    let old_spec = &old["spec"];
    let old_labels = &old_spec["template"]["metadata"]["labels"];
    let options = SelectorOptions::default();
    let ratchet = Ratchet {
        old_template: Some(&old_spec["template"]),
        invalid_selector_values: !Field::check(&old_spec["selector"], |s| label_selector_with(s, options)).is_empty(),
        without_prefixed_labels: [NAME_LABELS[1], UID_LABELS[1]].iter().any(|label| old_labels.get(label).is_none()),
    };
    validate(job, &ratchet);
    meta::builtin_meta_update(&job.at("metadata"), &old["metadata"]);
    let spec = job.at("spec");
    spec_with_selector(&spec, &ratchet);
    completions(&spec, old_spec);
    spec.immutable_at("selector", old_spec);
    template(&spec, old);
    spec.immutable_at("completionMode", old_spec);
    spec.at("podFailurePolicy").immutable_as("PodFailurePolicy", &old_spec["podFailurePolicy"]);
    spec.immutable_at("backoffLimitPerIndex", old_spec);
    spec.immutable_at("managedBy", old_spec);
    spec.at("successPolicy").immutable_as("SuccessPolicy", &old_spec["successPolicy"]);
}

/// An indexed Job may grow and shrink, as long as all indexes can run at once.
fn completions(spec: &Field, old: &Value) {
    let completions = spec.at("completions");
    if !spec.at("completionMode").is("Indexed") {
        return completions.immutable(&old["completions"]);
    }
    let changed = !same_at(spec.value(), old, "completions");
    if changed && completions.is_set() && completions.number() != spec.at("parallelism").number() {
        completions.invalid("can only be modified in tandem with spec.parallelism");
    }
}

/// The template of a Job that is suspended and has no pods may say other things about where and with what its pods run.
fn template(spec: &Field, old: &Value) {
    let old_spec = &old["spec"];
    let suspended = old_spec["suspend"] == true;
    let status = &old["status"];
    let idle = status["startTime"].is_null() || status::is_true(status, "Suspended");
    let is_mutable = suspended && idle && status["active"].as_i64().unwrap_or_default() == 0;
    let template = spec.at("template");
    let mut before = old_spec["template"].clone();
    if is_mutable {
        allow_scheduling_changes(&mut before, template.value());
        allow_resource_changes(&mut before["spec"], &template.value()["spec"]);
        let inner = spec.at("template.spec");
        return inner.with(&template.value()["spec"]).immutable_as("PodSpec", &before["spec"]);
    }
    template.immutable_as("PodTemplateSpec", &before);
}

fn allow_scheduling_changes(before: &mut Value, now: &Value) {
    for name in ["nodeSelector", "tolerations", "schedulingGates"] {
        prepare::put(before, &["spec", name], now["spec"].get(name));
    }
    for name in ["annotations", "labels"] {
        prepare::put(before, &["metadata", name], now["metadata"].get(name));
    }
    let affinity = &now["spec"]["affinity"];
    prepare::put(before, &["spec", "affinity", "nodeAffinity"], affinity.get("nodeAffinity"));
    if affinity.is_null() && before["spec"]["affinity"].as_object().is_some_and(|a| a.is_empty()) {
        prepare::put(before, &["spec", "affinity"], None);
    }
}

fn allow_resource_changes(before: &mut Value, now: &Value) {
    for list in ["containers", "initContainers"] {
        let new = now[list].as_array().map(Vec::as_slice).unwrap_or_default();
        if before[list].as_array().map_or(0, Vec::len) != new.len() {
            continue;
        }
        for (container, new) in before.each(list).zip(new).filter(|(old, new)| old["name"] == new["name"]) {
            prepare::keep(container, new, "resources");
        }
    }
}

/// Warnings about the specification of a Job at this path.
pub fn spec_warnings(path: &str, spec: &Value) -> Vec<String> {
    let number = |name: &str| spec[name].as_i64().unwrap_or_default();
    let mut warnings = Vec::new();
    if spec["completionMode"] == "Indexed" && number("completions") > MANY_COMPLETIONS && number("parallelism") > 10_000
    {
        warnings.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    warnings.extend(pod::template_warnings(&format!("{path}.template"), &spec["template"]));
    warnings
}
