//! Who may do what: identities × verbs × resources, each with the answer that Kubernetes gives.

use std::collections::BTreeMap;

use hyper::Method;
use serde_json::{Value, json};
use testing::{
    TestServer,
    client::{APPLY, Client, MERGE_PATCH},
    facts,
};

use super::{configmap, pod};

pub const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Creates roles and bindings, and waits until they count.
pub async fn grant(admin: &Client, objects: &[(&str, Value)]) {
    for (path, object) in objects {
        admin.post(&format!("{RBAC}/{path}"), object).await.expect(201);
    }
    // A read sees all that was written before, and then so do decisions.
    admin.get("/api/v1/namespaces/default").await.expect(200);
}

pub fn role(name: &str, rules: Value) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

pub fn binding(name: &str, kind: &str, role: &str, subject: Value) -> Value {
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role});
    json!({"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "name": name})
}

/// Two tenants with a namespace each; the administrator of one.
async fn tenants(server: &TestServer) -> Client {
    let admin = server.client();
    for name in ["red", "blue"] {
        admin.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await.expect(201);
        let path = format!("/api/v1/namespaces/{name}/configmaps");
        admin.post(&path, &configmap("c")).await.expect(201);
    }
    let reader = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["c"]}]);
    let robot = json!({"kind": "ServiceAccount", "name": "robot", "namespace": "red"});
    let metrics = json!([{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]);
    grant(
        &admin,
        &[
            ("namespaces/red/rolebindings", binding("admins", "ClusterRole", "admin", user("ann"))),
            ("namespaces/blue/rolebindings", binding("viewers", "ClusterRole", "view", user("ann"))),
            ("namespaces/blue/roles", role("reader", reader)),
            ("namespaces/blue/rolebindings", binding("robots", "Role", "reader", robot)),
            ("clusterroles", role("metrics", metrics)),
            (
                "clusterrolebindings",
                binding("metrics", "ClusterRole", "metrics", json!({"kind": "Group", "name": "ops"})),
            ),
            ("namespaces/red/rolebindings", binding("lost", "ClusterRole", "nowhere", user("lost"))),
        ],
    )
    .await;
    admin
}

