//! The garbage collector: who has no owner left goes too.
//!
//! Three ways to delete an owner: in the background, its dependents go after it; in the foreground it waits, held by a
//! finalizer, until those dependents that block it are gone; or it orphans them, which lose their reference to it first.
//! The [`graph`] of all objects says who wants a look; what is done is decided by what the server says at that moment. An
//! owner is believed absent only on a 404, or when another object has its name.

mod graph;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use controller_runtime::{
    Change, Controller, Error, Informer, Next, OwnWrites, WorkQueue,
    events::{EventType, Recorder},
};
use futures::future::join_all;
use graph::{FOREGROUND, Graph, Node, ORPHAN, has_finalizer};
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde_json::json;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Setting,
    discovered::{Discovered, Everything, Metadata},
};

const ACCOUNT: &str = "generic-garbage-collector";
const NAME: &str = "garbage-collector-controller";
const WORKERS: usize = 20;
/// How long the first look waits for all informers. One that is slow must not keep the others.
const SYNC_WITHIN: Duration = Duration::from_secs(30);
/// Resources that come and go together are looked for once.
const SETTLE: Duration = Duration::from_secs(1);

struct Collector {
    client: Client,
    graph: Mutex<Graph>,
    everything: RwLock<Arc<Everything>>,
    queue: WorkQueue<String>,
    recorder: Recorder,
    /// Resources may have come or gone.
    resources_changed: Notify,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let collector = Arc::new(Collector {
        client: setting.client(ACCOUNT),
        graph: Mutex::default(),
        everything: RwLock::default(),
        queue: WorkQueue::default(),
        recorder: setting.recorder(ACCOUNT, NAME),
        resources_changed: Notify::new(),
    });
    let mut followed = Followed { setting, stop: stop.clone(), informers: HashMap::new() };
    if stop.run_until_cancelled(followed.first(&collector)).await.is_none() {
        return;
    }
    let following = followed.keep(collector.clone());
    let queue = collector.queue.clone();
    tokio::join!(
        stop.run_until_cancelled(following),
        controller_runtime::run(collector, queue, OwnWrites::default(), WORKERS, stop.clone()),
    );
}

/// The informers that feed the graph, one for the metadata of each resource.
struct Followed {
    setting: Arc<Setting>,
    stop: CancellationToken,
    /// By apiVersion and plural.
    informers: HashMap<(String, String), Following>,
}

type Following = (Arc<Discovered>, Informer<Metadata>, CancellationToken);

impl Followed {
    /// Waits until everything that can be known is known.
    async fn first(&mut self, collector: &Arc<Collector>) {
        while let Err(error) = self.discover(collector).await {
            tracing::warn!(%error, "the garbage collector cannot discover resources; trying again");
            sleep(SETTLE).await;
        }
        let synced = join_all(self.informers.values().map(|(_, informer, _)| informer.synced()));
        if timeout(SYNC_WITHIN, synced).await.is_err() {
            tracing::warn!("the garbage collector does not know all resources yet, and begins nevertheless");
        }
    }

    /// Follows resources that come, and no longer those that go.
    async fn keep(mut self, collector: Arc<Collector>) {
        loop {
            collector.resources_changed.notified().await;
            sleep(SETTLE).await;
            if let Err(error) = self.discover(&collector).await {
                tracing::warn!(%error, "the garbage collector cannot discover resources; trying again");
                collector.resources_changed.notify_one();
            }
        }
    }

    async fn discover(&mut self, collector: &Arc<Collector>) -> kube::Result<()> {
        let everything = Arc::new(Everything::discover(&collector.client).await?);
        let name = |found: &Discovered| (found.resource.api_version.clone(), found.resource.plural.clone());
        let there: HashMap<_, _> = everything
            .resources
            .iter()
            .filter(|found| found.can_be_collected())
            .map(|found| (name(found), found))
            .collect();
        self.informers.retain(|name, (resource, _, stop)| {
            let stays = there.contains_key(name);
            if !stays {
                stop.cancel();
                collector.graph().forget(resource);
            }
            stays
        });
        for (name, found) in there {
            self.informers.entry(name).or_insert_with(|| {
                let (resource, stop) = (Arc::new(found.clone()), self.stop.child_token());
                let informer = collector.follow(&self.setting, resource.clone(), stop.clone());
                (resource, informer, stop)
            });
        }
        *collector.everything.write().unwrap_or_else(PoisonError::into_inner) = everything;
        Ok(())
    }
}

