//! StatefulSets: pods with numbers come, change and go in order, and keep their claims.

use std::sync::{Arc, Mutex};

use controller_runtime::Informers;
use k8s_openapi::api::{
    apps::v1::{StatefulSet, StatefulSetStatus},
    core::v1::{PersistentVolumeClaim, Pod},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    eventually,
    nodes::{Fate, meet, play},
    replica_sets::{server, template},
};

struct Case {
    sets: Api<StatefulSet>,
    pods: Api<Pod>,
    claims: Api<PersistentVolumeClaim>,
    /// The names of the pods in the order in which they came.
    came: Arc<Mutex<Vec<String>>>,
    _server: testing::TestServer,
}

impl Case {
    async fn new() -> Self {
        let (server, client) = server().await;
        let came: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = came.clone();
        play(&client, &Informers::new(client.clone(), CancellationToken::new()), move |pod| {
            let name = pod.metadata.name.clone().unwrap_or_default();
            let mut seen = seen.lock().expect("no panic");
            if seen.last() != Some(&name) {
                seen.push(name);
            }
            let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref());
            if image == Some("broken") { Fate::Pending } else { Fate::Ready }
        });
        let (sets, pods) = (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
        Self { sets, pods, claims: Api::default_namespaced(client), came, _server: server }
    }

    async fn create(&self, more: Value) {
        let labels = json!({"app": "db"});
        let mut spec = json!({"replicas": 3, "selector": {"matchLabels": labels}, "template": template(labels),
            "serviceName": "db"});
        spec.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        let set = serde_json::from_value(json!({"metadata": {"name": "db"}, "spec": spec})).expect("a set");
        self.sets.create(&PostParams::default(), &set).await.expect("created");
    }

    async fn patch(&self, spec: Value) {
        let patch = Patch::Strategic(json!({"spec": spec}));
        self.sets.patch("db", &PatchParams::default(), &patch).await.expect("patched");
    }

    async fn image(&self, image: &str) {
        self.patch(json!({"template": {"spec": {"containers": [{"name": "a", "image": image}]}}})).await;
    }

    async fn status(&self, what: &str, is: impl Fn(&StatefulSetStatus) -> bool) -> StatefulSetStatus {
        eventually(what, || async {
            let set = self.sets.get("db").await.expect("a set");
            set.status.filter(|status| status.observed_generation == set.metadata.generation && is(status))
        })
        .await
    }

    async fn ready(&self, replicas: i32) -> StatefulSetStatus {
        self.status(&format!("{replicas} are ready"), |status| {
            (status.replicas, status.ready_replicas.unwrap_or(0)) == (replicas, replicas)
        })
        .await
    }

    async fn images(&self) -> Vec<String> {
        let all = self.pods.list(&ListParams::default()).await.expect("a list").items;
        all.into_iter().filter_map(|pod| pod.spec?.containers.remove(0).image).collect()
    }

