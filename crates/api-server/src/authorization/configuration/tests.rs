use serde_json::json;

use super::*;

fn problems(result: Result<Configuration, Error>) -> Vec<String> {
    match result {
        Err(Error::Invalid(problems)) => problems,
        Err(other) => vec![other.to_string()],
        Ok(_) => Vec::new(),
    }
}

fn from_modes(modes: &[&str]) -> Vec<String> {
    problems(Configuration::from_modes(&modes.iter().map(|m| (*m).to_owned()).collect::<Vec<_>>(), None))
}

#[test]
fn modes_by_name() {
    assert!(from_modes(&["Node", "RBAC"]).is_empty());
    assert!(from_modes(&["AlwaysAllow"]).is_empty());
    assert_eq!(from_modes(&["RBAC", "RBAC"]), ["the mode RBAC is in the list twice"]);
    assert_eq!(from_modes(&[]), ["at least one authorization mode is needed"]);
    assert_eq!(from_modes(&["Webhook"]), ["the mode Webhook needs a kubeconfig of the webhook"]);
    assert!(from_modes(&["ABAC"])[0].starts_with(r#"there is no authorization mode "ABAC""#));
}

fn webhook(mut changes: Value) -> Value {
    let mut webhook = json!({
        "timeout": "3s", "subjectAccessReviewVersion": "v1", "failurePolicy": "Deny",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/does/not/exist"},
    });
    if let (Some(webhook), Some(changes)) = (webhook.as_object_mut(), changes.as_object_mut()) {
        webhook.append(changes);
    }
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthorizationConfiguration",
        "authorizers": [{"type": "Webhook", "name": "w", "webhook": webhook}, {"type": "RBAC", "name": "rbac"}],
    })
}

#[test]
fn a_file() {
    // Valid, but what it names is not there.
    assert!(
        problems(Configuration::read(&webhook(json!({}))))[0].starts_with(r#"cannot use the webhook "w": cannot read"#)
    );
    for (changes, problem) in [
        (json!({"timeout": "31s"}), "authorizers[0].timeout: Invalid value: must be > 0s and <= 30s"),
        (json!({"timeout": ""}), "authorizers[0].timeout: Required value"),
        (json!({"authorizedTTL": "-1s"}), r#"authorizers[0].authorizedTTL: Invalid value: "-1s": must be > 0s"#),
        (json!({"other": 1}), "unknown field authorizers[0].webhook.other"),
        (
            json!({"failurePolicy": "x"}),
            r#"authorizers[0].failurePolicy: Unsupported value: "x": supported values: NoOpinion, Deny"#,
        ),
        (
            json!({"matchConditions": [{"expression": "true"}]}),
            "authorizers[0].matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are \
             specified",
        ),
        (
            json!({"connectionInfo": {"type": "InClusterConfig"}}),
            r#"authorizers[0].connectionInfo.type: Unsupported value: "InClusterConfig": ferry runs in no pod, so name a KubeConfigFile"#,
        ),
    ] {
        assert_eq!(problems(Configuration::read(&webhook(changes))), [problem]);
    }
    let two = json!({"kind": "x", "authorizers": [{"type": "RBAC", "name": "a"}, {"type": "RBAC", "name": "a"}, {"type": "?"}]});
    assert_eq!(problems(Configuration::read(&two)).len(), 5);
}
