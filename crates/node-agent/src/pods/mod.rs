//! The pods of the node: one worker for each, from its admission to its end.
//!
//! | module | what |
//! |---|---|
//! | [`worker`] | the states of a pod, and what moves it from one to the next |
//! | [`plan`] | what a pod needs done: a pure function |
//! | `sync` | carries a plan out: sandbox, images, containers, hooks |
//! | `kill`, `ending` | stops what runs, and cleans up after it |
//! | [`observed`] | what the runtime knows of a pod |
//! | [`containers`] | a pod's containers, whatever list they are in |
//! | `images`, `credentials`, `backoff` | pulling, with whose name, and how often |
//! | [`access`] | which pods may use an image that is here already |
//! | `admission` | whether a pod fits on the node |
//! | [`classes`] | which pods get processors first |
//! | [`logs`] | the logs of pods on disk |
//! | `resize` | a running pod gets more or less of the node |
//! | `registry` | what the agent's server asks for |

pub mod access;
pub mod admission;
mod backoff;
pub mod classes;
pub mod containers;
pub mod context;
mod credentials;
mod ending;
#[cfg(test)]
pub mod fixtures;
mod hooks;
pub mod images;
mod kill;
pub mod logs;
pub mod observed;
pub mod plan;
pub mod registry;
pub mod resize;
mod sync;
mod termination_message;
pub mod worker;

use std::{collections::HashMap, sync::Arc};

