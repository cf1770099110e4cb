//! The conditions of a pod that the node tells.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};

use super::Facts;
use crate::pods::containers::{Kind, init_containers, kind_of_init, main_containers, matching_rule};

/// Those that only the node tells; all others are somebody else's and stay as they are.
pub const OWN: &[&str] = &[
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    "AllContainersRestarting",
    "PodResizePending",
    "PodResizeInProgress",
];

/// A disruption is told of by the node if it makes one, and by others.
const DISRUPTION: &str = "DisruptionTarget";
const BY_NODE: &str = "TerminationByKubelet";

/// Whether a condition is for the node to tell.
pub fn is_own(type_: &str, reason: Option<&str>) -> bool {
    OWN.contains(&type_) || type_ == DISRUPTION && reason == Some(BY_NODE)
}

/// A condition before it is known since when it holds.
struct Told {
    type_: &'static str,
    status: bool,
    reason: Option<Cow<'static, str>>,
    message: Option<String>,
}

impl Told {
    fn new(type_: &'static str, status: bool) -> Self {
        Self { type_, status, reason: None, message: None }
    }

    fn because(self, reason: &'static str) -> Self {
        Self { reason: Some(reason.into()), ..self }
    }
}

pub fn fill(facts: &Facts, status: &mut PodStatus) {
    let of_api = facts.pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let of_others = of_api.iter().filter(|condition| {
        let told_here = condition.type_ == DISRUPTION && facts.disrupted.is_some();
        !OWN.contains(&condition.type_.as_str()) && !told_here
    });
    let mut conditions: Vec<PodCondition> = of_others.cloned().collect();
    let containers_ready = containers_ready(facts, status);
    let ready = ready(facts, &containers_ready, &conditions);
    let mut told = vec![
        Told::new("PodReadyToStartContainers", facts.observed.usable_sandbox(facts.pod).is_some()),
        initialized(facts, status),
        ready,
        containers_ready,
        Told::new("PodScheduled", true),
    ];
    told.extend(restarting(facts, status));
    told.extend(facts.resize_pending.map(|pending| Told {
        reason: Some(pending.reason.clone().into()),
        message: Some(pending.message.clone()),
        ..Told::new("PodResizePending", true)
    }));
    told.extend(
        facts
            .disrupted
            .map(|why| Told { message: Some(why.to_owned()), ..Told::new(DISRUPTION, true).because(BY_NODE) }),
    );
    if !facts.resizing.is_empty() {
        told.push(Told::new("PodResizeInProgress", true));
    }
    conditions.extend(told.into_iter().map(|told| since(facts, told)));
    status.conditions = Some(conditions);
}

/// A condition holds since its status last changed.
fn since(facts: &Facts, told: Told) -> PodCondition {
    let wanted = if told.status { "True" } else { "False" };
    let of_api = facts.pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let known = facts.previous.conditions.iter().flatten().chain(of_api);
    let mut before = known.filter(|known| known.type_ == told.type_ && known.status == wanted);
    PodCondition {
        last_transition_time: before
            .next()
            .and_then(|before| before.last_transition_time.clone())
            .or_else(|| Some(facts.now.clone())),
        last_probe_time: None,
        message: told.message,
        observed_generation: facts.pod.metadata.generation,
        reason: told.reason.map(Cow::into_owned),
        status: wanted.to_owned(),
        type_: told.type_.to_owned(),
    }
}

fn all(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten())
}

fn find<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    all(status).find(|status| status.name == name)
}

fn listed(what: &str, names: &[&str]) -> Option<String> {
    (!names.is_empty()).then(|| format!("containers with {what} status: [{}]", names.join(" ")))
}

