//! DaemonSets: one pod on every node that it belongs on.
//!
//! A pod is bound by the scheduler like any other, but its affinity names the one node it is for. [`eligibility`] says which
//! nodes these are, a [`Plan`] what to make and delete, [`failures`] how soon a pod that failed is replaced. Templates are
//! kept as ControllerRevisions.

mod eligibility;
mod failures;
mod new_pod;
mod plan;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use controller_runtime::{
    Change, Clock, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue,
    adoption::claim,
    events::{EventType, Recorder, about},
    informer::{CONTROLLER, by_controller, orphans},
};
use eligibility::{Demands, Place};
use failures::Failures;
use futures::future::join_all;
use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec},
        core::v1::{Node, Pod},
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, Patch, PatchParams},
};
use plan::{Plan, Work};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    Setting,
    history::{self, History, Newest, POD_REVISION, label},
    owners,
    pod_writes::{BURST, PodWrites, slow_start},
    pods,
    status_writes::write_status,
};

const ACCOUNT: &str = "daemon-set-controller";
const NAME: &str = "daemonset-controller";
const WORKERS: usize = 2;
const HISTORY: i32 = 10;

struct DaemonSets {
    client: Client,
    sets: Informer<DaemonSet>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    revisions: Informer<ControllerRevision>,
    own_writes: OwnWrites<Key>,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    failures: Mutex<HashMap<Key, Failures>>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let controller = DaemonSets {
        client: setting.client(ACCOUNT),
        sets: setting.informers.of(),
        pods: setting.informers.of(),
        nodes: setting.informers.of(),
        revisions: setting.informers.of(),
        own_writes: own_writes.clone(),
        recorder: setting.recorder(ACCOUNT, NAME),
        clock: setting.clock.clone(),
        failures: Mutex::default(),
    };
    controller.pods.index(CONTROLLER, by_controller);
    controller.revisions.index(CONTROLLER, by_controller);
    let on_set = queue.clone();
    controller.sets.on_change(move |change| on_set.add(Key::of(&**change.object())));
    follow(&controller.pods, &controller.sets, &queue, |_| true);
    // A new one that has an owner was made by it, or is left alone until something else is to be done.
    let has_owner = |revision: &ControllerRevision| owners::owner::<_, DaemonSet>(revision).is_some();
    follow(
        &controller.revisions,
        &controller.sets,
        &queue,
        move |change| !matches!(change, Change::Applied { old: None, new } if has_owner(new)),
    );
    let (on_node, sets) = (queue.clone(), controller.sets.clone());
    controller.nodes.on_change(move |change| {
        if matches!(change, Change::Applied { old: Some(old), new } if eligibility::is_same(old, new)) {
            return;
        }
        sets.all().iter().filter(|set| matters(set, change)).for_each(|set| on_node.add(Key::of(&**set)));
    });
    controller.sets.synced_or_stopped().await;
    controller.pods.synced_or_stopped().await;
    controller.nodes.synced_or_stopped().await;
    controller.revisions.synced_or_stopped().await;
    controller_runtime::run(Arc::new(controller), queue, own_writes, WORKERS, stop).await;
}

/// Enqueues the sets whose pods, or revisions, change.
fn follow<K>(
    dependents: &Informer<K>,
    sets: &Informer<DaemonSet>,
    queue: &WorkQueue<Key>,
    matters: impl Fn(&Change<K>) -> bool + Send + Sync + 'static,
) where
    K: Resource + Send + Sync + 'static,
{
    let (sets, queue) = (sets.clone(), queue.clone());
    dependents.on_change(move |change| {
        if !matters(change) {
            return;
        }
        let lives = |object: &K| object.meta().deletion_timestamp.is_none();
        let selects = |set: &DaemonSet, object: &K| set.spec.as_ref().is_some_and(|spec| selects(spec, object.meta()));
        owners::concerned(change, &sets, lives, selects).into_iter().for_each(|key| queue.add(key));
    });
}

fn selects(spec: &DaemonSetSpec, object: &ObjectMeta) -> bool {
    spec.selector != LabelSelector::default() && pods::selector(&spec.selector)(object)
}

/// Whether a change of a node is one to a set.
fn matters(set: &DaemonSet, change: &Change<Node>) -> bool {
    let demands = Demands::of(set);
    let place = |node: &Arc<Node>| demands.place(node);
    let (before, after) = match change {
        Change::Deleted(last) => (place(last), Place::NotHere),
        Change::Applied { old, new } => (old.as_ref().map_or(Place::NotHere, place), place(new)),
    };
    before != after
}

impl Controller for DaemonSets {
    type Key = Key;

    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(set) = self.sets.get(key) else {
            self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
            return Ok(Next::WhenChanged);
        };
        let Some(spec) = &set.spec else { return Ok(Next::WhenChanged) };
        if spec.selector == LabelSelector::default() {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.recorder.event(&about(&*set), EventType::Warning, "SelectingAll", message);
            return Ok(Next::WhenChanged);
        }
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Next::WhenChanged);
        }
        let (client, revisions, own_writes) = (&self.client, &self.revisions, &self.own_writes);
        let history = History { client, revisions, own_writes, key, owner: &*set };
        let all = history.all(pods::selector(&spec.selector)).await?;
        let pods = self.claim(key, &set, spec).await?;
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let newest = match history.newest(&all, &spec.template, POD_REVISION, collisions).await? {
            Newest::Is(newest) => newest,
            Newest::Collides => return self.count_collision(key, &set).await,
        };
        let old = self.without_doubles(key, &history, all, &newest, &pods).await?;
        let hash = label(&newest.metadata, POD_REVISION).unwrap_or_else(|| history::name(&newest));
        let plan = Plan::new(&set, &self.nodes.all(), &pods, hash, self.clock.now());
        let worked = self.work(key, &plan).await;
        if worked.is_ok() {
            let in_use = |one: &ControllerRevision| {
                let hash = label(&one.metadata, POD_REVISION);
                pods.iter().any(|pod| hash.is_some() && label(&pod.metadata, POD_REVISION) == hash)
            };
            history.cut(&old, spec.revision_history_limit.unwrap_or(HISTORY), in_use).await?;
        }
        let status = plan.status();
        if set.status.as_ref() != Some(&status) {
            let api = Api::namespaced(self.client.clone(), &key.namespace);
            let written = write_status(&api, &*set, |set| set.status = Some(status.clone())).await?;
            written.iter().for_each(|set| self.own_writes.wrote(key, &self.sets, set));
        }
        let until_available = pods::until_available(&pods, plan.min_ready_seconds(), plan.now);
        let next = worked.map_err(Error::Other)?.into_iter().chain(until_available).min();
        Ok(next.map_or(Next::WhenChanged, Next::After))
    }
}

