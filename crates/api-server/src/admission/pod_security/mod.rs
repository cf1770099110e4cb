//! PodSecurity: pods keep to one of three standards, which their namespace chooses by labels.
//!
//! A namespace names a standard for each of three modes: what is enforced refuses pods; what is warned of and what is
//! recorded for audits goes for the templates of workloads as well. Who enforces more on a namespace is told which of its
//! pods would be refused today.

mod baseline;
mod checks;
mod policy;
mod restricted;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use checks::{Pod, Violation, details, reasons, violations};
use object_model::{field::Errors, identity::GroupKind, meta::Meta, status::Status, value::Fields};
pub use policy::{Configuration, RawConfiguration};
use policy::{Level, Policy, Standard};
use serde_json::Value;

use super::{Attributes, CONTAINERS, Lookup, Operation, Plugin, Request};
use crate::watch_cache::WatchCache;

/// How many pods of a namespace are looked at when it enforces more, and for how long.
const MOST_PODS: usize = 3000;
const CHECK_WITHIN: Duration = Duration::from_secs(1);
const AUDIT: &str = "pod-security.kubernetes.io/";

/// Where workloads have their template of a pod.
const TEMPLATES: &[(&str, &str, &[&str])] = &[
    ("", "replicationcontrollers", &["spec", "template"]),
    ("", "podtemplates", &["template"]),
    ("apps", "replicasets", &["spec", "template"]),
    ("apps", "deployments", &["spec", "template"]),
    ("apps", "statefulsets", &["spec", "template"]),
    ("apps", "daemonsets", &["spec", "template"]),
    ("batch", "jobs", &["spec", "template"]),
    ("batch", "cronjobs", &["spec", "jobTemplate", "spec", "template"]),
];

/// Subresources of pods that do not change what a pod does.
const HARMLESS: &[&str] = &["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

pub struct PodSecurity {
    namespaces: Lookup,
    pods: Lookup,
    configuration: Configuration,
}

fn template_path(request: &Request<'_>) -> Option<&'static [&'static str]> {
    let found = TEMPLATES.iter().find(|(group, resource, _)| request.writes(group, resource, ""));
    found.map(|(_, _, path)| *path)
}

#[async_trait]
impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        let changes = matches!(request.operation, Operation::Create | Operation::Update);
        let pods = request.is_of("", "pods", request.subresource) && !HARMLESS.contains(&request.subresource);
        changes && pods || request.writes("", "namespaces", "") || template_path(request).is_some()
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        if &*attributes.target.resource.plural == "namespaces" {
            return self.check_namespace(attributes, object);
        }
        let record = |key: &str, text: &str| attributes.context.audit.add(&format!("{AUDIT}{key}"), text);
        let exempt = &self.configuration.exemptions;
        let namespace = attributes.target.namespace;
        if exempt.namespaces.iter().any(|name| name == namespace) {
            record("exempt", "namespace");
            return Ok(());
        }
        if exempt.usernames.contains(&attributes.context.user.name) {
            record("exempt", "user");
            return Ok(());
        }
        let template = template_path(&attributes.request());
        let Some(found) = self.namespaces.get(namespace).await? else {
            let why = format!("failed to lookup namespace {namespace:?}");
            record("error", &why);
            return if template.is_some() { Ok(()) } else { Err(Status::internal(why)) };
        };
        let (policy, errors) = Policy::of(Meta::of(&found).labels(), &self.configuration.defaults);
        match template {
            Some(path) => {
                let silent = policy.warn.level == Level::Privileged && policy.audit.level == Level::Privileged;
                match object.at(path) {
                    Some(template) if !silent || !errors.is_empty() => {
                        self.judge(attributes, object, &Pod::of(template), &policy, &errors, false)
                    }
                    _ => Ok(()),
                }
            }
            None if errors.is_empty() && policy.is_privileged() => {
                record("enforce-policy", "privileged:latest");
                Ok(())
            }
            None if attributes.old.is_some_and(|old| !is_significant(object, old)) => Ok(()),
            None => self.judge(attributes, object, &Pod::of(object), &policy, &errors, true),
        }
    }
}

impl PodSecurity {
    pub fn new(cache: &Arc<WatchCache>, configuration: Configuration) -> Self {
        Self {
            namespaces: Lookup::new(cache, "", "namespaces", "Namespace"),
            pods: Lookup::new(cache, "", "pods", "Pod"),
            configuration,
        }
    }

    fn is_exempt_runtime(&self, spec: &Value) -> bool {
        let class = spec.text("runtimeClassName");
        !class.is_empty() && self.configuration.exemptions.runtime_classes.iter().any(|exempt| exempt == class)
    }

    /// Holds a pod, or the template of one, against the policy of its namespace.
    fn judge(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        pod: &Pod<'_>,
        policy: &Policy,
        errors: &Errors,
        enforce: bool,
    ) -> Result<(), Status> {
        let record = |key: &str, text: &str| attributes.context.audit.add(&format!("{AUDIT}{key}"), text);
        if self.is_exempt_runtime(pod.spec) {
            record("exempt", "runtimeClass");
            return Ok(());
        }
        if !errors.is_empty() {
            let each: Vec<String> = errors.iter().map(ToString::to_string).collect();
            record("error", &format!("Failed to parse policy: {}", super::together(&each)));
        }
        let found = |standard: Standard| -> Option<String> {
            let found: Vec<Violation> = violations(standard, pod);
            (!found.is_empty()).then(|| format!("violate PodSecurity \"{standard}\": {}", details(&found)))
        };
        let mut refused = None;
        if enforce {
            record("enforce-policy", &policy.enforce.to_string());
            refused = found(policy.enforce).map(|text| text.replacen("violate", "violates", 1));
        }
        if let Some(text) = found(policy.audit) {
            record("audit-violations", &format!("would {text}"));
        }
        if let Some(why) = refused {
            return Err(attributes.forbidden(object, why));
        }
        if let Some(text) = found(policy.warn) {
            attributes.context.warnings.add(format!("would {text}"));
        }
        Ok(())
    }

