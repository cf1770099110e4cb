//! What Deployments promise, judged by the whole history of what happened, in its order.
//!
//! A controller acts on what it knows, and that may be a little old: what it says it has observed (`observedGeneration`) tells how
//! old at the most. A decision is right if it is right for one of the specifications since then. The promises:
//!
//! - ReplicaSets grow only up to `replicas` + `maxSurge`, all together.
//! - No ReplicaSet is shrunk for the sake of a rollout if that leaves fewer available pods than `replicas` - `maxUnavailable`.
//!   (When a Deployment is scaled, all its sets are, and Kubernetes does not ask who is available.) What counts is what the
//!   sets have told of their pods, or what they told before that: one that has just become ready may go as one that is not.
//! - Unless it was scaled down on the way, a Deployment never loses an available pod below that number, counted likewise.
//! - A ReplicaSet never makes more pods than it should have.
//! - No ReplicaSet is made for a Deployment that is paused.
//! - In the end there are as many pods as there should be, all of the last template.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

use super::{DEPLOYMENTS, SETS};

/// An event of a watch.
pub struct Seen {
    pub path: &'static str,
    pub revision: u64,
    gone: bool,
    object: Value,
}

impl Seen {
    pub fn new(path: &'static str, event: &Value) -> Self {
        let object = event["object"].clone();
        Self { path, revision: revision(&object), gone: event["type"] == "DELETED", object }
    }
}

pub fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().expect("a revision");
    text.parse().expect("a number")
}

