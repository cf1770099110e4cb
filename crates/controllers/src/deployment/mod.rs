//! Deployments: from one template to the next, by ReplicaSets that grow and shrink.
//!
//! Each template has a ReplicaSet of its own, named by a hash of it. [`rollout`] decides by how much which set grows or
//! shrinks, by [`arithmetic`]; [`revisions`] keeps the history in annotations; the [`status`] is a function of the sets.

mod arithmetic;
mod revisions;
mod rollout;
mod status;

use std::{sync::Arc, time::Duration};

use controller_runtime::{
    Change, Clock, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue,
    adoption::claim,
    events::{EventType, Recorder, about},
    informer::{CONTROLLER, by_controller, orphans},
};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{Api, Client, api::PostParams, core::response::StatusDetails};
use rollout::Rollout;
use tokio_util::sync::CancellationToken;

use crate::{
    Setting,
    owners::{self, owner},
    pods,
};

const ACCOUNT: &str = "deployment-controller";
const NAME: &str = "deployment-controller";
const WORKERS: usize = 5;

struct Deployments {
    client: Client,
    deployments: Informer<Deployment>,
    sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
    own_writes: OwnWrites<Key>,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let controller = Deployments {
        client: setting.client(ACCOUNT),
        deployments: setting.informers.of(),
        sets: setting.informers.of(),
        pods: setting.informers.of(),
        own_writes: own_writes.clone(),
        recorder: setting.recorder(ACCOUNT, NAME),
        clock: setting.clock.clone(),
    };
    controller.sets.index(CONTROLLER, by_controller);
    controller.pods.index(CONTROLLER, by_controller);
    let on_deployment = queue.clone();
    controller.deployments.on_change(move |change| on_deployment.add(Key::of(&**change.object())));
    let (on_set, deployments) = (queue.clone(), controller.deployments.clone());
    controller
        .sets
        .on_change(move |change| concerned(change, &deployments).into_iter().for_each(|key| on_set.add(key)));
    // Recreate waits for the last pod of the old template.
    let (on_pod, sets) = (queue.clone(), controller.sets.clone());
    controller.pods.on_change(move |change| {
        if let Change::Deleted(last) = change
            && let Some(key) = owner::<_, ReplicaSet>(&**last)
            && let Some(deployment) = sets.get(&key).and_then(|set| owner::<_, Deployment>(&*set))
        {
            on_pod.add(deployment);
        }
    });
    controller.deployments.synced_or_stopped().await;
    controller.sets.synced_or_stopped().await;
    controller.pods.synced_or_stopped().await;
    controller_runtime::run(Arc::new(controller), queue, own_writes, WORKERS, stop).await;
}

/// The Deployments that a change of a ReplicaSet is about.
fn concerned(change: &Change<ReplicaSet>, deployments: &Informer<Deployment>) -> Vec<Key> {
    let lives = |set: &ReplicaSet| set.metadata.deletion_timestamp.is_none();
    owners::concerned(change, deployments, lives, |deployment, set| {
        deployment.spec.as_ref().is_some_and(|spec| {
            spec.selector != LabelSelector::default() && pods::selector(&spec.selector)(&set.metadata)
        })
    })
}

impl Controller for Deployments {
    type Key = Key;

    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(deployment) = self.deployments.get(key) else { return Ok(Next::WhenChanged) };
        let mut deployment = (*deployment).clone();
        let Some(spec) = deployment.spec.clone() else { return Ok(Next::WhenChanged) };
        if spec.selector == LabelSelector::default() {
            let message = "This deployment is selecting all pods. A non-empty selector is required.";
            self.recorder.event(&about(&deployment), EventType::Warning, "SelectingAll", message);
            let status = deployment.status.get_or_insert_default();
            if status.observed_generation < deployment.metadata.generation {
                status.observed_generation = deployment.metadata.generation;
                self.write_status(key, deployment).await?;
            }
            return Ok(Next::WhenChanged);
        }
        let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
        let mut sets = self.sets.by_index(CONTROLLER, uid);
        sets.extend(self.sets.by_index(CONTROLLER, &orphans(&key.namespace)));
        let matches = pods::selector(&spec.selector);
        let api = self.replica_sets(&key.namespace);
        let sets = claim(
            &deployment,
            &self.api(&key.namespace),
            sets,
            &api,
            |set| matches(&set.metadata),
            |set| {
                self.own_writes.wrote(key, &self.sets, set);
            },
        )
        .await?;
        match Rollout::new(self, key, deployment, spec, sets).run().await {
            Ok(wait) => Ok(wait.map_or(Next::WhenChanged, Next::After)),
            Err(error) if is_gone(&error, key) => Ok(Next::WhenChanged),
            Err(error) => Err(error),
        }
    }
}

/// Whether it was the Deployment itself that was not found. That it is gone will be told.
fn is_gone(error: &Error, key: &Key) -> bool {
    let Error::Api(kube::Error::Api(status)) = error else { return false };
    let of = |details: &StatusDetails| details.kind == "deployments" && details.name == key.name;
    status.is_not_found() && status.details.as_ref().is_some_and(of)
}

impl Deployments {
    fn api(&self, namespace: &str) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn replica_sets(&self, namespace: &str) -> Api<ReplicaSet> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn write_status(&self, key: &Key, deployment: Deployment) -> Result<Deployment, Error> {
        let written = self.api(&key.namespace).replace_status(&key.name, &PostParams::default(), &deployment).await?;
        self.own_writes.wrote(key, &self.deployments, &written);
        Ok(written)
    }
}

/// How long to wait until a look is worth it. A second more, because times are in whole seconds.
fn wait_until(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0) + 1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_its_own_end_ends_the_work_on_a_deployment() {
        let refused = |code: u16, reason: &str, kind: &str, name: &str| {
            let details = json!({"kind": kind, "name": name});
            let status = json!({"code": code, "reason": reason, "details": details});
            Error::Api(kube::Error::Api(serde_json::from_value(status).expect("a status")))
        };
        let key = Key::new("ns", "web");
        assert!(is_gone(&refused(404, "NotFound", "deployments", "web"), &key));
        assert!(!is_gone(&refused(404, "NotFound", "replicasets", "web"), &key));
        assert!(!is_gone(&refused(404, "NotFound", "deployments", "other"), &key));
        assert!(!is_gone(&refused(409, "Conflict", "deployments", "web"), &key));
    }
}
