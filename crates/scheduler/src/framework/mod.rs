//! Where plugins come in: one trait per extension point, in the order in which a pod meets them.
//!
//! "Does not fit" is a value, never an error. What judges a single node comes in two kinds, told apart by what it is given. A
//! [`NodeFilter`] or [`NodeScore`] sees a [`Shape`] and a node, nothing else: its answer is kept until the node changes, and
//! shared by all pods of that shape. What depends on other nodes or on the single pod begins with [`PreFilter`] or [`PreScore`], which look
//! at the cluster once per pod and give what then judges node by node.

mod events;
mod rejection;

use std::{cmp::Reverse, collections::BTreeSet, sync::Arc};

use futures::future::BoxFuture;
use tokio::time::Instant;

pub use events::{Event, NodeChange};
pub use rejection::{Diagnosis, Rejection};

use crate::{
    cycle::Search,
    pod::{PodInfo, Shape},
    queue::Queued,
    snapshot::{NodeInfo, Snapshot},
};

/// The best score of a node by one plugin.
pub const BEST: i64 = 100;

pub trait Plugin: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// Whether an event could help a pod that this plugin has rejected. Only then is the pod tried again.
    fn helps(&self, event: &Event<'_>, pod: &PodInfo) -> bool;

    /// Whether an event could help any pod at all. If not, nobody is asked about single ones, of which there may be many.
    fn hears(&self, _event: &Event<'_>) -> bool {
        true
    }
}

/// Decides whether a pod may be tried at all.
pub trait PreEnqueue: Plugin {
    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Rejection>;
}

/// Decides which pod is next.
pub trait QueueSort: Send + Sync + 'static {
    /// The smallest is next.
    fn order(&self, pod: &Queued) -> (Reverse<i32>, Instant);
}

/// Rules out a node by itself.
pub trait NodeFilter: Plugin {
    fn filter(&self, shape: &Shape, node: &NodeInfo) -> Result<(), Rejection>;
}

/// Looks at the whole cluster before nodes are looked at.
pub trait PreFilter: Plugin {
    fn pre_filter<'a>(&'a self, pod: &'a PodInfo, snapshot: &'a Snapshot) -> PreFiltered<'a>;
}

pub enum PreFiltered<'a> {
    /// There is nothing to say about this pod.
    Skip,
    /// No node will do.
    Reject(Rejection),
    /// Only these nodes could do.
    Only(BTreeSet<&'a str>),
    /// Judges node by node.
    Filter(Box<dyn Filter + 'a>),
}

/// Rules out nodes for one pod, knowing the cluster.
pub trait Filter: Send {
    fn filter(&self, slot: usize, node: &NodeInfo) -> Result<(), Rejection>;

    /// Supposes that a pod came to a node, or that it went.
    fn suppose(&mut self, pod: &PodInfo, slot: usize, came: bool);

    /// Another one to suppose with.
    fn copy(&self) -> Box<dyn Filter + '_>;
}

/// Makes room for a pod that fits nowhere.
pub trait PostFilter: Plugin {
    fn post_filter(&self, search: Search<'_>, diagnosis: &Diagnosis) -> Outcome;
}

/// What making room came to.
pub enum Outcome {
    /// There is none, in these words; and whether room that was made before is of no use any more.
    Nothing { words: String, for_good: bool },
    /// A node has room once these pods are gone.
    Room { node: String, victims: Vec<Arc<PodInfo>> },
}

/// Scores a node by itself.
pub trait NodeScore: Plugin {
    fn score(&self, shape: &Shape, node: &NodeInfo) -> i64;

    /// Whether there is anything to score for this shape.
    fn applies(&self, _shape: &Shape) -> bool {
        true
    }

    /// Brings the scores of all nodes to 0 to [`BEST`].
    fn normalize(&self, _scores: &mut [i64]) {}
}

/// Looks at the nodes that are left before they are scored.
pub trait PreScore: Plugin {
    /// What then scores them, if there is anything to say.
    fn pre_score<'a>(
        &'a self,
        pod: &'a PodInfo,
        snapshot: &'a Snapshot,
        feasible: &[usize],
    ) -> Option<Box<dyn Score + 'a>>;
}

/// Scores nodes for one pod, knowing the cluster.
pub trait Score: Send {
    fn score(&self, slot: usize, node: &NodeInfo) -> i64;

    /// Brings the scores, one for each of these nodes, to 0 to [`BEST`].
    fn normalize(&self, _slots: &[usize], _scores: &mut [i64]) {}
}

/// Takes what a pod needs beside the node before it is bound, and gives it back if that fails.
pub trait Reserve: Plugin {
    fn reserve(&self, pod: &PodInfo, node: &str) -> Result<(), Rejection>;
    fn unreserve(&self, pod: &PodInfo, node: &str);
}

/// What happens while the next cycle is on its way already. Each may take its time.
pub type Step<'a> = BoxFuture<'a, Result<(), BindError>>;

/// Lets a pod be bound, at once or later.
pub trait Permit: Plugin {
    fn permit<'a>(&'a self, pod: &'a PodInfo, node: &'a str) -> BoxFuture<'a, Result<(), Rejection>>;
}

/// Prepares what must be there before a pod is bound.
pub trait PreBind: Plugin {
    fn pre_bind<'a>(&'a self, pod: &'a PodInfo, node: &'a str) -> Step<'a>;
}

/// Binds a pod to a node.
pub trait Bind: Send + Sync + 'static {
    fn bind<'a>(&'a self, pod: &'a PodInfo, node: &'a str) -> Step<'a>;
}

/// Hears of a pod that has been bound.
pub trait PostBind: Plugin {
    fn post_bind(&self, pod: &PodInfo, node: &str);
}

/// Why a pod could not be bound, although there was a place for it.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Rejected(Rejection),
    #[error("the scheduler has panicked over the binding")]
    Panicked,
}

/// All plugins, by where they come in. Order counts.
pub struct Framework {
    pub pre_enqueue: Vec<Arc<dyn PreEnqueue>>,
    pub queue_sort: Arc<dyn QueueSort>,
    pub node_filters: Vec<Arc<dyn NodeFilter>>,
    pub pre_filters: Vec<Arc<dyn PreFilter>>,
    pub post_filters: Vec<Arc<dyn PostFilter>>,
    /// With their weights.
    pub node_scores: Vec<(i64, Arc<dyn NodeScore>)>,
    pub pre_scores: Vec<(i64, Arc<dyn PreScore>)>,
    pub reserve: Vec<Arc<dyn Reserve>>,
    pub permit: Vec<Arc<dyn Permit>>,
    pub pre_bind: Vec<Arc<dyn PreBind>>,
    pub bind: Arc<dyn Bind>,
    pub post_bind: Vec<Arc<dyn PostBind>>,
    /// Every plugin that can reject a pod, by name: whom to ask whether an event helps.
    pub rejecters: Vec<Arc<dyn Plugin>>,
}

impl Framework {
    /// Takes everything a pod needs, or nothing.
    pub fn reserve(&self, pod: &PodInfo, node: &str) -> Result<(), Rejection> {
        for (at, plugin) in self.reserve.iter().enumerate() {
            if let Err(rejection) = plugin.reserve(pod, node) {
                self.reserve.iter().take(at + 1).rev().for_each(|plugin| plugin.unreserve(pod, node));
                return Err(rejection);
            }
        }
        Ok(())
    }

    pub fn unreserve(&self, pod: &PodInfo, node: &str) {
        self.reserve.iter().rev().for_each(|plugin| plugin.unreserve(pod, node));
    }
}
