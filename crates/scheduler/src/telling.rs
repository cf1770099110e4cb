//! What pods are told: where they are bound, or why they fit nowhere and where room was made for them.
//!
//! One task writes the statuses, one after the other, so that a later word never comes before an earlier one. A teller that is
//! dropped says nothing any more, whatever is still to be said: the scheduler that leads now says it.

use std::sync::Arc;

use controller_runtime::{
    Clock,
    events::{EventType, Recorder, about},
};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::pod::PodInfo;

#[cfg(test)]
mod tests;

/// The longest words an event takes.
const LONGEST_NOTE: usize = 1024;

/// Why a pod has no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Unschedulable,
    SchedulerError,
}

/// What is said about where room was made. Whoever says something knows that it is news: the status as it was last seen may lack what
/// is on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nominated {
    /// As it is.
    Unchanged,
    At(String),
    Nowhere,
}

/// Tells pods.
pub struct Teller {
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    writer: mpsc::UnboundedSender<(Arc<PodInfo>, Value)>,
    writes: AbortOnDropHandle<()>,
}

impl Teller {
    pub fn new(client: Client, recorder: Recorder, clock: Arc<dyn Clock>) -> Self {
        let (writer, mut told) = mpsc::unbounded_channel::<(Arc<PodInfo>, Value)>();
        let writes = tokio::spawn(async move {
            while let Some((pod, status)) = told.recv().await {
                patch(&client, &pod, &status).await;
            }
        });
        Self { recorder, clock, writer, writes: AbortOnDropHandle::new(writes) }
    }

    /// Says what is still to be said.
    pub async fn finish(self) {
        drop(self.writer);
        if let Err(error) = self.writes.await {
            tracing::error!(%error, "pods were not told everything");
        }
    }

    /// Tells that a pod is bound.
    pub fn tell_of_node(&self, pod: &PodInfo, node: &str) {
        let words = format!("Successfully assigned {} to {node}", pod.key);
        self.recorder.event(&about(&*pod.pod), EventType::Normal, "Scheduled", words);
    }

    /// Tells a pod why it has no node.
    pub fn tell(&self, pod: &Arc<PodInfo>, reason: Reason, words: &str, nominated: &Nominated) {
        self.recorder.event(&about(&*pod.pod), EventType::Warning, "FailedScheduling", note(words));
        if let Some(status) = self.status(pod, reason, words, nominated) {
            // The task has panicked, or the runtime ends: then nobody is told anything.
            let _ = self.writer.send((pod.clone(), status));
        }
    }

    /// Tells a pod that the room made for it is another's now.
    pub fn take_room(&self, pod: &Arc<PodInfo>) {
        let _ = self.writer.send((pod.clone(), json!({"nominatedNodeName": null})));
    }

    /// What is to be changed of the pod's status, if anything.
    fn status(&self, pod: &PodInfo, reason: Reason, words: &str, nominated: &Nominated) -> Option<Value> {
        let known = pod.status().and_then(|status| status.conditions.as_ref());
        let known = known.into_iter().flatten().find(|condition| condition.type_ == "PodScheduled");
        let is_said = known.is_some_and(|known| {
            known.status == "False"
                && known.reason.as_deref() == Some(&format!("{reason:?}"))
                && known.message.as_deref() == Some(words)
        });
        let mut status = serde_json::Map::new();
        if !is_said {
            let since =
                known.filter(|known| known.status == "False").and_then(|known| known.last_transition_time.clone());
            let condition = PodCondition {
                type_: "PodScheduled".to_owned(),
                status: "False".to_owned(),
                reason: Some(format!("{reason:?}")),
                message: Some(words.to_owned()),
                last_transition_time: Some(since.unwrap_or_else(|| self.clock.time())),
                observed_generation: pod.pod.metadata.generation,
                ..PodCondition::default()
            };
            status.insert("conditions".to_owned(), json!([condition]));
        }
        let node = match nominated {
            Nominated::Unchanged => None,
            Nominated::At(node) => Some(json!(node)),
            Nominated::Nowhere => Some(Value::Null),
        };
        status.extend(node.map(|node| ("nominatedNodeName".to_owned(), node)));
        if status.is_empty() { None } else { Some(Value::Object(status)) }
    }
}

async fn patch(client: &Client, pod: &PodInfo, status: &Value) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.key.namespace);
    let change = json!({"metadata": {"uid": pod.uid}, "status": status});
    match pods.patch_status(&pod.key.name, &PatchParams::default(), &Patch::Strategic(change)).await {
        Ok(_) => {}
        // It is gone, or another one has its name now.
        Err(kube::Error::Api(answer)) if answer.is_not_found() || answer.is_conflict() => {}
        Err(error) => tracing::warn!(pod = %pod.key, %error, "cannot tell a pod why it has no node"),
    }
}

fn note(words: &str) -> String {
    const MORE: &str = " ...";
    if words.len() <= LONGEST_NOTE {
        return words.to_owned();
    }
    let end = (0..=LONGEST_NOTE - MORE.len()).rev().find(|end| words.is_char_boundary(*end)).unwrap_or(0);
    format!("{}{MORE}", &words[..end])
}