#[tokio::test]
async fn the_matrix() {
    let server = TestServer::embedded().await;
    tenants(&server).await;
    let robot = "system:serviceaccount:red:robot";
    let (core, apps) = ("/api/v1/namespaces", "/apis/apps/v1/namespaces");
    let matrix: &[(&str, &str, Method, String, u16)] = &[
        // The administrator of a namespace has all of it, and nothing of others but what is theirs to see.
        ("ann", "devs", Method::GET, format!("{core}/red/configmaps/c"), 200),
        ("ann", "devs", Method::GET, format!("{core}/red/secrets"), 200),
        ("ann", "devs", Method::DELETE, format!("{apps}/red/deployments"), 200),
        ("ann", "devs", Method::GET, format!("{core}/red/pods?watch=1&timeoutSeconds=1"), 200),
        ("ann", "devs", Method::GET, format!("{core}/blue/configmaps"), 200),
        ("ann", "devs", Method::GET, format!("{core}/blue/secrets"), 403),
        ("ann", "devs", Method::DELETE, format!("{core}/blue/configmaps/c"), 403),
        ("ann", "devs", Method::GET, "/api/v1/configmaps".into(), 403),
        ("ann", "devs", Method::GET, "/api/v1/nodes".into(), 403),
        ("ann", "devs", Method::GET, format!("{RBAC}/clusterroles"), 403),
        ("ann", "devs", Method::GET, format!("{core}/kube-system/secrets"), 403),
        ("ann", "devs", Method::DELETE, format!("{core}/red"), 403),
        // The old path of watches is one of watches only.
        ("ann", "devs", Method::GET, "/api/v1/watch/namespaces/blue/configmaps?timeoutSeconds=1".into(), 200),
        ("ann", "devs", Method::DELETE, "/api/v1/watch/namespaces/blue/configmaps/c".into(), 405),
        ("ann", "devs", Method::POST, "/api/v1/watch/namespaces/red/configmaps".into(), 405),
        ("ann", "devs", Method::GET, "/api/v1/watch/namespaces/red/pods/p/log".into(), 404),
        ("ann", "devs", Method::DELETE, "/api/v1/watch/namespaces/blue/secrets/s".into(), 403),
        // A service account of one tenant has one object of the other.
        (robot, "system:serviceaccounts", Method::GET, format!("{core}/blue/configmaps/c"), 200),
        (
            robot,
            "system:serviceaccounts",
            Method::GET,
            format!("{core}/blue/configmaps?fieldSelector=metadata.name%3Dc"),
            403,
        ),
        (robot, "system:serviceaccounts", Method::GET, format!("{core}/blue/configmaps/d"), 403),
        (robot, "system:serviceaccounts", Method::GET, format!("{core}/blue/configmaps"), 403),
        (robot, "system:serviceaccounts", Method::GET, format!("{core}/red/configmaps/c"), 403),
        ("system:serviceaccount:blue:robot", "x", Method::GET, format!("{core}/blue/configmaps/c"), 403),
        // Everybody who is known may discover, and ask about themselves.
        ("eve", "nobodies", Method::GET, "/apis".into(), 200),
        ("eve", "nobodies", Method::GET, "/openapi/v3".into(), 200),
        ("eve", "nobodies", Method::GET, "/readyz".into(), 200),
        ("eve", "nobodies", Method::GET, "/version".into(), 200),
        ("eve", "nobodies", Method::GET, "/metrics".into(), 403),
        ("eve", "ops", Method::GET, "/metrics".into(), 200),
        ("eve", "nobodies", Method::GET, format!("{core}/default/configmaps"), 403),
        // Components have what they need and no more.
        ("system:kube-scheduler", "x", Method::GET, "/api/v1/pods".into(), 200),
        ("system:kube-scheduler", "x", Method::GET, "/api/v1/secrets".into(), 403),
        (
            "system:kube-scheduler",
            "x",
            Method::GET,
            format!("{core}/kube-system/configmaps/extension-apiserver-authentication"),
            200,
        ),
        ("system:kube-controller-manager", "x", Method::GET, "/api/v1/secrets".into(), 200),
        ("system:kube-controller-manager", "x", Method::DELETE, "/api/v1/nodes/n".into(), 403),
        ("system:kube-proxy", "x", Method::GET, "/api/v1/services".into(), 200),
        ("system:kube-proxy", "x", Method::GET, "/api/v1/pods".into(), 403),
        (
            "system:serviceaccount:kube-system:namespace-controller",
            "x",
            Method::DELETE,
            format!("{core}/blue/configmaps"),
            200,
        ),
        (
            "system:serviceaccount:kube-system:job-controller",
            "x",
            Method::DELETE,
            format!("{core}/blue/configmaps"),
            403,
        ),
        // Whoever repairs the policy needs none.
        ("root", "system:masters", Method::GET, "/api/v1/secrets".into(), 200),
    ];
    for (name, group, method, path, code) in matrix {
        let client = server.client_of(name, group);
        let answer = client.send(method.clone(), path, &[], "").await;
        assert_eq!(answer.code, *code, "{name} ({group}) {method} {path}: {}", answer.text());
    }
}

