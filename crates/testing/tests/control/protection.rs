//! What is in use stays until it is not.

use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Secret},
        networking::v1::ServiceCIDR,
        storage::v1::VolumeAttributesClass,
    },
    serde::{Serialize, de::DeserializeOwned},
};
use kube::{
    Api, Resource,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use testing::TestServer;

use super::{client, eventually, lost_nodes::Hand, replica_sets::server};

async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("created")
}

async fn gone<K: Clone + std::fmt::Debug + DeserializeOwned>(api: &Api<K>, name: &str) {
    eventually(&format!("{name} is gone"), || async {
        api.get_opt(name).await.expect("an answer").is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storage_stays_as_long_as_somebody_uses_it() {
    let (_server, client) = server().await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    let (volumes, classes): (Api<PersistentVolume>, Api<VolumeAttributesClass>) =
        (Api::all(client.clone()), Api::all(client.clone()));
    let pods: Api<Pod> = Api::default_namespaced(client);
    create(&classes, json!({"metadata": {"name": "fast"}, "driverName": "example.com", "parameters": {"speed": "1"}}))
        .await;
    let storage = json!({"requests": {"storage": "1Gi"}});
    let spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": storage,
        "storageClassName": "none",
        "volumeAttributesClassName": "fast",
    });
    let claim = create(&claims, json!({"metadata": {"name": "data"}, "spec": spec})).await;
    assert_eq!(claim.metadata.finalizers, Some(vec!["kubernetes.io/pvc-protection".to_owned()]));
    let spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/tmp/data"},
        "storageClassName": "none",
    });
    create(&volumes, json!({"metadata": {"name": "volume"}, "spec": spec})).await;
    let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
    let spec = json!({"nodeName": "n", "containers": [{"name": "a", "image": "a:1"}], "volumes": [volume]});
    create(&pods, json!({"metadata": {"name": "user"}, "spec": spec})).await;

    volumes.delete("volume", &DeleteParams::default()).await.expect("deleted");
    gone(&volumes, "volume").await;
    classes.delete("fast", &DeleteParams::default()).await.expect("deleted");
    claims.delete("data", &DeleteParams::default()).await.expect("deleted");
    let free = create(
        &claims,
        json!({"metadata": {"name": "free"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": storage, "storageClassName": "none",
        }}),
    )
    .await;
    claims.delete("free", &DeleteParams::default()).await.expect("deleted");
    gone(&claims, free.metadata.name.as_deref().unwrap_or_default()).await;
    // One that nobody uses went after it; the other is still there.
    let kept = claims.get("data").await.expect("it stays").metadata;
    assert!(kept.deletion_timestamp.is_some());
    assert!(classes.get("fast").await.expect("it stays").metadata.deletion_timestamp.is_some());
    // A volume of a pod's own has a claim, which goes with the pod.
    let own = json!({"name": "w", "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": storage, "storageClassName": "none",
    }}}});
    let spec = json!({"containers": [{"name": "a", "image": "a:1"}], "volumes": [own]});
    create(&pods, json!({"metadata": {"name": "owner"}, "spec": spec})).await;
    let made = eventually("a claim", || async { claims.get_opt("owner-w").await.expect("an answer") }).await;
    assert_eq!(made.metadata.labels.expect("labels")["a"], "b");
    pods.delete("owner", &DeleteParams::default().grace_period(0)).await.expect("deleted");
    gone(&claims, "owner-w").await;
    pods.delete("user", &DeleteParams::default().grace_period(0)).await.expect("deleted");
    gone(&claims, "data").await;
    gone(&classes, "fast").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_of_services_are_made_ready_and_go_in_time() {
    let (server, clock) = (TestServer::embedded().await, Hand::new());
    let at = clock.clone();
    server.run_controllers_with(move |setting| setting.clock = at);
    let client = client(&server).await;
    let blocks: Api<ServiceCIDR> = Api::all(client.clone());
    create(&blocks, json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.200.0.0/24"]}})).await;
    let ready = eventually("it is ready", || async {
        let block = blocks.get("more").await.expect("a block");
        let conditions = block.status.clone()?.conditions?;
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True").then_some(block)
    })
    .await;
    assert_eq!(ready.metadata.finalizers, Some(vec!["networking.k8s.io/service-cidr-finalizer".to_owned()]));
    clock.forward(60);
    blocks.delete("more", &DeleteParams::default()).await.expect("deleted");
    gone(&blocks, "more").await;

    let secrets: Api<Secret> = Api::namespaced(client, "kube-system");
    for (name, expires) in [("old", "2026-01-01T00:00:00Z"), ("new", "2999-01-01T00:00:00Z")] {
        let data = json!({"token-id": format!("{name}abc"), "token-secret": "0123456789abcdef", "expiration": expires});
        let secret = json!({
            "metadata": {"name": format!("bootstrap-token-{name}abc")},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": data,
        });
        create(&secrets, secret).await;
    }
    gone(&secrets, "bootstrap-token-oldabc").await;
    secrets.get("bootstrap-token-newabc").await.expect("it stays");
}
