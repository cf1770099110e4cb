//! StatefulSets: pods with numbers, each with a name and claims that outlive it.
//!
//! A [`Plan`] says in which order pods are made, replaced and deleted; [`identity`] makes a pod the one it is;
//! [`retention`] says with whom claims go; [`writes`] carries the steps out. Templates are kept as ControllerRevisions: the
//! current one, and the one an update goes to.

mod identity;
mod plan;
mod retention;
#[cfg(test)]
mod tests;
mod writes;

use std::sync::Arc;

use controller_runtime::{
    Change, Clock, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue,
    adoption::claim,
    events::Recorder,
    informer::{CONTROLLER, by_controller, orphans},
};
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec},
    core::v1::{PersistentVolumeClaim, Pod},
};
use kube::{Api, Client};
use plan::{Plan, Version};
use tokio_util::sync::CancellationToken;
use writes::Writes;

use crate::{
    Setting,
    history::{self, History, Newest},
    owners, pods,
    status_writes::write_status,
};

const ACCOUNT: &str = "statefulset-controller";
const NAME: &str = "statefulset-controller";
/// Where a revision has its hash.
const HASH: &str = "controller.kubernetes.io/hash";
const WORKERS: usize = 5;
const HISTORY: i32 = 10;

struct StatefulSets {
    client: Client,
    sets: Informer<StatefulSet>,
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
    revisions: Informer<ControllerRevision>,
    own_writes: OwnWrites<Key>,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let controller = StatefulSets {
        client: setting.client(ACCOUNT),
        sets: setting.informers.of(),
        pods: setting.informers.of(),
        claims: setting.informers.of(),
        revisions: setting.informers.of(),
        own_writes: own_writes.clone(),
        recorder: setting.recorder(ACCOUNT, NAME),
        clock: setting.clock.clone(),
    };
    controller.pods.index(CONTROLLER, by_controller);
    controller.revisions.index(CONTROLLER, by_controller);
    let on_set = queue.clone();
    controller.sets.on_change(move |change| on_set.add(Key::of(&**change.object())));
    let (on_pod, sets) = (queue.clone(), controller.sets.clone());
    controller.pods.on_change(move |change| {
        let lives = |pod: &Pod| pod.metadata.deletion_timestamp.is_none();
        owners::concerned(change, &sets, lives, selects).into_iter().for_each(|key| on_pod.add(key));
    });
    let (on_claim, sets) = (queue.clone(), controller.sets.clone());
    controller.claims.on_change(move |change| {
        if let Change::Deleted(last) = change {
            let sets = sets.in_namespace(last.metadata.namespace.as_deref().unwrap_or_default());
            sets.iter().filter(|set| identity::is_claim(set, last)).for_each(|set| on_claim.add(Key::of(&**set)));
        }
    });
    controller.sets.synced_or_stopped().await;
    controller.pods.synced_or_stopped().await;
    controller.claims.synced_or_stopped().await;
    controller.revisions.synced_or_stopped().await;
    controller_runtime::run(Arc::new(controller), queue, own_writes, WORKERS, stop).await;
}

fn selects(set: &StatefulSet, pod: &Pod) -> bool {
    let selected = |spec: &StatefulSetSpec| pods::selector(&spec.selector)(&pod.metadata);
    identity::is_member(set, pod) && set.spec.as_ref().is_some_and(selected)
}

impl Controller for StatefulSets {
    type Key = Key;

    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(set) = self.sets.get(key) else { return Ok(Next::WhenChanged) };
        let Some(spec) = &set.spec else { return Ok(Next::WhenChanged) };
        let (client, revisions, own_writes) = (&self.client, &self.revisions, &self.own_writes);
        let history = History { client, revisions, own_writes, key, owner: &*set };
        let all = history.all(pods::selector(&spec.selector)).await?;
        let pods = self.claim(key, &set).await?;
        let status = set.status.clone().unwrap_or_default();
        let update = match history.newest(&all, &spec.template, HASH, status.collision_count).await? {
            Newest::Is(newest) => newest,
            Newest::Collides => return self.count_collision(key, &set).await,
        };
        let is_current =
            |revision: &&Arc<ControllerRevision>| Some(history::name(revision)) == status.current_revision.as_deref();
        let current = all.iter().find(is_current).unwrap_or(&update);
        let (current, update) = (version(current)?, version(&update)?);
        let plan = Plan { set: &set, spec, current: &current, update: &update, pods: &pods, now: self.clock.now() };
        let worked = self.writes(key, &set).carry_out(&plan).await;
        let status = plan.status(*worked.as_ref().unwrap_or(&0));
        if set.status.as_ref() != Some(&status) {
            let api = Api::namespaced(self.client.clone(), &key.namespace);
            let written = write_status(&api, &*set, |set| set.status = Some(status.clone())).await?;
            written.iter().for_each(|set| self.own_writes.wrote(key, &self.sets, set));
        }
        let in_use = |name: &str| {
            name == current.name
                || name == update.name
                || pods.iter().any(|pod| identity::pod_revision(pod) == Some(name))
        };
        let old: Vec<_> = all.iter().filter(|revision| !in_use(history::name(revision))).cloned().collect();
        history.cut(&old, spec.revision_history_limit.unwrap_or(HISTORY), |_| false).await?;
        worked.map_err(Error::Other)?;
        let next = pods::until_available(&pods, spec.min_ready_seconds.unwrap_or(0), plan.now);
        Ok(next.map_or(Next::WhenChanged, Next::After))
    }
}

/// The template that a revision holds.
fn version(revision: &ControllerRevision) -> Result<Version, Error> {
    let template = history::template_of(revision).map_err(|error| {
        Error::Other(format!("ControllerRevision {} cannot be read: {error}", history::name(revision)))
    })?;
    Ok(Version { name: history::name(revision).to_owned(), template })
}

impl StatefulSets {
    async fn claim(&self, key: &Key, set: &StatefulSet) -> Result<Vec<Arc<Pod>>, Error> {
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let mut pods = self.pods.by_index(CONTROLLER, uid);
        pods.extend(self.pods.by_index(CONTROLLER, &orphans(&key.namespace)));
        let sets: Api<StatefulSet> = Api::namespaced(self.client.clone(), &key.namespace);
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let wrote = |pod: &Pod| self.own_writes.wrote(key, &self.pods, pod);
        claim(set, &sets, pods, &api, |pod| selects(set, pod), wrote).await
    }

    async fn count_collision(&self, key: &Key, set: &StatefulSet) -> Result<Next, Error> {
        let api = Api::namespaced(self.client.clone(), &key.namespace);
        let more = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0) + 1;
        let count = |set: &mut StatefulSet| set.status.get_or_insert_default().collision_count = Some(more);
        let written = write_status(&api, set, count).await?;
        written.iter().for_each(|set| self.own_writes.wrote(key, &self.sets, set));
        Ok(Next::WhenChanged)
    }

    fn writes<'a>(&'a self, key: &'a Key, set: &'a StatefulSet) -> Writes<'a> {
        Writes {
            api: Api::namespaced(self.client.clone(), &key.namespace),
            claim_api: Api::namespaced(self.client.clone(), &key.namespace),
            around: self,
            key,
            set,
        }
    }
}
