//! ReplicaSets and ReplicationControllers: as many pods of a template as were asked for.

mod kinds;
mod status;
pub mod victims;

use std::sync::Arc;

use controller_runtime::{
    Change, Clock, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue,
    adoption::{claim, controller_of, controller_reference},
    events::Recorder,
    informer::{CONTROLLER, by_controller, orphans},
};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kinds::{Replicating, Wanted};
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::{
    Setting, owners,
    pod_writes::{BURST, PodWrites, slow_start},
    pods,
    status_writes::write_status,
};

const WORKERS: usize = 5;

struct ReplicaSets<S> {
    client: Client,
    sets: Informer<S>,
    pods: Informer<Pod>,
    own_writes: OwnWrites<Key>,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
}

/// For [`k8s_openapi`]'s `ReplicaSet` or `ReplicationController`.
pub async fn run<S: Replicating>(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let controller = ReplicaSets::<S> {
        client: setting.client(S::ACCOUNT),
        sets: setting.informers.of(),
        pods: setting.informers.of(),
        own_writes: own_writes.clone(),
        recorder: setting.recorder(S::ACCOUNT, S::ACCOUNT),
        clock: setting.clock.clone(),
    };
    controller.sets.index(CONTROLLER, by_controller);
    controller.pods.index(CONTROLLER, by_controller);
    let on_set = queue.clone();
    controller.sets.on_change(move |change| on_set.add(Key::of(&**change.object())));
    let (on_pod, sets) = (queue.clone(), controller.sets.clone());
    controller.pods.on_change(move |change| concerned(change, &sets).into_iter().for_each(|key| on_pod.add(key)));
    controller.sets.synced_or_stopped().await;
    controller.pods.synced_or_stopped().await;
    controller_runtime::run(Arc::new(controller), queue, own_writes, WORKERS, stop).await;
}

/// The sets that a change of a pod is about.
fn concerned<S: Replicating>(change: &Change<Pod>, sets: &Informer<S>) -> Vec<Key> {
    owners::concerned(change, sets, pods::is_active, |set, pod| {
        set.wanted().is_some_and(|wanted| pods::selector(&wanted.selector)(&pod.metadata))
    })
}

impl<S: Replicating> Controller for ReplicaSets<S> {
    type Key = Key;

    fn name(&self) -> &'static str {
        S::NAME
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(set) = self.sets.get(key) else { return Ok(Next::WhenChanged) };
        let Some(wanted) = set.wanted() else { return Ok(Next::WhenChanged) };
        let matches = pods::selector(&wanted.selector);
        let uid = set.meta().uid.as_deref().unwrap_or_default();
        let owned = self.pods.by_index(CONTROLLER, uid);
        let terminating = owned.iter().filter(|pod| pods::is_terminating(pod) && matches(&pod.metadata)).count();
        let mut active = owned;
        active.extend(self.pods.by_index(CONTROLLER, &orphans(&key.namespace)));
        active.retain(|pod| pods::is_active(pod));
        let (sets, api): (Api<S>, Api<Pod>) = self.apis(&key.namespace);
        let active = claim(
            &*set,
            &sets,
            active,
            &api,
            |pod| matches(&pod.metadata),
            |pod| {
                self.own_writes.wrote(key, &self.pods, pod);
            },
        )
        .await?;
        let (deleted, managed) = match set.meta().deletion_timestamp {
            None => self.manage(key, &set, &wanted, &active, &api).await,
            Some(_) => (Vec::new(), Ok(())),
        };
        // Those that were just deleted count no more. Kubernetes counts them until it has seen them go; a Deployment that relies on
        // them meanwhile ends more of its other pods than can be spared.
        let mut active = active;
        active.retain(|pod| !deleted.iter().any(|gone| Arc::ptr_eq(gone, pod)));
        let now = self.clock.now();
        let problem = managed.as_ref().err().map(String::as_str);
        let status = status::of(&*set, &wanted, &active, terminating, problem, now);
        if set.with_status(status.clone()).status() != set.status() {
            let written = write_status(&sets, &*set, |set| *set = set.with_status(status.clone())).await?;
            written.iter().for_each(|set| self.own_writes.wrote(key, &self.sets, set));
        }
        managed.map_err(Error::Other)?;
        let next = pods::until_available(&active, wanted.min_ready_seconds, now);
        Ok(next.map_or(Next::WhenChanged, Next::After))
    }
}

impl<S: Replicating> ReplicaSets<S> {
    fn apis(&self, namespace: &str) -> (Api<S>, Api<Pod>) {
        (Api::namespaced(self.client.clone(), namespace), Api::namespaced(self.client.clone(), namespace))
    }

    /// Makes pods that are missing, or deletes those that are too many. Gives those that were deleted.
    async fn manage(
        &self,
        key: &Key,
        set: &S,
        asked: &Wanted<'_>,
        active: &[Arc<Pod>],
        api: &Api<Pod>,
    ) -> (Vec<Arc<Pod>>, Result<(), String>) {
        let wanted = usize::try_from(asked.replicas).unwrap_or(0);
        let (pods, own_writes, recorder) = (&self.pods, &self.own_writes, &self.recorder);
        let writes = PodWrites { api, owner: set, key, pods, own_writes, recorder };
        if active.len() < wanted {
            let Some(template) = asked.template else { return (Vec::new(), Ok(())) };
            let pod = pods::from_template(template, set, controller_reference(set));
            let missing = vec![(); (wanted - active.len()).min(BURST)];
            return (Vec::new(), slow_start(&missing, |()| writes.create(&pod)).await.1);
        }
        let too_many = (active.len() - wanted).min(BURST);
        if too_many == 0 {
            return (Vec::new(), Ok(()));
        }
        let related = self.related(set);
        let mut victims = victims::choose(active, &related, too_many, self.clock.now());
        let results = join_all(victims.iter().map(|pod| writes.delete(pod))).await;
        let mut kept = results.iter().map(Result::is_err);
        victims.retain(|_| !kept.next().unwrap_or(true));
        (victims, results.into_iter().collect())
    }

    /// The pods of all sets with the same controller: of pods on one node, some can be spared.
    fn related(&self, set: &S) -> Vec<Arc<Pod>> {
        let Some(controller) = controller_of(set) else { return Vec::new() };
        let sets = self.sets.by_index(CONTROLLER, &controller.uid);
        let selectors: Vec<_> =
            sets.iter().filter_map(|set| set.wanted()).map(|wanted| pods::selector(&wanted.selector)).collect();
        let mut pods = self.pods.in_namespace(set.meta().namespace.as_deref().unwrap_or_default());
        pods.retain(|pod| selectors.iter().any(|matches| matches(&pod.metadata)));
        pods
    }
}
