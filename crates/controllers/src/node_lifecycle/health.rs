//! Whether a node lives: it says so by its status and by its lease, and silence for too long means that nobody knows.
//!
//! Times are those at which a sign was seen here, so that the clocks of nodes do not matter; and by a clock that does not jump,
//! so that nobody is lost because this machine slept or was set to another time.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, NodeCondition},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
    jiff::Timestamp,
};
use tokio::time::Instant;

pub const READY: &str = "Ready";
/// What nobody knows when a node is silent. Whether its network works is for others to say.
const UNKNOWN_WHEN_SILENT: [&str; 4] = [READY, "MemoryPressure", "DiskPressure", "PIDPressure"];

pub fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    node.status.iter().filter_map(|status| status.conditions.as_ref()).flatten().find(|found| found.type_ == type_)
}

pub fn is_ready(node: &Node) -> bool {
    condition(node, READY).is_some_and(|ready| ready.status == "True")
}

/// When each node gave its last sign.
#[derive(Default)]
pub struct Signs(Mutex<HashMap<String, Sign>>);

struct Sign {
    /// `None` while there is no condition `Ready`.
    heartbeat: Option<Option<Time>>,
    renewed: Option<MicroTime>,
    seen: Instant,
}

impl Signs {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Sign>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what the status of a node says. Whether the node was not known yet. `today` is for its age.
    pub fn of_status(&self, node: &Node, now: Instant, today: Timestamp) -> bool {
        let heartbeat = condition(node, READY).map(|ready| ready.last_heartbeat_time.clone());
        let name = node.metadata.name.clone().unwrap_or_default();
        let mut all = self.all();
        let Some(sign) = all.get_mut(&name) else {
            // One that never said anything is silent since it was made.
            let made = node.metadata.creation_timestamp.as_ref().filter(|_| heartbeat.is_none());
            let age = made.and_then(|made| Duration::try_from(today.duration_since(made.0)).ok());
            let seen = age.and_then(|age| now.checked_sub(age)).unwrap_or(now);
            all.insert(name, Sign { heartbeat, renewed: None, seen });
            return true;
        };
        if sign.heartbeat != heartbeat {
            (sign.heartbeat, sign.seen) = (heartbeat, now);
        }
        false
    }

    pub fn of_lease(&self, lease: &Lease, now: Instant) {
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
        if let Some(sign) = self.all().get_mut(lease.metadata.name.as_deref().unwrap_or_default())
            && renewed > sign.renewed
        {
            (sign.renewed, sign.seen) = (renewed, now);
        }
    }

    pub fn forget(&self, node: &str) {
        self.all().remove(node);
    }

    /// After nobody was heard, everybody gets the time to speak up again.
    pub fn start_anew(&self, now: Instant) {
        self.all().values_mut().for_each(|sign| sign.seen = now);
    }

    /// How long the node may still be silent.
    pub fn left(&self, node: &Node, grace: Duration, startup_grace: Duration, now: Instant) -> Option<Duration> {
        let grace = if condition(node, READY).is_some() { grace } else { startup_grace };
        let seen = self.all().get(node.metadata.name.as_deref().unwrap_or_default()).map_or(now, |sign| sign.seen);
        grace.checked_sub(now.duration_since(seen))
    }
}

/// The conditions that must be written because a node is silent, if there are any.
pub fn unknown(node: &Node, now: Time) -> Vec<NodeCondition> {
    let change = |type_: &&str| match condition(node, type_) {
        Some(known) if known.status == "Unknown" => None,
        Some(known) => Some(NodeCondition {
            status: "Unknown".to_owned(),
            reason: Some("NodeStatusUnknown".to_owned()),
            message: Some("Kubelet stopped posting node status.".to_owned()),
            last_transition_time: Some(now.clone()),
            ..known.clone()
        }),
        None => Some(NodeCondition {
            type_: (*type_).to_owned(),
            status: "Unknown".to_owned(),
            reason: Some("NodeStatusNeverUpdated".to_owned()),
            message: Some("Kubelet never posted node status.".to_owned()),
            last_heartbeat_time: node.metadata.creation_timestamp.clone(),
            last_transition_time: Some(now.clone()),
        }),
    };
    // Only the readiness is a reason to write.
    match change(&READY) {
        None => Vec::new(),
        Some(_) => UNKNOWN_WHEN_SILENT.iter().filter_map(change).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const GRACE: Duration = Duration::from_secs(50);
    const STARTUP: Duration = Duration::from_secs(60);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).expect("a time")
    }

    fn node(heartbeat: Option<i64>) -> Node {
        let ready = heartbeat.map(|second| {
            json!({"type": "Ready", "status": "True", "lastHeartbeatTime": at(second).to_string(), "reason": "KubeletReady"})
        });
        let conditions: Vec<Value> = ready.into_iter().collect();
        let node = json!({
            "metadata": {"name": "n", "creationTimestamp": at(0).to_string()},
            "status": {"conditions": conditions},
        });
        serde_json::from_value(node).expect("a node")
    }

    fn lease(second: i64) -> Lease {
        let lease = json!({"metadata": {"name": "n"}, "spec": {"renewTime": format!("{:.6}", at(second))}});
        serde_json::from_value(lease).expect("a lease")
    }

    #[test]
    fn a_node_may_be_silent_for_a_while() {
        let (signs, start) = (Signs::default(), Instant::now());
        let passed = |seconds: u64| start + Duration::from_secs(seconds);
        let left = |node: &Node, now: u64| signs.left(node, GRACE, STARTUP, passed(now)).map(|left| left.as_secs());
        assert!(signs.of_status(&node(None), passed(10), at(10)));
        assert_eq!(left(&node(None), 10), Some(50), "since it was made");
        assert_eq!(left(&node(None), 61), None);
        // What it is by the clock on the wall does not matter any more.
        assert!(!signs.of_status(&node(Some(1)), passed(20), at(1_000_000)));
        assert_eq!(left(&node(Some(1)), 30), Some(40), "since it was seen here");
        signs.of_status(&node(Some(1)), passed(40), at(0));
        assert_eq!(left(&node(Some(1)), 40), Some(30), "nothing new");
        signs.of_lease(&lease(5), passed(60));
        signs.of_lease(&lease(5), passed(70));
        signs.of_lease(&lease(4), passed(80));
        assert_eq!(left(&node(Some(1)), 110), Some(0));
        assert_eq!(left(&node(Some(1)), 111), None);
        signs.start_anew(passed(200));
        assert_eq!(left(&node(Some(1)), 200), Some(50));
    }

    #[test]
    fn a_silent_node_is_unknown() {
        let now = Time(at(100));
        let changed = unknown(&node(Some(1)), now.clone());
        let facts: Vec<_> =
            changed.iter().map(|c| (c.type_.as_str(), c.reason.as_deref().unwrap_or_default())).collect();
        assert_eq!(
            facts,
            [
                ("Ready", "NodeStatusUnknown"),
                ("MemoryPressure", "NodeStatusNeverUpdated"),
                ("DiskPressure", "NodeStatusNeverUpdated"),
                ("PIDPressure", "NodeStatusNeverUpdated"),
            ]
        );
        assert_eq!(changed[0].last_heartbeat_time, Some(Time(at(1))));
        let mut again = node(Some(1));
        again.status.get_or_insert_default().conditions = Some(changed);
        assert!(unknown(&again, now).is_empty());
    }
}