/// Is everything as the specification says?
pub fn is_complete(deployment: &Value) -> bool {
    let (wanted, status) = (number(&deployment["spec"]["replicas"]), &deployment["status"]);
    let counts = ["replicas", "updatedReplicas", "availableReplicas"].map(|count| number(&status[count]));
    counts == [wanted; 3] && status["observedGeneration"] == deployment["metadata"]["generation"]
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Specifications by generation, back to the one that was observed last.
#[derive(Default)]
struct Known<T> {
    by_generation: BTreeMap<i64, T>,
}

impl<T> Known<T> {
    fn note(&mut self, object: &Value, spec: T) {
        self.by_generation.insert(number(&object["metadata"]["generation"]), spec);
        let observed = number(&object["status"]["observedGeneration"]);
        self.by_generation.retain(|generation, _| *generation >= observed);
    }

    fn all(&self) -> impl Iterator<Item = &T> {
        self.by_generation.values()
    }
}

#[derive(Default)]
struct Spec {
    replicas: i64,
    surge: i64,
    unavailable: i64,
    rolls: bool,
    paused: bool,
}

impl Spec {
    fn of(deployment: &Value) -> Self {
        let spec = &deployment["spec"];
        let rolling = &spec["strategy"]["rollingUpdate"];
        Self {
            replicas: number(&spec["replicas"]),
            surge: number(&rolling["maxSurge"]),
            unavailable: number(&rolling["maxUnavailable"]),
            rolls: spec["strategy"]["type"] == "RollingUpdate",
            paused: spec["paused"] == true,
        }
    }

    fn most(&self) -> i64 {
        self.replicas + self.surge
    }

    fn least(&self) -> i64 {
        self.replicas - self.unavailable
    }
}

#[derive(Default)]
struct App {
    known: Known<Spec>,
    last: Value,
    sets: BTreeMap<String, Set>,
    pods: BTreeMap<String, Pod>,
    /// Since it was complete: the lowest promise, and whether it was scaled down.
    promised: Option<i64>,
    scaled_down: bool,
}

#[derive(Default)]
struct Set {
    known: Known<i64>,
    replicas: i64,
    /// How many pods it told are available, now and before.
    told: [i64; 2],
    /// How many pods the Deployment should have, as of the last time the set was scaled.
    desired: String,
}

#[derive(Clone, Debug, Default)]
struct Pod {
    set: String,
    /// It is not about to end.
    live: bool,
    available: bool,
}

impl App {
    fn total(&self) -> i64 {
        self.sets.values().map(|set| set.replicas).sum()
    }

    fn available(&self, set: Option<&str>) -> i64 {
        let of = |pod: &&Pod| pod.available && set.is_none_or(|set| pod.set == set);
        i64::try_from(self.pods.values().filter(of).count()).expect("few")
    }

    /// The available pods that are left when sets have the size they should have, as far as sets have told of them. Those that
    /// are not available go first. One set may be believed otherwise.
    fn surviving(&self, believed: Option<(&str, i64)>) -> i64 {
        let left = |(name, set): (&String, &Set)| {
            let told = set.told[0].max(set.told[1]);
            let told = believed.filter(|(of, _)| of == name).map_or(told, |(_, available)| available);
            told.min(set.replicas).min(self.available(Some(name)))
        };
        self.sets.iter().map(left).sum()
    }

    fn live(&self, set: &str) -> i64 {
        i64::try_from(self.pods.values().filter(|pod| pod.live && pod.set == set).count()).expect("few")
    }

    fn deployment(&mut self, object: &Value) {
        let spec = Spec::of(object);
        if is_complete(object) {
            (self.promised, self.scaled_down) = (Some(spec.least()), false);
        }
        self.scaled_down |= spec.replicas < number(&self.last["spec"]["replicas"]);
        self.promised = self.promised.map(|promised| promised.min(spec.least()));
        self.known.note(object, spec);
        self.last = object.clone();
    }

    fn set(&mut self, object: &Value, gone: bool) -> Option<String> {
        let name = text(&object["metadata"]["name"]);
        let (total, is_new) = (self.total(), !self.sets.contains_key(&name));
        let set = self.sets.entry(name.clone()).or_default();
        let tells = number(&object["status"]["availableReplicas"]);
        let told = if is_new { [tells; 2] } else { set.told };
        set.told = if tells == told[0] { told } else { [tells, told[0]] };
        let desired = text(&object["metadata"]["annotations"]["deployment.kubernetes.io/desired-replicas"]);
        let scaled = std::mem::replace(&mut set.desired, desired.clone()) != desired;
        let replicas = if gone { 0 } else { number(&object["spec"]["replicas"]) };
        let before = std::mem::replace(&mut set.replicas, replicas);
        set.known.note(object, replicas);
        if is_new && self.known.all().all(|spec| spec.paused) {
            return Some(format!("{name} was made though the rollout is paused"));
        }
        let most = self.known.all().map(Spec::most).max().unwrap_or(0);
        if self.total() > total && self.total() > most {
            return Some(format!("{name} has {replicas} pods, which makes {}: more than {most}", self.total()));
        }
        let least = self.known.all().map(Spec::least).min().unwrap_or(0);
        let rolls = self.known.all().all(|spec| spec.rolls);
        if replicas < before && rolls && !scaled {
            let loses = |believed: i64| {
                let left = self.surviving(Some((&name, believed)));
                let had = left - believed.min(replicas) + believed.min(before);
                left < had && left < least
            };
            if told.into_iter().all(loses) {
                return Some(format!(
                    "{name} shrunk from {before} to {replicas}, which leaves fewer than {least} available"
                ));
            }
        }
        if gone {
            self.sets.remove(&name);
        }
        None
    }

    fn pod(&mut self, object: &Value, gone: bool) -> Option<String> {
        let name = text(&object["metadata"]["name"]);
        let phase = object["status"]["phase"].as_str().unwrap_or_default();
        let live =
            !gone && object["metadata"]["deletionTimestamp"].is_null() && !matches!(phase, "Failed" | "Succeeded");
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let ready = conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        let set = text(&object["metadata"]["ownerReferences"][0]["name"]);
        let pod = Pod { set: set.clone(), live, available: live && ready };
        let available = self.surviving(None);
        let before = if gone { self.pods.remove(&name) } else { self.pods.insert(name.clone(), pod) };
        if before.is_none() && !gone {
            let should = self.sets.get(&set).and_then(|set| set.known.all().max()).copied().unwrap_or(0);
            if self.live(&set) > should {
                return Some(format!("{name} was made, and {set} should have {should} pods"));
            }
        }
        let (rolls, left) = (self.known.all().all(|spec| spec.rolls), self.surviving(None));
        match self.promised {
            Some(promised) if left < promised && promised <= available && rolls && !self.scaled_down => {
                Some(format!("without {name} there are {left} available: fewer than {promised}"))
            }
            _ => None,
        }
    }

    fn ends_well(&self) -> Option<String> {
        let wanted = number(&self.last["spec"]["replicas"]);
        let sizes: Vec<_> = self.sets.iter().filter(|(_, set)| set.replicas > 0).collect();
        let live: Vec<_> = self.pods.values().filter(|pod| pod.live).collect();
        let right = match &sizes[..] {
            [(name, set)] => set.replicas == wanted && live.iter().all(|pod| pod.set == **name && pod.available),
            _ => false,
        };
        let right = right && i64::try_from(live.len()) == Ok(wanted) && is_complete(&self.last);
        let sets: Vec<_> = sizes.iter().map(|(name, set)| format!("{name}: {}", set.replicas)).collect();
        (!right)
            .then(|| format!("{wanted} should be there of {}, and there are {sets:?} {live:?}", summary(&self.last)))
    }
}

/// What of an object decides.
pub fn summary(object: &Value) -> String {
    let (meta, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let said = |of: &Value, names: &[&str]| -> Vec<String> {
        names.iter().filter(|name| !of[**name].is_null()).map(|name| format!("{name}={}", of[*name])).collect()
    };
    let desired = &meta["annotations"]["deployment.kubernetes.io/desired-replicas"];
    let statuses = ["observedGeneration", "phase", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
    format!(
        "{} {} {} desired={desired} status: {}",
        text(&meta["name"]),
        said(meta, &["generation", "deletionTimestamp"]).join(" "),
        said(spec, &["replicas", "paused", "strategy", "nodeName"]).join(" "),
        said(status, &statuses).join(" "),
    )
}

#[derive(Default)]
pub struct History {
    apps: BTreeMap<String, App>,
    pub events: usize,
    /// The promises that were broken, with what happened before.
    pub broken: Vec<String>,
    /// What happened, for those who want to know why.
    told: VecDeque<String>,
}

/// How much of what happened before is told.
const TOLD: usize = 60;

impl History {
    pub fn hear(&mut self, seen: &Seen) {
        self.events += 1;
        let object = &seen.object;
        let name = match seen.path {
            DEPLOYMENTS => text(&object["metadata"]["name"]),
            _ => text(&object["metadata"]["labels"]["app"]),
        };
        let app = self.apps.entry(name.clone()).or_default();
        let broken = match seen.path {
            DEPLOYMENTS => {
                app.deployment(object);
                None
            }
            SETS => app.set(object, seen.gone),
            _ => app.pod(object, seen.gone),
        };
        self.told.push_back(format!("{} {}{}", seen.revision, if seen.gone { "gone: " } else { "" }, summary(object)));
        if self.told.len() > TOLD {
            self.told.pop_front();
        }
        if let Some(why) = broken {
            let before: Vec<_> = self.told.iter().filter(|line| line.contains(&name)).map(String::as_str).collect();
            self.broken.push(format!("{}\n{name} at {}: {why}", before.join("\n"), seen.revision));
        }
    }

    pub fn ends_well(&mut self) {
        for (name, app) in &self.apps {
            self.broken.extend(app.ends_well().map(|why| format!("{name} in the end: {why}")));
        }
    }
}

#[test]
fn broken_promises_are_noticed() {
    use serde_json::json;

    let mut history = History::default();
    let mut revision = 0;
    let mut hear = |path: &'static str, mut object: Value| {
        revision += 1;
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        history.hear(&Seen::new(path, &json!({"type": "MODIFIED", "object": object})));
        history.broken.len()
    };
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    let deployment = json!({
        "metadata": {"name": "d", "generation": 1},
        "spec": {"replicas": 2, "strategy": rolling},
        "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
    });
    let set = |name: &str, replicas: i64| {
        let available = if name == "old" { 2 } else { 0 };
        json!({
            "metadata": {"name": name, "labels": {"app": "d"}, "generation": replicas},
            "spec": {"replicas": replicas}, "status": {"availableReplicas": available},
        })
    };
    let pod = |name: &str, set: &str| {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        json!({
            "metadata": {"name": name, "labels": {"app": "d"}, "ownerReferences": [{"name": set}]},
            "status": {"phase": "Running", "conditions": ready},
        })
    };
    assert_eq!(hear(DEPLOYMENTS, deployment), 0);
    assert_eq!(hear(SETS, set("old", 2)), 0);
    assert_eq!(hear(super::PODS, pod("a", "old")), 0);
    assert_eq!(hear(super::PODS, pod("b", "old")), 0);
    assert_eq!(hear(SETS, set("new", 1)), 0, "one more is allowed");
    assert_eq!(hear(SETS, set("new", 2)), 1, "and not two");
    assert_eq!(hear(SETS, set("old", 1)), 2, "no new one is available");
    assert_eq!(hear(super::PODS, pod("c", "old")), 3, "a pod too many");
    assert_eq!(hear(SETS, set("old", 2)), 4, "too many again");
    let mut ends = pod("a", "old");
    ends["metadata"]["deletionTimestamp"] = "now".into();
    assert_eq!(hear(super::PODS, ends.clone()), 4, "there is one too many");
    ends["metadata"]["name"] = "b".into();
    assert_eq!(hear(super::PODS, ends), 5, "one available is left");
    history.ends_well();
    assert_eq!(history.broken.len(), 6);
}
