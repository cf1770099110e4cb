//! What the conditions of a namespace say while it is being deleted: a function of what was found.

use std::collections::BTreeMap;

use controller_runtime::Error;
use k8s_openapi::{api::core::v1::NamespaceCondition, apimachinery::pkg::apis::meta::v1::Time};
use kube::api::ApiResource;

/// What one pass over a namespace has found.
#[derive(Default)]
pub struct Findings {
    /// Why discovery failed.
    pub discovery: Option<String>,
    /// Why content could not be deleted.
    pub content: Vec<String>,
    /// Why the pass has failed.
    pub problems: Vec<String>,
    /// Whether everything was looked at. While pods remain, it is not.
    pub complete: bool,
    left: BTreeMap<(String, String), usize>,
    finalizers: BTreeMap<String, usize>,
}

/// Each type with the reason and the message when all is well.
const WELL: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

impl Findings {
    pub fn count(&mut self, resource: &ApiResource, left: usize, finalizers: BTreeMap<String, usize>) {
        if left > 0 {
            self.left.insert((resource.plural.clone(), resource.group.clone()), left);
        }
        for (finalizer, count) in finalizers {
            *self.finalizers.entry(finalizer).or_default() += count;
        }
    }

    /// The estimate, or all that went wrong.
    pub fn outcome(&self, estimate: i64) -> Result<i64, Error> {
        let problems: Vec<&str> = self.discovery.iter().chain(&self.problems).map(String::as_str).collect();
        match &problems[..] {
            [] => Ok(estimate),
            [problem] => Err(Error::Other((*problem).to_owned())),
            several => Err(Error::Other(format!("[{}]", several.join(", ")))),
        }
    }

    /// Sets all conditions, and says whether any has changed. The time is when a status last changed.
    pub fn update(&self, conditions: &mut Vec<NamespaceCondition>, now: &Time) -> bool {
        let mut changed = false;
        for (type_, well_reason, well) in WELL {
            let found = self.problem(type_);
            let status = if found.is_some() { "True" } else { "False" };
            let (reason, message) = found.unwrap_or_else(|| (well_reason, well.to_owned()));
            let condition = NamespaceCondition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message),
                last_transition_time: Some(now.clone()),
            };
            match conditions.iter_mut().find(|known| known.type_ == type_) {
                None => conditions.push(condition),
                Some(known) => {
                    let since =
                        if known.status == status { known.last_transition_time.clone() } else { Some(now.clone()) };
                    let condition = NamespaceCondition { last_transition_time: since, ..condition };
                    if *known == condition {
                        continue;
                    }
                    *known = condition;
                }
            }
            changed = true;
        }
        changed
    }

    /// Why a condition is true.
    fn problem(&self, type_: &str) -> Option<(&'static str, String)> {
        match type_ {
            "NamespaceDeletionDiscoveryFailure" => Some(("DiscoveryFailed", self.discovery.clone()?)),
            "NamespaceDeletionContentFailure" if !self.content.is_empty() => {
                let mut problems = self.content.clone();
                problems.sort();
                let (count, problems) = (problems.len(), problems.join(", "));
                let message = format!("Failed to delete all resource types, {count} remaining: {problems}");
                Some(("ContentDeletionFailed", message))
            }
            "NamespaceContentRemaining" if self.complete && !self.left.is_empty() => {
                let left = self
                    .left
                    .iter()
                    .map(|((plural, group), left)| format!("{plural}.{group} has {left} resource instances"));
                let left: Vec<String> = left.collect();
                Some(("SomeResourcesRemain", format!("Some resources are remaining: {}", left.join(", "))))
            }
            "NamespaceFinalizersRemaining" if self.complete && !self.finalizers.is_empty() => {
                let waiting =
                    self.finalizers.iter().map(|(name, count)| format!("{name} in {count} resource instances"));
                let waiting = waiting.collect::<Vec<_>>().join(", ");
                let message = format!("Some content in the namespace has finalizers remaining: {waiting}");
                Some(("SomeFinalizersRemain", message))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).expect("a time"))
    }

    #[test]
    fn conditions_say_what_was_found_and_since_when() {
        let mut conditions = Vec::new();
        let mut findings = Findings { complete: true, ..Findings::default() };
        let pods = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
        findings.count(&pods, 2, BTreeMap::from([("example.com/wait".to_owned(), 1)]));
        assert!(findings.update(&mut conditions, &at(1)));
        assert!(!findings.update(&mut conditions, &at(2)), "nothing new");
        let of = |conditions: &[NamespaceCondition], type_: &str| {
            let found = conditions.iter().find(|condition| condition.type_ == type_).cloned().expect("a condition");
            (found.status, found.message.unwrap_or_default(), found.last_transition_time)
        };
        let remaining = "Some resources are remaining: pods. has 2 resource instances".to_owned();
        assert_eq!(of(&conditions, "NamespaceContentRemaining"), ("True".into(), remaining, Some(at(1))));
        let waiting =
            "Some content in the namespace has finalizers remaining: example.com/wait in 1 resource instances";
        assert_eq!(of(&conditions, "NamespaceFinalizersRemaining").1, waiting);

        let findings = Findings { complete: true, content: vec!["b".into(), "a".into()], ..Findings::default() };
        assert!(findings.update(&mut conditions, &at(3)));
        let removed = "All content successfully removed".to_owned();
        assert_eq!(of(&conditions, "NamespaceContentRemaining"), ("False".into(), removed, Some(at(3))));
        let failed = "Failed to delete all resource types, 2 remaining: a, b";
        assert_eq!(of(&conditions, "NamespaceDeletionContentFailure").1, failed);
        assert_eq!(of(&conditions, "NamespaceDeletionDiscoveryFailure").2, Some(at(1)), "never changed");
        assert_eq!(conditions.len(), 5);
    }
}
