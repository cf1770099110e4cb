//! What the node does when it runs short: images that nobody uses go first, then pods, those first that use most beyond what they
//! asked for. Kubernetes calls this image garbage collection and the eviction manager.
//!
//! | module | what |
//! |---|---|
//! | `signals` | what is short, and for how long that is told |
//! | `usage` | what the node's pods use |
//! | `ranking` | which pod goes first, and what it is told |
//! | `limits` | pods that write more than they may |
//! | `images` | room made by removing images |
//!
//! Invariants: at most one pod goes at a time, and the next only when it has ended; pods that the cluster cannot do without
//! stay; a pod's worker is told, and ends the pod as it does any other.

mod images;
mod limits;
mod ranking;
mod signals;
mod usage;

use std::{path::PathBuf, sync::Arc, time::Duration};

use controller_runtime::events::EventType;
use k8s_openapi::api::core::v1::Pod;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    node,
    pods::{
        containers::{is_final, phase, uid},
        context::Context,
        registry::Registry,
    },
    server::Host,
};
use signals::{Hold, Observation, Shortage};
pub use signals::{Pressure, Thresholds};
use usage::Usages;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(10);
/// How often images are looked at when nothing is short.
const IMAGES_EVERY: Duration = Duration::from_secs(300);
/// How long it waits for a pod to end before another one goes.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pods of this priority and above are never ended for want of something.
pub const CRITICAL: i32 = 2_000_000_000;

/// Why a pod has to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    pub message: String,
    /// It is the node's fault, and not the pod's: whoever counts failures need not count this one.
    pub disrupts: bool,
}

/// Whom the watch tells: workers of pods by their uid, and whoever wants to know of pressure.
pub struct Told {
    pub evictions: mpsc::UnboundedSender<(String, Eviction)>,
    pub pressure: watch::Sender<Pressure>,
}

/// Looks after what the node has left, until `stop`.
pub async fn run(context: Arc<Context>, registry: Arc<Registry>, told: Told, stop: CancellationToken) {
    let watch = Watch { context, registry, told, images_at: None, last: None };
    stop.run_until_cancelled(watch.run()).await;
}

struct Watch {
    context: Arc<Context>,
    registry: Arc<Registry>,
    told: Told,
    /// When images were last looked at.
    images_at: Option<Instant>,
    /// The pod that was ended last, and when.
    last: Option<(String, Instant)>,
}

impl Watch {
    async fn run(mut self) {
        let mut hold = Hold::default();
        let mut image_folder = None;
        loop {
            if image_folder.is_none() {
                image_folder = self.image_folder().await;
            }
            let folder = image_folder.clone().unwrap_or_else(|| self.context.settings.root.clone());
            let mut short = self.look(folder.clone()).await;
            let pressure = hold.pressure(&short, Instant::now());
            self.told.pressure.send_if_modified(|now| std::mem::replace(now, pressure) != pressure);
            if let Some(first) = short.first() {
                let message = format!("Attempting to reclaim {}", first.signal.resource());
                let node = node::reference(&self.context.settings.node_name);
                self.context.recorder.event(&node, EventType::Warning, "EvictionThresholdMet", message);
            }
            let is_full = short.iter().any(|shortage| shortage.signal.is_of_disk());
            if is_full || self.images_at.is_none_or(|at| at.elapsed() >= IMAGES_EVERY) {
                self.images_at = Some(Instant::now());
                if images::make_room(&self.context, &folder, is_full).await && is_full {
                    short = self.look(folder).await;
                }
            }
            self.evict(&short).await;
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Where the runtime has its images. It measures them when asked, so it is asked once.
    async fn image_folder(&self) -> Option<PathBuf> {
        let known = self.context.images().image_fs_info().await.ok()?;
        known.first().map(|known| PathBuf::from(&known.mountpoint))
    }

    async fn look(&self, image_folder: PathBuf) -> Vec<Shortage> {
        let root = self.context.settings.root.clone();
        let observed = tokio::task::spawn_blocking(move || Observation::look(&root, &image_folder)).await;
        observed.map(|observed| observed.shortages(&self.context.settings.thresholds)).unwrap_or_default()
    }

    /// Ends pods that write more than they may; if none does and something is short, the one that should go first.
    async fn evict(&mut self, short: &[Shortage]) {
        let active: Vec<Arc<Pod>> = self.registry.pods().into_iter().filter(|pod| !is_final(phase(pod))).collect();
        let limited: Vec<&Arc<Pod>> = active.iter().filter(|pod| limits::has_any(pod)).collect();
        if short.is_empty() && limited.is_empty() {
            return;
        }
        let Ok(usages) = Usages::look(&self.context, &active, !short.is_empty()).await else { return };
        let mut ended = false;
        for pod in limited {
            if let Some(message) = limits::exceeded(pod, &usages) {
                ended |= self.end(pod, Eviction { message, disrupts: false });
            }
        }
        let Some(shortage) = short.first().filter(|_| !ended && !self.is_still_ending()) else { return };
        for (pod, message) in ranking::ranked(&active, &usages, shortage) {
            if self.end(pod, Eviction { message, disrupts: true }) {
                return;
            }
        }
        tracing::warn!(resource = shortage.signal.resource(), "the node is short of it, and no pod can go");
    }

    fn end(&mut self, pod: &Pod, eviction: Eviction) -> bool {
        if pod.spec.as_ref().and_then(|spec| spec.priority).is_some_and(|priority| priority >= CRITICAL) {
            return false;
        }
        self.last = Some((uid(pod).to_owned(), Instant::now()));
        self.told.evictions.send((uid(pod).to_owned(), eviction)).is_ok()
    }

    /// Whether what the last pod used may still become free.
    fn is_still_ending(&self) -> bool {
        let Some((last, at)) = &self.last else { return false };
        let runs = |pod: &Pod| {
            let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            statuses.filter_map(|status| status.state.as_ref()).any(|state| state.running.is_some())
        };
        at.elapsed() < PATIENCE && self.registry.pods().iter().any(|pod| uid(pod) == last && runs(pod))
    }
}