impl Collector {
    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn follow(
        self: &Arc<Self>,
        setting: &Setting,
        resource: Arc<Discovered>,
        stop: CancellationToken,
    ) -> Informer<Metadata> {
        let trim = |object: &mut Metadata| {
            object.metadata.labels = None;
            object.metadata.annotations = None;
        };
        let informer = setting.informers.own(&resource.resource, None, trim, stop.clone());
        let collector = self.clone();
        let brings_resources = matches!(resource.resource.plural.as_str(), "customresourcedefinitions" | "apiservices");
        informer.on_change(move |change: &Change<Metadata>| {
            if stop.is_cancelled() {
                return;
            }
            let look = match change {
                Change::Applied { new, .. } => collector.graph().applied(Node::new(&resource, &new.metadata)),
                Change::Deleted(last) => collector.graph().deleted(last.metadata.uid.as_deref().unwrap_or_default()),
            };
            look.into_iter().for_each(|uid| collector.queue.add(uid));
            if brings_resources {
                collector.resources_changed.notify_one();
            }
        });
        informer
    }

    fn kind(&self, api_version: &str, kind: &str) -> Option<Discovered> {
        self.everything.read().unwrap_or_else(PoisonError::into_inner).kind(api_version, kind).cloned()
    }

    fn api(&self, node: &Node) -> Api<Metadata> {
        node.resource.api(&self.client, &node.key.namespace)
    }

    /// The object as the server has it, unless it is gone.
    async fn live(&self, node: &Node) -> kube::Result<Option<ObjectMeta>> {
        let found = self.api(node).get_opt(&node.key.name).await?.map(|found| found.metadata);
        Ok(found.filter(|meta| meta.uid.as_deref() == Some(&node.uid)))
    }
}

/// What an owner is to one that has it as an owner.
enum Owner {
    Solid,
    Absent,
    /// It is being deleted and waits for its dependents.
    Waiting,
}

impl Controller for Collector {
    type Key = String;

    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, uid: &String) -> Result<Next, Error> {
        let Some(node) = self.graph().get(uid) else { return Ok(Next::WhenChanged) };
        if node.orphans {
            self.orphan_dependents(&node).await?;
        } else if node.waits_for_dependents {
            self.wait_for_dependents(&node).await?;
        } else if !node.being_deleted && !node.owners.is_empty() {
            self.collect(&node).await?;
        }
        Ok(Next::WhenChanged)
    }
}

impl Collector {
    async fn orphan_dependents(&self, owner: &Node) -> Result<(), Error> {
        let dependents = self.graph().dependents(&owner.uid);
        let released = dependents.iter().map(|dependent| self.release(dependent, std::slice::from_ref(&owner.uid)));
        for released in join_all(released).await {
            released?;
        }
        self.remove_finalizer(owner, ORPHAN).await
    }

    async fn wait_for_dependents(&self, owner: &Node) -> Result<(), Error> {
        let mut blocking = self.graph().dependents(&owner.uid);
        blocking.retain(|dependent| dependent.blocks(&owner.uid));
        if blocking.is_empty() {
            return self.remove_finalizer(owner, FOREGROUND).await;
        }
        for dependent in blocking.iter().filter(|dependent| !dependent.being_deleted) {
            self.queue.add(dependent.uid.clone());
        }
        Ok(())
    }

    /// Deletes an object that has no owner left, or frees it from those that are gone.
    async fn collect(&self, node: &Node) -> Result<(), Error> {
        let Some(live) = self.live(node).await? else { return Ok(()) };
        let owners = live.owner_references.as_deref().unwrap_or_default();
        let (mut solid, mut waiting, mut to_drop) = (false, false, Vec::new());
        for reference in owners {
            match self.owner(reference, node).await? {
                None => return Ok(()),
                Some(Owner::Solid) => solid = true,
                Some(Owner::Absent) => to_drop.push(reference.uid.clone()),
                Some(Owner::Waiting) => {
                    waiting = true;
                    to_drop.push(reference.uid.clone());
                }
            }
        }
        if owners.is_empty() || (solid && to_drop.is_empty()) {
            return Ok(());
        }
        if solid {
            return self.release(node, &to_drop).await;
        }
        let dependents = self.graph().dependents(&node.uid);
        let policy = if waiting && !dependents.is_empty() {
            if dependents.iter().any(|dependent| dependent.waits_for_dependents) {
                // Two that wait for each other would wait forever.
                self.stop_blocking(node, owners).await?;
            }
            PropagationPolicy::Foreground
        } else if has_finalizer(&live, ORPHAN) {
            PropagationPolicy::Orphan
        } else if has_finalizer(&live, FOREGROUND) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        self.delete(node, &live, policy).await
    }

    /// What the server says of an owner. `None` if an object outside of all namespaces names one in a namespace: which one
    /// will never be known.
    async fn owner(&self, reference: &OwnerReference, node: &Node) -> Result<Option<Owner>, Error> {
        if self.graph().is_solid(reference, node) {
            return Ok(Some(Owner::Solid));
        }
        if self.graph().is_elsewhere(reference, node) {
            self.report_elsewhere(reference, node);
        }
        let OwnerReference { api_version, kind, name, uid, .. } = reference;
        let Some(resource) = self.kind(api_version, kind) else {
            return Err(Error::Other(format!("unable to get REST mapping for {api_version}/{kind}.")));
        };
        if resource.namespaced && node.key.namespace.is_empty() {
            return Ok(None);
        }
        let found = resource.api(&self.client, &node.key.namespace).get_opt(name).await?;
        Ok(Some(match found.map(|found| found.metadata).filter(|meta| meta.uid.as_ref() == Some(uid)) {
            None => Owner::Absent,
            Some(meta) if meta.deletion_timestamp.is_some() && has_finalizer(&meta, FOREGROUND) => Owner::Waiting,
            Some(_) => Owner::Solid,
        }))
    }

