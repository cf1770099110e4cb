//! What is told of pods, for what the runtime and the probes have found.

use container_runtime::services::{ContainerState as Runtime, ContainerStatus as Known};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::{
    pods::fixtures::{exited, known, running, sandbox},
    probes::{Outcome, ProbeKind},
};

/// A pod, and everything that may be known of it.
struct Case {
    pod: Pod,
    observed: Observed,
    previous: PodStatus,
    waiting: HashMap<String, Reason>,
    probed: Results,
    ending: bool,
    ended: bool,
}

impl Case {
    fn new(spec: Value, containers: Vec<Known>) -> Self {
        let pod = json!({"metadata": {"uid": "u", "generation": 3}, "spec": spec});
        Self {
            pod: serde_json::from_value(pod).expect("a pod"),
            observed: Observed { sandboxes: vec![sandbox()], containers },
            previous: PodStatus::default(),
            waiting: HashMap::new(),
            probed: Results::default(),
            ending: false,
            ended: false,
        }
    }

    fn waits(mut self, name: &str, reason: &str) -> Self {
        self.waiting.insert(name.into(), Reason::new(reason, "why"));
        self
    }

    fn status(&self) -> PodStatus {
        pod_status(&Facts {
            pod: &self.pod,
            observed: &self.observed,
            previous: &self.previous,
            waiting: &self.waiting,
            starting: None,
            probed: &self.probed,
            runtime_name: "ferry",
            host_ips: &[IpAddr::from([192, 0, 2, 1])],
            resizing: &[],
            resize_pending: None,
            failed: None,
            disrupted: None,
            ending: self.ending,
            ended: self.ended,
            now: Time(Timestamp::from_second(100).expect("a time")),
        })
    }

    fn phase(&self) -> String {
        self.status().phase.unwrap_or_default()
    }
}

fn spec(policy: &str, init: Value, main: &[&str]) -> Value {
    let main: Vec<Value> = main.iter().map(|name| json!({"name": name, "image": "a:1"})).collect();
    json!({"restartPolicy": policy, "initContainers": init, "containers": main})
}

fn condition(status: &PodStatus, type_: &str) -> (String, String, String) {
    let found = status.conditions.iter().flatten().find(|condition| condition.type_ == type_).expect(type_);
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    (found.status.clone(), text(&found.reason), text(&found.message))
}

#[test]
fn the_phase_follows_the_containers() {
    let init = json!([{"name": "i", "image": "a:1"}]);
    let side = json!([{"name": "i", "image": "a:1", "restartPolicy": "Always"}]);
    let none = json!([]);
    for (policy, init, containers, expected) in [
        ("Always", &none, vec![], "Pending"),
        ("Always", &none, vec![running("a")], "Pending"),
        ("Always", &none, vec![running("a"), running("b")], "Running"),
        ("Always", &none, vec![exited("a", 1), exited("b", 0)], "Running"),
        ("Always", &none, vec![exited("a", 1), running("b")], "Running"),
        ("OnFailure", &none, vec![exited("a", 1), exited("b", 0)], "Running"),
        ("OnFailure", &none, vec![exited("a", 0), exited("b", 0)], "Succeeded"),
        ("Never", &none, vec![exited("a", 0), exited("b", 0)], "Succeeded"),
        ("Never", &none, vec![exited("a", 1), exited("b", 0)], "Failed"),
        ("Never", &none, vec![exited("a", 1), running("b")], "Running"),
        ("Always", &init, vec![running("i")], "Pending"),
        ("Always", &init, vec![exited("i", 1)], "Pending"),
        ("Never", &init, vec![exited("i", 1)], "Failed"),
        ("Never", &init, vec![exited("i", 0), running("a"), running("b")], "Running"),
        ("Never", &side, vec![running("i"), exited("a", 0), exited("b", 0)], "Running"),
        ("Never", &side, vec![exited("i", 137), exited("a", 0), exited("b", 0)], "Succeeded"),
    ] {
        let names: Vec<_> = containers.iter().map(|known| (known.id.clone(), known.state, known.exit_code)).collect();
        let case = Case::new(spec(policy, init.clone(), &["a", "b"]), containers);
        assert_eq!(case.phase(), expected, "{policy} {init} {names:?}");
    }
}

#[test]
fn a_phase_that_is_final_stays() {
    let mut case = Case::new(spec("Always", json!([]), &["a"]), vec![running("a")]);
    case.previous.phase = Some("Failed".into());
    case.previous.reason = Some("Evicted".into());
    let status = case.status();
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("Evicted")));
    assert_eq!(condition(&status, "Ready"), ("False".into(), "PodFailed".into(), String::new()));
}

#[test]
fn a_pod_that_ends_is_not_going_on() {
    let mut case = Case::new(spec("Always", json!([]), &["a"]), vec![exited("a", 143)]);
    assert_eq!(case.phase(), "Running");
    case.ending = true;
    assert_eq!(case.phase(), "Failed");
    case.observed.containers = vec![exited("a", 0)];
    assert_eq!(case.phase(), "Succeeded");
    // What never ran has not succeeded.
    case.observed.containers = Vec::new();
    case.ended = true;
    let status = case.status();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    let ended = status.container_statuses.unwrap_or_default().remove(0).state.and_then(|state| state.terminated);
    assert_eq!(ended.and_then(|ended| ended.reason).as_deref(), Some("ContainerStatusUnknown"));
}

