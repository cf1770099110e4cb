//! The state of every resource in memory, kept by one watch of the store.
//!
//! Kubernetes calls this the cacher, one per resource. Here one feed serves all resources, so that one revision, the
//! *applied* one, is true of all of them: a read that must be linearizable asks the store for its revision and waits
//! until that is applied. Reads and watches are answered from here; only reads at old revisions go to the store.
//!
//! Keys are `/registry/<group>/<resource>/[<namespace>/]<name>`; the core group is written `core`.

mod entry;
mod event;
mod resource;
mod watcher;

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

pub use entry::{Entry, Malformed, SelectableField, body_of, encode_stored, write_header};
pub use event::{Event, Kind};
use futures::FutureExt;
use imbl::OrdMap;
pub use resource::{ResourceCache, Scope, Snapshot};
use storage::{Change, Error, Range, Revision, Store, Watch, WatchEvent};
use tokio::sync::watch;
pub use watcher::Watcher;

/// Where all objects live in the store.
pub const ROOT: &str = "/registry/";
const PAGE: usize = 2000;
/// How many revisions are applied before watchers are woken, at the most.
const AT_ONCE: usize = 64;
/// How long a read waits for the cache before it says so.
const FRESH_WITHIN: Duration = Duration::from_secs(3);

pub struct WatchCache {
    store: Arc<dyn Store>,
    resources: RwLock<HashMap<Box<str>, Arc<ResourceCache>>>,
    applied: watch::Sender<Revision>,
    /// The newest revision that this server has written itself.
    written: AtomicU64,
}