use container_runtime::services::{ContainerEvent, ContainerEventType, Labels, PodSandbox, PodSandboxFilter};
use controller_runtime::{Change, Informer, events::EventType};
use k8s_openapi::{
    api::core::v1::{Pod, PodSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Api;
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use self::{
    containers::{is_final, phase, uid},
    context::Context,
    registry::Registry,
    worker::{Admitted, Message, Worker},
};
use crate::{
    configuration::{labels, named},
    eviction::Eviction,
};

/// Hands what happens to the workers.
pub struct Pods {
    context: Arc<Context>,
    registry: Arc<Registry>,
    workers: HashMap<String, mpsc::UnboundedSender<Message>>,
    running: JoinSet<String>,
    /// Whose sandboxes are whose: by the sandbox's id the pod's uid.
    sandboxes: HashMap<String, String>,
}

impl Pods {
    pub fn new(context: Arc<Context>, registry: Arc<Registry>) -> Self {
        Self { context, registry, workers: HashMap::new(), running: JoinSet::new(), sandboxes: HashMap::new() }
    }

    /// Runs all pods of the node until `stop`; `objects` tells of pods whose objects have changed, `evicted` of those that have to
    /// go.
    pub async fn run(
        mut self,
        mut objects: mpsc::UnboundedReceiver<String>,
        mut evicted: mpsc::UnboundedReceiver<(String, Eviction)>,
        stop: CancellationToken,
    ) {
        // From before anything is looked at, so that nothing is missed.
        let mut events = self.context.settings.runtime.events();
        let mut network = self.context.settings.network.clone();
        let (sender, mut changes) = mpsc::unbounded_channel();
        let fields = format!("spec.nodeName={}", self.context.settings.node_name);
        let api: Api<Pod> = Api::all(self.context.settings.client.clone());
        let pods = Informer::start(api, Some(fields), |_| {}, stop.clone());
        pods.on_change(move |change| {
            let change = match change {
                Change::Applied { new, .. } => (new.clone(), false),
                Change::Deleted(last) => (last.clone(), true),
            };
            // The receiver ends with the agent.
            let _ = sender.send(change);
        });
        // Which pods fit can be said once it is known what the node has.
        let mut node = self.context.node.clone();
        let ready = async {
            pods.synced().await;
            node.wait_for(Option::is_some).await.is_ok()
        };
        if stop.run_until_cancelled(ready).await != Some(true) {
            return;
        }
        // In the order in which they came to be, as they were admitted the first time.
        let mut first = Vec::new();
        while let Ok(change) = changes.try_recv() {
            first.push(change);
        }
        first.sort_by_key(|(pod, _)| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
        first.into_iter().for_each(|(pod, gone)| self.changed(pod, gone));
        self.adopt_orphans().await;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some((pod, gone)) = changes.recv() => self.changed(pod, gone),
                Some(event) = events.recv() => self.happened(&event).await,
                Some(uid) = objects.recv() => self.tell(&uid, Message::Objects),
                Some((uid, eviction)) = evicted.recv() => self.tell(&uid, Message::Evicted(eviction)),
                Ok(()) = network.changed() => {
                    self.workers.values().for_each(|worker| drop(worker.send(Message::Network)));
                }
                Some(ended) = self.running.join_next() => self.ended(ended.ok()),
            }
        }
    }

    fn tell(&self, uid: &str, message: Message) {
        if let Some(worker) = self.workers.get(uid) {
            // One that has ended has nothing to do with it any more.
            let _ = worker.send(message);
        }
    }

    fn changed(&mut self, pod: Arc<Pod>, gone: bool) {
        let uid = uid(&pod).to_owned();
        match (self.workers.contains_key(&uid), gone) {
            (true, true) => {
                // Others are sent here in its place, however long it takes to end.
                self.context.claims.release(&uid);
                self.tell(&uid, Message::Gone);
            }
            (true, false) => self.tell(&uid, Message::Pod(pod)),
            (false, true) => {}
            (false, false) => {
                let admitted = self.admit(&pod);
                self.start(pod, admitted);
            }
        }
    }

    fn admit(&self, pod: &Pod) -> Admitted {
        if is_final(phase(pod)) || pod.metadata.deletion_timestamp.is_some() {
            return Admitted::Yes;
        }
        let pressure = *self.context.pressure.borrow();
        let admitted = admission::under_pressure(pod, pressure)
            .and_then(|()| self.context.claims.admit(pod, self.context.node.borrow().as_deref()));
        match admitted {
            Ok(()) => Admitted::Yes,
            Err(mut reason) => {
                self.context.event(pod, EventType::Warning, &reason.reason, reason.message.clone());
                reason.message = format!("Pod was rejected: {}", reason.message);
                Admitted::No(reason)
            }
        }
    }

    fn start(&mut self, pod: Arc<Pod>, admitted: Admitted) {
        let uid = uid(&pod).to_owned();
        let (sender, receiver) = mpsc::unbounded_channel();
        self.workers.insert(uid.clone(), sender.clone());
        let (context, registry) = (self.context.clone(), self.registry.clone());
        self.running.spawn(async move {
            Worker::new(context, registry, pod, admitted, (sender, receiver)).run().await;
            uid
        });
    }

    fn ended(&mut self, uid: Option<String>) {
        // A worker that panicked stays in the list, and its pod as it is, until the agent starts again.
        let Some(uid) = uid else { return };
        self.workers.remove(&uid);
        self.registry.remove(&uid);
        self.context.claims.release(&uid);
        self.sandboxes.retain(|_, of| *of != uid);
    }

    /// Something happened in the runtime: its pod's worker looks.
    async fn happened(&mut self, event: &ContainerEvent) {
        let sandbox = event.pod_sandbox_id.clone();
        if !self.sandboxes.contains_key(&sandbox) {
            let Ok(status) = self.context.runtime().pod_sandbox_status(&sandbox).await else { return };
            let Some(uid) = status.labels.get(labels::POD_UID).cloned() else { return };
            self.sandboxes.insert(sandbox.clone(), uid.clone());
            if !self.workers.contains_key(&uid) {
                self.adopt(&status.labels);
            }
        }
        let Some(uid) = self.sandboxes.get(&sandbox) else { return };
        self.tell(uid, Message::Runtime);
        if event.container_event_type == ContainerEventType::Deleted && event.container_id == sandbox {
            self.sandboxes.remove(&sandbox);
        }
    }

    /// Whatever the runtime or the disk has of pods that the API does not have any more ends.
    async fn adopt_orphans(&mut self) {
        let sandboxes = self.context.runtime().list_pod_sandbox(&PodSandboxFilter::default()).await;
        for PodSandbox { id, labels, .. } in sandboxes.unwrap_or_default() {
            let Some(uid) = labels.get(labels::POD_UID).cloned() else { continue };
            if !self.workers.contains_key(&uid) {
                self.adopt(&labels);
            }
            self.sandboxes.insert(id, uid);
        }
        let with_logs = logs::pods(&self.context.settings.root);
        for uid in self.context.volumes.pods_on_disk().into_iter().chain(with_logs) {
            if !self.workers.contains_key(&uid) {
                self.adopt(&Labels::from([(labels::POD_UID.to_owned(), uid)]));
            }
        }
    }

    /// Ends a pod of which only its labels are known.
    fn adopt(&mut self, found: &Labels) {
        let label = |name: &str| found.get(name).cloned();
        let pod = Pod {
            metadata: ObjectMeta {
                name: label(labels::POD_NAME),
                namespace: label(labels::POD_NAMESPACE),
                uid: label(labels::POD_UID),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec::default()),
            ..Pod::default()
        };
        tracing::info!(pod = named(&pod), "ending a pod that the API does not have any more");
        self.start(Arc::new(pod), Admitted::Orphan);
    }
}
