//! How quickly nodes may be emptied: when many are lost at once, it is more likely that it is us who is cut off.

use std::{collections::HashMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::health::is_ready;

const REGION: &str = "topology.kubernetes.io/region";
const ZONE: &str = "topology.kubernetes.io/zone";
/// Nodes with this label do not count.
const NOT_COUNTED: &str = "node.kubernetes.io/exclude-disruption";
/// One node in ten seconds.
const NORMAL: Duration = Duration::from_secs(10);
/// Where many are lost in a large zone: one in a hundred seconds.
const SLOW: Duration = Duration::from_secs(100);
/// More nodes than this are a large zone.
const LARGE: usize = 50;
/// This part of a zone, in hundredths, is many.
const MANY: usize = 55;

/// The zone of a node, with its region.
pub fn of(node: &Node) -> String {
    let label = |name: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(name));
    let text = |name: &str| label(name).map(String::as_str).unwrap_or_default();
    format!("{}:{}", text(REGION), text(ZONE))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    ready: usize,
    not_ready: usize,
}

impl Count {
    fn is_down(self) -> bool {
        self.ready == 0 && self.not_ready > 0
    }

    /// How far apart nodes of this zone are emptied, `None` if not at all.
    fn pace(self) -> Option<Duration> {
        let size = self.ready + self.not_ready;
        let many = self.not_ready > 2 && self.not_ready * 100 >= size * MANY;
        match (self.is_down() || !many, size > LARGE) {
            (true, _) => Some(NORMAL),
            (false, true) => Some(SLOW),
            (false, false) => None,
        }
    }
}

fn counts(node: &Node) -> bool {
    !node.metadata.labels.iter().flatten().any(|(name, _)| name == NOT_COUNTED)
}

/// All zones.
pub fn count(nodes: &[Arc<Node>]) -> HashMap<String, Count> {
    let mut zones: HashMap<String, Count> = HashMap::new();
    for node in nodes.iter().filter(|node| counts(node)) {
        let count = zones.entry(of(node)).or_default();
        if is_ready(node) { count.ready += 1 } else { count.not_ready += 1 }
    }
    zones
}

/// When nodes were last emptied, and whether all were lost.
#[derive(Default)]
pub struct Zones {
    last: HashMap<String, Instant>,
    all_down: bool,
}

/// Whether a node may be emptied.
#[derive(Debug, PartialEq, Eq)]
pub enum May {
    Now,
    NotYet,
    /// No node is ready anywhere: then nothing is done to any of them.
    Never,
}

impl Zones {
    /// Takes in that a node is ready. Whether it is the first after all were lost.
    pub fn is_back(&mut self, node: &Node) -> bool {
        counts(node) && std::mem::take(&mut self.all_down)
    }

    /// Takes in how many are ready.
    pub fn look(&mut self, zones: &HashMap<String, Count>) {
        self.all_down = !zones.is_empty() && zones.values().all(|count| count.is_down());
    }

    pub fn all_down(&self) -> bool {
        self.all_down
    }

    pub fn may_empty(&mut self, zone: &str, zones: &HashMap<String, Count>, now: Instant) -> May {
        if self.all_down {
            return May::Never;
        }
        let pace = zones.get(zone).copied().unwrap_or_default().pace();
        let rested = |pace| self.last.get(zone).is_none_or(|last| now.duration_since(*last) >= pace);
        if !pace.is_some_and(rested) {
            return May::NotYet;
        }
        self.last.insert(zone.to_owned(), now);
        May::Now
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nodes(zone: &str, ready: usize, not_ready: usize) -> Vec<Arc<Node>> {
        let node = |status: &str| {
            let node = json!({
                "metadata": {"labels": {ZONE: zone}},
                "status": {"conditions": [{"type": "Ready", "status": status}]},
            });
            Arc::new(serde_json::from_value(node).expect("a node"))
        };
        let lost = (0..not_ready).map(|_| node("Unknown"));
        (0..ready).map(|_| node("True")).chain(lost).collect()
    }

    #[test]
    fn the_more_are_lost_the_slower_they_are_emptied() {
        for (ready, not_ready, pace) in [
            (9, 1, Some(NORMAL)),
            (1, 2, Some(NORMAL)),
            (1, 3, None),
            (46, 54, Some(NORMAL)),
            (45, 55, Some(SLOW)),
            (0, 3, Some(NORMAL)),
        ] {
            assert_eq!(count(&nodes("a", ready, not_ready))[":a"].pace(), pace, "{ready} {not_ready}");
        }
    }

    #[test]
    fn one_after_the_other() {
        let (mut zones, all) = (Zones::default(), count(&[nodes("a", 5, 2), nodes("b", 5, 1)].concat()));
        zones.look(&all);
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        assert_eq!(zones.may_empty(":a", &all, at(0)), May::Now);
        assert_eq!(zones.may_empty(":a", &all, at(9)), May::NotYet);
        assert_eq!(zones.may_empty(":b", &all, at(9)), May::Now);
        assert_eq!(zones.may_empty(":a", &all, at(10)), May::Now);
    }

    #[test]
    fn nothing_is_done_when_all_are_lost() {
        let mut zones = Zones::default();
        let down = count(&[nodes("a", 0, 2), nodes("b", 0, 1)].concat());
        zones.look(&down);
        assert_eq!(zones.may_empty(":a", &down, Instant::now()), May::Never);
        let some = [nodes("a", 1, 1), nodes("b", 0, 1)].concat();
        assert!(zones.is_back(&some[0]), "the first is back");
        assert!(!zones.is_back(&some[0]));
        let back = count(&some);
        zones.look(&back);
        assert_eq!(zones.may_empty(":b", &back, Instant::now()), May::Now);
    }
}
