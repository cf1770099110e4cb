//! Which node a pod goes to.
//!
//! Kubernetes calls this kube-scheduler. The way of a pod: an informer tells of it, the queue orders it by priority, a
//! cycle filters and scores the nodes of a snapshot through the plugins of the framework, the pod is assumed on the
//! best one, and it is bound through the API while the next cycle is on its way already.
//!
//! It reaches the cluster through `controller-runtime` only; nothing here knows the API server.

mod affinity;
mod binding;
mod cycle;
#[cfg(test)]
mod fixtures;
mod framework;
mod nominations;
mod plugins;
mod pod;
mod preemption;
mod queue;
mod resources;
mod scheduler;
mod selection;
mod snapshot;
mod spreading;
mod telling;

use std::sync::Arc;

use controller_runtime::{Clock, Informers, events::Recorder};
use kube::Client;
use tokio_util::sync::CancellationToken;

use plugins::Lookups;
use preemption::Evictions;
use scheduler::Scheduler;
use telling::Teller;

/// How the scheduler reaches the cluster.
pub struct Setting {
    /// Acts as `system:kube-scheduler`.
    pub client: Client,
    /// What it knows of the cluster; shared with other components of the process.
    pub informers: Informers,
    pub clock: Arc<dyn Clock>,
}

/// Schedules until it is told to stop.
pub async fn run(setting: Setting, stop: CancellationToken) {
    let Setting { client, informers, clock } = setting;
    let recorder = Recorder::new(client.clone(), scheduler::NAME, clock.clone());
    let teller = Teller::new(client.clone(), recorder.clone(), clock.clone());
    let evictions = Evictions { client: client.clone(), recorder, clock };
    let plugins = plugins::all(Lookups::new(client, &informers));
    let scheduler = Scheduler::new(Arc::new(plugins), teller, evictions);
    if stop.run_until_cancelled(scheduler.follow(&informers)).await.is_some() {
        scheduler.run(stop).await;
    }
}
