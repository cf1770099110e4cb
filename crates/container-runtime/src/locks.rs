//! One lock for each name, for as long as somebody holds it or waits for it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, Weak},
};

use tokio::sync::OwnedMutexGuard;

use crate::runtime::locked;

#[derive(Default)]
pub(crate) struct Locks {
    known: Mutex<BTreeMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

impl Locks {
    pub(crate) async fn lock(&self, name: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut known = locked(&self.known);
            known.retain(|_, lock| lock.strong_count() > 0);
            let lock = known.get(name).and_then(Weak::upgrade).unwrap_or_default();
            known.insert(name.to_owned(), Arc::downgrade(&lock));
            lock
        };
        lock.lock_owned().await
    }
}
