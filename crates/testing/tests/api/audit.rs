//! What requests leave behind in the audit log, over HTTPS.

use std::{fs, path::Path, time::Duration};

use api_server::audit::{Batching, LogSettings, Mode, Policy, Settings};
use hyper::Method;
use serde_json::{Value, json};
use testing::{TestServer, client::JSON};

use super::configmap;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: RequestResponse, resources: [{group: '', resources: [configmaps]}], verbs: [create, watch, list]}
- {level: Metadata, resources: [{group: '', resources: [configmaps]}]}
";

pub fn settings(folder: &Path, policy: &str) -> Settings {
    let file = folder.join("policy.yaml");
    fs::write(&file, policy).expect("a policy");
    let log = LogSettings { path: folder.join("audit.log"), ..LogSettings::default() };
    // Whoever has an answer finds its event in the file.
    let batching =
        Batching { mode: Mode::Blocking, buffer_size: 100, max_size: 100, max_wait: Duration::ZERO, throttle: None };
    Settings { policy: Policy::read(&file).expect("a policy"), log: Some((log, batching)), webhook: None }
}

pub fn events(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("audit.log")).expect("a log");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test]
async fn requests_are_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let audit = settings(folder.path(), POLICY);
    let server = TestServer::with(|all, _| all.audit = Some(audit)).await;
    let client = server.client();
    let body = configmap("m").to_string();
    let made = client.send(Method::POST, MAPS, &[("content-type", JSON), ("audit-id", "mine")], body).await;
    assert_eq!(made.header("audit-id"), "mine");
    let made = made.expect(201);
    let other = client.get("/version").await;
    assert_eq!((other.code, other.header("audit-id").len()), (200, 36), "every answer has an id");
    client.get(MAPS).await.expect(200);
    client.delete(&format!("{MAPS}/m")).await.expect(200);
    client.get(&format!("{MAPS}/m")).await.refused(404);

    let events = events(folder.path());
    let told: Vec<_> = events.iter().map(|e| (e["verb"].as_str(), e["responseStatus"]["code"].as_u64())).collect();
    let wanted = [("create", 201), ("list", 200), ("delete", 200), ("get", 404)];
    assert_eq!(told, wanted.map(|(verb, code)| (Some(verb), Some(code))));
    let create = &events[0];
    assert_eq!((&create["auditID"], &create["stage"]), (&json!("mine"), &json!("ResponseComplete")));
    let user = &create["user"];
    assert_eq!((&user["username"], &user["groups"][0]), (&json!("test-admin"), &json!("system:masters")));
    assert!(user["extra"]["authentication.kubernetes.io/credential-id"].is_array(), "{user}");
    assert_eq!((&create["sourceIPs"], &create["userAgent"]), (&json!(["127.0.0.1"]), &json!("test/1.0")));
    assert_eq!(create["requestURI"], MAPS);
    assert_eq!((&create["requestObject"], &create["responseObject"]), (&configmap("m"), &made));
    let place = json!({"resource": "configmaps", "namespace": "default", "name": "m", "apiVersion": "v1"});
    assert_eq!(create["objectRef"], place);
    assert_eq!(create["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_eq!(events[1]["responseObject"]["items"].as_array().map(Vec::len), Some(1), "a list is recorded whole");
    assert_eq!(events[2]["responseStatus"]["status"], "Success");
    assert!(events[2].get("responseObject").is_none());
    assert_eq!(events[3]["responseStatus"]["reason"], "NotFound");
    let metrics = client.get("/metrics").await.text();
    assert!(metrics.contains("apiserver_audit_level_total{level=\"Metadata\"} 2\n"), "{metrics}");
}

#[tokio::test]
async fn a_watch_is_recorded_at_its_start_and_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let audit = settings(folder.path(), POLICY);
    let server = TestServer::with(|all, _| all.audit = Some(audit)).await;
    let mut watch = server.client().watch(&format!("{MAPS}?watch=1&timeoutSeconds=1")).await.expect("a watch");
    assert_eq!(events(folder.path())[0]["stage"], "ResponseStarted");
    while watch.next().await.is_some() {}
    drop(watch);
    // The last event is not waited for by anybody.
    let mut last = Value::Null;
    for _ in 0..500 {
        last = events(folder.path()).pop().unwrap_or_default();
        if last["stage"] == "ResponseComplete" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((&last["stage"], &last["responseStatus"]["code"]), (&json!("ResponseComplete"), &json!(200)));
}
