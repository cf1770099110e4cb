//! Jobs run until enough has succeeded or too much has failed, and every pod counts once.

use controller_runtime::Informers;
use k8s_openapi::api::{
    batch::v1::{Job, JobStatus},
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
    nodes::{Fate, meet, play},
    replica_sets::server,
};

struct Case {
    jobs: Api<Job>,
    pods: Api<Pod>,
    client: Client,
    _server: testing::TestServer,
}

impl Case {
    async fn new(fate: impl Fn(&Pod) -> Fate + Send + 'static) -> Self {
        let (server, client) = server().await;
        play(&client, &Informers::new(client.clone(), CancellationToken::new()), fate);
        let (jobs, pods) = (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
        Self { jobs, pods, client, _server: server }
    }

    async fn create(&self, name: &str, spec: Value) -> Job {
        let containers = json!([{"name": "a", "image": "a:1"}]);
        let mut whole = json!({"template": {"spec": {"restartPolicy": "Never", "containers": containers}}});
        whole.as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
        let job = json!({"metadata": {"name": name}, "spec": whole});
        let job = serde_json::from_value(job).expect("a job");
        self.jobs.create(&PostParams::default(), &job).await.expect("created")
    }

    async fn status(&self, name: &str, what: &str, is: impl Fn(&JobStatus) -> bool) -> JobStatus {
        let look = || async { self.jobs.get(name).await.expect("a job").status.filter(|status| is(status)) };
        eventually(what, look).await
    }

    async fn end(&self, name: &str, type_: &str) -> JobStatus {
        self.status(name, type_, |status| conditions(status).iter().any(|(known, _)| known == type_)).await
    }

    async fn pods_of(&self, name: &str) -> Vec<Pod> {
        let of = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
        self.pods.list(&of).await.expect("a list").items
    }

    async fn patch(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.jobs.patch(name, &PatchParams::default(), &patch).await.expect("patched");
    }
}

/// The conditions that are true, with their reasons, in order.
fn conditions(status: &JobStatus) -> Vec<(String, String)> {
    let all = status.conditions.iter().flatten().filter(|condition| condition.status == "True");
    all.map(|condition| (condition.type_.clone(), condition.reason.clone().unwrap_or_default())).collect()
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

fn index(pod: &Pod) -> String {
    let annotations = pod.metadata.annotations.clone().unwrap_or_default();
    annotations.get("batch.kubernetes.io/job-completion-index").cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_to_its_end() {
    let case = Case::new(|_| Fate::Succeeded).await;
    case.create("four", json!({"completions": 4, "parallelism": 2})).await;
    let status = case.end("four", "Complete").await;
    let reached = "CompletionsReached";
    assert_eq!(conditions(&status), pairs(&[("SuccessCriteriaMet", reached), ("Complete", reached)]));
    assert_eq!((status.succeeded, status.failed, status.active), (Some(4), None, None));
    assert_eq!((status.ready, status.terminating), (Some(0), Some(0)));
    assert!(status.start_time.is_some() && status.completion_time.is_some());
    let pods = case.pods_of("four").await;
    assert_eq!(pods.len(), 4, "not one too many");
    assert!(pods.iter().all(|pod| pod.metadata.finalizers.is_none()), "all are counted");
    let events: Api<Event> = Api::default_namespaced(case.client.clone());
    eventually("events", || async {
        let all = events.list(&ListParams::default()).await.expect("a list").items;
        let of = |reason: &str| all.iter().filter(|event| event.reason.as_deref() == Some(reason)).count();
        (of("SuccessfulCreate") == 4 && of("Completed") == 1).then_some(())
    })
    .await;
    case.jobs.delete("four", &DeleteParams::background()).await.expect("deleted");
    eventually("the pods are gone", || async { case.pods_of("four").await.is_empty().then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_deadlines_stop_nobody() {
    let case = Case::new(|_| Fate::Succeeded).await;
    // More Jobs than there are workers.
    let names: Vec<String> = (0..8).map(|number| format!("endless-{number}")).collect();
    for name in &names {
        case.create(name, json!({"activeDeadlineSeconds": i64::MAX})).await;
    }
    for name in &names {
        case.end(name, "Complete").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_count_where_they_should() {
    let fate = |pod: &Pod| if index(pod) == "1" { Fate::Failed(3) } else { Fate::Succeeded };
    let case = Case::new(fate).await;
    let indexed = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 0});
    case.create("indexed", indexed).await;
    let status = case.end("indexed", "Failed").await;
    assert_eq!(conditions(&status), pairs(&[("FailureTarget", "FailedIndexes"), ("Failed", "FailedIndexes")]));
    assert_eq!((status.completed_indexes.as_deref(), status.failed_indexes.as_deref()), (Some("0,2"), Some("1")));
    assert_eq!((status.succeeded, status.failed), (Some(2), Some(1)));

    let enough = json!({"rules": [{"succeededIndexes": "0"}]});
    let policy = json!({"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}}]});
    let spec = json!({"completions": 2, "parallelism": 1, "completionMode": "Indexed", "successPolicy": enough,
        "podFailurePolicy": policy, "backoffLimit": 0});
    case.create("enough", spec).await;
    let status = case.end("enough", "Complete").await;
    assert_eq!(conditions(&status), pairs(&[("SuccessCriteriaMet", "SuccessPolicy"), ("Complete", "SuccessPolicy")]));
    assert_eq!(status.failed, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_failures_end_it_and_a_job_can_wait() {
    let case = Case::new(|_| Fate::Ready).await;
    case.create("fails", json!({"completions": 3, "parallelism": 2, "backoffLimit": 0})).await;
    case.status("fails", "two run", |status| (status.active, status.ready) == (Some(2), Some(2))).await;
    let pods = case.pods_of("fails").await;
    let name = pods[0].metadata.name.clone().expect("a name");
    meet(&case.pods, &name, Fate::Failed(1)).await;
    let status = case.end("fails", "Failed").await;
    let why = "BackoffLimitExceeded";
    assert_eq!(conditions(&status), pairs(&[("FailureTarget", why), ("Failed", why)]));
    assert_eq!((status.failed, status.active, status.terminating), (Some(2), None, Some(0)));

    case.create("waits", json!({"suspend": true})).await;
    let status = case.end("waits", "Suspended").await;
    assert_eq!((status.start_time, status.active), (None, None));
    assert!(case.pods_of("waits").await.is_empty());
    case.patch("waits", json!({"suspend": false})).await;
    let status = case.status("waits", "it runs", |status| status.ready == Some(1)).await;
    assert!(status.start_time.is_some() && conditions(&status).is_empty());
    case.patch("waits", json!({"suspend": true})).await;
    let status = case.end("waits", "Suspended").await;
    assert_eq!((status.active, status.failed), (None, None), "what was stopped has not failed");
    eventually("its pods go", || async { case.pods_of("waits").await.is_empty().then_some(()) }).await;

    case.create("late", json!({"activeDeadlineSeconds": 1})).await;
    let status = case.end("late", "Failed").await;
    let why = "DeadlineExceeded";
    assert_eq!(conditions(&status), pairs(&[("FailureTarget", why), ("Failed", why)]));

    case.create("theirs", json!({"managedBy": "example.com/them"})).await;
    case.create("ours", json!({})).await;
    case.status("ours", "ours runs", |status| status.ready == Some(1)).await;
    assert_eq!(case.jobs.get("theirs").await.expect("a job").status.and_then(|status| status.start_time), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_let_go_and_adopted_with_what_keeps_them() {
    let case = Case::new(|_| Fate::Ready).await;
    case.create("one", json!({"parallelism": 1, "completions": 1})).await;
    case.status("one", "it runs", |status| status.ready == Some(1)).await;
    let pod = case.pods_of("one").await.remove(0);
    let (name, labels) = (pod.metadata.name.clone().expect("a name"), pod.metadata.labels.expect("labels"));
    let none = Patch::Merge(json!({"metadata": {"labels": null}}));
    case.pods.patch(&name, &PatchParams::default(), &none).await.expect("patched");
    eventually("it is let go", || async {
        let meta = case.pods.get(&name).await.expect("a pod").metadata;
        (meta.owner_references.is_none() && meta.finalizers.is_none()).then_some(())
    })
    .await;
    let again = Patch::Merge(json!({"metadata": {"labels": labels}}));
    case.pods.patch(&name, &PatchParams::default(), &again).await.expect("patched");
    eventually("it is adopted, or was one too many", || async {
        let found = case.pods.get_opt(&name).await.expect("an answer");
        let Some(meta) = found.map(|pod| pod.metadata) else { return Some(()) };
        (meta.owner_references.is_some() && meta.finalizers.is_some()).then_some(())
    })
    .await;
    let one_lives = |pods: &[Pod]| pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count() == 1;
    eventually("one is left", || async { Some(case.pods_of("one").await).filter(|pods| one_lives(pods)) }).await;
}