    /// The labels of a namespace must be readable, and who enforces more learns what that means for its pods.
    fn check_namespace(&self, attributes: &Attributes<'_>, namespace: &Value) -> Result<(), Status> {
        let (name, labels) = (Meta::of(namespace).name(), Meta::of(namespace).labels());
        let defaults = &self.configuration.defaults;
        let (policy, errors) = Policy::of(labels, defaults);
        let before = attributes.old.map(|old| Policy::of(Meta::of(old).labels(), defaults));
        let known = |old: &(Policy, Errors)| {
            let texts = |errors: &Errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
            texts(&old.1) == texts(&errors)
        };
        if !errors.is_empty() && !before.as_ref().is_some_and(known) {
            return Err(Status::invalid(&GroupKind::new("", "Namespace"), name, &errors));
        }
        let (now, was) = (policy.enforce, before.as_ref().map(|(policy, _)| policy.enforce));
        let relaxed = |was: Standard| {
            now == was || now.level == Level::Privileged || now.version == was.version && now.level <= was.level
        };
        if was.is_some_and(relaxed) {
            return Ok(());
        }
        if self.configuration.exemptions.namespaces.iter().any(|exempt| exempt == name) {
            if !policy.is_privileged() && !policy.is_equivalent(defaults) {
                let named = policy.named_by(labels);
                attributes.context.warnings.add(format!(
                    "namespace {name:?} is exempt from Pod Security, and the policy ({named}) will be ignored"
                ));
            }
        } else if was.is_some() {
            self.warn_of_pods(attributes, name, now);
        }
        Ok(())
    }

    /// Warns of the pods that a namespace has and that it would not take in any more.
    fn warn_of_pods(&self, attributes: &Attributes<'_>, namespace: &str, standard: Standard) {
        let deadline = Instant::now() + CHECK_WITHIN;
        let pods = self.in_order_of_interest(self.pods.of_namespace(namespace));
        let total = pods.len();
        let mut checked = 0;
        // By what is wrong: the first of the pods by name, and how many they are.
        let mut found: BTreeMap<String, (String, usize)> = BTreeMap::new();
        for pod in pods.iter().take(MOST_PODS) {
            checked += 1;
            let wrong = violations(standard, &Pod::of(pod));
            if !wrong.is_empty() {
                let name = Meta::of(pod).name();
                let entry = found.entry(reasons(&wrong)).or_insert_with(|| (name.to_owned(), 0));
                entry.1 += 1;
                if name < entry.0.as_str() {
                    entry.0 = name.to_owned();
                }
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        let warnings = &attributes.context.warnings;
        if checked < total {
            warnings.add(format!(
                "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
            ));
        }
        if !found.is_empty() {
            warnings.add(format!(
                "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{standard}\""
            ));
        }
        let mut lines: Vec<String> = found
            .into_iter()
            .map(|(reasons, (pod, count))| match count {
                1 => format!("{pod}: {reasons}"),
                2 => format!("{pod} (and 1 other pod): {reasons}"),
                _ => format!("{pod} (and {} other pods): {reasons}", count - 1),
            })
            .collect();
        lines.sort();
        lines.into_iter().for_each(|line| warnings.add(line));
    }

    /// One pod of every workload first, and then those that are much like it.
    fn in_order_of_interest(&self, pods: Vec<Value>) -> Vec<Value> {
        let mut seen = HashSet::new();
        let judged = pods.into_iter().filter(|pod| !pod.field("spec").is_some_and(|spec| self.is_exempt_runtime(spec)));
        let (mut first, more): (Vec<Value>, Vec<Value>) =
            judged.partition(|pod| Meta::of(pod).controller().is_none_or(|owner| seen.insert(owner.uid.to_owned())));
        first.extend(more);
        first
    }
}

/// Does a change of a pod bring something new to run?
fn is_significant(pod: &Value, old: &Value) -> bool {
    let list = |pod: &'_ Value, list: &str| pod.field("spec").map(|s| s.items(list).to_vec()).unwrap_or_default();
    let image = |container: &Value| container.text("image").to_owned();
    let [(inits, _), (containers, _), (ephemeral, _)] = CONTAINERS;
    let replaced = |name: &str| {
        let (new, old) = (list(pod, name), list(old, name));
        new.len() != old.len() || new.iter().zip(&old).any(|(new, old)| image(new) != image(old))
    };
    let before = list(old, ephemeral);
    let known = |container: &Value| {
        before.iter().find(|c| c.text("name") == container.text("name")).map(image) == Some(image(container))
    };
    replaced(containers) || replaced(inits) || !list(pod, ephemeral).iter().all(known)
}

#[cfg(test)]
mod tests;
