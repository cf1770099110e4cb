//! What a process knows of a kind: every object, kept up to date, with indexes, shared by all controllers.
//!
//! One task writes, everybody reads `Arc`s. Invariants: handlers hear every change exactly once and in order, after the
//! cache shows it; whoever joins later hears of everything there is first; what vanished while the connection was lost
//! is told as deleted with its last known state; an object made anew under its old name is a deletion and a creation.
//! `managedFields` are not kept.

use std::{
    any::{Any, TypeId},
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    adoption::controller_of,
    key::{Key, revision},
    runner::words,
    watch_loop::{Told, follow},
};

#[cfg(test)]
mod tests;

/// What happened to an object.
pub enum Change<K> {
    Applied { old: Option<Arc<K>>, new: Arc<K> },
    Deleted(Arc<K>),
}

impl<K> Change<K> {
    /// The object as it is, or last was.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Change::Applied { new, .. } => new,
            Change::Deleted(last) => last,
        }
    }
}

/// How far an informer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether everything has been listed once.
    pub synced: bool,
    /// Everything up to this revision is in the cache.
    pub revision: u64,
    /// Whether it was told to stop: nothing will come any more.
    pub stopped: bool,
}

type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// The objects of a kind. Cheap to clone.
pub struct Informer<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    cache: RwLock<Cache<K>>,
    handlers: Mutex<Vec<Handler<K>>>,
    progress: watch::Sender<Progress>,
}

struct Cache<K> {
    objects: BTreeMap<Key, Arc<K>>,
    indexes: HashMap<&'static str, Index<K>>,
}

type ValuesOf<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

struct Index<K> {
    values_of: ValuesOf<K>,
    keys: HashMap<String, BTreeSet<Key>>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Resource + Send + Sync + 'static> Informer<K> {
    /// Follows a kind until `stop`, or those of its objects that a field selector selects. `trim` takes away what nobody here needs.
    pub fn start(
        api: Api<K>,
        fields: Option<String>,
        trim: impl Fn(&mut K) + Send + 'static,
        stop: CancellationToken,
    ) -> Self
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let informer = Self::detached();
        let (teller, stopped) = (informer.clone(), informer.clone());
        tokio::spawn(async move {
            let tell = move |told| teller.tell(told, &trim);
            stop.run_until_cancelled(follow(api, fields, tell)).await;
            stopped.end();
        });
        informer
    }

    pub(crate) fn detached() -> Self {
        Self {
            shared: Arc::new(Shared {
                cache: RwLock::new(Cache { objects: BTreeMap::new(), indexes: HashMap::new() }),
                handlers: Mutex::default(),
                progress: watch::Sender::default(),
            }),
        }
    }

    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.read(|cache| cache.objects.get(key).cloned())
    }

    pub fn all(&self) -> Vec<Arc<K>> {
        self.read(|cache| cache.objects.values().cloned().collect())
    }

    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.read(|cache| {
            let from = cache.objects.range(Key::new(namespace, "")..);
            from.take_while(|(key, _)| key.namespace == namespace).map(|(_, object)| object.clone()).collect()
        })
    }

    /// Whether a namespace has no object of the kind.
    pub fn has_none_in(&self, namespace: &str) -> bool {
        self.read(|cache| {
            let first = cache.objects.range(Key::new(namespace, "")..).next();
            first.is_none_or(|(key, _)| key.namespace != namespace)
        })
    }

    /// The objects that an index has under a value. There are none under an index that was never added.
    pub fn by_index(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        self.read(|cache| {
            let keys = cache.indexes.get(index).and_then(|index| index.keys.get(value));
            keys.into_iter().flatten().filter_map(|key| cache.objects.get(key).cloned()).collect()
        })
    }

    /// Adds an index, also to an informer that runs. The first of a name stays.
    pub fn index(&self, name: &'static str, values_of: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {
        let mut cache = self.shared.cache.write().unwrap_or_else(PoisonError::into_inner);
        if cache.indexes.contains_key(name) {
            return;
        }
        let mut index = Index { values_of: Box::new(values_of), keys: HashMap::new() };
        cache.objects.iter().for_each(|(key, object)| index.add(key, object));
        cache.indexes.insert(name, index);
    }

    /// Tells every change from now on, after everything there is. A handler only enqueues keys: it must be quick.
    pub fn on_change(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let mut handlers = self.handlers();
        for new in self.all() {
            handler(&Change::Applied { old: None, new });
        }
        if !self.shared.progress.borrow().stopped {
            handlers.push(Box::new(handler));
        }
    }

    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.shared.progress.subscribe()
    }

    /// Waits until everything has been listed once: for ever, if the informer is stopped before.
    pub async fn synced(&self) {
        // The sender lives as long as `self`.
        let _ = self.progress().wait_for(|progress| progress.synced).await;
    }

    /// As [`Informer::synced`], or until the informer is stopped: for those who look whether to stop before they do anything.
    pub async fn synced_or_stopped(&self) {
        let _ = self.progress().wait_for(|progress| progress.synced || progress.stopped).await;
    }

    /// Nothing will be told any more. Handlers know informers, often this one: who kept them would keep all objects for ever.
    fn end(&self) {
        self.shared.progress.send_modify(|progress| progress.stopped = true);
        self.handlers().clear();
    }

    fn read<T>(&self, look: impl FnOnce(&Cache<K>) -> T) -> T {
        look(&self.shared.cache.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn handlers(&self) -> MutexGuard<'_, Vec<Handler<K>>> {
        self.shared.handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, told: Told<K>, trim: &impl Fn(&mut K)) {
        let trimmed = |mut object: K| {
            object.meta_mut().managed_fields = None;
            trim(&mut object);
            Arc::new(object)
        };
        // Held throughout, so that one who joins neither misses nor repeats a change.
        let handlers = self.handlers();
        let (changes, listed, up_to) = {
            let mut cache = self.shared.cache.write().unwrap_or_else(PoisonError::into_inner);
            match told {
                Told::All(objects, up_to) => (cache.replace(objects.into_iter().map(trimmed).collect()), true, up_to),
                Told::Applied(object) => {
                    let up_to = revision(&object);
                    (cache.apply(trimmed(object)), false, up_to)
                }
                Told::Deleted(object) => {
                    let (up_to, last) = (revision(&object), trimmed(object));
                    cache.remove(&Key::of(&*last));
                    (vec![Change::Deleted(last)], false, up_to)
                }
                Told::UpTo(up_to) => (Vec::new(), false, up_to),
            }
        };
        for change in &changes {
            handlers.iter().for_each(|handler| hand(handler, change));
        }
        drop(handlers);
        self.shared.progress.send_modify(|progress| {
            progress.synced |= listed;
            // A store that was put back to an earlier state counts from there.
            progress.revision = if listed { up_to } else { progress.revision.max(up_to) };
        });
    }
}

