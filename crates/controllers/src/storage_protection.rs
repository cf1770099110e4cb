//! Claims, volumes and classes of volume attributes stay as long as somebody uses them: a finalizer keeps one that is being
//! deleted, and goes when nobody does any more. Three controllers of Kubernetes, which differ in what use is.

use std::{fmt::Debug, sync::Arc};

use controller_runtime::{Change, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue};
use futures::future::{BoxFuture, FutureExt, ready};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume},
    storage::v1::VolumeAttributesClass,
};
use kube::{
    Api, Client, Resource,
    api::{ListParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio_util::sync::CancellationToken;

use crate::{Setting, pods};

/// The index of pods by the claims that they name, and of claims and volumes by the classes.
const USED: &str = "used in storage";

type InUse<K> = Box<dyn Fn(&K) -> BoxFuture<'_, kube::Result<bool>> + Send + Sync>;

type InNamespace<K> = Box<dyn Fn(&str) -> Api<K> + Send + Sync>;

struct Protection<K> {
    name: &'static str,
    finalizer: &'static str,
    objects: Informer<K>,
    api: InNamespace<K>,
    in_use: InUse<K>,
    own_writes: OwnWrites<Key>,
}

impl<K> Controller for Protection<K>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    type Key = Key;

    fn name(&self) -> &'static str {
        self.name
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(object) = self.objects.get(key) else { return Ok(Next::WhenChanged) };
        let finalizers = object.meta().finalizers.clone().unwrap_or_default();
        let protected = finalizers.iter().any(|finalizer| finalizer == self.finalizer);
        let goes = object.meta().deletion_timestamp.is_some();
        let mut changed = finalizers;
        match (goes, protected) {
            (true, true) if !(self.in_use)(&object).await? => changed.retain(|finalizer| finalizer != self.finalizer),
            (false, false) => changed.push(self.finalizer.to_owned()),
            _ => return Ok(Next::WhenChanged),
        }
        let mut object = (*object).clone();
        object.meta_mut().finalizers = Some(changed).filter(|changed| !changed.is_empty());
        match (self.api)(&key.namespace).replace(&key.name, &PostParams::default(), &object).await {
            Ok(written) => self.own_writes.wrote(key, &self.objects, &written),
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Next::WhenChanged)
    }
}

async fn protect<K>(protection: Protection<K>, queue: WorkQueue<Key>, stop: CancellationToken)
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let on_object = queue.clone();
    protection.objects.on_change(move |change| {
        if let Change::Applied { new, .. } = change {
            on_object.add(Key::of(&**new));
        }
    });
    protection.objects.synced_or_stopped().await;
    let own_writes = protection.own_writes.clone();
    controller_runtime::run(Arc::new(protection), queue, own_writes, 1, stop).await;
}

/// The claims that a pod names, with those that are made for it alone.
fn claims(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().filter_map(|spec| spec.volumes.as_ref()).flatten();
    volumes.filter_map(|volume| claim_name(pod, volume)).collect()
}

/// The claim of a volume, which is named after its pod if it is made for it.
pub fn claim_name(pod: &Pod, volume: &Volume) -> Option<String> {
    let name = volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone());
    let own = || format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name);
    name.or_else(|| volume.ephemeral.as_ref().map(|_| own()))
}

/// Whether a pod that has a node uses a claim. One made for another pod of the same name is not its own.
fn uses(pod: &Pod, wanted: &PersistentVolumeClaim) -> bool {
    let name = wanted.metadata.name.as_deref();
    let shut_down = pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds == Some(0);
    let owned = wanted.metadata.owner_references.iter().flatten();
    let owned =
        owned.into_iter().any(|owner| owner.controller == Some(true) && Some(&owner.uid) == pod.metadata.uid.as_ref());
    let mut volumes = pod.spec.iter().filter_map(|spec| spec.volumes.as_ref()).flatten();
    !pods::node(pod).is_empty()
        && volumes.any(|volume| {
            claim_name(pod, volume).as_deref() == name && (volume.ephemeral.is_none() || (owned && !shut_down))
        })
}

pub async fn claims_stay(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, client) = (WorkQueue::default(), setting.client("pvc-protection-controller"));
    let pods: Informer<Pod> = setting.informers.of();
    pods.index(USED, |pod| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        claims(pod).into_iter().map(|name| Key::new(namespace, name).to_string()).collect()
    });
    let on_pod = queue.clone();
    pods.on_change(move |change| {
        let pod = change.object();
        // A pod that runs changes nothing.
        if matches!(change, Change::Deleted(_)) || pods::is_finished(pod) || pods::node(pod).is_empty() {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            claims(pod).into_iter().for_each(|name| on_pod.add(Key::new(namespace, name)));
        }
    });
    pods.synced_or_stopped().await;
    let (lists, writes) = (client.clone(), client);
    let protection = Protection {
        name: "persistentvolumeclaim-protection-controller",
        finalizer: "kubernetes.io/pvc-protection",
        objects: setting.informers.of(),
        api: Box::new(move |namespace| Api::namespaced(writes.clone(), namespace)),
        in_use: Box::new(move |claim| {
            let (pods, lists) = (pods.clone(), lists.clone());
            async move { claim_in_use(&pods, lists, claim).await }.boxed()
        }),
        own_writes: OwnWrites::default(),
    };
    protect(protection, queue, stop).await;
}

