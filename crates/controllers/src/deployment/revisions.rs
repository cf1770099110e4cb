//! The history of a Deployment, kept in annotations of its ReplicaSets.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::PodTemplateSpec,
};
use kube::Resource;

use super::arithmetic::sort_by_age;
use crate::revision_hash;

pub const HASH: &str = "pod-template-hash";
pub const REVISION: &str = "deployment.kubernetes.io/revision";
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Asks for an earlier revision. Zero is the one before.
pub const ROLLBACK: &str = "deprecated.deployment.rollback.to";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// How long the history may grow, in characters.
const LONGEST_HISTORY: usize = 2000;

/// Annotations that a Deployment and its sets do not share.
const OWN: &[&str] = &[LAST_APPLIED, REVISION, HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, ROLLBACK];

pub fn annotation<'a, K: Resource>(object: &'a K, name: &str) -> Option<&'a str> {
    object.meta().annotations.as_ref()?.get(name).map(String::as_str)
}

/// The revision of a set: zero if it has none, `None` if it is no number.
pub fn revision(set: &ReplicaSet) -> Option<i64> {
    annotation(set, REVISION).map_or(Some(0), |text| text.parse().ok())
}

pub fn last_revision(sets: &[Arc<ReplicaSet>]) -> i64 {
    sets.iter().filter_map(|set| revision(set)).max().unwrap_or(0)
}

/// The revision before the last, zero if there is none.
pub fn revision_before(sets: &[Arc<ReplicaSet>]) -> i64 {
    let mut revisions: Vec<i64> = sets.iter().filter_map(|set| revision(set)).collect();
    revisions.sort_unstable();
    revisions.iter().rev().nth(1).copied().unwrap_or(0)
}

/// The template as its author wrote it.
pub fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    let meta = template.metadata.get_or_insert_default();
    let labels = meta.labels.get_or_insert_default();
    labels.remove(HASH);
    template
}

/// The set of a template, the oldest if there are several.
pub fn find(template: &PodTemplateSpec, sets: &[Arc<ReplicaSet>]) -> Option<Arc<ReplicaSet>> {
    let (wanted, mut sets) = (without_hash(template), sets.to_vec());
    sort_by_age(&mut sets);
    sets.into_iter().find(|set| has_template(set, &wanted))
}

pub fn has_template(set: &ReplicaSet, wanted: &PodTemplateSpec) -> bool {
    set.spec.as_ref().and_then(|spec| spec.template.as_ref()).is_some_and(|own| without_hash(own) == *wanted)
}

/// A short name for a template. `collisions` says how often another template had the same.
pub fn hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    revision_hash::of(&serde_json::to_vec(template).unwrap_or_default(), collisions)
}

/// Brings the annotations of the new set up to date, and says whether any has changed.
pub fn annotate(deployment: &Deployment, set: &mut ReplicaSet, newest: i64) -> bool {
    let own = set.metadata.annotations.get_or_insert_default();
    let before = own.clone();
    for (name, value) in deployment.metadata.annotations.iter().flatten() {
        if !OWN.contains(&name.as_str()) {
            own.insert(name.clone(), value.clone());
        }
    }
    let old = own.get(REVISION).cloned();
    let number = old.as_deref().map_or(Some(0), |text| if text.is_empty() { Some(0) } else { text.parse().ok() });
    if number.is_some_and(|number: i64| number < newest) {
        own.insert(REVISION.to_owned(), newest.to_string());
        if let Some(old) = old {
            remember(own, &old);
        }
    }
    *own != before
}

/// Adds a revision to those that a set has been. The oldest are forgotten when they become too many.
fn remember(annotations: &mut BTreeMap<String, String>, old: &str) {
    let known = annotations.get(HISTORY).cloned().unwrap_or_default();
    let mut all: Vec<&str> = known.split(',').filter(|revision| !revision.is_empty()).collect();
    all.push(old);
    while all.iter().map(|revision| revision.len() + 1).sum::<usize>() > LONGEST_HISTORY + 1 && all.len() > 1 {
        all.remove(0);
    }
    let all = all.join(",");
    annotations.insert(HISTORY.to_owned(), all);
}

/// Notes how many pods were wanted, and how many there may be, when a set was last scaled.
pub fn annotate_replicas(set: &mut ReplicaSet, wanted: i32, most: i32) -> bool {
    let annotations = set.metadata.annotations.get_or_insert_default();
    let before = annotations.clone();
    annotations.insert(DESIRED_REPLICAS.to_owned(), wanted.to_string());
    annotations.insert(MAX_REPLICAS.to_owned(), most.to_string());
    *annotations != before
}

/// Gives a Deployment the template and the annotations of an earlier revision.
pub fn roll_back(deployment: &mut Deployment, set: &ReplicaSet) {
    if let (Some(spec), Some(template)) =
        (&mut deployment.spec, set.spec.as_ref().and_then(|spec| spec.template.as_ref()))
    {
        spec.template = without_hash(template);
    }
    let annotations = deployment.metadata.annotations.get_or_insert_default();
    annotations.retain(|name, _| OWN.contains(&name.as_str()));
    let theirs = set.metadata.annotations.iter().flatten().filter(|(name, _)| !OWN.contains(&name.as_str()));
    annotations.extend(theirs.map(|(name, value)| (name.clone(), value.clone())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_is_new_again_remembers_what_it_was() {
        let mut deployment = Deployment::default();
        deployment.metadata.annotations =
            Some(BTreeMap::from([("team".into(), "a".into()), (LAST_APPLIED.into(), "{}".into())]));
        let mut set = ReplicaSet::default();
        assert!(annotate(&deployment, &mut set, 1));
        assert!(!annotate(&deployment, &mut set, 1), "nothing new");
        assert_eq!((annotation(&set, REVISION), annotation(&set, "team")), (Some("1"), Some("a")));
        assert_eq!((annotation(&set, LAST_APPLIED), annotation(&set, HISTORY)), (None, None));
        annotate(&deployment, &mut set, 3);
        annotate(&deployment, &mut set, 5);
        assert_eq!((annotation(&set, REVISION), annotation(&set, HISTORY)), (Some("5"), Some("1,3")));
        (6..2000).for_each(|revision| assert!(annotate(&deployment, &mut set, revision)));
        let history = annotation(&set, HISTORY).unwrap_or_default();
        assert!(history.len() <= LONGEST_HISTORY && history.ends_with(",1998"), "{}", history.len());
    }
}
