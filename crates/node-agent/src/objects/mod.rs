//! The ConfigMaps and Secrets that the node's pods refer to: each is followed for as long as a pod refers to it.
//!
//! There is one watch for each object, since a node may see only those that its pods name. An object that is immutable is
//! read once and not watched. Whoever asks for an object that is followed waits until it has been read for the first time.

mod references;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use controller_runtime::{Informer, Key};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Pod, Secret},
};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use references::{Kind, Reference, references};

/// How long the first reading of an object may take. Its pod is told when it comes later.
const FIRST_READING: Duration = Duration::from_secs(5);

/// Why an object is not at hand. Its text is what Kubernetes' events say, such as `configmap "x" not found`.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Missing {
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Failed(String),
}

/// The objects that pods refer to.
pub struct Objects {
    client: Client,
    followed: Arc<Mutex<All>>,
    changed: mpsc::UnboundedSender<String>,
}

#[derive(Default)]
struct All {
    by_reference: HashMap<Reference, Followed>,
    /// What each pod refers to, by its uid.
    by_pod: HashMap<String, HashSet<Reference>>,
}

/// An object that is followed until nobody refers to it.
struct Followed {
    pods: HashSet<String>,
    object: Object,
    _until_dropped: DropGuard,
}

#[derive(Clone)]
enum Object {
    ConfigMap(Informer<ConfigMap>),
    Secret(Informer<Secret>),
}

impl Objects {
    /// `changed` is told the uid of each pod whose objects have changed.
    pub fn new(client: Client, changed: mpsc::UnboundedSender<String>) -> Self {
        Self { client, followed: Arc::default(), changed }
    }

    /// Follows what the pod refers to, until it is forgotten. To be called again when the pod's spec changes.
    pub fn register(&self, pod: &Pod) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let wanted = references(pod);
        let unknown: Vec<Reference> = {
            let all = lock(&self.followed);
            wanted.iter().filter(|reference| !all.by_reference.contains_key(reference)).cloned().collect()
        };
        // Outside of the lock, which whoever tells of a change takes.
        let mut new: HashMap<Reference, Followed> =
            unknown.into_iter().map(|reference| (reference.clone(), self.follow(&reference))).collect();
        let mut all = lock(&self.followed);
        let before = all.by_pod.get(&uid).cloned().unwrap_or_default();
        for reference in &wanted {
            if let Some(new) = new.remove(reference) {
                all.by_reference.entry(reference.clone()).or_insert(new);
            }
            if let Some(followed) = all.by_reference.get_mut(reference) {
                followed.pods.insert(uid.clone());
            }
        }
        all.release(&uid, before.difference(&wanted));
        all.by_pod.insert(uid, wanted);
    }

    pub fn forget(&self, uid: &str) {
        let mut all = lock(&self.followed);
        let before = all.by_pod.remove(uid).unwrap_or_default();
        all.release(uid, before.iter());
    }

    /// As it is now; the first time it is fetched, which a registered pod waits for.
    pub async fn config_map(&self, namespace: &str, name: &str) -> Result<Arc<ConfigMap>, Missing> {
        let found = match self.followed(Kind::ConfigMap, namespace, name) {
            Some(Object::ConfigMap(informer)) => read(informer, namespace, name).await,
            _ => self.fetch(namespace, name).await,
        };
        found.map_err(|why| why.of("configmap", name))
    }

    pub async fn secret(&self, namespace: &str, name: &str) -> Result<Arc<Secret>, Missing> {
        let found = match self.followed(Kind::Secret, namespace, name) {
            Some(Object::Secret(informer)) => read(informer, namespace, name).await,
            _ => self.fetch(namespace, name).await,
        };
        found.map_err(|why| why.of("secret", name))
    }

    fn followed(&self, kind: Kind, namespace: &str, name: &str) -> Option<Object> {
        let reference = Reference { kind, namespace: namespace.to_owned(), name: name.to_owned() };
        lock(&self.followed).by_reference.get(&reference).map(|followed| followed.object.clone())
    }

    /// For those that no pod refers to.
    async fn fetch<K>(&self, namespace: &str, name: &str) -> Result<Arc<K>, Absent>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        match api.get_opt(name).await {
            Ok(found) => found.map(Arc::new).ok_or(Absent::NotFound),
            Err(error) => Err(Absent::Failed(error.to_string())),
        }
    }

    fn follow(&self, reference: &Reference) -> Followed {
        let stop = CancellationToken::new();
        let object = match reference.kind {
            Kind::ConfigMap => {
                let immutable = |map: &ConfigMap| map.immutable == Some(true);
                Object::ConfigMap(self.informer(reference, &stop, immutable))
            }
            Kind::Secret => {
                let immutable = |secret: &Secret| secret.immutable == Some(true);
                Object::Secret(self.informer(reference, &stop, immutable))
            }
        };
        Followed { pods: HashSet::new(), object, _until_dropped: stop.drop_guard() }
    }

    fn informer<K>(&self, reference: &Reference, stop: &CancellationToken, immutable: fn(&K) -> bool) -> Informer<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + Sync
            + 'static,
    {
        let api = Api::<K>::namespaced(self.client.clone(), &reference.namespace);
        let fields = format!("metadata.name={}", reference.name);
        let informer = Informer::start(api, Some(fields), |_| {}, stop.clone());
        let teller =
            Teller { reference: reference.clone(), all: Arc::downgrade(&self.followed), changed: self.changed.clone() };
        let (progress, stop) = (informer.progress(), stop.clone());
        informer.on_change(move |change| {
            if immutable(change.object()) {
                stop.cancel();
            }
            // Whoever wants the first state waits for it.
            if progress.borrow().synced {
                teller.tell();
            }
        });
        informer
    }
}

impl All {
    fn release<'a>(&mut self, uid: &str, references: impl Iterator<Item = &'a Reference>) {
        for reference in references {
            let Some(followed) = self.by_reference.get_mut(reference) else { continue };
            followed.pods.remove(uid);
            if followed.pods.is_empty() {
                self.by_reference.remove(reference);
            }
        }
    }
}

/// Tells the pods that refer to an object.
struct Teller {
    reference: Reference,
    all: Weak<Mutex<All>>,
    changed: mpsc::UnboundedSender<String>,
}

impl Teller {
    fn tell(&self) {
        let Some(all) = self.all.upgrade() else { return };
        let all = lock(&all);
        for pod in all.by_reference.get(&self.reference).iter().flat_map(|followed| &followed.pods) {
            // Nobody listens when the agent stops.
            let _ = self.changed.send(pod.clone());
        }
    }
}

enum Absent {
    NotFound,
    Failed(String),
}

impl Absent {
    fn of(self, kind: &str, name: &str) -> Missing {
        match self {
            Absent::NotFound => Missing::NotFound(format!("{kind} {name:?} not found")),
            Absent::Failed(why) => Missing::Failed(why),
        }
    }
}

async fn read<K>(informer: Informer<K>, namespace: &str, name: &str) -> Result<Arc<K>, Absent>
where
    K: Resource + Send + Sync + 'static,
{
    if tokio::time::timeout(FIRST_READING, informer.synced()).await.is_err() {
        return Err(Absent::Failed("failed to sync the object's cache: timed out waiting for the condition".into()));
    }
    informer.get(&Key::new(namespace, name)).ok_or(Absent::NotFound)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
