//! The flow schemas and priority levels that every cluster has, with Kubernetes' values.
//!
//! The two mandatory pairs (`exempt`, `catch-all`) are always as they are here. The others are made if they are missing,
//! and follow what is here as long as nobody has taken them over: their annotation says so.

use std::sync::Arc;

use api::kinds::flowcontrol::{mandatory_level, mandatory_schema};
use hyper::{Method, Request, StatusCode, header};
use object_model::{meta::Meta, status::Status, value::Fields};
use serde_json::{Value, json};

use crate::{Server, body::RequestBody, context::User};

pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";
pub const SCHEMAS: &str = "flowschemas";
pub const LEVELS: &str = "prioritylevelconfigurations";
const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";

/// All of them, by resource, name and specification.
pub fn all() -> Vec<(&'static str, &'static str, Value)> {
    let mut all = Vec::new();
    for name in ["exempt", "catch-all"] {
        all.extend(mandatory_level(name).map(|spec| (LEVELS, name, spec)));
        all.extend(mandatory_schema(name).map(|spec| (SCHEMAS, name, spec)));
    }
    for (name, shares, lendable, queues, hand) in [
        ("global-default", 20, 50, 128, 6),
        ("leader-election", 10, 0, 16, 4),
        ("node-high", 40, 25, 64, 6),
        ("system", 30, 33, 64, 6),
        ("workload-high", 40, 50, 128, 6),
        ("workload-low", 100, 90, 128, 6),
    ] {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": 50});
        let response = json!({"type": "Queue", "queuing": queuing});
        let limited =
            json!({"nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response});
        all.push((LEVELS, name, json!({"type": "Limited", "limited": limited})));
    }
    all.extend(suggested_schemas());
    all
}

fn suggested_schemas() -> [(&'static str, &'static str, Value); 9] {
    let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
    let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
    let system_accounts =
        json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}});
    let controllers = user("system:kube-controller-manager");
    let scheduler = user("system:kube-scheduler");
    let everybody = json!([group("system:unauthenticated"), group("system:authenticated")]);
    let on = |resources: Value, groups: Value, verbs: Value, cluster: bool| {
        let mut rule = json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "namespaces": ["*"]});
        if cluster {
            rule["clusterScope"] = true.into();
        }
        rule
    };
    let leases = |verbs: Value| on(json!(["leases"]), json!(["coordination.k8s.io"]), verbs, false);
    let all_resources = on(json!(["*"]), json!(["*"]), json!(["*"]), true);
    let everything = |subjects: Value| {
        json!([{
            "subjects": subjects,
            "resourceRules": [all_resources],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }])
    };
    let schema = |name: &'static str, level: &str, precedence: i64, by: &str, rules: Value| {
        let mut spec = json!({
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": rules,
        });
        if !by.is_empty() {
            spec["distinguisherMethod"] = json!({"type": by});
        }
        (SCHEMAS, name, spec)
    };
    let probed = json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]);
    let nodes_and_leases =
        json!([on(json!(["nodes", "nodes/status"]), json!([""]), json!(["*"]), true), leases(json!(["*"])),]);
    [
        schema("global-default", "global-default", 9900, "ByUser", everything(everybody.clone())),
        schema("kube-controller-manager", "workload-high", 800, "ByNamespace", everything(json!([controllers]))),
        schema("kube-scheduler", "workload-high", 800, "ByNamespace", everything(json!([scheduler]))),
        schema(
            "kube-system-service-accounts",
            "workload-high",
            900,
            "ByNamespace",
            everything(json!([system_accounts])),
        ),
        schema("probes", "exempt", 2, "", json!([{"subjects": everybody, "nonResourceRules": probed}])),
        schema(
            "service-accounts",
            "workload-low",
            9000,
            "ByUser",
            everything(json!([group("system:serviceaccounts")])),
        ),
        schema(
            "system-leader-election",
            "leader-election",
            100,
            "ByUser",
            json!([{
                "subjects": [controllers, scheduler, system_accounts],
                "resourceRules": [leases(json!(["get", "create", "update"]))],
            }]),
        ),
        schema(
            "system-node-high",
            "node-high",
            400,
            "ByUser",
            json!([{"subjects": [group("system:nodes")], "resourceRules": nodes_and_leases}]),
        ),
        schema("system-nodes", "system", 500, "ByUser", everything(json!([group("system:nodes")]))),
    ]
}

