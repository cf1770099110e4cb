//! kube-rs, as Rust operators use it: typed and dynamic API, apply, watcher, reflector.

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
    config::Kubeconfig,
    core::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt, reflector, watcher},
};
use testing::TestServer;

use super::deployment;

async fn client(server: &TestServer) -> Client {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("a usable kubeconfig");
    Client::try_from(config).expect("a client")
}

fn config(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.into()), ..Default::default() },
        data: Some(BTreeMap::from([("key".into(), value.into())])),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_rs_writes_and_watches() {
    let server = TestServer::embedded().await;
    let client = client(&server).await;
    assert_eq!(client.apiserver_version().await.expect("a version").minor, "36");
    let configs: Api<ConfigMap> = Api::default_namespaced(client.clone());

    let (reader, writer) = reflector::store();
    let events = watcher(configs.clone(), watcher::Config::default().streaming_lists()).reflect(writer);
    let following = tokio::spawn(events.touched_objects().for_each(|_| async {}));
    let made = configs.create(&PostParams::default(), &config("a", "1")).await.expect("created");
    assert!(made.metadata.uid.is_some());
    let exists = configs.create(&PostParams::default(), &config("a", "1")).await;
    assert!(matches!(exists, Err(kube::Error::Api(status)) if status.code == 409 && status.reason == "AlreadyExists"));
    reader.wait_until_ready().await.expect("a store");

    let ours = PatchParams::apply("test").force();
    let patched = configs.patch("a", &ours, &Patch::Apply(&config("a", "2"))).await.expect("applied");
    assert_eq!(patched.data.expect("data")["key"], "2");
    let seen = |value: &str| {
        reader.state().iter().any(|c| c.data.as_ref().is_some_and(|d| d.get("key").is_some_and(|v| v == value)))
    };
    for _ in 0..1000 {
        if seen("2") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(seen("2"), "the reflector follows");
    configs.delete("a", &DeleteParams::background()).await.expect("deleted");
    following.abort();

    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let wanted: Deployment = serde_json::from_value(deployment("d")).expect("a deployment");
    deployments.create(&PostParams::default(), &wanted).await.expect("created");
    let scale = serde_json::json!({"spec": {"replicas": 6}});
    let scaled = deployments.patch_scale("d", &PatchParams::default(), &Patch::Merge(&scale)).await.expect("scaled");
    assert_eq!(scaled.spec.and_then(|spec| spec.replicas), Some(6));
    let dynamic: Api<DynamicObject> = Api::default_namespaced_with(client, &ApiResource::erase::<Deployment>(&()));
    let list = dynamic.list(&ListParams::default().limit(1)).await.expect("a list");
    assert_eq!((list.items.len(), &list.items[0].data["spec"]["replicas"]), (1, &6.into()));
}
