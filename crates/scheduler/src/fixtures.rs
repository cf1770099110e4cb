//! Pods, nodes and clusters for unit tests.

use std::{collections::BTreeMap, sync::Arc};

use futures::FutureExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::{
    cycle::Search,
    framework::{Bind, Framework, PreFilter, PreFiltered, PreScore, Step},
    nominations::Nominations,
    plugins::{self, Lookups},
    pod::{PodInfo, Shapes},
    snapshot::Snapshot,
};

/// A pod of the namespace `default` whose uid is its name. Changes are merged in.
pub fn pod(name: &str, changes: Value) -> Arc<PodInfo> {
    shaped(&mut Shapes::default(), name, changes)
}

/// The same, sharing shapes with others.
pub fn shaped(shapes: &mut Shapes, name: &str, changes: Value) -> Arc<PodInfo> {
    let pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [{"name": "main", "image": "web"}]},
    });
    let pod: Pod = serde_json::from_value(merged(pod, changes)).expect("a pod");
    Arc::new(PodInfo::new(Arc::new(pod), shapes))
}

/// What a pod with one container asks for.
pub fn asking(requests: Value) -> Value {
    json!({"spec": {"containers": [{"name": "main", "image": "web", "resources": {"requests": requests}}]}})
}

/// A node with two cores and four gibibytes. Changes are merged in.
pub fn node(name: &str, changes: Value) -> Arc<Node> {
    let node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"}},
    });
    Arc::new(serde_json::from_value(merged(node, changes)).expect("a node"))
}

/// A node in a zone.
pub fn in_zone(name: &str, zone: &str) -> Arc<Node> {
    node(name, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}))
}

pub fn cluster(
    nodes: impl IntoIterator<Item = Arc<Node>>,
    pods: impl IntoIterator<Item = (Arc<PodInfo>, &'static str)>,
) -> Snapshot {
    let mut snapshot = Snapshot::default();
    nodes.into_iter().for_each(|node| snapshot.set_node(node));
    pods.into_iter().for_each(|(pod, node)| snapshot.add_pod(pod, node));
    snapshot.refresh();
    snapshot
}

/// All plugins, in a world without anything but nodes and pods.
pub fn framework() -> Framework {
    plugins::all(Lookups {
        bind: Arc::new(Nowhere),
        together: Box::new(|_| None),
        claim: Box::new(|_| None),
        volume: Box::new(|_| None),
        budgets: Box::new(Vec::new),
    })
}

struct Nowhere;

impl Bind for Nowhere {
    fn bind<'a>(&'a self, _pod: &'a PodInfo, _node: &'a str) -> Step<'a> {
        async { Ok(()) }.boxed()
    }
}

/// Of a server on this machine. Nobody listens at port 1.
pub fn client(port: u16) -> Client {
    Client::try_from(Config::new(format!("http://127.0.0.1:{port}").parse().expect("an address"))).expect("a client")
}

pub fn search<'a>(
    framework: &'a Framework,
    snapshot: &'a Snapshot,
    nominations: &'a Nominations,
    pod: &'a PodInfo,
) -> Search<'a> {
    Search { framework, snapshot, nominations, pod }
}

/// What a plugin says of every node: nothing, or why not.
pub fn judged(plugin: &dyn PreFilter, pod: &PodInfo, snapshot: &Snapshot) -> BTreeMap<String, String> {
    let say = |slot: &usize| {
        let node = snapshot.node(*slot);
        let said = match plugin.pre_filter(pod, snapshot) {
            PreFiltered::Skip => String::new(),
            PreFiltered::Reject(rejection) => rejection.to_string(),
            PreFiltered::Only(names) if names.contains(node.name()) => String::new(),
            PreFiltered::Only(_) => "another one".to_owned(),
            PreFiltered::Filter(filter) => {
                filter.filter(*slot, node).err().map(|why| why.to_string()).unwrap_or_default()
            }
        };
        (node.name().to_owned(), said)
    };
    snapshot.order().iter().map(say).collect()
}

/// The nodes that a plugin lets pass.
pub fn passing(plugin: &dyn PreFilter, pod: &PodInfo, snapshot: &Snapshot) -> Vec<String> {
    judged(plugin, pod, snapshot).into_iter().filter(|(_, why)| why.is_empty()).map(|(name, _)| name).collect()
}

/// The scores a plugin gives to all nodes, if it has anything to say.
pub fn scored(plugin: &dyn PreScore, pod: &PodInfo, snapshot: &Snapshot) -> Option<BTreeMap<String, i64>> {
    let slots = snapshot.order();
    let scorer = plugin.pre_score(pod, snapshot, slots)?;
    let mut scores: Vec<i64> = slots.iter().map(|slot| scorer.score(*slot, snapshot.node(*slot))).collect();
    scorer.normalize(slots, &mut scores);
    let names = slots.iter().map(|slot| snapshot.node(*slot).name().to_owned());
    Some(names.zip(scores).collect())
}

fn merged(mut whole: Value, changes: Value) -> Value {
    match (&mut whole, changes) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (key, change) in changes {
                let field = fields.entry(key).or_insert(Value::Null);
                *field = merged(field.take(), change);
            }
            whole
        }
        (_, change) => change,
    }
}
