//! Deployments go from one template to the next, and keep their promises on the way.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI32, Ordering},
};

use controller_runtime::{Informer, Informers};
use k8s_openapi::api::{
    apps::v1::{Deployment, DeploymentStatus, ReplicaSet},
    core::v1::{Event, Pod},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    eventually,
    nodes::{Fate, play},
    replica_sets::{server, template},
};

const REVISION: &str = "deployment.kubernetes.io/revision";

/// Pods become ready, unless their image is broken.
fn fate(pod: &Pod) -> Fate {
    let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref());
    if image == Some("broken") { Fate::Pending } else { Fate::Ready }
}

fn deployment(replicas: i32, strategy: Value) -> Deployment {
    let labels = json!({"app": "web"});
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels}, "template": template(labels),
            "strategy": strategy, "revisionHistoryLimit": 1,
        },
    });
    serde_json::from_value(deployment).expect("a deployment")
}

struct Case {
    deployments: Api<Deployment>,
    sets: Api<ReplicaSet>,
    client: Client,
    informers: Informers,
    _server: testing::TestServer,
}

impl Case {
    async fn new() -> Self {
        let (server, client) = server().await;
        let informers = Informers::new(client.clone(), CancellationToken::new());
        play(&client, &informers, fate);
        Self {
            deployments: Api::default_namespaced(client.clone()),
            sets: Api::default_namespaced(client.clone()),
            client,
            informers,
            _server: server,
        }
    }

    async fn patch(&self, change: Value) {
        self.deployments.patch("web", &PatchParams::default(), &Patch::Merge(change)).await.expect("patched");
    }

    async fn image(&self, image: &str) {
        let containers = json!([{"name": "a", "image": image}]);
        let change = Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": containers}}}}));
        self.deployments.patch("web", &PatchParams::default(), &change).await.expect("patched");
    }

    async fn status(&self, what: &str, is: impl Fn(&Deployment, &DeploymentStatus) -> bool) -> Deployment {
        eventually(what, || async {
            let found = self.deployments.get("web").await.expect("a deployment");
            found.status.clone().filter(|status| is(&found, status)).map(|_| found)
        })
        .await
    }

    /// All pods are of the newest template and available, at a revision.
    async fn complete(&self, wanted: i32, revision: &str) -> Deployment {
        self.status(&format!("revision {revision} is out"), |found, status| {
            let counts = [status.replicas, status.updated_replicas, status.available_replicas];
            let at = found.metadata.annotations.as_ref().and_then(|annotations| annotations.get(REVISION));
            counts == [Some(wanted); 3]
                && status.observed_generation == found.metadata.generation
                && at.is_some_and(|at| at == revision)
                && condition(status, "Progressing").1 == "NewReplicaSetAvailable"
        })
        .await
    }

    async fn sizes(&self) -> Vec<(String, i32)> {
        let sets = self.sets.list(&ListParams::default()).await.expect("a list").items;
        let mut sizes: Vec<_> = sets
            .into_iter()
            .map(|set| {
                (set.metadata.annotations.expect("annotations")[REVISION].clone(), set.spec.and_then(|s| s.replicas))
            })
            .map(|(revision, size)| (revision, size.unwrap_or(1)))
            .collect();
        sizes.sort();
        sizes
    }
}

