//! Containers that end and start again, probes, and an agent that does.

use std::{pin::pin, time::Duration};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::PodStatus;
use kube::api::{DeleteParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;

use super::{Cluster, condition, container, eventually, is_true, waits};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_crashes_starts_again_later_every_time() {
    let cluster = Cluster::new().await;
    cluster.create("crash", json!({"containers": [container("a")]})).await;
    let first = cluster.running("crash").await;
    cluster.runtime.exit("a", 7);
    let restarted = |status: &PodStatus| {
        let a = status.container_statuses.as_ref().map(|all| &all[0]);
        a.is_some_and(|a| a.restart_count == 1 && a.state.as_ref().is_some_and(|state| state.running.is_some()))
    };
    let second = cluster.until("crash", "restarted", restarted).await;
    let a = second.container_statuses.unwrap_or_default().remove(0);
    let last = a.last_state.and_then(|last| last.terminated).expect("it ended before");
    assert_eq!((last.exit_code, last.reason.as_deref()), (7, Some("Error")));
    assert_eq!(last.container_id, first.container_statuses.unwrap_or_default().remove(0).container_id);

    cluster.runtime.exit("a", 7);
    let waiting = cluster.until("crash", "backing off", |s| waits(s, "a").as_deref() == Some("CrashLoopBackOff")).await;
    assert_eq!(waiting.phase.as_deref(), Some("Running"));
    let a = waiting.container_statuses.unwrap_or_default().remove(0);
    let message = a.state.and_then(|state| state.waiting?.message).unwrap_or_default();
    assert!(message.starts_with("back-off 10s restarting failed container=a pod=crash_default("), "{message}");
    assert!(
        cluster.event("crash", "BackOff").await.starts_with("Back-off restarting failed container a in pod crash_")
    );

    // Of each container the run before is kept for its log, and no more.
    let third = |status: &PodStatus| {
        let a = status.container_statuses.as_ref().map(|all| &all[0]);
        a.is_some_and(|a| a.restart_count == 2 && a.state.as_ref().is_some_and(|state| state.running.is_some()))
    };
    cluster.until("crash", "restarted again", third).await;
    let logs: Vec<String> = cluster.logs("a");
    assert_eq!(logs, ["1.log", "2.log"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_that_cannot_look_has_found_nothing() {
    let cluster = Cluster::new().await;
    cluster.runtime.break_commands("live");
    let mut a = container("a");
    a["livenessProbe"] = json!({"exec": {"command": ["live"]}, "periodSeconds": 1, "failureThreshold": 1});
    cluster.create("doubted", json!({"containers": [a]})).await;
    let told = cluster.event("doubted", "Unhealthy").await;
    assert_eq!(told, "Liveness probe errored and resulted in unknown state: nobody can run it");
    // Each time it tries more than once, and the next time again.
    let looks = || cluster.runtime.done().iter().filter(|done| *done == "ran live").count();
    eventually("it looked again and again", || async { (looks() >= 9).then_some(()) }).await;
    let status = cluster.running("doubted").await;
    assert_eq!(status.container_statuses.unwrap_or_default()[0].restart_count, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_image_takes_the_place_of_the_one_that_runs_or_cannot_be_had() {
    let cluster = Cluster::new().await;
    let set = async |pod: &str, image: &str| {
        let change = json!({"spec": {"containers": [{"name": "a", "image": image}]}});
        let patch = Patch::Strategic(change);
        cluster.pods().patch(pod, &PatchParams::default(), &patch).await.expect("it is changed");
    };
    cluster.create("turns", json!({"restartPolicy": "Never", "containers": [container("a")]})).await;
    let first = cluster.until("turns", "ready", |status| is_true(status, "Ready")).await;
    let mut changes = pin!(cluster.pods().watch(&WatchParams::default(), "0").await.expect("a watch"));
    let held = cluster.runtime.hold_images();
    set("turns", "registry.example.com/app:2").await;
    eventually("the first ends", || async { cluster.runtime.done().contains(&"ended a".into()).then_some(()) }).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(held);
    // From the first to the second, and nothing in between.
    loop {
        let event = changes.try_next().await.expect("an event").expect("another event");
        let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event else { continue };
        let status = pod.status.expect("a status");
        let a = &status.container_statuses.as_ref().expect("containers")[0];
        assert!(a.ready && is_true(&status, "Ready"), "{status:?}");
        assert_eq!(status.phase.as_deref(), Some("Running"));
        if a.image == "registry.example.com/app:2" {
            assert_eq!(a.restart_count, 1);
            assert_ne!(a.container_id, first.container_statuses.unwrap_or_default()[0].container_id);
            break;
        }
    }
    let killed = "Container a definition changed, will be restarted";
    assert_eq!(cluster.event("turns", "Killing").await, killed);
    cluster.pods().delete("turns", &DeleteParams::default()).await.expect("it is deleted");
    cluster.gone("turns").await;

    cluster.create("corrected", json!({"containers": [{"name": "a", "image": "nowhere:1"}]})).await;
    cluster.until("corrected", "waiting", |s| waits(s, "a").as_deref() == Some("ImagePullBackOff")).await;
    set("corrected", "registry.example.com/app:3").await;
    cluster.running("corrected").await;

    // After a crash, too: the next one has not crashed yet.
    for count in 0..2 {
        let again = |status: &PodStatus| {
            let a = status.container_statuses.as_ref().map(|all| &all[0]);
            a.is_some_and(|a| a.ready && a.restart_count == count)
        };
        cluster.until("corrected", "running again", again).await;
        cluster.runtime.exit("a", 1);
    }
    cluster.until("corrected", "backing off", |s| waits(s, "a").as_deref() == Some("CrashLoopBackOff")).await;
    set("corrected", "registry.example.com/app:4").await;
    let next = cluster.until("corrected", "ready", |status| is_true(status, "Ready")).await;
    let a = next.container_statuses.unwrap_or_default().remove(0);
    assert_eq!(a.image, "registry.example.com/app:4");
    let ended = a.last_state.and_then(|state| state.terminated?.finished_at).expect("the last one ended");
    let started = a.state.and_then(|state| state.running?.started_at).expect("this one runs");
    assert!(started.0.duration_since(ended.0).as_secs() < 10, "it did not wait for the back-off of the last one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_is_to_end_does_not_wait_for_a_container_that_is_replaced() {
    let cluster = Cluster::new().await;
    cluster.runtime.make_stubborn("a");
    cluster.create("slow", json!({"terminationGracePeriodSeconds": 3600, "containers": [container("a")]})).await;
    cluster.until("slow", "ready", |status| is_true(status, "Ready")).await;
    let change = json!({"spec": {"containers": [{"name": "a", "image": "registry.example.com/app:2"}]}});
    cluster.pods().patch("slow", &PatchParams::default(), &Patch::Strategic(change)).await.expect("it is changed");
    eventually("it is told to end", || async { (cluster.runtime.graces() == [3600]).then_some(()) }).await;
    let delete = DeleteParams { grace_period_seconds: Some(2), ..Default::default() };
    cluster.pods().delete("slow", &delete).await.expect("it is deleted");
    cluster.gone("slow").await;
    assert_eq!(cluster.runtime.graces(), [3600, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_ends_is_not_asked_whether_it_has_started() {
    let cluster = Cluster::new().await;
    cluster.runtime.make_stubborn("a");
    cluster.runtime.fail_commands("boot", true);
    let mut a = container("a");
    a["startupProbe"] = json!({"exec": {"command": ["boot"]}, "periodSeconds": 1, "failureThreshold": 100});
    cluster.create("young", json!({"containers": [a]})).await;
    let asked = || cluster.runtime.done().iter().filter(|done| *done == "ran boot").count();
    eventually("it is asked", || async { (asked() > 0).then_some(()) }).await;
    let delete = DeleteParams { grace_period_seconds: Some(4), ..Default::default() };
    cluster.pods().delete("young", &delete).await.expect("it is deleted");
    eventually("it is told to end", || async { (cluster.runtime.graces() == [4]).then_some(()) }).await;
    let before = asked();
    cluster.gone("young").await;
    // One question may have been on its way.
    assert!(asked() <= before + 1, "{} after {before}", asked());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_that_dies_is_made_anew() {
    let cluster = Cluster::new().await;
    cluster.create("phoenix", json!({"containers": [container("a")]})).await;
    let before = cluster.running("phoenix").await;
    cluster.runtime.kill_sandboxes();
    let after =
        cluster.until("phoenix", "risen", |status| is_true(status, "Ready") && status.pod_ip != before.pod_ip).await;
    assert_eq!(after.pod_ips.unwrap_or_default().len(), 1);
    assert_eq!(after.container_statuses.unwrap_or_default()[0].restart_count, 1);
    cluster.event("phoenix", "SandboxChanged").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_decide_what_is_ready_and_what_lives() {
    let cluster = Cluster::new().await;
    cluster.runtime.fail_commands("ready", true);
    let mut a = container("a");
    let probe = |word: &str| json!({"exec": {"command": [word]}, "periodSeconds": 1, "failureThreshold": 1});
    a["startupProbe"] = probe("startup");
    a["readinessProbe"] = probe("ready");
    a["livenessProbe"] = probe("live");
    cluster.create("probed", json!({"containers": [a]})).await;
    let status = cluster.until("probed", "started", |status| {
        status.container_statuses.as_ref().is_some_and(|all| all[0].started == Some(true))
    });
    assert_eq!(condition(&status.await, "Ready"), Some(("False".into(), "ContainersNotReady".into())));
    assert_eq!(cluster.event("probed", "Unhealthy").await, "Readiness probe failed: it does not work");
    cluster.runtime.fail_commands("ready", false);
    cluster.until("probed", "ready", |status| is_true(status, "Ready")).await;

    cluster.runtime.fail_commands("live", true);
    let killed = "Container a failed liveness probe, will be restarted";
    assert_eq!(cluster.event("probed", "Killing").await, killed);
    cluster.runtime.fail_commands("live", false);
    cluster
        .until("probed", "ready again", |status| {
            is_true(status, "Ready") && status.container_statuses.as_ref().is_some_and(|all| all[0].restart_count >= 1)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_starts_again_finds_its_pods_and_ends_those_that_were_deleted() {
    let mut cluster = Cluster::new().await;
    for name in ["stays", "leaves"] {
        cluster.create(name, json!({"terminationGracePeriodSeconds": 7, "containers": [container(name)]})).await;
        cluster.until(name, "ready", |status| is_true(status, "Ready")).await;
    }
    let before = cluster.running("stays").await;
    cluster.stop().await;
    cluster
        .pods()
        .delete("leaves", &DeleteParams { grace_period_seconds: Some(0), ..Default::default() })
        .await
        .expect("it goes");
    cluster.gone("leaves").await;
    cluster.start().await;
    eventually("the orphan ends", || async { (cluster.runtime.sandboxes() == 1).then_some(()) }).await;
    let after = cluster.running("stays").await;
    assert_eq!(after, before, "nothing has happened to it");
    assert_eq!(cluster.runtime.done(), ["started stays", "started leaves", "ended leaves"]);
    assert_eq!(cluster.runtime.graces(), [7], "it has the time that it was made with");
}