/// Makes those that are missing, and brings those up to date that are ours.
pub async fn ensure(server: &Arc<Server>, user: &Arc<User>) -> Result<(), Status> {
    let all = all();
    let each = all.iter().map(|(resource, name, spec)| ensure_one(server, user, resource, name, spec));
    futures::future::try_join_all(each).await.map(drop)
}

async fn ensure_one(
    server: &Arc<Server>,
    user: &Arc<User>,
    resource: &str,
    name: &str,
    spec: &Value,
) -> Result<(), Status> {
    let kind = if resource == SCHEMAS { "FlowSchema" } else { "PriorityLevelConfiguration" };
    let served = server.catalogue.served();
    let Some(found) = served.find(GROUP, "v1", resource) else { return Ok(()) };
    let collection = format!("/apis/{GROUP}/v1/{resource}");
    let options = format!("fieldManager={PRODUCER}");
    let current = found.cache.get(name).map(|entry| crate::registry::Answer::of(&entry).object(kind));
    let answer = match current {
        None => {
            let object = json!({
                "apiVersion": format!("{GROUP}/v1"),
                "kind": kind,
                "metadata": {"name": name, "annotations": {AUTOUPDATE: "true"}},
                "spec": spec,
            });
            send(server, user, Method::POST, &format!("{collection}?{options}"), "application/json", &object).await
        }
        Some(mut object) if is_ours(&object, name) && object["spec"] != *spec => {
            object["spec"] = spec.clone();
            let path = format!("{collection}/{name}?{options}");
            send(server, user, Method::PUT, &path, "application/json", &object).await
        }
        Some(_) => return Ok(()),
    };
    match answer {
        // Another server was faster.
        Err(status) if matches!(status.code, 409) => Ok(()),
        other => other,
    }
}

/// Whether an object goes on following what is written here.
fn is_ours(object: &Value, name: &str) -> bool {
    let annotation = object.at(&["metadata", "annotations", AUTOUPDATE]).and_then(Value::as_str);
    match annotation {
        _ if mandatory_level(name).is_some() => true,
        Some(said) => said == "true",
        // Nobody has ever changed it.
        None => Meta::of(object).generation() == 1,
    }
}

/// A request of the server itself, which takes the road of all requests.
pub async fn send(
    server: &Arc<Server>,
    user: &Arc<User>,
    method: Method,
    path: &str,
    media: &str,
    object: &Value,
) -> Result<(), Status> {
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, media);
    let request = request.header(header::USER_AGENT, "ferry").body(RequestBody::Whole(object.to_string().into()));
    let request = request.map_err(Status::internal)?;
    let answer = server.call(user.clone(), request).await;
    if answer.status().is_success() {
        return Ok(());
    }
    let code = answer.status();
    let body = answer.into_body().collect().await;
    Err(serde_json::from_slice(&body).unwrap_or_else(|_| match code {
        StatusCode::TOO_MANY_REQUESTS => Status::too_many_requests(String::from_utf8_lossy(&body), 1),
        code => Status::internal(format!("{path} answered {code}")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They are those of a fresh kube-apiserver.
    #[test]
    fn they_are_kubernetes_own() {
        let Some(file) = testing::facts("bootstrap-v1.36.4.json") else { return };
        let facts: Value = serde_json::from_slice(&std::fs::read(file).expect("facts")).expect("JSON");
        for resource in [SCHEMAS, LEVELS] {
            let theirs = facts[format!("/apis/{GROUP}/v1/{resource}")]["items"].as_array().expect("items");
            let mut names: Vec<&str> = theirs.iter().filter_map(|o| o["metadata"]["name"].as_str()).collect();
            let ours: Vec<_> = all().into_iter().filter(|(of, ..)| *of == resource).collect();
            for (_, name, spec) in &ours {
                let found = theirs.iter().find(|o| o["metadata"]["name"] == *name).expect(name);
                assert_eq!(found["spec"], *spec, "{name}");
                names.retain(|other| other != name);
            }
            assert_eq!(names, Vec::<&str>::new());
        }
    }
}
