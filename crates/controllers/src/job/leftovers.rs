//! Pods that still wait to be counted, though their Job is at its end, gone, or no longer theirs: they wait no more.

use std::sync::Arc;

use controller_runtime::{
    Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue, adoption::controller_of, informer::CONTROLLER,
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::{
    is_managed_elsewhere,
    look::{finished, is_tracked},
    release,
};

struct Leftovers {
    client: Client,
    jobs: Informer<Job>,
    pods: Informer<Pod>,
}

pub fn run(
    client: Client,
    jobs: &Informer<Job>,
    pods: &Informer<Pod>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let queue = WorkQueue::default();
    let leftovers = Arc::new(Leftovers { client, jobs: jobs.clone(), pods: pods.clone() });
    let (on_pod, around) = (queue.clone(), leftovers.clone());
    pods.on_change(move |change| {
        if around.waits_in_vain(change.object()) {
            on_pod.add(Key::of(&**change.object()));
        }
    });
    let (on_job, around) = (queue.clone(), leftovers.clone());
    jobs.on_change(move |change| {
        let uid = change.object().metadata.uid.as_deref().unwrap_or_default();
        let left = around.pods.by_index(CONTROLLER, uid);
        left.iter().filter(|pod| around.waits_in_vain(pod)).for_each(|pod| on_job.add(Key::of(&**pod)));
    });
    async move {
        leftovers.jobs.synced_or_stopped().await;
        leftovers.pods.synced_or_stopped().await;
        controller_runtime::run(leftovers, queue, OwnWrites::default(), 1, stop).await;
    }
}

impl Leftovers {
    /// Whether nobody will count the pod.
    fn waits_in_vain(&self, pod: &Pod) -> bool {
        if !is_tracked(pod) {
            return false;
        }
        let Some(controller) = controller_of(pod) else { return true };
        if controller.kind != "Job" || controller.api_version != "batch/v1" {
            return false;
        }
        let key = Key::new(pod.metadata.namespace.clone().unwrap_or_default(), &controller.name);
        let job = self.jobs.get(&key).filter(|job| job.metadata.uid.as_ref() == Some(&controller.uid));
        job.is_none_or(|job| !is_managed_elsewhere(&job) && finished(&job).is_some())
    }
}

impl Controller for Leftovers {
    type Key = Key;

    fn name(&self) -> &'static str {
        "job-controller, pods left over"
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        if let Some(pod) = self.pods.get(key).filter(|pod| self.waits_in_vain(pod)) {
            // A Job may adopt it meanwhile, and keep it. A change is told, and judged anew.
            release(&Api::namespaced(self.client.clone(), &key.namespace), &pod, true).await?;
        }
        Ok(Next::WhenChanged)
    }
}