impl WatchCache {
    /// An empty cache; [`WatchCache::load`] fills it once the resources have been entered.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            resources: RwLock::default(),
            applied: watch::Sender::new(Revision::default()),
            written: AtomicU64::new(0),
        }
    }

    /// The cache of the resource whose keys begin with `prefix`; it is made when it is new.
    pub fn resource(&self, prefix: &str) -> Arc<ResourceCache> {
        if let Some(found) = self.resources.read().unwrap_or_else(PoisonError::into_inner).get(prefix) {
            return found.clone();
        }
        self.enter(prefix, Box::default())
    }

    /// The same, with the fields that its objects can be selected by if it is new.
    pub fn enter(&self, prefix: &str, selectable: Box<[SelectableField]>) -> Arc<ResourceCache> {
        let mut resources = self.resources.write().unwrap_or_else(PoisonError::into_inner);
        resources.entry(prefix.into()).or_insert_with(|| Arc::new(ResourceCache::new(prefix, selectable))).clone()
    }

    /// The revision up to which everything is in the cache.
    pub fn applied(&self) -> Revision {
        *self.applied.borrow()
    }

    /// A snapshot together with the revision at which it is exact for this resource.
    pub fn snapshot(&self, resource: &ResourceCache) -> (Arc<Snapshot>, Revision) {
        let applied = self.applied();
        let snapshot = resource.snapshot();
        let revision = applied.max(snapshot.revision);
        (snapshot, revision)
    }

    /// Waits until the cache has everything that was acknowledged before the call.
    pub async fn fresh(&self) -> Result<Revision, Error> {
        let current = self.store.current_revision().await?;
        self.reach(current).await?;
        Ok(current)
    }

    /// Notes a revision that this server has written.
    pub fn written(&self, revision: Revision) {
        self.written.fetch_max(revision.0, Ordering::AcqRel);
    }

    /// Waits until the cache has everything that this server has written. Unlike [`WatchCache::fresh`] it asks nobody: for
    /// decisions on every request, which must follow what its own clients were told.
    pub async fn own_writes(&self) -> Result<(), Error> {
        self.reach(Revision(self.written.load(Ordering::Acquire))).await
    }

    /// Waits until the cache has applied `revision`.
    pub async fn reach(&self, revision: Revision) -> Result<(), Error> {
        if self.applied() >= revision {
            return Ok(());
        }
        let mut applied = self.applied.subscribe();
        let reached = async {
            loop {
                // An engine whose revision moves without our keys needs to be asked.
                if tokio::time::timeout(Duration::from_millis(50), applied.wait_for(|r| *r >= revision)).await.is_ok() {
                    return Ok(());
                }
                self.store.request_progress().await?;
            }
        };
        match tokio::time::timeout(FRESH_WITHIN, reached).await {
            Ok(result) => result,
            Err(_) => Err(Error::FutureRevision { requested: revision, current: self.applied() }),
        }
    }

    /// Reads everything, and says from where the feed continues.
    pub async fn load(&self) -> Result<Revision, Error> {
        let mut loaded: HashMap<Box<str>, OrdMap<Arc<str>, Arc<Entry>>> = HashMap::new();
        let mut range = Range { limit: Some(PAGE), ..Range::prefix(ROOT) };
        loop {
            let page = self.store.range(range.clone()).await?;
            for kv in &page.value.items {
                let Some((prefix, name)) = split_key(&kv.key) else { continue };
                match self.resource(prefix).read(&kv.key, &kv.value, kv.mod_revision) {
                    Ok(entry) => {
                        loaded.entry(prefix.into()).or_default().insert(name.into(), Arc::new(entry));
                    }
                    Err(malformed) => tracing::error!(%malformed, "left out of the cache"),
                }
            }
            range.revision = Some(page.revision);
            range.after = page.value.items.last().map(|kv| kv.key.clone());
            if page.value.remaining == 0 || range.after.is_none() {
                break;
            }
        }
        let revision = range.revision.unwrap_or_default();
        let resources: Vec<_> = {
            let all = self.resources.read().unwrap_or_else(PoisonError::into_inner);
            all.values().cloned().collect()
        };
        for resource in resources {
            resource.reset(loaded.remove(resource.prefix()).unwrap_or_default(), revision);
        }
        self.applied.send_replace(revision);
        Ok(revision)
    }

    /// Follows the store for as long as it lives. When history was lost underneath, everything is read again and watchers
    /// are told to list again; an unreachable store is waited for.
    pub async fn feed(&self, mut from: Revision) {
        loop {
            let ended = match self.store.watch(ROOT, from).await {
                Ok(watch) => self.follow(watch, &mut from).await,
                Err(error) => Some(error),
            };
            let Some(error) = ended else { return };
            tracing::warn!(%error, "the watch of the store ended; reading everything again");
            loop {
                match self.load().await {
                    Ok(revision) => {
                        from = revision;
                        break;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "waiting for the store");
                        tokio::time::sleep(Duration::from_millis(500)).await;
                    }
                }
            }
        }
    }

    /// Applies events until the watch ends; `None` when the store was closed.
    ///
    /// What is there at once is applied together, and its watchers are woken once, so that they write it to their
    /// connections together as well.
    async fn follow(&self, mut watch: Watch, from: &mut Revision) -> Option<Error> {
        let mut next = watch.next().await;
        loop {
            let (mut waiting, mut applied) = (Vec::new(), 0);
            let ended = loop {
                match next {
                    Some(Ok(event)) => *from = self.take(event, &mut waiting),
                    Some(Err(error)) => break Some(Some(error)),
                    None => break Some(None),
                }
                applied += 1;
                match (applied < AT_ONCE).then(|| watch.next().now_or_never()).flatten() {
                    Some(more) => next = more,
                    None => break None,
                }
            };
            self.applied.send_if_modified(|applied| {
                let newer = *from > *applied;
                *applied = (*from).max(*applied);
                newer
            });
            waiting.into_iter().for_each(Waker::wake);
            match ended {
                Some(error) => return error,
                None => next = watch.next().await,
            }
        }
    }

    /// Applies an event, and says up to which revision everything is applied then.
    fn take(&self, event: WatchEvent, waiting: &mut Vec<Waker>) -> Revision {
        let (revision, mut changes) = match event {
            WatchEvent::Changes { revision, changes } => (revision, changes),
            WatchEvent::Progress(revision) => return revision,
        };
        while let Some(first) = changes.first() {
            let Some(prefix) = split_key(change_key(first)).map(|(prefix, _)| prefix.to_owned()) else {
                changes.remove(0);
                continue;
            };
            let (own, others): (Vec<_>, Vec<_>) = changes.into_iter().partition(|c| change_key(c).starts_with(&prefix));
            self.resource(&prefix).apply(revision, &own, waiting);
            changes = others;
        }
        revision
    }
}

fn change_key(change: &Change) -> &str {
    match change {
        Change::Put(kv) => &kv.key,
        Change::Delete { key, .. } => key,
    }
}

/// The prefix of the key's resource, slash included, and what follows it.
fn split_key(key: &str) -> Option<(&str, &str)> {
    let rest = key.strip_prefix(ROOT)?;
    let group = rest.find('/')?;
    let resource = rest[group + 1..].find('/')?;
    Some(key.split_at(ROOT.len() + group + 1 + resource + 1))
}
