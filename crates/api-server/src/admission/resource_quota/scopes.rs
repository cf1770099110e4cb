//! The scopes of a quota: which objects it is about.

use object_model::{meta::Meta, value::Fields};
use serde::Deserialize;
use serde_json::Value;

use super::kinds::Kind;

/// One condition on objects.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Scope {
    scope_name: String,
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

impl Scope {
    /// The conditions of a quota, all of which must hold.
    pub fn of_quota(quota: &Value) -> Vec<Self> {
        let Some(spec) = quota.field("spec") else { return Vec::new() };
        let plain = spec.items("scopes").iter().filter_map(Value::as_str).map(|name| Scope {
            scope_name: name.to_owned(),
            operator: "Exists".to_owned(),
            values: Vec::new(),
        });
        let selector = spec.field("scopeSelector").map(|s| s.items("matchExpressions")).unwrap_or_default();
        plain.chain(selector.iter().filter_map(|scope| Scope::deserialize(scope).ok())).collect()
    }

    pub fn name(&self) -> &str {
        &self.scope_name
    }

    pub fn matches(&self, kind: &Kind, object: &Value) -> bool {
        match kind {
            Kind::Pods => self.matches_pod(object),
            Kind::VolumeClaims if self.scope_name == "VolumeAttributesClass" => {
                let classes = attribute_classes(object);
                if classes.is_empty() {
                    self.allows(None)
                } else {
                    classes.iter().any(|class| self.allows(Some(class)))
                }
            }
            _ => false,
        }
    }

    fn matches_pod(&self, pod: &Value) -> bool {
        match self.scope_name.as_str() {
            "Terminating" => has_deadline(pod),
            "NotTerminating" => !has_deadline(pod),
            "BestEffort" => is_best_effort(pod),
            "NotBestEffort" => !is_best_effort(pod),
            "PriorityClass" => {
                let class = pod.text_at(&["spec", "priorityClassName"]);
                self.allows(Some(class).filter(|class| !class.is_empty()))
            }
            "CrossNamespacePodAffinity" => looks_across_namespaces(pod),
            _ => false,
        }
    }

    fn allows(&self, value: Option<&str>) -> bool {
        let listed = value.is_some_and(|value| self.values.iter().any(|known| known == value));
        match self.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

/// The way Kubernetes prints it: `{PriorityClass In [high low]}`.
impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{{{} {} [{}]}}", self.scope_name, self.operator, self.values.join(" "))
    }
}

/// Must the pod end at some time?
pub fn has_deadline(pod: &Value) -> bool {
    pod.at(&["spec", "activeDeadlineSeconds"]).and_then(Value::as_i64).is_some_and(|seconds| seconds >= 0)
}

fn is_best_effort(pod: &Value) -> bool {
    let class = match pod.text_at(&["status", "qosClass"]) {
        "" => api::kinds::core::pod::quality_of_service(pod.field("spec").unwrap_or(&Value::Null)),
        known => known,
    };
    class == "BestEffort"
}

fn looks_across_namespaces(pod: &Value) -> bool {
    const PLAIN: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const WEIGHTED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let affinities = ["podAffinity", "podAntiAffinity"].iter().filter_map(|name| pod.at(&["spec", "affinity", name]));
    let across = |term: &Value| !term.items("namespaces").is_empty() || term.has("namespaceSelector");
    affinities.into_iter().any(|affinity| {
        affinity.items(PLAIN).iter().any(across)
            || affinity.items(WEIGHTED).iter().filter_map(|term| term.field("podAffinityTerm")).any(across)
    })
}

/// Every class of volume attributes that a claim has, had or is to have.
pub fn attribute_classes(claim: &Value) -> Vec<&str> {
    let paths: [&[&str]; 3] = [
        &["spec", "volumeAttributesClassName"],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ];
    let mut classes: Vec<&str> =
        paths.iter().map(|path| claim.text_at(path)).filter(|class| !class.is_empty()).collect();
    classes.sort_unstable();
    classes.dedup();
    classes
}

/// Has the pod ended, or should it have?
pub fn is_over(pod: &Value, now: i64) -> bool {
    matches!(pod.text_at(&["status", "phase"]), "Failed" | "Succeeded")
        || counts_until(pod).is_some_and(|end| now > end)
}

/// When a pod that is being deleted stops to count, though its node may never say that it is gone.
pub fn counts_until(pod: &Value) -> Option<i64> {
    let meta = Meta::of(pod);
    Some(meta.deletion_timestamp()?.unix_seconds().saturating_add(meta.deletion_grace_period_seconds()?))
}
