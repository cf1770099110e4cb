//! What a node may do: read what its own pods need, and write about itself.

use hyper::Method;
use serde_json::{Value, json};
use testing::{
    TestServer,
    client::{Client, MERGE_PATCH, STRATEGIC_PATCH},
};

use super::{
    authorization::{binding, grant, role},
    configmap, pod,
};

const CORE: &str = "/api/v1/namespaces/default";

fn node(server: &TestServer, name: &str) -> Client {
    server.client_of(&format!("system:node:{name}"), "system:nodes")
}

/// Two nodes with a pod each, that has a secret, a map and a claim with a volume behind it.
async fn cluster(server: &TestServer) -> Client {
    let admin = server.client();
    admin.post(&format!("{CORE}/serviceaccounts"), &json!({"metadata": {"name": "default"}})).await.expect(201);
    for name in ["a", "b"] {
        admin.post("/api/v1/nodes", &json!({"metadata": {"name": name}})).await.expect(201);
        for kind in ["env", "mounted", "staged"] {
            let secret = json!({"metadata": {"name": format!("{kind}-{name}")}});
            admin.post(&format!("{CORE}/secrets"), &secret).await.expect(201);
        }
        admin.post(&format!("{CORE}/configmaps"), &configmap(&format!("map-{name}"))).await.expect(201);
        let claim = json!({"metadata": {"name": format!("claim-{name}")}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "",
            "volumeName": format!("volume-{name}"),
        }});
        admin.post(&format!("{CORE}/persistentvolumeclaims"), &claim).await.expect(201);
        let volume = json!({"metadata": {"name": format!("volume-{name}")}, "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "default", "name": format!("claim-{name}")},
            "csi": {"driver": "d", "volumeHandle": "h",
                    "nodeStageSecretRef": {"namespace": "default", "name": format!("staged-{name}")}},
        }});
        admin.post("/api/v1/persistentvolumes", &volume).await.expect(201);
        let mut pod = pod(&format!("pod-{name}"));
        pod["spec"]["nodeName"] = json!(name);
        pod["spec"]["containers"][0]["envFrom"] =
            json!([{"secretRef": {"name": format!("env-{name}")}}, {"configMapRef": {"name": format!("map-{name}")}}]);
        pod["spec"]["volumes"] = json!([
            {"name": "s", "secret": {"secretName": format!("mounted-{name}")}},
            {"name": "v", "persistentVolumeClaim": {"claimName": format!("claim-{name}")}},
        ]);
        admin.post(&format!("{CORE}/pods"), &pod).await.expect(201);
    }
    grant(&admin, &[]).await;
    admin
}