fn condition(status: &DeploymentStatus, type_: &str) -> (String, String) {
    let found = status.conditions.iter().flatten().find(|condition| condition.type_ == type_);
    found.map(|found| (found.status.clone(), found.reason.clone().unwrap_or_default())).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_update_keeps_its_promises() {
    let case = Case::new().await;
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 1}});
    case.deployments.create(&PostParams::default(), &deployment(6, strategy)).await.expect("created");
    case.complete(6, "1").await;

    let (most, least) = (Arc::new(AtomicI32::new(0)), Arc::new(AtomicI32::new(i32::MAX)));
    let (sets, pods): (Informer<ReplicaSet>, Informer<Pod>) = (case.informers.of(), case.informers.of());
    sets.synced().await;
    let (seen, high) = (sets.clone(), most.clone());
    sets.on_change(move |_| {
        let total: i32 = seen.all().iter().filter_map(|set| set.spec.as_ref()?.replicas).sum();
        high.fetch_max(total, Ordering::SeqCst);
    });
    let available = |pods: &Informer<Pod>| {
        let all = pods.all();
        let available = all.iter().filter(|pod| {
            let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
            pod.metadata.deletion_timestamp.is_none() && conditions.into_iter().any(|c| c.type_ == "Ready")
        });
        i32::try_from(available.count()).expect("few")
    };
    eventually("the informer knows", || async { (available(&pods) == 6).then_some(()) }).await;
    let (seen, low) = (pods.clone(), least.clone());
    pods.on_change(move |_| {
        low.fetch_min(available(&seen), Ordering::SeqCst);
    });
    case.image("a:2").await;
    case.complete(6, "2").await;
    assert!(most.load(Ordering::SeqCst) <= 8, "never more than allowed: {most:?}");
    assert!(least.load(Ordering::SeqCst) >= 5, "never fewer than promised: {least:?}");
    assert_eq!(case.sizes().await, [("1".into(), 0), ("2".into(), 6)]);

    // A third revision: only one old set is kept.
    case.image("a:3").await;
    case.complete(6, "3").await;
    eventually("history is cut", || async {
        (case.sizes().await == [("2".to_owned(), 0), ("3".to_owned(), 6)]).then_some(())
    })
    .await;
    // Back to the second template, which becomes the fourth revision.
    case.image("a:2").await;
    case.complete(6, "4").await;
    assert_eq!(case.sizes().await, [("3".into(), 0), ("4".into(), 6)]);
    case.patch(json!({"metadata": {"annotations": {"deprecated.deployment.rollback.to": "0"}}})).await;
    let back = case.complete(6, "5").await;
    let image = back.spec.expect("a spec").template.spec.expect("a spec").containers[0].image.clone();
    assert_eq!(image.as_deref(), Some("a:3"));
    assert_eq!(condition(&back.status.expect("a status"), "Available").1, "MinimumReplicasAvailable");

    let events: Api<Event> = Api::default_namespaced(case.client.clone());
    eventually("an event", || async {
        let all = events.list(&ListParams::default()).await.expect("a list").items;
        let scaled = |event: &Event| {
            let message = event.message.as_deref().unwrap_or_default();
            message.starts_with("Scaled up replica set web-") && message.ends_with(" from 0 to 6")
        };
        all.iter().any(scaled).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recreate_ends_all_before_it_begins() {
    let case = Case::new().await;
    case.deployments
        .create(&PostParams::default(), &deployment(3, json!({"type": "Recreate"})))
        .await
        .expect("created");
    case.complete(3, "1").await;
    let pods: Informer<Pod> = case.informers.of();
    let (seen, mixed) = (pods.clone(), Arc::new(Mutex::new(false)));
    let both = mixed.clone();
    pods.on_change(move |_| {
        let mut images: Vec<_> =
            seen.all().iter().filter_map(|pod| pod.spec.as_ref()?.containers[0].image.clone()).collect();
        images.dedup();
        *both.lock().expect("no panic") |= images.len() > 1;
    });
    case.image("a:2").await;
    case.complete(3, "2").await;
    assert!(!*mixed.lock().expect("no panic"), "old and new never ran together");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_can_wait_fail_and_be_scaled() {
    let case = Case::new().await;
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}});
    let mut wanted = deployment(4, strategy);
    wanted.spec.as_mut().expect("a spec").progress_deadline_seconds = Some(2);
    case.deployments.create(&PostParams::default(), &wanted).await.expect("created");
    case.complete(4, "1").await;

    case.patch(json!({"spec": {"paused": true}})).await;
    case.status("it is paused", |_, status| condition(status, "Progressing").1 == "DeploymentPaused").await;
    case.image("broken").await;
    case.status("the change is seen", |found, status| status.observed_generation == found.metadata.generation).await;
    assert_eq!(case.sizes().await, [("1".into(), 4)], "paused");
    case.patch(json!({"spec": {"paused": false}})).await;
    let stuck = case
        .status("it runs out of time", |_, status| condition(status, "Progressing").1 == "ProgressDeadlineExceeded")
        .await;
    let status = stuck.status.expect("a status");
    assert_eq!(
        (condition(&status, "Progressing").0.as_str(), condition(&status, "Available").0.as_str()),
        ("False", "True")
    );
    assert_eq!((status.updated_replicas, status.available_replicas), (Some(2), Some(3)));
    assert_eq!(case.sizes().await, [("1".into(), 3), ("2".into(), 2)]);

    // In the middle of a rollout, growth is shared.
    case.patch(json!({"spec": {"replicas": 9}})).await;
    eventually("shares", || async { (case.sizes().await == [("1".to_owned(), 6), ("2".to_owned(), 4)]).then_some(()) })
        .await;
    case.image("a:3").await;
    case.complete(9, "3").await;
    case.deployments.delete("web", &DeleteParams::background()).await.expect("deleted");
    eventually("all is gone", || async { case.sizes().await.is_empty().then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_that_has_the_new_size_already_keeps_no_rollout_waiting() {
    let case = Case::new().await;
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    case.deployments.create(&PostParams::default(), &deployment(2, rolling)).await.expect("created");
    case.complete(2, "1").await;
    let sets = case.sets.list(&ListParams::default()).await.expect("a list").items;
    let name = sets[0].metadata.name.as_deref().expect("a name");
    // As after a rollout to five that was scaled to two half-way.
    let desired = json!({"metadata": {"annotations": {"deployment.kubernetes.io/desired-replicas": "5"}}});
    case.sets.patch(name, &PatchParams::default(), &Patch::Merge(desired)).await.expect("patched");
    case.image("a:2").await;
    case.complete(2, "2").await;
}