fn containers_ready(facts: &Facts, status: &PodStatus) -> Told {
    let told = |ready| Told::new("ContainersReady", ready);
    let sidecars = init_containers(facts.pod).iter().filter(|container| kind_of_init(container) == Kind::Sidecar);
    let (mut unknown, mut unready) = (Vec::new(), Vec::new());
    for container in sidecars.chain(main_containers(facts.pod)) {
        match find(status, &container.name) {
            None => unknown.push(container.name.as_str()),
            Some(found) if !found.ready => unready.push(container.name.as_str()),
            Some(_) => {}
        }
    }
    match status.phase.as_deref() {
        Some("Failed") => return told(false).because("PodFailed"),
        Some("Succeeded") if unknown.is_empty() => return told(false).because("PodCompleted"),
        _ => {}
    }
    let problems: Vec<String> = listed("unknown", &unknown).into_iter().chain(listed("unready", &unready)).collect();
    if problems.is_empty() {
        return told(true);
    }
    Told { message: Some(problems.join(", ")), ..told(false).because("ContainersNotReady") }
}

/// Ready are those whose containers are, and whose gates others have opened.
fn ready(facts: &Facts, containers: &Told, of_others: &[PodCondition]) -> Told {
    if !containers.status {
        return Told {
            type_: "Ready",
            status: false,
            reason: containers.reason.clone(),
            message: containers.message.clone(),
        };
    }
    let gates = facts.pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_deref()).unwrap_or_default();
    let closed = gates.iter().filter_map(|gate| {
        let gate = &gate.condition_type;
        match of_others.iter().find(|condition| condition.type_ == *gate) {
            None => Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist.")),
            Some(condition) if condition.status != "True" => {
                Some(format!("the status of pod readiness gate {gate:?} is not \"True\", but {}", condition.status))
            }
            Some(_) => None,
        }
    });
    let closed: Vec<String> = closed.collect();
    if closed.is_empty() {
        return Told::new("Ready", true);
    }
    Told { message: Some(closed.join(", ")), ..Told::new("Ready", false).because("ReadinessGatesNotReady") }
}

fn initialized(facts: &Facts, status: &PodStatus) -> Told {
    let told = |done| Told::new("Initialized", done);
    let (mut unknown, mut incomplete) = (Vec::new(), Vec::new());
    for container in init_containers(facts.pod) {
        match find(status, &container.name) {
            None => unknown.push(container.name.as_str()),
            Some(found) => {
                let done = match kind_of_init(container) {
                    Kind::Sidecar => found.started.unwrap_or(false),
                    _ => found.ready,
                };
                if !done {
                    incomplete.push(container.name.as_str());
                }
            }
        }
    }
    if status.phase.as_deref() == Some("Succeeded") && unknown.is_empty() {
        return told(true).because("PodCompleted");
    }
    let was_before = facts
        .previous
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "Initialized" && condition.status == "True");
    let main_started = main_containers(facts.pod).iter().any(|container| {
        find(status, &container.name).is_some_and(|found| {
            let state = found.state.as_ref();
            let ran_before = found.last_state.as_ref().is_some_and(|last| last.terminated.is_some());
            ran_before || state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
        })
    });
    let problems: Vec<String> =
        listed("unknown", &unknown).into_iter().chain(listed("incomplete", &incomplete)).collect();
    if problems.is_empty() || main_started || was_before {
        return told(true);
    }
    Told { message: Some(problems.join(", ")), ..told(false).because("ContainersNotInitialized") }
}

/// Told only of pods in which a container may ask for all to start again.
fn restarting(facts: &Facts, status: &PodStatus) -> Option<Told> {
    let mut containers = main_containers(facts.pod).iter().chain(init_containers(facts.pod));
    let could = containers.any(|container| {
        container.restart_policy_rules.iter().flatten().any(|rule| rule.action == "RestartAllContainers")
    });
    let told = |status| Told::new("AllContainersRestarting", status);
    could.then(|| match status.phase.as_deref() {
        Some("Succeeded") => told(false).because("PodCompleted"),
        Some("Failed") => told(false).because("PodFailed"),
        _ => {
            let asked = main_containers(facts.pod).iter().chain(init_containers(facts.pod)).any(|container| {
                facts
                    .observed
                    .latest_exited(&container.name)
                    .is_some_and(|ended| matching_rule(container, ended.exit_code) == Some("RestartAllContainers"))
            });
            if asked { told(true).because("RestartAllContainersStarted") } else { told(false) }
        }
    })
}
