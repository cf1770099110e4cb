//! Objects against a real API server, as a node that the server trusts no further than its pods.

use controller_runtime::transport;
use serde_json::{Value, json};
use testing::TestServer;

use super::*;

struct Fixture {
    server: TestServer,
    objects: Objects,
    changes: mpsc::UnboundedReceiver<String>,
}

async fn fixture() -> Fixture {
    let server = TestServer::embedded().await;
    let file = server.kubeconfig_of("system:node:n1", "system:nodes");
    let client = transport::from_kubeconfig(&file, "kubelet").await.expect("a client");
    let (sender, changes) = mpsc::unbounded_channel();
    Fixture { objects: Objects::new(client, sender), changes, server }
}

impl Fixture {
    async fn write(&self, kind: &str, object: Value) {
        self.server.client().post(&format!("/api/v1/namespaces/default/{kind}"), &object).await.expect(201);
    }

    async fn pod(&self, name: &str, volumes: Value) -> Pod {
        let pod = json!({"metadata": {"name": name}, "spec": {
            "nodeName": "n1", "automountServiceAccountToken": false,
            "containers": [{"name": "a", "image": "a"}], "volumes": volumes,
        }});
        let made = self.server.client().post("/api/v1/namespaces/default/pods", &pod).await.expect(201);
        serde_json::from_value(made).expect("a pod")
    }

    async fn account(&self) {
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        self.server.client().post(accounts, &json!({"metadata": {"name": "default"}})).await.expect(201);
    }
}

fn value(map: &ConfigMap) -> Option<&String> {
    map.data.as_ref()?.get("k")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_followed_while_a_pod_refers_to_it() {
    let mut fixture = fixture().await;
    fixture.account().await;
    fixture.write("configmaps", json!({"metadata": {"name": "c"}, "data": {"k": "1"}})).await;
    let pod = fixture.pod("p", json!([{"name": "v", "configMap": {"name": "c"}}])).await;
    let uid = pod.metadata.uid.clone().expect("a uid");
    fixture.objects.register(&pod);
    fixture.objects.register(&pod);
    let found = fixture.objects.config_map("default", "c").await.expect("it is there");
    assert_eq!(value(&found).map(String::as_str), Some("1"));
    let path = "/api/v1/namespaces/default/configmaps/c";
    fixture.server.client().patch(path, "application/merge-patch+json", &json!({"data": {"k": "2"}})).await.expect(200);
    assert_eq!(fixture.changes.recv().await, Some(uid.clone()));
    let found = fixture.objects.config_map("default", "c").await.expect("it is there");
    assert_eq!(value(&found).map(String::as_str), Some("2"));
    fixture.server.client().delete(path).await.expect(200);
    assert_eq!(fixture.changes.recv().await, Some(uid.clone()));
    let missing = fixture.objects.config_map("default", "c").await.expect_err("it is gone");
    assert_eq!(missing.to_string(), "configmap \"c\" not found");
    assert!(matches!(missing, Missing::NotFound(_)));
    fixture.objects.forget(&uid);
    let all = lock(&fixture.objects.followed);
    assert!(all.by_reference.is_empty() && all.by_pod.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn immutable_objects_are_kept_without_a_watch() {
    let fixture = fixture().await;
    fixture.account().await;
    fixture.write("secrets", json!({"metadata": {"name": "s"}, "immutable": true, "stringData": {"k": "v"}})).await;
    let pod = fixture.pod("p", json!([{"name": "v", "secret": {"secretName": "s"}}])).await;
    fixture.objects.register(&pod);
    for _ in 0..2 {
        let found = fixture.objects.secret("default", "s").await.expect("it is there");
        assert_eq!(found.data.as_ref().and_then(|data| data.get("k")).map(|v| v.0.as_slice()), Some(&b"v"[..]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_pod_of_the_node_names_is_refused() {
    let fixture = fixture().await;
    let missing = fixture.objects.secret("default", "other").await.expect_err("it is not for this node");
    assert!(matches!(&missing, Missing::Failed(why) if why.contains("no relationship found")), "{missing}");
}