async fn claim_in_use(cache: &Informer<Pod>, client: Client, claim: &PersistentVolumeClaim) -> kube::Result<bool> {
    let key = Key::of(claim);
    if cache.by_index(USED, &key.to_string()).iter().any(|pod| uses(pod, claim)) {
        return Ok(true);
    }
    // The cache may not have the newest pod: the server's word counts.
    let pods: Api<Pod> = Api::namespaced(client, &key.namespace);
    Ok(pods.list(&ListParams::default()).await?.items.iter().any(|pod| uses(pod, claim)))
}

pub async fn volumes_stay(setting: Arc<Setting>, stop: CancellationToken) {
    let client = setting.client("pv-protection-controller");
    let protection = Protection::<PersistentVolume> {
        name: "persistentvolume-protection-controller",
        finalizer: "kubernetes.io/pv-protection",
        objects: setting.informers.of(),
        api: Box::new(move |_| Api::all(client.clone())),
        in_use: Box::new(|volume| {
            let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
            ready(Ok(phase == Some("Bound"))).boxed()
        }),
        own_writes: OwnWrites::default(),
    };
    protect(protection, WorkQueue::default(), stop).await;
}

/// The classes that a claim has, had, or is to have.
fn classes_of_claim(claim: &PersistentVolumeClaim) -> Vec<String> {
    let status = claim.status.as_ref();
    let wanted = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.clone());
    let current = status.and_then(|status| status.current_volume_attributes_class_name.clone());
    let next =
        status.and_then(|status| status.modify_volume_status.as_ref()?.target_volume_attributes_class_name.clone());
    [wanted, current, next].into_iter().flatten().filter(|name| !name.is_empty()).collect()
}

fn class_of_volume(volume: &PersistentVolume) -> Vec<String> {
    let class = volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.clone());
    class.into_iter().filter(|name| !name.is_empty()).collect()
}

/// Wants a look at the classes that something no longer has.
fn on_release<K: Resource + Send + Sync + 'static>(
    informer: &Informer<K>,
    queue: &WorkQueue<Key>,
    classes: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
) {
    let queue = queue.clone();
    informer.on_change(move |change| {
        let (before, now) = match change {
            Change::Applied { old, new } => (old.as_deref().map(&classes).unwrap_or_default(), classes(new)),
            Change::Deleted(last) => (classes(last), Vec::new()),
        };
        before.into_iter().filter(|name| !now.contains(name)).for_each(|name| queue.add(Key::new("", name)));
    });
}

pub async fn classes_stay(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, client) = (WorkQueue::default(), setting.client("volumeattributesclass-protection-controller"));
    let claims: Informer<PersistentVolumeClaim> = setting.informers.of();
    let volumes: Informer<PersistentVolume> = setting.informers.of();
    claims.index(USED, classes_of_claim);
    volumes.index(USED, class_of_volume);
    on_release(&claims, &queue, classes_of_claim);
    on_release(&volumes, &queue, class_of_volume);
    claims.synced_or_stopped().await;
    volumes.synced_or_stopped().await;
    let protection = Protection::<VolumeAttributesClass> {
        name: "volumeattributesclass-protection-controller",
        finalizer: "kubernetes.io/vac-protection",
        objects: setting.informers.of(),
        api: Box::new(move |_| Api::all(client.clone())),
        in_use: Box::new(move |class| {
            let name = class.metadata.name.as_deref().unwrap_or_default();
            let used = !claims.by_index(USED, name).is_empty() || !volumes.by_index(USED, name).is_empty();
            ready(Ok(used)).boxed()
        }),
        own_writes: OwnWrites::default(),
    };
    protect(protection, queue, stop).await;
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_uses_the_claims_that_it_names_and_its_own() {
        let pod = |change: fn(&mut Value)| {
            let mut pod = json!({
                "metadata": {"name": "p", "uid": "u"},
                "spec": {"containers": [], "nodeName": "n", "volumes": [
                    {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "b", "ephemeral": {}},
                    {"name": "c", "emptyDir": {}},
                ]},
            });
            change(&mut pod);
            serde_json::from_value::<Pod>(pod).expect("a pod")
        };
        let claim = |name: &str, owner: &str| {
            let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true}]);
            let claim = json!({"metadata": {"name": name, "ownerReferences": owner}});
            serde_json::from_value::<PersistentVolumeClaim>(claim).expect("a claim")
        };
        let runs = pod(|_| {});
        assert_eq!(claims(&runs), ["data", "p-b"]);
        assert!(uses(&runs, &claim("data", "x")) && uses(&runs, &claim("p-b", "u")));
        assert!(!uses(&runs, &claim("p-b", "x")) && !uses(&runs, &claim("other", "u")));
        let waits = pod(|pod| pod["spec"]["nodeName"] = json!(""));
        assert!(!uses(&waits, &claim("data", "x")));
        let ended = pod(|pod| {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        });
        assert!(uses(&ended, &claim("data", "x")) && !uses(&ended, &claim("p-b", "u")));
    }
}