    fn came(&self) -> Vec<String> {
        std::mem::take(&mut self.came.lock().expect("no panic"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_come_change_and_go_in_order() {
    let case = Case::new().await;
    case.create(json!({})).await;
    let status = case.ready(3).await;
    assert_eq!(case.came(), ["db-0", "db-1", "db-2"]);
    assert_eq!(status.current_revision, status.update_revision);
    let pod = case.pods.get("db-1").await.expect("a pod");
    let labels = pod.metadata.labels.expect("labels");
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "db-1");
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "1");
    assert_eq!(Some(&labels["controller-revision-hash"]), status.current_revision.as_ref());

    // A canary first, then the others.
    case.patch(json!({"updateStrategy": {"rollingUpdate": {"partition": 2}}})).await;
    case.image("a:2").await;
    let canary =
        case.status("a canary", |status| (status.updated_replicas, status.ready_replicas) == (Some(1), Some(3))).await;
    assert_ne!(canary.current_revision, canary.update_revision);
    assert_eq!(case.images().await, ["a:1", "a:1", "a:2"]);
    case.pods.delete("db-0", &DeleteParams::default()).await.expect("deleted");
    eventually("it is as it was", || async { (case.images().await == ["a:1", "a:1", "a:2"]).then_some(()) }).await;
    case.ready(3).await;
    case.came();
    case.patch(json!({"updateStrategy": {"rollingUpdate": {"partition": 0}}})).await;
    let all = |status: &StatefulSetStatus| status.current_revision == status.update_revision;
    case.status("all are new", |status| all(status) && status.ready_replicas == Some(3)).await;
    assert_eq!(case.images().await, ["a:2"; 3]);
    assert_eq!(case.came(), ["db-1", "db-0"], "the highest first");

    // One that fails comes again under its name.
    let before = case.pods.get("db-1").await.expect("a pod").metadata.uid;
    meet(&case.pods, "db-1", Fate::Failed(1)).await;
    eventually("it comes again", || async {
        let pod = case.pods.get_opt("db-1").await.expect("an answer")?;
        (pod.metadata.uid != before).then_some(())
    })
    .await;
    case.ready(3).await;
    case.patch(json!({"replicas": 1})).await;
    case.ready(1).await;
    assert!(case.pods.get_opt("db-0").await.expect("an answer").is_some());

    // What does not become ready holds up the others.
    case.image("broken").await;
    // If it heard of the size first, the second pod would come before the first one goes.
    case.status("it is being replaced", |status| status.ready_replicas.is_none()).await;
    case.patch(json!({"replicas": 3})).await;
    case.status("it waits", |status| (status.replicas, status.ready_replicas) == (1, None)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_at_once_with_claims_that_stay_or_go() {
    let case = Case::new().await;
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    case.create(json!({
        "podManagementPolicy": "Parallel", "ordinals": {"start": 5}, "volumeClaimTemplates": [claim],
        "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Retain"},
    }))
    .await;
    case.ready(3).await;
    let names = |claims: Vec<PersistentVolumeClaim>| -> Vec<String> {
        let lives = |claim: &PersistentVolumeClaim| claim.metadata.deletion_timestamp.is_none();
        claims.into_iter().filter(lives).filter_map(|claim| claim.metadata.name).collect()
    };
    let all = case.claims.list(&ListParams::default()).await.expect("a list").items;
    assert_eq!(all[0].metadata.labels.as_ref().expect("labels")["app"], "db");
    assert_eq!(names(all), ["data-db-5", "data-db-6", "data-db-7"]);
    let pod = case.pods.get("db-6").await.expect("a pod").spec.expect("a spec");
    let volume = pod.volumes.expect("volumes").remove(0);
    assert_eq!(volume.persistent_volume_claim.expect("a claim").claim_name, "data-db-6");

    case.patch(json!({"replicas": 1})).await;
    case.ready(1).await;
    eventually("their claims go", || async {
        let left = names(case.claims.list(&ListParams::default()).await.expect("a list").items);
        (left == ["data-db-5"]).then_some(())
    })
    .await;
    // A pod that comes again waits until the claim of the one before is gone. Nobody here protects claims in use.
    case.patch(json!({"replicas": 2})).await;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for name in ["data-db-6", "data-db-7"] {
        if case.claims.get_opt(name).await.expect("an answer").is_some() {
            case.claims.patch(name, &PatchParams::default(), &free).await.expect("patched");
        }
    }
    case.ready(2).await;
    eventually("it has a claim of its own", || async {
        let left = names(case.claims.list(&ListParams::default()).await.expect("a list").items);
        (left == ["data-db-5", "data-db-6"]).then_some(())
    })
    .await;
    case.sets.delete("db", &DeleteParams::background()).await.expect("deleted");
    eventually("pods go", || async { case.images().await.is_empty().then_some(()) }).await;
    let left = names(case.claims.list(&ListParams::default()).await.expect("a list").items);
    assert_eq!(left, ["data-db-5", "data-db-6"], "they stay");
}