/// A handler that panics is a failure of its own: everybody else still wants to hear of the kind.
fn hand<K: Resource>(handler: &Handler<K>, change: &Change<K>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| handler(change))) {
        tracing::error!(object = %Key::of(&**change.object()), problem = words(&*panic), "a handler has panicked");
    }
}

impl<K: Resource> Cache<K> {
    fn apply(&mut self, new: Arc<K>) -> Vec<Change<K>> {
        let key = Key::of(&*new);
        let old = self.remove(&key);
        self.indexes.values_mut().for_each(|index| index.add(&key, &new));
        self.objects.insert(key, new.clone());
        match old {
            Some(old) if old.meta().uid != new.meta().uid => {
                vec![Change::Deleted(old), Change::Applied { old: None, new }]
            }
            old => vec![Change::Applied { old, new }],
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let old = self.objects.remove(key)?;
        self.indexes.values_mut().for_each(|index| index.remove(key, &old));
        Some(old)
    }

    /// Takes a list for all there is, and gives what differs.
    fn replace(&mut self, objects: Vec<Arc<K>>) -> Vec<Change<K>> {
        let listed: BTreeSet<Key> = objects.iter().map(|object| Key::of(&**object)).collect();
        let gone: Vec<Key> = self.objects.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        let mut changes: Vec<_> = gone.iter().filter_map(|key| self.remove(key)).map(Change::Deleted).collect();
        for object in objects {
            let known = self.objects.get(&Key::of(&*object));
            if known.is_none_or(|known| known.meta().resource_version != object.meta().resource_version) {
                changes.extend(self.apply(object));
            }
        }
        changes
    }
}

impl<K> Index<K> {
    fn add(&mut self, key: &Key, object: &K) {
        for value in (self.values_of)(object) {
            self.keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key, object: &K) {
        for value in (self.values_of)(object) {
            if let Some(keys) = self.keys.get_mut(&value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.keys.remove(&value);
                }
            }
        }
    }
}

/// The name of the index [`by_controller`].
pub const CONTROLLER: &str = "controller";

/// Objects by the uid of the owner that controls them, or by [`orphans`] of their namespace.
pub fn by_controller<K: Resource>(object: &K) -> Vec<String> {
    let namespace = object.meta().namespace.as_deref().unwrap_or_default();
    vec![controller_of(object).map_or_else(|| orphans(namespace), |controller| controller.uid.clone())]
}

/// Under which value [`by_controller`] has what nobody controls.
pub fn orphans(namespace: &str) -> String {
    format!("orphans in {namespace}")
}

/// All informers of a process, one per kind, under one identity. They stop with the token. Clones are the same.
#[derive(Clone)]
pub struct Informers {
    client: Client,
    stop: CancellationToken,
    started: Arc<Mutex<HashMap<TypeId, Box<dyn Any + Send + Sync>>>>,
}

impl Informers {
    pub fn new(client: Client, stop: CancellationToken) -> Self {
        Self { client, stop, started: Arc::default() }
    }

    /// The informer of a kind, started if this is the first who asks.
    pub fn of<K>(&self) -> Informer<K>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = started.get(&TypeId::of::<K>()).and_then(|any| any.downcast_ref::<Informer<K>>()) {
            return known.clone();
        }
        let informer = Informer::start(Api::all(self.client.clone()), None, |_| {}, self.stop.clone());
        started.insert(TypeId::of::<K>(), Box::new(informer.clone()));
        informer
    }

    /// An informer for one who needs few objects of a kind, or little of each. It is shared with nobody.
    pub fn own<K>(
        &self,
        dynamic: &K::DynamicType,
        fields: Option<String>,
        trim: impl Fn(&mut K) + Send + 'static,
        stop: CancellationToken,
    ) -> Informer<K>
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        Informer::start(Api::all_with(self.client.clone(), dynamic), fields, trim, stop)
    }

    /// When all informers stop.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}
