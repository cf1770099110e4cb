//! ReplicaSets: as many pods of a template as were asked for.

mod status;
pub mod victims;

use std::{sync::Arc, time::Duration};

use controller_runtime::{
    Change, Clock, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue,
    adoption::{claim, controller_of, controller_reference},
    events::Recorder,
    informer::{CONTROLLER, by_controller, orphans},
};
use futures::future::join_all;
use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetStatus},
        core::v1::Pod,
    },
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use tokio_util::sync::CancellationToken;

use crate::{
    Setting, owners,
    pod_writes::{BURST, PodWrites, slow_start},
    pods,
};

const ACCOUNT: &str = "replicaset-controller";
const NAME: &str = "replicaset-controller";
const WORKERS: usize = 5;

struct ReplicaSets {
    client: Client,
    sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
    own_writes: OwnWrites<Key>,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let controller = ReplicaSets {
        client: setting.client(ACCOUNT),
        sets: setting.informers.of(),
        pods: setting.informers.of(),
        own_writes: own_writes.clone(),
        recorder: setting.recorder(ACCOUNT, NAME),
        clock: setting.clock.clone(),
    };
    controller.sets.index(CONTROLLER, by_controller);
    controller.pods.index(CONTROLLER, by_controller);
    let on_set = queue.clone();
    controller.sets.on_change(move |change| on_set.add(Key::of(&**change.object())));
    let (on_pod, sets) = (queue.clone(), controller.sets.clone());
    controller.pods.on_change(move |change| concerned(change, &sets).into_iter().for_each(|key| on_pod.add(key)));
    controller.sets.synced().await;
    controller.pods.synced().await;
    controller_runtime::run(Arc::new(controller), queue, own_writes, WORKERS, stop).await;
}

/// The sets that a change of a pod is about.
fn concerned(change: &Change<Pod>, sets: &Informer<ReplicaSet>) -> Vec<Key> {
    owners::concerned(change, sets, pods::is_active, |set, pod| {
        set.spec.as_ref().is_some_and(|spec| pods::selector(&spec.selector)(&pod.metadata))
    })
}

impl Controller for ReplicaSets {
    type Key = Key;

    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(set) = self.sets.get(key) else { return Ok(Next::WhenChanged) };
        let Some(spec) = &set.spec else { return Ok(Next::WhenChanged) };
        let matches = pods::selector(&spec.selector);
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let owned = self.pods.by_index(CONTROLLER, uid);
        let terminating = owned.iter().filter(|pod| pods::is_terminating(pod) && matches(&pod.metadata)).count();
        let mut active = owned;
        active.extend(self.pods.by_index(CONTROLLER, &orphans(&key.namespace)));
        active.retain(|pod| pods::is_active(pod));
        let (sets, api): (Api<ReplicaSet>, Api<Pod>) = self.apis(&key.namespace);
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
        let managed = match set.metadata.deletion_timestamp {
            None => self.manage(key, &set, &active, &api).await,
            Some(_) => Ok(()),
        };
        let now = self.clock.now();
        let wanted = status::of(&set, &active, terminating, managed.as_ref().err().map(String::as_str), now);
        let status = self.write_status(key, &set, &sets, wanted).await?;
        managed.map_err(Error::Other)?;
        Ok(self.next_look(&set, &active, &status, now))
    }
}

impl ReplicaSets {
    fn apis(&self, namespace: &str) -> (Api<ReplicaSet>, Api<Pod>) {
        (Api::namespaced(self.client.clone(), namespace), Api::namespaced(self.client.clone(), namespace))
    }

    /// Makes pods that are missing, or deletes those that are too many.
    async fn manage(&self, key: &Key, set: &ReplicaSet, active: &[Arc<Pod>], api: &Api<Pod>) -> Result<(), String> {
        let wanted = usize::try_from(status::replicas(set)).unwrap_or(0);
        let (pods, own_writes, recorder) = (&self.pods, &self.own_writes, &self.recorder);
        let writes = PodWrites { api, owner: set, key, pods, own_writes, recorder };
        if active.len() < wanted {
            let Some(template) = set.spec.as_ref().and_then(|spec| spec.template.as_ref()) else { return Ok(()) };
            let pod = pods::from_template(template, set, controller_reference(set));
            let missing = vec![(); (wanted - active.len()).min(BURST)];
            return slow_start(&missing, |()| writes.create(&pod)).await.1;
        }
        let too_many = (active.len() - wanted).min(BURST);
        if too_many == 0 {
            return Ok(());
        }
        let related = self.related(set);
        let victims = victims::choose(active, &related, too_many, self.clock.now());
        join_all(victims.iter().map(|pod| writes.delete(pod))).await.into_iter().collect()
    }

    /// The pods of all sets with the same controller: of pods on one node, some can be spared.
    fn related(&self, set: &ReplicaSet) -> Vec<Arc<Pod>> {
        let Some(controller) = controller_of(set) else { return Vec::new() };
        let sets = self.sets.by_index(CONTROLLER, &controller.uid);
        let selectors: Vec<_> =
            sets.iter().filter_map(|set| set.spec.as_ref()).map(|spec| pods::selector(&spec.selector)).collect();
        let mut pods = self.pods.in_namespace(set.metadata.namespace.as_deref().unwrap_or_default());
        pods.retain(|pod| selectors.iter().any(|matches| matches(&pod.metadata)));
        pods
    }

    /// Writes a status that differs, once more if somebody else was quicker.
    async fn write_status(
        &self,
        key: &Key,
        set: &ReplicaSet,
        api: &Api<ReplicaSet>,
        status: ReplicaSetStatus,
    ) -> Result<ReplicaSetStatus, Error> {
        if set.status.as_ref() == Some(&status) {
            return Ok(status);
        }
        let with_status = |set: &ReplicaSet| ReplicaSet { status: Some(status.clone()), ..set.clone() };
        let mut answer = api.replace_status(&key.name, &PostParams::default(), &with_status(set)).await;
        if let Err(kube::Error::Api(conflict)) = &answer
            && conflict.code == 409
        {
            let fresh = api.get(&key.name).await?;
            if fresh.metadata.uid == set.metadata.uid {
                answer = api.replace_status(&key.name, &PostParams::default(), &with_status(&fresh)).await;
            }
        }
        match answer {
            Ok(written) => self.own_writes.wrote(key, &self.sets, &written),
            Err(kube::Error::Api(gone)) if gone.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(status)
    }

    /// When the next pod will have been ready for long enough.
    fn next_look(&self, set: &ReplicaSet, active: &[Arc<Pod>], status: &ReplicaSetStatus, now: Timestamp) -> Next {
        let min_ready = status::min_ready_seconds(set);
        if min_ready == 0 || status.ready_replicas == status.available_replicas {
            return Next::WhenChanged;
        }
        let waiting = active.iter().filter_map(|pod| pods::ready(pod)?);
        let due = waiting.map(|since| since + pods::seconds(min_ready)).filter(|due| *due > now).min();
        let wait = due.map_or(pods::seconds(min_ready), |due| due.duration_since(now));
        Next::After(Duration::try_from(wait).unwrap_or_default())
    }
}