#[test]
fn a_container_is_shown_with_the_one_before_and_why_it_waits() {
    let crashed = vec![known("a", 2, Runtime::Exited, 3), known("a", 1, Runtime::Exited, 2)];
    let case = Case::new(spec("Always", json!([]), &["a"]), crashed).waits("a", "CrashLoopBackOff");
    let a = case.status().container_statuses.unwrap_or_default().remove(0);
    assert_eq!(a.restart_count, 2);
    assert_eq!(a.container_id.as_deref(), Some("ferry://a-2"));
    let waiting = a.state.and_then(|state| state.waiting).expect("it waits");
    assert_eq!((waiting.reason.as_deref(), waiting.message.as_deref()), (Some("CrashLoopBackOff"), Some("why")));
    assert_eq!(a.last_state.and_then(|last| last.terminated).map(|ended| ended.exit_code), Some(3));

    // Once it runs, what it waited for does not count.
    let again = vec![known("a", 3, Runtime::Running, 0), known("a", 2, Runtime::Exited, 3)];
    let case = Case::new(spec("Always", json!([]), &["a"]), again).waits("a", "CrashLoopBackOff");
    let a = case.status().container_statuses.unwrap_or_default().remove(0);
    assert!(a.state.is_some_and(|state| state.running.is_some()));
    assert_eq!(a.last_state.and_then(|last| last.terminated).map(|ended| ended.exit_code), Some(3));

    // Nor does it for one that has done its work.
    let case = Case::new(spec("Never", json!([]), &["a"]), vec![exited("a", 1)]).waits("a", "CrashLoopBackOff");
    let a = case.status().container_statuses.unwrap_or_default().remove(0);
    assert!(a.state.is_some_and(|state| state.terminated.is_some()));
}

#[test]
fn what_runs_before_the_pod_is_initialized_waits_for_that() {
    let case = Case::new(spec("Always", json!([{"name": "i", "image": "a:1"}]), &["a"]), vec![running("i")]);
    let status = case.status();
    let message = "containers with incomplete status: [i]";
    assert_eq!(condition(&status, "Initialized"), ("False".into(), "ContainersNotInitialized".into(), message.into()));
    let a = status.container_statuses.unwrap_or_default().remove(0);
    assert_eq!(a.state.and_then(|s| s.waiting?.reason).as_deref(), Some("PodInitializing"));
    let case = Case::new(spec("Always", json!([]), &["a"]), vec![]);
    let a = case.status().container_statuses.unwrap_or_default().remove(0);
    assert_eq!(a.state.and_then(|s| s.waiting?.reason).as_deref(), Some("ContainerCreating"));
}

#[test]
fn probes_say_what_has_started_and_is_ready() {
    let mut pod = spec("Always", json!([]), &["a", "b"]);
    pod["containers"][0]["startupProbe"] = json!({"exec": {"command": ["x"]}});
    pod["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["x"]}});
    let mut case = Case::new(pod, vec![running("a"), running("b")]);
    let told = |case: &Case| {
        let status = case.status();
        let a = &status.container_statuses.as_ref().expect("statuses")[0];
        ((a.started, a.ready), condition(&status, "Ready"))
    };
    let unready =
        ("False".to_owned(), "ContainersNotReady".to_owned(), "containers with unready status: [a]".to_owned());
    assert_eq!(told(&case), ((Some(false), false), unready.clone()));
    case.probed.set("a-0", ProbeKind::Startup, Outcome::Success);
    assert_eq!(told(&case), ((Some(true), false), unready.clone()));
    case.probed.set("a-0", ProbeKind::Readiness, Outcome::Success);
    assert_eq!(told(&case), ((Some(true), true), ("True".into(), String::new(), String::new())));
    case.probed.set("a-0", ProbeKind::Readiness, Outcome::Failure);
    assert_eq!(told(&case), ((Some(true), false), unready));
}

#[test]
fn gates_are_opened_by_others_and_their_conditions_stay() {
    let mut pod = spec("Always", json!([]), &["a"]);
    pod["readinessGates"] = json!([{"conditionType": "example.com/open"}]);
    let mut case = Case::new(pod, vec![running("a")]);
    let (status, reason, message) = condition(&case.status(), "Ready");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "ReadinessGatesNotReady"));
    assert_eq!(message, "corresponding condition of pod readiness gate \"example.com/open\" does not exist.");
    assert_eq!(condition(&case.status(), "ContainersReady").0, "True");
    let of_api = json!({"conditions": [{"type": "example.com/open", "status": "True"}]});
    case.pod.status = Some(serde_json::from_value(of_api).expect("a status"));
    assert_eq!(condition(&case.status(), "Ready").0, "True");
    assert_eq!(condition(&case.status(), "example.com/open").0, "True");
}

#[test]
fn times_and_addresses_are_kept() {
    let mut case = Case::new(spec("Always", json!([]), &["a"]), vec![running("a")]);
    let earlier = Time(Timestamp::from_second(50).expect("a time"));
    case.previous.start_time = Some(earlier.clone());
    case.previous.conditions = Some(vec![k8s_openapi::api::core::v1::PodCondition {
        type_: "Ready".into(),
        status: "True".into(),
        last_transition_time: Some(earlier.clone()),
        ..Default::default()
    }]);
    let status = case.status();
    assert_eq!(status.start_time, Some(earlier.clone()));
    let since = |status: &PodStatus, type_: &str| {
        let mut all = status.conditions.iter().flatten();
        all.find(|condition| condition.type_ == type_).and_then(|condition| condition.last_transition_time.clone())
    };
    assert_eq!(since(&status, "Ready"), Some(earlier.clone()));
    assert_ne!(since(&status, "ContainersReady"), Some(earlier));
    assert_eq!(status.observed_generation, Some(3));
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.9"));

    case.previous = status;
    case.observed.sandboxes.clear();
    assert_eq!(case.status().pod_ip.as_deref(), Some("10.0.0.9"), "it is told after the sandbox has gone, too");
    assert_eq!(condition(&case.status(), "PodReadyToStartContainers").0, "False");
}
