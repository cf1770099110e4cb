use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T00:10:00Z";

fn job(spec: Value, status: Value) -> Job {
    let mut whole = json!({"backoffLimit": 6, "parallelism": 2, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}}});
    whole.as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
    let meta = json!({"name": "j", "namespace": "n", "uid": "u"});
    serde_json::from_value(json!({"metadata": meta, "spec": whole, "status": status})).expect("a job")
}

/// `R`unning, `P`ending, `S`ucceeded, `F`ailed, `T`erminating, or `f`ailed and going; with an index where there is one.
fn pod(uid: &str, state: char, index: Option<i32>) -> Arc<Pod> {
    let phase = match state {
        'R' | 'T' => "Running",
        'S' => "Succeeded",
        'F' | 'f' => "Failed",
        _ => "Pending",
    };
    let mut pod = json!({
        "metadata": {"name": uid, "namespace": "n", "uid": uid, "finalizers": [TRACKED],
            "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {}},
        "status": {"phase": phase},
    });
    if "Tf".contains(state) {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    if let Some(index) = index {
        pod["metadata"]["annotations"][look::INDEX] = json!(index.to_string());
    }
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

fn pods(states: &str) -> Vec<Arc<Pod>> {
    states.chars().enumerate().map(|(at, state)| pod(&format!("p{at}"), state, None)).collect()
}

fn at(job: &Job, pods: Vec<Arc<Pod>>) -> Look<'_> {
    let now: Timestamp = NOW.parse().expect("a time");
    Look::new(job, job.spec.as_ref().expect("a spec"), pods, Record::default(), now)
}

fn created(plan: &Plan) -> usize {
    match plan {
        Plan::Create(indexes) => indexes.len(),
        _ => 0,
    }
}

#[test]
fn as_many_pods_as_are_still_needed() {
    for (spec, states, made, deleted) in [
        (json!({"completions": 5}), "", 2, 0),
        (json!({"completions": 5}), "RP", 0, 0),
        (json!({"completions": 5}), "RSSSS", 0, 0),
        (json!({"completions": 5}), "SSSS", 1, 0),
        (json!({"completions": 5, "parallelism": 9}), "SS", 3, 0),
        (json!({"completions": 5, "parallelism": 1}), "RRR", 0, 2),
        (json!({"completions": 5, "parallelism": 0}), "RR", 0, 2),
        // A queue of work: when one has succeeded, no more are started.
        (json!({"parallelism": 3}), "RR", 1, 0),
        (json!({"parallelism": 3}), "RRS", 0, 0),
        // One that is going is replaced at once, or when it has failed.
        (json!({"completions": 5}), "RT", 1, 0),
        (json!({"completions": 5, "podReplacementPolicy": "Failed"}), "RT", 0, 0),
        (json!({"completions": 5, "podReplacementPolicy": "Failed"}), "Rf", 1, 0),
        (json!({"completions": 5, "suspend": true}), "RRS", 0, 2),
    ] {
        let job = job(spec.clone(), json!({}));
        let plan = at(&job, pods(states)).plan();
        let gone = if let Plan::Delete(pods) = &plan { pods.len() } else { 0 };
        assert_eq!((created(&plan), gone), (made, deleted), "{spec} {states}: {plan:?}");
    }
}

#[test]
fn it_ends_for_a_reason() {
    let running_since = json!({"startTime": "2026-01-01T00:00:00Z"});
    for (spec, status, states, reason) in [
        (json!({"completions": 1}), json!({}), "F", None),
        (json!({"completions": 1, "backoffLimit": 0}), json!({}), "F", Some("BackoffLimitExceeded")),
        (json!({"completions": 1, "backoffLimit": 2}), json!({"failed": 1}), "FF", Some("BackoffLimitExceeded")),
        (json!({"completions": 1, "backoffLimit": 3}), json!({"failed": 1}), "FF", None),
        (json!({"completions": 1, "activeDeadlineSeconds": 600}), running_since.clone(), "R", Some("DeadlineExceeded")),
        (json!({"completions": 1, "activeDeadlineSeconds": 601}), running_since.clone(), "R", None),
        (json!({"completions": 1, "activeDeadlineSeconds": 1, "suspend": true}), running_since, "R", None),
        (
            json!({"completions": 1}),
            json!({"conditions": [{"type": "FailureTarget", "status": "True", "reason": "Why"}]}),
            "R",
            Some("Why"),
        ),
    ] {
        let job = job(spec.clone(), status);
        let over = at(&job, pods(states)).over();
        assert_eq!(over.as_ref().map(|over| over.reason.as_str()), reason, "{spec} {states}");
    }
    let all = job(json!({"completions": 2}), json!({"succeeded": 1}));
    assert!(at(&all, pods("S")).complete(0).is_some_and(|over| over.succeeded));
    assert_eq!(at(&all, pods("S")).complete(1), None, "one still runs");
    assert_eq!(at(&all, pods("R")).complete(0), None);
}

#[test]
fn indexes_are_done_once_each() {
    let indexed = json!({"completions": 4, "completionMode": "Indexed", "parallelism": 4});
    let status = json!({"completedIndexes": "0", "succeeded": 1});
    let job = job(indexed, status);
    let pods = vec![
        pod("a", 'S', Some(2)),
        pod("b", 'R', Some(1)),
        pod("c", 'P', Some(1)),
        pod("d", 'R', Some(9)),
        pod("e", 'F', Some(3)),
    ];
    let look = at(&job, pods.clone());
    assert_eq!(look.succeeded_indexes.to_string(), "0,2");
    let Plan::Delete(gone) = look.plan() else { panic!("two are too many") };
    let mut gone: Vec<_> = gone.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
    gone.sort_unstable();
    assert_eq!(gone, ["c", "d"], "an index that is none, and the worse of two with the same");
    let look = at(&job, pods.into_iter().filter(|pod| pods::phase(pod) != "Pending").take(2).collect());
    assert_eq!(look.plan(), Plan::Create(vec![Some(3)]));
    let made = new_pod::new_pod(&look, Some(3));
    assert_eq!(made.metadata.generate_name.as_deref(), Some("j-3-"));
    let spec = made.spec.expect("a spec");
    assert_eq!(spec.hostname.as_deref(), Some("j-3"));
    assert_eq!(spec.containers[0].env.as_ref().expect("an environment")[0].name, "JOB_COMPLETION_INDEX");
    assert_eq!(made.metadata.labels.expect("labels")[look::INDEX], "3");
}

#[test]
fn indexes_fail_on_their_own() {
    let spec = |more: Value| {
        let mut spec =
            json!({"completions": 3, "completionMode": "Indexed", "parallelism": 3, "backoffLimitPerIndex": 1});
        spec.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        spec
    };
    let failed_before = |uid: &str, index: i32, failures: i32| {
        let mut pod = (*pod(uid, 'F', Some(index))).clone();
        pod.metadata.annotations.get_or_insert_default().insert(look::FAILURES.to_owned(), failures.to_string());
        Arc::new(pod)
    };
    let job = job(spec(json!({})), json!({}));
    let look = at(&job, vec![failed_before("a", 0, 1), failed_before("b", 1, 0), pod("c", 'R', Some(2))]);
    assert_eq!(look.failed_indexes.as_ref().map(ToString::to_string).as_deref(), Some("0"));
    assert_eq!(look.plan(), Plan::Create(vec![Some(1)]));
    assert_eq!(new_pod::new_pod(&look, Some(1)).metadata.annotations.expect("some")[look::FAILURES], "1");
    let mut status = JobStatus::default();
    let tally = tracking::tally(&look, None, &mut status);
    let released: Vec<_> = tally.release.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
    assert_eq!(released, ["a"], "b stays until it is replaced");

    let look = at(&job, vec![failed_before("a", 0, 1), pod("b", 'S', Some(1)), pod("c", 'S', Some(2))]);
    assert_eq!(look.over().map(|over| over.reason).as_deref(), Some("FailedIndexes"));
    let job = self::job(spec(json!({"maxFailedIndexes": 0})), json!({}));
    let look = at(&job, vec![failed_before("a", 0, 1), pod("b", 'R', Some(1))]);
    assert_eq!(look.over().map(|over| over.reason).as_deref(), Some("MaxFailedIndexesExceeded"));
}

#[test]
fn every_pod_is_counted_once() {
    let job = job(json!({"completions": 9}), json!({"uncountedTerminatedPods": {"succeeded": ["gone", "p0"]}}));
    let look = at(&job, pods("SSFR"));
    assert_eq!((look.succeeded, look.failed), (3, 1));
    let mut status = job.status.clone().expect("a status");
    let mut tally = tracking::tally(&look, None, &mut status);
    let uncounted = status.uncounted_terminated_pods.clone().expect("some");
    assert_eq!(uncounted.succeeded, Some(vec!["p0".into(), "p1".into()]));
    assert_eq!(uncounted.failed, Some(vec!["p2".into()]));
    assert_eq!((status.succeeded, status.failed), (Some(1), None), "the one that was gone is counted");
    assert_eq!(tally.release.len(), 3);
    tally.tracked.retain(|uid| uid == "p2" || uid == "p3");
    tracking::settle(&mut status, &tally.tracked);
    assert_eq!((status.succeeded, status.failed), (Some(3), None));
    tracking::settle(&mut status, &Default::default());
    assert_eq!((status.succeeded, status.failed), (Some(3), Some(1)));
    let again = status.clone();
    tracking::settle(&mut status, &Default::default());
    assert_eq!(status, again);
}
