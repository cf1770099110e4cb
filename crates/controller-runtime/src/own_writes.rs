//! A controller's own writes, waited for before their key is worked on again.
//!
//! A cache lags behind what was just written. Working from it would create the same thing twice. So every write is noted
//! under the key it was made for: the informer must have come to the revision of the write, or have seen that what was
//! deleted is gone or going.

use std::{
    collections::HashMap,
    fmt::Debug,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kube::Resource;
use tokio::{sync::watch, time::timeout};

use crate::{
    Informer,
    informer::Progress,
    key::{Key, revision},
};

/// As long as Kubernetes waits for its expectations. Then the cache is believed as it is.
const GIVE_UP: Duration = Duration::from_secs(5 * 60);

/// Every so many keys it is looked which of them wait for anything: some are never worked on again.
const SWEEP_EVERY: usize = 1024;

/// The writes that are not known to have been seen, by the key of the work. Cheap to clone.
pub struct OwnWrites<Q> {
    pending: Arc<Mutex<HashMap<Q, Vec<Pending>>>>,
}

struct Pending {
    progress: watch::Receiver<Progress>,
    seen: Box<dyn Fn(&Progress) -> bool + Send + Sync>,
}

impl Pending {
    fn is_seen(&self) -> bool {
        (self.seen)(&self.progress.borrow())
    }
}

impl<Q> Clone for OwnWrites<Q> {
    fn clone(&self) -> Self {
        Self { pending: self.pending.clone() }
    }
}

impl<Q> Default for OwnWrites<Q> {
    fn default() -> Self {
        Self { pending: Arc::default() }
    }
}

impl<Q: Clone + Eq + Hash + Debug> OwnWrites<Q> {
    /// Notes what the server answered to a create, an update or a patch.
    pub fn wrote<K: Resource + Send + Sync + 'static>(&self, key: &Q, informer: &Informer<K>, answer: &K) {
        let written = revision(answer);
        self.note(key, informer, move |progress| progress.revision >= written);
    }

    /// Notes that an object was deleted.
    pub fn deleted<K: Resource + Send + Sync + 'static>(&self, key: &Q, informer: &Informer<K>, object: &K) {
        let (cache, object, uid) = (informer.clone(), Key::of(object), object.meta().uid.clone());
        self.note(key, informer, move |_| {
            let known = cache.get(&object);
            known.is_none_or(|known| known.meta().uid != uid || known.meta().deletion_timestamp.is_some())
        });
    }

    fn note<K: Resource + Send + Sync + 'static>(
        &self,
        key: &Q,
        informer: &Informer<K>,
        seen: impl Fn(&Progress) -> bool + Send + Sync + 'static,
    ) {
        let pending = Pending { progress: informer.progress(), seen: Box::new(seen) };
        let mut all = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.is_empty() && all.len().is_multiple_of(SWEEP_EVERY) && !all.contains_key(key) {
            all.retain(|_, writes| !writes.iter().all(Pending::is_seen));
        }
        all.entry(key.clone()).or_default().push(pending);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Waits until all writes under a key have been seen.
    pub async fn seen(&self, key: &Q) {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        let all = async {
            for mut write in pending.into_iter().flatten() {
                // An informer that has ended tells nothing more.
                let _ = write.progress.wait_for(|progress| (write.seen)(progress)).await;
            }
        };
        if timeout(GIVE_UP, all).await.is_err() {
            tracing::warn!(?key, "own writes have not been seen for five minutes; going on without");
        }
    }
}