impl DaemonSets {
    async fn claim(&self, key: &Key, set: &DaemonSet, spec: &DaemonSetSpec) -> Result<Vec<Arc<Pod>>, Error> {
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let mut pods = self.pods.by_index(CONTROLLER, uid);
        pods.extend(self.pods.by_index(CONTROLLER, &orphans(&key.namespace)));
        let sets: Api<DaemonSet> = Api::namespaced(self.client.clone(), &key.namespace);
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let wrote = |pod: &Pod| self.own_writes.wrote(key, &self.pods, pod);
        claim(set, &sets, pods, &api, |pod| selects(spec, &pod.metadata), wrote).await
    }

    async fn count_collision(&self, key: &Key, set: &DaemonSet) -> Result<Next, Error> {
        let api = Api::namespaced(self.client.clone(), &key.namespace);
        let more = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0) + 1;
        let count = |set: &mut DaemonSet| set.status.get_or_insert_default().collision_count = Some(more);
        let written = write_status(&api, set, count).await?;
        written.iter().for_each(|set| self.own_writes.wrote(key, &self.sets, set));
        Ok(Next::WhenChanged)
    }

    /// The revisions of other templates. Of several of the newest template one stays, and pods of the others become its own.
    async fn without_doubles(
        &self,
        key: &Key,
        history: &History<'_, DaemonSet>,
        all: Vec<Arc<ControllerRevision>>,
        newest: &ControllerRevision,
        pods: &[Arc<Pod>],
    ) -> Result<Vec<Arc<ControllerRevision>>, Error> {
        let (same, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.data == newest.data);
        let hash = label(&newest.metadata, POD_REVISION);
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        for double in same.iter().filter(|one| one.metadata.uid != newest.metadata.uid) {
            let of = label(&double.metadata, POD_REVISION);
            for pod in pods.iter().filter(|pod| of.is_some() && label(&pod.metadata, POD_REVISION) == of) {
                let change = Patch::Merge(json!({"metadata": {"labels": {POD_REVISION: hash}}}));
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                let written = api.patch(name, &PatchParams::default(), &change).await?;
                self.own_writes.wrote(key, &self.pods, &written);
            }
            history.delete(double).await?;
        }
        Ok(others)
    }

    /// Pods where they belong; and if they are, the next step of an update. Gives when a failed pod can be replaced.
    async fn work(&self, key: &Key, plan: &Plan<'_>) -> Result<Option<Duration>, String> {
        let mut placement = plan.placement();
        let wait = self.end(key, plan, &mut placement);
        if placement.create.is_empty() && placement.delete.is_empty() {
            self.carry_out(key, plan, plan.rolling_update()).await?;
        } else {
            self.carry_out(key, plan, placement).await?;
        }
        Ok(wait)
    }

    /// Has pods deleted that have ended, unless that happened too often.
    fn end(&self, key: &Key, plan: &Plan<'_>, work: &mut Work) -> Option<Duration> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let observed = plan.set.status.as_ref().and_then(|status| status.observed_generation);
        let failures = failures.entry(key.clone()).or_default();
        let (about, mut wait) = (about(plan.set), None);
        for (node, pod) in std::mem::take(&mut work.ended) {
            let name = Key::of(&*pod);
            if pods::phase(&pod) == "Failed" {
                let uid = plan.set.metadata.uid.clone().unwrap_or_default();
                if let Err(later) = failures.another(&uid, observed, &node, plan.now) {
                    wait = wait.into_iter().chain([later]).min();
                    continue;
                }
                let message = format!("Found failed daemon pod {name} on node {node}, will try to kill it");
                self.recorder.event(&about, EventType::Warning, "FailedDaemonPod", message);
            } else {
                let message = format!("Found succeeded daemon pod {name} on node {node}, will try to delete it");
                self.recorder.event(&about, EventType::Normal, "SucceededDaemonPod", message);
            }
            work.delete.push(pod);
        }
        wait
    }

    async fn carry_out(&self, key: &Key, plan: &Plan<'_>, mut work: Work) -> Result<(), String> {
        let api = &Api::namespaced(self.client.clone(), &key.namespace);
        let (pods, own_writes, recorder) = (&self.pods, &self.own_writes, &self.recorder);
        let writes = &PodWrites { api, owner: plan.set, key, pods, own_writes, recorder };
        work.create.truncate(BURST);
        work.delete.truncate(BURST);
        let create = |node: &String| {
            let pod = new_pod::new_pod(plan.set, node, plan.hash);
            async move { writes.create(&pod).await }
        };
        let created = slow_start(&work.create, create).await.1;
        let deleted: Result<(), String> =
            join_all(work.delete.iter().map(|pod| writes.delete(pod))).await.into_iter().collect();
        created.and(deleted)
    }
}