    fn report_elsewhere(&self, reference: &OwnerReference, node: &Node) {
        let about = ObjectReference {
            api_version: Some(node.resource.resource.api_version.clone()),
            kind: Some(node.resource.resource.kind.clone()),
            namespace: Some(node.key.namespace.clone()),
            name: Some(node.key.name.clone()),
            uid: Some(node.uid.clone()),
            ..ObjectReference::default()
        };
        let (OwnerReference { api_version, kind, name, uid, .. }, namespace) = (reference, &node.key.namespace);
        let owner = format!("[{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}]");
        let message = format!("ownerRef {owner} does not exist in namespace {namespace:?}");
        self.recorder.event(&about, EventType::Warning, "OwnerRefInvalidNamespace", message);
    }

    /// Deletes exactly this object, if its owners are still those that were judged.
    async fn delete(&self, node: &Node, live: &ObjectMeta, policy: PropagationPolicy) -> Result<(), Error> {
        let api = self.api(node);
        let delete = |resource_version: Option<String>| {
            let preconditions = Preconditions { uid: Some(node.uid.clone()), resource_version };
            let params = DeleteParams { propagation_policy: Some(policy.clone()), ..DeleteParams::default() };
            let (api, params) = (api.clone(), params.preconditions(preconditions));
            async move { api.delete(&node.key.name, &params).await.map(drop) }
        };
        let answer = match delete(live.resource_version.clone()).await {
            Err(kube::Error::Api(status)) if status.code == 409 => match self.live(node).await? {
                None => return Ok(()),
                // Something else has changed, which must not keep it alive.
                Some(now) if now.owner_references == live.owner_references => delete(None).await,
                Some(_) => Err(kube::Error::Api(status)),
            },
            answer => answer,
        };
        match answer {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            answer => Ok(answer?),
        }
    }

    /// Takes owners off an object.
    async fn release(&self, node: &Node, owners: &[String]) -> Result<(), Error> {
        let dropped: Vec<_> = owners.iter().map(|uid| json!({"$patch": "delete", "uid": uid})).collect();
        let strategic = json!({"metadata": {"uid": node.uid, "ownerReferences": dropped}});
        self.patch_owners(node, strategic, |now| now.into_iter().filter(|owner| !owners.contains(&owner.uid)).collect())
            .await
    }

    /// No owner waits for this object any longer.
    async fn stop_blocking(&self, node: &Node, owners: &[OwnerReference]) -> Result<(), Error> {
        let unblocked = |owner: OwnerReference| OwnerReference { block_owner_deletion: Some(false), ..owner };
        let blocking = owners.iter().filter(|owner| owner.block_owner_deletion == Some(true)).cloned();
        let changed: Vec<OwnerReference> = blocking.map(unblocked).collect();
        let strategic = json!({"metadata": {"uid": node.uid, "ownerReferences": changed}});
        self.patch_owners(node, strategic, |now| now.into_iter().map(unblocked).collect()).await
    }

    /// Built-in kinds merge owners one by one; for custom kinds the whole list is written, at the revision it was read.
    async fn patch_owners(
        &self,
        node: &Node,
        strategic: serde_json::Value,
        change: impl FnOnce(Vec<OwnerReference>) -> Vec<OwnerReference>,
    ) -> Result<(), Error> {
        let (api, params) = (self.api(node), PatchParams::default());
        let answer = match api.patch(&node.key.name, &params, &Patch::Strategic(strategic)).await {
            Err(kube::Error::Api(status)) if status.code == 415 => {
                let Some(live) = self.live(node).await? else { return Ok(()) };
                let owners = change(live.owner_references.unwrap_or_default());
                let merge = json!({"metadata": {"resourceVersion": live.resource_version, "ownerReferences": owners}});
                api.patch(&node.key.name, &params, &Patch::Merge(merge)).await
            }
            answer => answer,
        };
        match answer {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            answer => Ok(answer.map(drop)?),
        }
    }

    async fn remove_finalizer(&self, node: &Node, finalizer: &str) -> Result<(), Error> {
        let Some(live) = self.live(node).await? else { return Ok(()) };
        if !has_finalizer(&live, finalizer) {
            return Ok(());
        }
        let kept: Vec<String> = live.finalizers.into_iter().flatten().filter(|name| name != finalizer).collect();
        let change = json!({"metadata": {"resourceVersion": live.resource_version, "finalizers": kept}});
        match self.api(node).patch(&node.key.name, &PatchParams::default(), &Patch::Merge(change)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            answer => Ok(answer.map(drop)?),
        }
    }
}