#[tokio::test]
async fn nodes_reach_for_their_own() {
    let server = TestServer::embedded().await;
    cluster(&server).await;
    let a = node(&server, "a");
    let matrix: &[(Method, &str, u16, &str)] = &[
        (Method::GET, "secrets/env-a", 200, ""),
        (Method::GET, "secrets/mounted-a", 200, ""),
        (Method::GET, "secrets/staged-a", 200, ""),
        (Method::GET, "secrets?fieldSelector=metadata.name%3Denv-a", 200, ""),
        (Method::GET, "configmaps/map-a", 200, ""),
        (Method::GET, "persistentvolumeclaims/claim-a", 200, ""),
        (Method::GET, "pods/pod-a", 200, ""),
        (Method::GET, "pods?fieldSelector=spec.nodeName%3Da", 200, ""),
        (Method::GET, "serviceaccounts/default", 200, ""),
        (Method::GET, "services", 200, ""),
        (Method::GET, "secrets/env-b", 403, "no relationship found between node 'a' and this object"),
        (Method::GET, "secrets/staged-b", 403, "no relationship found between node 'a' and this object"),
        (Method::GET, "secrets", 403, "No Object name found"),
        (Method::DELETE, "secrets/env-a", 403, "can only read resources of this type"),
        (Method::GET, "configmaps/map-b", 403, "no relationship found between node 'a' and this object"),
        (Method::GET, "persistentvolumeclaims/claim-b", 403, "no relationship found between node 'a' and this object"),
        (Method::GET, "pods/pod-b", 403, "no relationship found between node 'a' and this object"),
        (Method::GET, "pods", 403, "can only list/watch pods with spec.nodeName field selector"),
        (
            Method::GET,
            "pods?fieldSelector=spec.nodeName%3Db",
            403,
            "can only list/watch pods with spec.nodeName field selector",
        ),
        (Method::PUT, "pods/pod-a", 403, ""),
        (Method::DELETE, "pods/pod-b", 403, "node \"a\" can only delete pods with spec.nodeName set to itself"),
        (Method::GET, "endpoints", 403, ""),
    ];
    for (method, path, code, why) in matrix {
        let answer = a.send(method.clone(), &format!("{CORE}/{path}"), &[], "{}").await;
        assert_eq!(answer.code, *code, "{method} {path}: {}", answer.text());
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.ends_with(why), "{method} {path}: {message}");
    }
    for (path, code) in [
        ("/api/v1/persistentvolumes/volume-a", 200),
        ("/api/v1/persistentvolumes/volume-b", 403),
        ("/api/v1/persistentvolumes", 403),
        ("/api/v1/nodes/a", 200),
        ("/api/v1/nodes/b", 403),
        ("/api/v1/nodes", 403),
        ("/api/v1/nodes?fieldSelector=metadata.name%3Da", 200),
        ("/api/v1/pods?fieldSelector=spec.nodeName%3Da&watch=1&timeoutSeconds=1", 200),
        ("/api/v1/secrets", 403),
        ("/apis/node.k8s.io/v1/runtimeclasses", 200),
        ("/apis/storage.k8s.io/v1/csidrivers", 200),
        ("/apis/storage.k8s.io/v1/csinodes/a", 404),
        ("/apis/storage.k8s.io/v1/csinodes/b", 403),
        ("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/b", 403),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases/a", 403),
        ("/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3Da", 200),
        ("/apis/resource.k8s.io/v1/resourceslices", 403),
    ] {
        let answer = a.get(path).await;
        assert_eq!(answer.code, code, "{path}: {}", answer.text());
    }
    // Whoever only claims to be a node is none.
    let liar = server.client_of("system:node:a", "devs");
    liar.get(&format!("{CORE}/secrets/env-a")).await.refused(403);
    let nameless = server.client_of("system:node:", "system:nodes");
    let why = nameless.get(&format!("{CORE}/secrets/env-a")).await.refused(403);
    assert!(why.ends_with(r#"unknown node for user "system:node:""#), "{why}");
}

/// Access ends with the pod that gave it.
#[tokio::test]
async fn access_ends_with_the_pod() {
    let server = TestServer::embedded().await;
    let admin = cluster(&server).await;
    let a = node(&server, "a");
    a.get(&format!("{CORE}/secrets/env-a")).await.expect(200);
    // The node has stopped it, and says so.
    a.delete_with(&format!("{CORE}/pods/pod-a"), &json!({"gracePeriodSeconds": 0})).await.expect(200);
    grant(&admin, &[]).await;
    a.get(&format!("{CORE}/secrets/env-a")).await.refused(403);
    a.get(&format!("{CORE}/secrets/staged-a")).await.refused(403);
}

#[tokio::test]
async fn nodes_write_about_themselves() {
    let server = TestServer::embedded().await;
    let admin = cluster(&server).await;
    let a = node(&server, "a");
    let status = |phase: &str| json!({"status": {"phase": phase}});
    let of_pod = |name: &str| format!("{CORE}/pods/{name}/status");
    a.patch(&of_pod("pod-a"), STRATEGIC_PATCH, &status("Running")).await.expect(200);
    let why = a.patch(&of_pod("pod-b"), STRATEGIC_PATCH, &status("Running")).await.refused(403);
    assert_eq!(
        why,
        r#"pods "pod-b" is forbidden: node "a" can only update pod status for pods with spec.nodeName set to itself"#
    );
    let relabel = json!({"metadata": {"labels": {"a": "b"}}});
    let why = a.patch(&of_pod("pod-a"), MERGE_PATCH, &relabel).await.refused(403);
    assert!(why.ends_with(r#"node "a" cannot update labels through pod status"#), "{why}");

    let itself = "/api/v1/nodes/a";
    let label = |key: &str| json!({"metadata": {"labels": {key: "x"}}});
    for allowed in ["example.com/mine", "kubernetes.io/hostname", "x.node.kubernetes.io/y", "kubelet.kubernetes.io/z"] {
        a.patch(itself, MERGE_PATCH, &label(allowed)).await.expect(200);
    }
    for forbidden in [
        "node-restriction.kubernetes.io/a",
        "x.node-restriction.kubernetes.io/a",
        "foo.k8s.io/a",
        "node-role.kubernetes.io/control-plane",
    ] {
        let why = a.patch(itself, MERGE_PATCH, &label(forbidden)).await.refused(403);
        assert_eq!(why, format!(r#"nodes "a" is forbidden: is not allowed to modify labels: {forbidden}"#));
    }
    let taints = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    let why = a.patch(itself, MERGE_PATCH, &taints).await.refused(403);
    assert_eq!(why, r#"nodes "a" is forbidden: node "a" is not allowed to modify taints"#);
    let why = a.patch("/api/v1/nodes/b", MERGE_PATCH, &label("example.com/x")).await.refused(403);
    assert_eq!(why, r#"nodes "b" is forbidden: node "a" is not allowed to modify node "b""#);
    a.post("/api/v1/nodes", &json!({"metadata": {"name": "c"}})).await.refused(403);
    let c = node(&server, "c");
    let why =
        c.post("/api/v1/nodes", &json!({"metadata": {"name": "c", "labels": {"k8s.io/x": "y"}}})).await.refused(403);
    assert!(why.ends_with(r#"node "c" is not allowed to set the following labels: k8s.io/x"#), "{why}");
    c.post("/api/v1/nodes", &json!({"metadata": {"name": "c"}})).await.expect(201);
    c.delete("/api/v1/nodes/c").await.refused(403);

    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    a.post(leases, &json!({"metadata": {"name": "a"}})).await.expect(201);
    let why = a.post(leases, &json!({"metadata": {"name": "b"}})).await.refused(403);
    assert!(why.ends_with("can only access node lease with the same name as the requesting node"), "{why}");
    let eviction = |name: &str| json!({"metadata": {"name": name, "namespace": "default"}});
    let why = a.post(&format!("{CORE}/pods/pod-b/eviction"), &eviction("pod-b")).await.refused(403);
    assert!(why.ends_with("node a can only evict pods with spec.nodeName set to itself"), "{why}");
    a.post(&format!("{CORE}/pods/pod-a/eviction"), &eviction("pod-a")).await.expect(201);
    mirrors(&admin, &a).await;
}

/// Tokens are for pods of the node, and for audiences that the pod has use for.
#[tokio::test]
async fn nodes_get_tokens_for_their_pods() {
    let server = TestServer::embedded().await;
    let admin = cluster(&server).await;
    let (a, b) = (node(&server, "a"), node(&server, "b"));
    let token = format!("{CORE}/serviceaccounts/default/token");
    let pod = admin.get(&format!("{CORE}/pods/pod-a")).await.expect(200);
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "pod-a", "uid": pod["metadata"]["uid"]});
    let asked = |spec: Value| json!({"spec": spec});
    a.post(&token, &asked(json!({"boundObjectRef": bound}))).await.expect(201);
    let why = b.post(&token, &asked(json!({"boundObjectRef": bound}))).await.refused(403);
    assert!(why.ends_with("node requested token bound to a pod scheduled on a different node"), "{why}");
    let why = a.post(&token, &asked(json!({}))).await.refused(403);
    assert!(why.ends_with("node requested token not bound to a pod"), "{why}");
    let vault = asked(json!({"boundObjectRef": bound, "audiences": ["vault"]}));
    let why = a.post(&token, &vault).await.refused(403);
    assert!(why.ends_with(r#"error validating audience "vault": csidriver.storage.k8s.io "d" not found"#), "{why}");
    let driver = json!({"metadata": {"name": "d"}, "spec": {"tokenRequests": [{"audience": "bucket"}]}});
    admin.post("/apis/storage.k8s.io/v1/csidrivers", &driver).await.expect(201);
    a.post(&token, &asked(json!({"boundObjectRef": bound, "audiences": ["bucket"]}))).await.expect(201);
    let why = a.post(&token, &vault).await.refused(403);
    assert!(why.contains("audience \"vault\" not found in pod spec volume"), "{why}");
    let verb = "request-serviceaccounts-token-audience";
    let rules = json!([{"verbs": [verb], "apiGroups": [""], "resources": ["vault"]}]);
    let nodes = json!({"kind": "Group", "name": "system:nodes"});
    let grants = [
        ("clusterroles", role("vault", rules)),
        ("clusterrolebindings", binding("vault", "ClusterRole", "vault", nodes)),
    ];
    grant(&admin, &grants).await;
    a.post(&token, &vault).await.expect(201);
    // Another account is none of the node's business.
    admin.post(&format!("{CORE}/serviceaccounts"), &json!({"metadata": {"name": "other"}})).await.expect(201);
    let other = format!("{CORE}/serviceaccounts/other/token");
    let why = a.post(&other, &asked(json!({"boundObjectRef": bound}))).await.refused(403);
    assert!(why.ends_with("no relationship found between node 'a' and this object"), "{why}");
}

/// Nodes create mirror pods only: their own, owned by themselves, with nothing of the API in them.
async fn mirrors(admin: &Client, a: &Client) {
    let uid = admin.get("/api/v1/nodes/a").await.expect(200)["metadata"]["uid"].clone();
    let mut mirror = pod("mirror");
    mirror["spec"]["nodeName"] = json!("a");
    mirror["spec"]["automountServiceAccountToken"] = json!(false);
    let path = format!("{CORE}/pods");
    let annotation = "kubernetes.io/config.mirror";
    let why = a.post(&path, &mirror).await.refused(403);
    assert!(why.contains("node \"a\" can only create mirror pods"), "{why}");
    mirror["metadata"]["annotations"] = json!({annotation: "x"});
    let why = a.post(&path, &mirror).await.refused(403);
    assert!(why.ends_with("can only create pods with an owner reference set to itself"), "{why}");
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "a", "uid": uid, "controller": true});
    mirror["metadata"]["ownerReferences"] = json!([owner]);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut changed = mirror.clone();
        change(&mut changed);
        changed
    };
    let mounted = json!([{"name": "v", "hostPath": {"path": "/x"}}, {"name": "s", "persistentVolumeClaim": {"claimName": "claim-b"}}]);
    let env = json!([{"configMapRef": {"name": "map-b"}}]);
    for (pod, why) in [
        (with(&|p| p["spec"]["nodeName"] = json!("b")), "can only create pods with spec.nodeName set to itself"),
        (
            with(&|p| p["metadata"]["ownerReferences"][0]["uid"] = json!("other")),
            &*format!("UID mismatch: expected other got {}", uid.as_str().unwrap_or_default()),
        ),
        (
            with(&|p| p["spec"]["containers"][0]["envFrom"] = env.clone()),
            "can not create pods that reference configmaps",
        ),
        (
            with(&|p| p["spec"]["volumes"] = mounted.clone()),
            "can not create pods that reference persistentvolumeclaims",
        ),
    ] {
        let refused = a.post(&path, &pod).await.refused(403);
        assert!(refused.ends_with(why), "{refused}");
    }
    a.post(&path, &mirror).await.expect(201);
}
