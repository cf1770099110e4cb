//! What pods need done, whatever state they are found in.

use container_runtime::services::{ContainerStatus, PodSandboxState, PodSandboxStatus};
use serde_json::{Value, json};

use super::*;
use crate::pods::fixtures::{exited, known, running, sandbox};

fn pod(policy: &str, init: Value, main: Value) -> Pod {
    let pod = json!({"spec": {"restartPolicy": policy, "initContainers": init, "containers": main}});
    serde_json::from_value(pod).expect("a pod")
}

fn named(name: &str) -> Value {
    json!({"name": name, "image": "a:1"})
}

fn side(name: &str) -> Value {
    json!({"name": name, "image": "a:1", "restartPolicy": "Always"})
}

fn with(containers: Vec<ContainerStatus>) -> Observed {
    Observed { sandboxes: vec![sandbox()], containers }
}

/// In short: `!pod` for all of it, `sandbox 1`, `-stopped`, `+started`.
fn short(plan: &Plan) -> String {
    let all = plan.stop_pod.then(|| "!pod".to_owned()).into_iter();
    let sandbox = plan.sandbox.iter().map(|new| format!("sandbox {}", new.attempt));
    let stops = plan.stop.iter().map(|stop| format!("-{}", stop.name));
    let resets = plan.reset.iter().map(|id| format!("x{id}"));
    let starts = plan.start.iter().map(|start| format!("+{}", start.name));
    all.chain(sandbox).chain(stops).chain(resets).chain(starts).collect::<Vec<_>>().join(" ")
}

#[test]
fn containers_start_in_their_order() {
    let none = json!([]);
    let two = json!([named("i"), side("s"), named("j")]);
    let main = json!([named("a"), named("b")]);
    for (policy, init, containers, expected) in [
        ("Always", &none, vec![], "+a +b"),
        ("Always", &none, vec![running("a")], "+b"),
        ("Always", &none, vec![running("a"), exited("b", 0)], "+b"),
        ("OnFailure", &none, vec![running("a"), exited("b", 0)], ""),
        ("OnFailure", &none, vec![exited("a", 2), exited("b", 0)], "+a"),
        ("Never", &none, vec![exited("a", 2), exited("b", 0)], "!pod"),
        ("Never", &two, vec![], "+i"),
        ("Never", &two, vec![running("i")], ""),
        ("Never", &two, vec![exited("i", 0)], "+s"),
        ("Never", &two, vec![exited("i", 1)], "!pod"),
        ("Always", &two, vec![exited("i", 1)], "+i"),
        ("Never", &two, vec![exited("i", 0), running("s")], "+j"),
        ("Never", &two, vec![exited("i", 0), exited("s", 1), running("j")], "+s"),
        ("Never", &two, vec![exited("i", 0), running("s"), exited("j", 0)], "+a +b"),
        ("Never", &two, vec![exited("i", 0), exited("s", 0), exited("j", 0), running("a"), running("b")], "+s"),
        // What is left of a pod that has done its work is stopped, not started again.
        ("Never", &two, vec![exited("j", 0), running("s"), exited("a", 0), exited("b", 1)], "!pod"),
    ] {
        let names: Vec<_> = containers.iter().map(|known| (known.id.clone(), known.state)).collect();
        let pod = pod(policy, init.clone(), main.clone());
        let plan = plan(&pod, &with(containers), &Results::default());
        assert_eq!(short(&plan), expected, "{policy} {init} {names:?}");
    }
}

#[test]
fn a_pod_without_a_sandbox_begins_anew_if_it_has_to() {
    let dead = || PodSandboxStatus { state: PodSandboxState::NotReady, ..sandbox() };
    let main = json!([named("a"), named("b")]);
    for (policy, init, sandboxes, containers, expected) in [
        ("Never", json!([]), vec![], vec![], "sandbox 0 +a +b"),
        ("Always", json!([named("i")]), vec![], vec![], "sandbox 0 +i"),
        ("Always", json!([named("i")]), vec![dead()], vec![exited("i", 0), exited("a", 137)], "sandbox 1 +i"),
        ("OnFailure", json!([]), vec![dead()], vec![exited("a", 0), exited("b", 137)], "sandbox 1 +b"),
        ("OnFailure", json!([]), vec![dead()], vec![exited("a", 0), exited("b", 0)], ""),
        ("Never", json!([]), vec![dead()], vec![exited("a", 137), exited("b", 0)], ""),
        // Two that are ready are one too many.
        ("Always", json!([]), vec![sandbox(), sandbox()], vec![running("a"), running("b")], "!pod sandbox 1 +a +b"),
    ] {
        let observed = Observed { sandboxes, containers };
        let pod = pod(policy, init.clone(), main.clone());
        assert_eq!(short(&plan(&pod, &observed, &Results::default())), expected, "{policy} {init}");
    }
}

