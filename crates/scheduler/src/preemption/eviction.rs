//! Makes pods go for whom another one needs the room: they are told why, and deleted as gracefully as they wish.

use std::sync::Arc;

use controller_runtime::{
    Clock,
    events::{EventType, Recorder, about},
};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;

use super::REASON;
use crate::{pod::PodInfo, scheduler::NAME};

/// Evicts. Cheap to clone.
#[derive(Clone)]
pub struct Evictions {
    pub client: Client,
    pub recorder: Recorder,
    pub clock: Arc<dyn Clock>,
}

impl Evictions {
    /// Makes all go that do not go already. After a failure the others stay: there is no room for the pod without the one.
    pub async fn evict(&self, victims: &[Arc<PodInfo>], for_pod: &PodInfo, node: &str) -> kube::Result<()> {
        for victim in victims.iter().filter(|victim| !victim.is_terminating()) {
            match self.evict_one(victim).await {
                Ok(()) => {
                    let words = format!("Preempted by pod {} on node {node}", for_pod.uid);
                    self.recorder.event(&about(&*victim.pod), EventType::Normal, "Preempted", words);
                }
                // It is gone already, or another one has its name now.
                Err(kube::Error::Api(answer)) if answer.is_not_found() || answer.is_conflict() => {}
                Err(error) => {
                    tracing::warn!(pod = %victim.key, %error, "cannot preempt a pod");
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    async fn evict_one(&self, victim: &PodInfo) -> kube::Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &victim.key.namespace);
        let condition = PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some(REASON.to_owned()),
            message: Some(format!("{NAME}: preempting to accommodate a higher priority pod")),
            last_transition_time: Some(self.clock.time()),
            observed_generation: victim.pod.metadata.generation,
            ..PodCondition::default()
        };
        let told = json!({"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}});
        pods.patch_status(&victim.key.name, &PatchParams::default(), &Patch::Strategic(told)).await?;
        let preconditions = Some(Preconditions { uid: Some(victim.uid.clone()), resource_version: None });
        let gracefully = DeleteParams { preconditions, ..DeleteParams::default() };
        pods.delete(&victim.key.name, &gracefully).await.map(drop)
    }
}