#[tokio::test]
async fn nobody_knows_little() {
    let server = TestServer::embedded().await;
    let nobody = server.client_of_nobody();
    for (path, code) in [
        ("/healthz", 200),
        ("/livez", 200),
        ("/readyz", 200),
        ("/version", 200),
        ("/", 403),
        ("/api", 403),
        ("/apis", 403),
        ("/metrics", 403),
        ("/openapi/v3", 403),
        ("/api/v1/namespaces", 403),
        ("/api/v1/namespaces/kube-public/configmaps/cluster-info", 403),
    ] {
        let answer = nobody.get(path).await;
        assert_eq!(answer.code, code, "{path}: {}", answer.text());
    }
    let review = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/x"}}});
    let why = nobody.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await.refused(403);
    assert!(why.contains(r#"User "system:anonymous" cannot create resource"#), "{why}");
}

/// A service account with a token of its own, as pods have it.
#[tokio::test]
async fn service_accounts_with_tokens() {
    let server = TestServer::embedded().await;
    let admin = tenants(&server).await;
    let accounts = "/api/v1/namespaces/red/serviceaccounts";
    admin.post(accounts, &json!({"metadata": {"name": "robot"}})).await.expect(201);
    let token = admin.post(&format!("{accounts}/robot/token"), &json!({"spec": {}})).await.expect(201);
    let bearer = format!("Bearer {}", token["status"]["token"].as_str().expect("a token"));
    let nobody = server.client_of_nobody();
    for (path, code) in [
        ("/api/v1/namespaces/blue/configmaps/c", 200),
        ("/api/v1/namespaces/blue/configmaps", 403),
        ("/api/v1/namespaces/red/configmaps/c", 403),
        ("/apis", 200),
        ("/.well-known/openid-configuration", 200),
    ] {
        let answer = nobody.send(Method::GET, path, &[("authorization", &bearer)], "").await;
        assert_eq!(answer.code, code, "{path}: {}", answer.text());
    }
}

/// What a server finds in its store is completed at start, and nothing is taken away.
#[tokio::test]
async fn the_policy_is_repaired_at_start() {
    let mut server = TestServer::embedded().await;
    let admin = server.client();
    let path = |name: &str| format!("{RBAC}/{name}");
    let empty = json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/mine"]}]});
    admin.patch(&path("clusterroles/system:discovery"), MERGE_PATCH, &empty).await.expect(200);
    let own =
        json!({"rules": [], "metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}});
    admin.patch(&path("clusterroles/system:public-info-viewer"), MERGE_PATCH, &own).await.expect(200);
    admin
        .patch(&path("clusterrolebindings/system:basic-user"), MERGE_PATCH, &json!({"subjects": []}))
        .await
        .expect(200);
    admin.delete(&path("clusterroles/system:node-proxier")).await.expect(200);
    let other = binding("system:discovery", "ClusterRole", "view", user("eve"));
    admin.delete(&path("clusterrolebindings/system:discovery")).await.expect(200);
    admin.post(&path("clusterrolebindings"), &other).await.expect(201);
    server.kill();

    let server = TestServer::start(server.store.clone()).await;
    let admin = server.client();
    let discovery = admin.get(&path("clusterroles/system:discovery")).await.expect(200);
    let urls: Vec<&Value> =
        discovery["rules"].as_array().expect("rules").iter().map(|r| &r["nonResourceURLs"]).collect();
    assert!(urls.contains(&&json!(["/mine"])) && urls.len() > 1, "{urls:?}");
    let protected = admin.get(&path("clusterroles/system:public-info-viewer")).await.expect(200);
    assert!(protected["rules"].as_array().is_none_or(Vec::is_empty), "{protected}");
    let bound = admin.get(&path("clusterrolebindings/system:basic-user")).await.expect(200);
    assert_eq!(bound["subjects"][0]["name"], "system:authenticated");
    admin.get(&path("clusterroles/system:node-proxier")).await.expect(200);
    let bound = admin.get(&path("clusterrolebindings/system:discovery")).await.expect(200);
    assert_eq!(bound["roleRef"]["name"], "system:discovery");
    server.client_of("eve", "x").get("/apis").await.expect(200);
}

#[tokio::test]
async fn refusals_say_why() {
    let server = TestServer::embedded().await;
    tenants(&server).await;
    let eve = server.client_of("eve", "devs");
    assert_eq!(
        eve.get("/api/v1/namespaces/red/pods/p/log").await.refused(403),
        r#"pods "p" is forbidden: User "eve" cannot get resource "pods/log" in API group "" in the namespace "red""#
    );
    assert_eq!(
        eve.get("/apis/apps/v1/deployments").await.refused(403),
        r#"deployments.apps is forbidden: User "eve" cannot list resource "deployments" in API group "apps" at the cluster scope"#
    );
    assert_eq!(eve.get("/metrics").await.refused(403), r#"forbidden: User "eve" cannot get path "/metrics""#);
    let lost = server.client_of("lost", "devs");
    assert_eq!(
        lost.get("/api/v1/namespaces/red/pods").await.refused(403),
        "pods is forbidden: User \"lost\" cannot list resource \"pods\" in API group \"\" in the namespace \"red\": RBAC: \
         clusterrole.rbac.authorization.k8s.io \"nowhere\" not found"
    );
}

/// Whoever may change objects must not thereby make new ones.
#[tokio::test]
async fn changing_is_not_creating() {
    let server = TestServer::embedded().await;
    let admin = tenants(&server).await;
    let account = json!({"metadata": {"name": "default"}});
    admin.post("/api/v1/namespaces/red/serviceaccounts", &account).await.expect(201);
    let may = |name: &str, verbs: Value| {
        role(name, json!([{"verbs": verbs, "apiGroups": ["", "rbac.authorization.k8s.io"], "resources": ["*"]}]))
    };
    grant(
        &admin,
        &[
            ("namespaces/red/roles", may("changers", json!(["get", "patch", "update"]))),
            ("namespaces/red/rolebindings", binding("changers", "Role", "changers", user("eve"))),
            ("namespaces/red/roles", may("creators", json!(["create"]))),
        ],
    )
    .await;
    let eve = server.client_of("eve", "devs");
    let (pod_path, role_path) = ("/api/v1/namespaces/red/pods/p", format!("{RBAC}/namespaces/red/roles/r"));
    let (apply, new_role) = (|path: &str| format!("{path}?fieldManager=eve"), role("r", json!([])));
    let new_pod = pod("p");

    assert_eq!(
        eve.patch(&apply(pod_path), APPLY, &new_pod).await.refused(403),
        r#"pods "p" is forbidden: User "eve" cannot create resource "pods" in API group "" in the namespace "red""#
    );
    eve.patch(&format!("{}&dryRun=All", apply(pod_path)), APPLY, &new_pod).await.refused(403);
    assert_eq!(
        eve.put(&role_path, &new_role).await.refused(403),
        "roles.rbac.authorization.k8s.io \"r\" is forbidden: User \"eve\" cannot create resource \"roles\" in API group \
         \"rbac.authorization.k8s.io\" in the namespace \"red\""
    );
    admin.get(pod_path).await.refused(404);
    admin.get(&role_path).await.refused(404);

    // With the right to create they do, and without it they change what is there.
    grant(&admin, &[("namespaces/red/rolebindings", binding("creators", "Role", "creators", user("eve")))]).await;
    eve.patch(&apply(pod_path), APPLY, &new_pod).await.expect(201);
    eve.put(&role_path, &new_role).await.expect(201);
    admin.delete(&format!("{RBAC}/namespaces/red/rolebindings/creators")).await.expect(200);
    admin.get("/api/v1/namespaces/default").await.expect(200);
    let mut labelled = new_pod;
    labelled["metadata"]["labels"] = json!({"changed": "yes"});
    eve.patch(&apply(pod_path), APPLY, &labelled).await.expect(200);
    eve.put(&role_path, &new_role).await.expect(200);
}

/// The old path of watches gives nobody more than to watch.
#[tokio::test]
async fn the_watch_prefix_only_watches() {
    let server = TestServer::embedded().await;
    let admin = tenants(&server).await;
    let account = json!({"metadata": {"name": "default"}});
    admin.post("/api/v1/namespaces/red/serviceaccounts", &account).await.expect(201);
    admin.post("/api/v1/namespaces/red/pods", &pod("p")).await.expect(201);
    let all = json!([{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["*"]}]);
    grant(
        &admin,
        &[
            ("namespaces/red/roles", role("readers", all)),
            ("namespaces/red/rolebindings", binding("readers", "Role", "readers", user("eve"))),
        ],
    )
    .await;
    let eve = server.client_of("eve", "devs");
    let (path, watch) = ("/api/v1/namespaces/red/pods/p", "/api/v1/watch/namespaces/red/pods/p");
    let socket = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "v4.channel.k8s.io"),
    ];
    for way in ["exec?command=id&stdout=true", "attach?stdout=true", "portforward?ports=80"] {
        for (base, code) in [(path, 403), (watch, 404)] {
            let answer = eve.http1().send(Method::GET, &format!("{base}/{way}"), &socket, "").await;
            assert_eq!(answer.code, code, "{base}/{way}: {}", answer.text());
        }
    }
    for client in [&eve, &admin] {
        for below in ["log", "status", "proxy", "proxy/x", "ephemeralcontainers"] {
            assert_eq!(client.get(&format!("{watch}/{below}")).await.code, 404, "{below}");
        }
        for method in [Method::DELETE, Method::POST, Method::PUT, Method::PATCH] {
            for path in [watch, "/api/v1/watch/namespaces/red/pods"] {
                let answer = client.send(method.clone(), path, &[("content-type", APPLY)], pod("p").to_string()).await;
                assert_eq!(answer.code, 405, "{method} {path}: {}", answer.text());
            }
        }
    }
    admin.get(path).await.expect(200);
    assert_eq!(eve.get(&format!("{watch}?timeoutSeconds=1")).await.code, 200);
}

/// The administrator of a namespace can give away what they have, and nothing more, whichever way they try.
#[tokio::test]
async fn nobody_gives_what_they_do_not_have() {
    let server = TestServer::embedded().await;
    let admin = tenants(&server).await;
    let ann = server.client_of("ann", "devs");
    let roles = format!("{RBAC}/namespaces/red/roles");
    let bindings = format!("{RBAC}/namespaces/red/rolebindings");
    let pods = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]);
    let nodes = json!([
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["nodes", "pods"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"], "resourceNames": ["n"]},
    ]);
    ann.post(&roles, &role("own", pods.clone())).await.expect(201);
    let why = "user \"ann\" (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently \
               held:\n{APIGroups:[\"\"], Resources:[\"nodes\"], ResourceNames:[\"n\"], Verbs:[\"get\"]}\n{APIGroups:[\"\"], \
               Resources:[\"nodes\"], Verbs:[\"get\" \"list\"]}";
    let refused = |name: &str| format!("roles.rbac.authorization.k8s.io {name:?} is forbidden: {why}");
    assert_eq!(ann.post(&roles, &role("more", nodes.clone())).await.refused(403), refused("more"));
    let replaced = ann.put(&format!("{roles}/own"), &role("own", nodes.clone())).await;
    assert_eq!(replaced.refused(403), refused("own"));
    let patched = ann.patch(&format!("{roles}/own"), MERGE_PATCH, &json!({"rules": nodes})).await;
    assert_eq!(patched.refused(403), refused("own"));
    let mut applied = role("applied", nodes.clone());
    applied["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
    applied["kind"] = json!("Role");
    let path = format!("{roles}/applied?fieldManager=ann");
    assert_eq!(ann.patch(&path, APPLY, &applied).await.refused(403), refused("applied"));
    // Created by PUT, and by a dry run, it is the same.
    assert_eq!(ann.put(&format!("{roles}/put"), &role("put", nodes.clone())).await.refused(403), refused("put"));
    let dry = ann.post(&format!("{roles}?dryRun=All"), &role("dry", nodes.clone())).await;
    assert_eq!(dry.refused(403), refused("dry"));

    ann.post(&bindings, &binding("edit", "ClusterRole", "edit", user("bob"))).await.expect(201);
    let all = ann.post(&bindings, &binding("all", "ClusterRole", "cluster-admin", user("bob"))).await.refused(403);
    assert_eq!(
        all,
        "rolebindings.rbac.authorization.k8s.io \"all\" is forbidden: user \"ann\" (groups=[\"devs\" \
         \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"*\"], \
         Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}"
    );
    let none = ann.post(&bindings, &binding("none", "ClusterRole", "none", user("bob"))).await.refused(404);
    assert_eq!(none, r#"clusterroles.rbac.authorization.k8s.io "none" not found"#);

    // A small role that says much is refused before it is spelt out; whoever has everything may write it.
    let many: Vec<String> = (0..100).map(|n| format!("x{n}")).collect();
    let vast = role("vast", json!([{"verbs": many, "apiGroups": many, "resources": many, "resourceNames": many}]));
    let why = ann.post(&roles, &vast).await.refused(403);
    assert!(why.ends_with("its rules have 100000000 combinations, of which at most 20000 can be checked"), "{why}");
    let everything = binding("everything", "ClusterRole", "cluster-admin", user("root"));
    grant(&admin, &[("clusterrolebindings", everything)]).await;
    server.client_of("root", "devs").post(&roles, &vast).await.expect(201);

    // With the verbs for it, they may.
    let verbs = json!([
        {"verbs": ["escalate"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"]},
        {"verbs": ["bind"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
         "resourceNames": ["cluster-admin"]},
    ]);
    let grants = [
        ("namespaces/red/roles", role("trusted", verbs)),
        ("namespaces/red/rolebindings", binding("trusted", "Role", "trusted", user("ann"))),
    ];
    grant(&admin, &grants).await;
    ann.post(&roles, &role("more", nodes)).await.expect(201);
    ann.post(&bindings, &binding("all", "ClusterRole", "cluster-admin", user("bob"))).await.expect(201);
    ann.post(&bindings, &binding("node", "ClusterRole", "system:node", user("bob"))).await.refused(403);
}

#[tokio::test]
async fn gathering_needs_everything() {
    let server = TestServer::embedded().await;
    let admin = server.client();
    let writer = json!([{"verbs": ["*"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"]}]);
    let own = json!([{"verbs": ["create", "update", "patch"], "apiGroups": ["rbac.authorization.k8s.io"],
                      "resources": ["clusterroles"]}]);
    let grants = [
        ("clusterroles", role("writer", own)),
        ("clusterrolebindings", binding("writer", "ClusterRole", "writer", user("ann"))),
    ];
    grant(&admin, &grants).await;
    let ann = server.client_of("ann", "devs");
    let roles = format!("{RBAC}/clusterroles");
    let mut gathering = role("all", json!([]));
    gathering["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    assert_eq!(
        ann.post(&roles, &gathering).await.refused(403),
        "clusterroles.rbac.authorization.k8s.io \"all\" is forbidden: must have cluster-admin privileges to use the \
         aggregationRule"
    );
    assert!(ann.post(&roles, &role("more", writer)).await.refused(403).contains("not currently held"));
}

/// A role that gathers others has their rules in itself, and follows them.
#[tokio::test]
async fn gathering_roles_follow() {
    let server = TestServer::embedded().await;
    let admin = server.client();
    let path = format!("{RBAC}/clusterroles/view");
    let view = admin.get(&path).await.expect(200);
    assert!(view["rules"].as_array().is_some_and(|rules| rules.len() > 5), "{view}");
    let version = super::version(&view);
    let watched = format!("{RBAC}/clusterroles?watch=1&fieldSelector=metadata.name%3Dadmin&resourceVersion={version}");
    let mut watch = admin.watch(&watched).await.expect("a watch");
    let extra = json!([{"verbs": ["get"], "apiGroups": ["example.com"], "resources": ["widgets"]}]);
    let mut joining = role("widgets", extra.clone());
    joining["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    admin.post(&format!("{RBAC}/clusterroles"), &joining).await.expect(201);
    // View gathers it, edit gathers view, admin gathers edit.
    let event = watch.next().await.expect("an event");
    let rules = event["object"]["rules"].as_array().expect("rules").clone();
    assert!(rules.contains(&extra[0]), "{rules:?}");
    let managers = event["object"]["metadata"]["managedFields"].as_array().expect("managers");
    assert!(managers.iter().any(|m| m["manager"] == "clusterrole-aggregation-controller"), "{managers:?}");
    admin.delete(&format!("{RBAC}/clusterroles/widgets")).await.expect(200);
    let event = watch.next().await.expect("an event");
    assert!(!event["object"]["rules"].as_array().expect("rules").contains(&extra[0]));
}

#[tokio::test]
async fn reviews() {
    let server = TestServer::embedded().await;
    let admin = tenants(&server).await;
    let ann = server.client_of("ann", "devs");
    let path = |kind: &str| format!("/apis/authorization.k8s.io/v1/{kind}");
    let asked = |verb: &str, resource: &str| json!({"verb": verb, "resource": resource, "namespace": "red"});
    let own =
        |spec: Value| json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": spec});
    let mine = path("selfsubjectaccessreviews");
    let review = ann.post(&mine, &own(json!({"resourceAttributes": asked("delete", "secrets")}))).await.expect(201);
    let reason = r#"RBAC: allowed by RoleBinding "admins/red" of ClusterRole "admin" to User "ann""#;
    assert_eq!(review["status"], json!({"allowed": true, "reason": reason}));
    assert_eq!(review["spec"]["resourceAttributes"]["resource"], "secrets");
    let review = ann.post(&mine, &own(json!({"resourceAttributes": asked("delete", "nodes")}))).await.expect(201);
    assert_eq!(review["status"], json!({"allowed": false}));
    let review = ann.post(&mine, &own(json!({"nonResourceAttributes": {"verb": "get", "path": "/healthz"}}))).await;
    assert_eq!(review.expect(201)["status"]["allowed"], true);
    assert!(ann.post(&mine, &own(json!({}))).await.refused(422).contains("exactly one of"));

    // About others only administrators may ask; in a namespace, its administrator too.
    let about = |spec: Value| json!({"metadata": {"namespace": "red"}, "spec": spec});
    let spec = json!({"user": "lost", "resourceAttributes": asked("get", "pods")});
    ann.post(&path("subjectaccessreviews"), &json!({"spec": spec})).await.refused(403);
    let review = admin.post(&path("subjectaccessreviews"), &json!({"spec": spec})).await.expect(201);
    let reason = r#"RBAC: clusterrole.rbac.authorization.k8s.io "nowhere" not found"#;
    assert_eq!(review["status"], json!({"allowed": false, "reason": reason}));
    let local = path("namespaces/red/localsubjectaccessreviews");
    let review = ann.post(&local, &about(json!({"groups": ["ops"], "resourceAttributes": asked("get", "pods")}))).await;
    assert_eq!(review.expect(201)["status"]["allowed"], false);
    ann.post(&path("namespaces/blue/localsubjectaccessreviews"), &about(spec)).await.refused(403);

    let rules = json!({"spec": {"namespace": "red"}});
    let review = ann.post(&path("selfsubjectrulesreviews"), &rules).await.expect(201);
    let listed = review["status"]["resourceRules"].as_array().expect("rules");
    assert!(listed.iter().any(|rule| rule["resources"].as_array().is_some_and(|r| r.contains(&json!("secrets")))));
    assert_eq!(review["status"]["incomplete"], false);
    let none = ann.post(&path("selfsubjectrulesreviews"), &json!({"spec": {}})).await.refused(400);
    assert_eq!(none, "no namespace on request");
    // Nothing of all this is there to be read.
    admin.get(&path("subjectaccessreviews")).await.refused(405);
}

#[tokio::test]
async fn the_policy_is_that_of_kubernetes() {
    let Some(path) = facts("bootstrap-v1.36.4.json") else { return };
    let recorded: Value = serde_json::from_slice(&std::fs::read(path).expect("readable")).expect("JSON");
    let server = TestServer::embedded().await;
    let admin = server.client();
    let named = |list: &Value| -> BTreeMap<(String, String), Value> {
        let text = |object: &Value, name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        let items = list["items"].as_array().expect("items").iter();
        items.map(|object| ((text(object, "namespace"), text(object, "name")), object.clone())).collect()
    };
    for plural in ["clusterroles", "roles", "clusterrolebindings", "rolebindings"] {
        let theirs = named(&recorded[format!("{RBAC}/{plural}")]);
        let mut ours = named(&admin.get(&format!("{RBAC}/{plural}")).await.expect(200));
        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
        for (key, mut their) in theirs {
            let mut our = ours.remove(&key).expect("the same keys");
            for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
                our["metadata"].as_object_mut().expect("metadata").remove(field);
            }
            // Recorded without the controller that fills them.
            if their["aggregationRule"].is_object() {
                their["rules"] = our["rules"].clone();
            }
            assert_eq!(our, their, "{plural} {key:?}");
        }
    }
}
