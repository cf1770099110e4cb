//! What a Job's policies make of pods that failed and of indexes that succeeded.

use k8s_openapi::api::{
    batch::v1::{JobSpec, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule, SuccessPolicy},
    core::v1::{ContainerStatus, Pod},
};

use super::indexes::Indexes;

/// What becomes of a pod that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It counts towards the limits.
    Counts,
    /// It never happened.
    Ignored,
    /// It counts, and its index is not tried again.
    FailsIndex,
    /// It counts, and all is over. With the reason in words.
    FailsJob(String),
}

/// The first rule that fits decides.
pub fn verdict(spec: &JobSpec, pod: &Pod) -> Verdict {
    let rules = spec.pod_failure_policy.iter().flat_map(|policy| &policy.rules).enumerate();
    for (at, rule) in rules {
        let Some(why) = fits(rule, pod) else { continue };
        match rule.action.as_str() {
            "Ignore" => return Verdict::Ignored,
            "FailIndex" => return Verdict::FailsIndex,
            "Count" => return Verdict::Counts,
            "FailJob" => return Verdict::FailsJob(format!("{why} matching FailJob rule at index {at}")),
            _ => {}
        }
    }
    Verdict::Counts
}

/// Says in words why a rule is about a pod, if it is.
fn fits(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (text(&pod.metadata.namespace), text(&pod.metadata.name));
    if let Some(wanted) = &rule.on_exit_codes {
        let containers = status.container_statuses.iter().flatten();
        let mut containers = containers.chain(status.init_container_statuses.iter().flatten());
        let (container, code) = containers.find_map(|container| Some((container, exit_code(container, wanted)?)))?;
        return Some(format!("Container {} for pod {namespace}/{name} failed with exit code {code}", container.name));
    }
    let wanted = rule.on_pod_conditions.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let found = conditions.find(|condition| {
        let says = |status: &str| condition.status == status;
        wanted.iter().any(|wanted| wanted.type_ == condition.type_ && says(wanted.status.as_deref().unwrap_or("True")))
    })?;
    Some(format!("Pod {namespace}/{name} has condition {}", found.type_))
}

fn exit_code(container: &ContainerStatus, wanted: &PodFailurePolicyOnExitCodesRequirement) -> Option<i32> {
    let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
    let named = wanted.container_name.as_ref().is_none_or(|name| *name == container.name);
    let listed = wanted.values.contains(&code);
    let fits = match wanted.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    };
    (named && code != 0 && fits).then_some(code)
}

/// Which rule says that enough has succeeded, in words.
pub fn success(policy: Option<&SuccessPolicy>, completions: i32, succeeded: &Indexes) -> Option<String> {
    if succeeded.is_empty() {
        return None;
    }
    let rules = &policy?.rules;
    let met = rules.iter().position(|rule| match (&rule.succeeded_indexes, rule.succeeded_count) {
        (Some(wanted), count) => {
            let wanted = Indexes::parse(wanted, completions);
            let have = wanted.shared(succeeded);
            !wanted.is_empty() && (have == wanted.count() || count.is_some_and(|count| have >= count))
        }
        (None, count) => count.is_some_and(|count| succeeded.count() >= count),
    })?;
    Some(format!("Matched rules at index {met}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_rule_that_fits_decides() {
        let spec: JobSpec = serde_json::from_value(json!({"template": {}, "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}},
            {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1, 2, 42]}},
            {"action": "FailJob", "onPodConditions": [{"type": "ConfigIssue", "status": "True"}]},
        ]}}))
        .expect("a spec");
        let pod = |name: &str, code: i32, condition: &str| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"}, "status": {
                "conditions": [{"type": condition, "status": "True"}],
                "containerStatuses": [{"name": name, "ready": false, "restartCount": 0, "image": "", "imageID": "",
                    "state": {"terminated": {"exitCode": code}}}],
            }}))
            .expect("a pod")
        };
        assert_eq!(verdict(&spec, &pod("main", 42, "DisruptionTarget")), Verdict::Ignored);
        let words = "Container main for pod n/p failed with exit code 42 matching FailJob rule at index 1";
        assert_eq!(verdict(&spec, &pod("main", 42, "Ready")), Verdict::FailsJob(words.into()));
        assert_eq!(verdict(&spec, &pod("other", 42, "Ready")), Verdict::Counts);
        assert_eq!(verdict(&spec, &pod("other", 3, "Ready")), Verdict::FailsIndex);
        assert_eq!(verdict(&spec, &pod("other", 0, "Ready")), Verdict::Counts, "success is no failure");
        let words = "Pod n/p has condition ConfigIssue matching FailJob rule at index 3";
        assert_eq!(verdict(&spec, &pod("main", 1, "ConfigIssue")), Verdict::FailsJob(words.into()));
    }

    #[test]
    fn enough_is_what_the_policy_says() {
        let policy: SuccessPolicy = serde_json::from_value(json!({"rules": [
            {"succeededIndexes": "0,2-4"}, {"succeededIndexes": "5-9", "succeededCount": 2}, {"succeededCount": 4},
        ]}))
        .expect("a policy");
        for (succeeded, met) in [
            ("", None),
            ("0,2,3", None),
            ("0,2-4", Some("Matched rules at index 0")),
            ("5,9", Some("Matched rules at index 1")),
            ("0,1,2,5", Some("Matched rules at index 2")),
        ] {
            assert_eq!(success(Some(&policy), 10, &Indexes::parse(succeeded, 10)).as_deref(), met, "{succeeded}");
        }
        assert_eq!(success(None, 10, &Indexes::parse("1", 10)), None);
    }
}
