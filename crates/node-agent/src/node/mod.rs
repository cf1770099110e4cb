//! The node as the API knows it: registered at the start, told anew when something has changed, its lease renewed.

pub mod facts;
mod lease;
mod status;

use std::{sync::Arc, time::Duration};

use controller_runtime::{
    Change, Informer,
    events::{EventType, Recorder},
};
use k8s_openapi::{
    api::core::v1::{Node, NodeSpec, NodeStatus, ObjectReference},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{Settings, eviction::Pressure};

/// The status is told this often, even when nothing has changed.
const TELL_AT_LEAST_EVERY: Duration = Duration::from_secs(300);
/// The lease is renewed this often; then it is also looked at what nobody reports: images, the runtime.
const RENEW_EVERY: Duration = Duration::from_secs(10);
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The node in events, which have its name for a uid as Kubernetes' do.
pub fn reference(name: &str) -> ObjectReference {
    ObjectReference {
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// The node as the API has it, from now on.
pub fn follow(settings: &Settings, stop: CancellationToken) -> watch::Receiver<Option<Arc<Node>>> {
    let (sender, receiver) = watch::channel(None);
    let fields = format!("metadata.name={}", settings.node_name);
    let nodes = Informer::<Node>::start(Api::all(settings.client.clone()), Some(fields), |_| {}, stop);
    nodes.on_change(move |change| {
        let node = match change {
            Change::Applied { new, .. } => Some(new.clone()),
            Change::Deleted(_) => None,
        };
        sender.send_replace(node);
    });
    receiver
}

/// Registers the node and keeps what is told of it true, until `stop`. `known` is the node as the API has it.
pub async fn run(
    settings: Settings,
    recorder: Recorder,
    pressure: watch::Receiver<Pressure>,
    known: watch::Receiver<Option<Arc<Node>>>,
    stop: CancellationToken,
) {
    let (facts, nodes) = (facts::Facts::read(&settings.root), Api::all(settings.client.clone()));
    let told = NodeStatus::default();
    let teller = Teller { settings, recorder, facts, pressure, nodes, known, told, told_at: None };
    stop.run_until_cancelled(teller.run()).await;
}

struct Teller {
    settings: Settings,
    recorder: Recorder,
    facts: facts::Facts,
    pressure: watch::Receiver<Pressure>,
    nodes: Api<Node>,
    known: watch::Receiver<Option<Arc<Node>>>,
    /// As the API has it.
    told: NodeStatus,
    /// When it was told last.
    told_at: Option<Instant>,
}

impl Teller {
    async fn run(mut self) {
        let node = loop {
            match self.register().await {
                Ok(node) => break node,
                Err(error) => tracing::warn!(%error, "cannot register the node; trying again"),
            }
            sleep(TRY_AGAIN_AFTER).await;
        };
        self.recorder.event(&reference(&self.settings.node_name), EventType::Normal, "Starting", "Starting kubelet.");
        let mut lease = lease::Lease::new(&self.settings, &node);
        let mut network = self.settings.network.clone();
        let mut renew_at = Instant::now();
        loop {
            if let Err(error) = self.tell().await {
                tracing::debug!(%error, "cannot tell how the node is; trying again");
            }
            if renew_at <= Instant::now() {
                renew_at = match lease.renew().await {
                    Ok(()) => Instant::now() + RENEW_EVERY,
                    Err(error) => {
                        tracing::debug!(%error, "cannot renew the node's lease; trying again");
                        Instant::now() + TRY_AGAIN_AFTER
                    }
                };
            }
            tokio::select! {
                () = sleep_until(renew_at) => {}
                // Without its sender the network stays as it is.
                Ok(()) = network.changed() => {}
                Ok(()) = self.pressure.changed() => {}
            }
        }
    }

    async fn status(&self, before: &NodeStatus) -> NodeStatus {
        let pressure = *self.pressure.borrow();
        status::status(&self.settings, &self.facts, pressure, before).await
    }

    /// Makes the node, or takes it over as it is.
    async fn register(&mut self) -> kube::Result<Node> {
        let name = self.settings.node_name.clone();
        let labels = status::labels(&self.settings);
        let node = Node {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some(labels.clone()),
                annotations: Some(
                    [("volumes.kubernetes.io/controller-managed-attach-detach".to_owned(), "true".to_owned())].into(),
                ),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: (!self.settings.taints.is_empty()).then(|| self.settings.taints.clone()),
                ..NodeSpec::default()
            }),
            status: Some(self.status(&NodeStatus::default()).await),
        };
        match self.nodes.create(&PostParams::default(), &node).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Ok(made) => {
                self.told = made.status.clone().unwrap_or_default();
                self.told_at = Some(Instant::now());
                return Ok(made);
            }
            Err(error) => return Err(error),
        }
        let found = self.nodes.get(&name).await?;
        let has = found.metadata.labels.clone().unwrap_or_default();
        let missing: serde_json::Map<String, Value> = labels
            .into_iter()
            .filter(|(key, value)| has.get(key) != Some(value))
            .map(|(key, value)| (key, Value::String(value)))
            .collect();
        let found = if missing.is_empty() {
            found
        } else {
            let change = json!({"metadata": {"labels": missing}});
            self.nodes.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await?
        };
        // Told by the one before, so that conditions keep their times; but it is told anew.
        self.told = found.status.clone().unwrap_or_default();
        Ok(found)
    }

    /// Tells the status if it has changed, or has not been told for long.
    async fn tell(&mut self) -> kube::Result<()> {
        // Whoever did not hear from the node for long has written that it is not known how it is.
        if let Some(status) = self.known.borrow().as_ref().and_then(|node| node.status.clone()) {
            self.told = status;
        }
        let wants = self.status(&self.told).await;
        let is_due = self.told_at.is_none_or(|at| at.elapsed() >= TELL_AT_LEAST_EVERY);
        if !is_due && status::is_same(&self.told, &wants) {
            return Ok(());
        }
        let patch = status::difference(&self.told, &wants);
        let name = self.settings.node_name.clone();
        let after = self.nodes.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
        let was_ready = status::is_ready(&self.told);
        if status::is_ready(&wants) != was_ready {
            let reason = if was_ready { "NodeNotReady" } else { "NodeReady" };
            let message = format!("Node {name} status is now: {reason}");
            self.recorder.event(&reference(&name), EventType::Normal, reason, message);
        }
        self.told = after.status.unwrap_or_default();
        self.told_at = Some(Instant::now());
        Ok(())
    }
}