#[test]
fn a_container_that_fails_its_probe_is_stopped_and_started_again() {
    let observed = with(vec![running("a"), running("b")]);
    let main = json!([named("a"), named("b")]);
    let mut probed = Results::default();
    probed.set("a-0", ProbeKind::Liveness, Outcome::Failure);
    probed.set("b-0", ProbeKind::Readiness, Outcome::Failure);
    let plan_for = |policy| plan(&pod(policy, json!([]), main.clone()), &observed, &probed);
    assert_eq!(short(&plan_for("Always")), "-a +a");
    assert_eq!(plan_for("Always").stop[0].message, "Container a failed liveness probe, will be restarted");
    assert_eq!(short(&plan_for("Never")), "-a");
    assert_eq!(plan_for("Never").stop[0].message, "Container a failed liveness probe");
}

#[test]
fn a_container_with_another_image_is_another_one() {
    let made_of = |name: &str, image: &str| {
        let annotations = [(crate::configuration::annotations::IMAGE.to_owned(), image.to_owned())].into();
        ContainerStatus { annotations, ..running(name) }
    };
    let observed = with(vec![made_of("s", "b:1"), made_of("a", "b:1"), made_of("b", "a:1")]);
    let pod = pod("Never", json!([side("s")]), json!([named("a"), named("b")]));
    let plan = plan(&pod, &observed, &Results::default());
    assert_eq!(short(&plan), "-s -a +s +a");
    let messages: Vec<&str> = plan.stop.iter().map(|stop| stop.message.as_str()).collect();
    assert_eq!(messages, ["Init container s definition changed", "Container a definition changed, will be restarted"]);
}

#[test]
fn a_sidecar_with_a_startup_probe_is_waited_for() {
    let mut slow = side("s");
    slow["startupProbe"] = json!({"exec": {"command": ["x"]}});
    let (pod, observed) = (pod("Never", json!([slow]), json!([named("a")])), with(vec![running("s")]));
    let mut probed = Results::default();
    assert_eq!(short(&plan(&pod, &observed, &probed)), "");
    probed.set("s-0", ProbeKind::Startup, Outcome::Success);
    assert_eq!(short(&plan(&pod, &observed, &probed)), "+a");
    probed.set("s-0", ProbeKind::Startup, Outcome::Failure);
    assert_eq!(short(&plan(&pod, &observed, &probed)), "-s +s");
}

#[test]
fn rules_of_a_container_decide_before_policies() {
    let rule = |action: &str| json!([{"action": action, "exitCodes": {"operator": "In", "values": [42]}}]);
    let mut again = named("a");
    again["restartPolicy"] = json!("Never");
    again["restartPolicyRules"] = rule("Restart");
    let plan_for = |container: &Value, exit_code| {
        let pod = pod("Never", json!([]), json!([container, named("b")]));
        short(&plan(&pod, &with(vec![exited("a", exit_code), running("b")]), &Results::default()))
    };
    assert_eq!(plan_for(&again, 42), "+a");
    assert_eq!(plan_for(&again, 1), "");
    again["restartPolicyRules"] = rule("RestartAllContainers");
    assert_eq!(plan_for(&again, 42), "xb-0 xa-0", "who asked for it goes last");
}

#[test]
fn what_is_deleted_does_not_start() {
    let mut pod = pod("Always", json!([]), json!([named("a")]));
    pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Default::default()));
    let again = plan(&pod, &with(vec![known("a", 1, ContainerState::Exited, 1)]), &Results::default());
    assert!(again.start.is_empty());
}
