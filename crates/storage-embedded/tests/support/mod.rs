//! What the crash tests share: random numbers that a failure can be repeated with, a model of what a store must contain,
//! and the comparison of the two.
#![allow(dead_code, reason = "each test uses its part")]

pub mod disk;

use std::{collections::BTreeMap, time::Duration};

use storage::{Change, Error, Operation, Range, Revision, Store, Transaction, Watch, WatchEvent};
use storage_embedded::{EmbeddedStore, OpenError, Options};

use self::disk::Disk;

pub fn open_on(disk: &Disk, options: Options) -> Result<EmbeddedStore, OpenError> {
    let disk = disk.clone();
    EmbeddedStore::open_on(move || (disk.file(0), [Box::new(disk.file(1)), Box::new(disk.file(2))]), options)
}

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What one revision did: key → value, or `None` for a deletion.
pub type Contents = BTreeMap<String, Option<String>>;

/// A transaction of one to four keys, whose values are all `tag`, so that half of one would show.
pub fn random_transaction(random: &mut Random, tag: &str) -> Transaction {
    let mut transaction = Transaction::default();
    let first = random.below(40);
    for key in 0..=random.below(4) {
        let key = format!("/k/{}", first + key);
        transaction = if random.chance(20) {
            transaction.delete(key)
        } else if random.chance(5) {
            transaction.put(key, format!("{tag} {}", "x".repeat(random.below(9000) as usize)))
        } else {
            transaction.put(key, tag.to_owned())
        };
    }
    // Always a change, and one that names the transaction.
    transaction = transaction.put("/last", tag.to_owned());
    if random.chance(50) { transaction.relaxed() } else { transaction }
}

/// What `transaction` does if it is applied, apart from deletions that find nothing.
pub fn intended(transaction: &Transaction) -> Contents {
    let contents = |operation: &Operation| match operation {
        Operation::Put { key, value, .. } => (key.clone(), Some(String::from_utf8_lossy(value).into_owned())),
        Operation::Delete { key } => (key.clone(), None),
    };
    transaction.operations.iter().map(contents).collect()
}

pub fn observed(changes: &[Change]) -> Contents {
    let contents = |change: &Change| match change {
        Change::Put(kv) => (kv.key.clone(), Some(String::from_utf8_lossy(&kv.value).into_owned())),
        Change::Delete { key, .. } => (key.clone(), None),
    };
    changes.iter().map(contents).collect()
}

/// Every revision ever seen with its contents, over all lives of a store.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub revisions: BTreeMap<u64, Contents>,
}

impl Ledger {
    /// A deletion that found nothing is intended but not observed; everything else must agree.
    pub fn record(&mut self, revision: u64, contents: Contents) {
        let known = self.revisions.entry(revision).or_insert_with(|| contents.clone());
        let puts = |contents: &Contents| -> Vec<(String, String)> {
            contents.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect()
        };
        assert_eq!(puts(known), puts(&contents), "revision {revision} was used for two contents");
    }

    /// The map after `revision`.
    pub fn state_at(&self, revision: u64) -> BTreeMap<String, String> {
        let mut state = BTreeMap::new();
        for (key, value) in self.revisions.range(..=revision).flat_map(|(_, contents)| contents) {
            match value {
                Some(value) => drop(state.insert(key.clone(), value.clone())),
                None => drop(state.remove(key)),
            }
        }
        state
    }

    /// Forgets the revisions after `survivor`: a crash took them.
    pub fn lose_after(&mut self, survivor: u64) {
        self.revisions.split_off(&(survivor + 1));
    }
}

/// The next changes, progress skipped.
pub async fn next_changes(watch: &mut Watch) -> Result<(u64, Vec<Change>), Error> {
    loop {
        let event = tokio::time::timeout(Duration::from_secs(60), watch.next()).await.expect("an event in time");
        match event.expect("the store is open")? {
            WatchEvent::Changes { revision, changes } => return Ok((revision.0, changes)),
            WatchEvent::Progress(_) => {}
        }
    }
}

/// Every event after `after`, up to now.
pub async fn replay(store: &EmbeddedStore, after: u64) -> Vec<(u64, Contents)> {
    let mut watch = store.watch("", Revision(after)).await.expect("watch");
    let mut events = Vec::new();
    loop {
        store.request_progress().await.expect("request progress");
        match tokio::time::timeout(Duration::from_secs(60), watch.next()).await.expect("an event in time") {
            Some(Ok(WatchEvent::Changes { revision, changes })) => events.push((revision.0, observed(&changes))),
            Some(Ok(WatchEvent::Progress(_))) => return events,
            end => panic!("the watch ended: {end:?}"),
        }
    }
}

pub async fn contents(store: &EmbeddedStore) -> BTreeMap<String, String> {
    let page = store.range(Range::default()).await.expect("range").value;
    page.items.into_iter().map(|kv| (kv.key, String::from_utf8_lossy(&kv.value).into_owned())).collect()
}
