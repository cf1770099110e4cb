//! The vocabulary of a store: revisions, reads, transactions, watches and what can go wrong.

use std::{collections::HashSet, fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

/// The largest value a store accepts, in bytes. The same limit as etcd's default request size.
pub const MAX_VALUE_BYTES: usize = 1_572_864;

/// A point in the history of the whole store. Zero is before anything was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One key as it was at some revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: String,
    pub value: Bytes,
    /// The revision that created the key (after its last deletion, if any).
    pub create_revision: Revision,
    /// The revision that wrote this value.
    pub mod_revision: Revision,
}

/// An answer together with the revision of the store at which it was true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At<T> {
    pub revision: Revision,
    pub value: T,
}

/// Which keys to read, and when.
#[derive(Clone, Debug, Default)]
pub struct Range {
    /// Only keys that start with this.
    pub prefix: String,
    /// Only keys strictly after this one (where the previous page ended).
    pub after: Option<String>,
    /// At this revision; `None` is the newest, linearizable.
    pub revision: Option<Revision>,
    /// At most this many keys; `None` is all.
    pub limit: Option<usize>,
}

impl Range {
    pub fn prefix(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..Self::default() }
    }
}

/// One page of a range, in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub items: Vec<KeyValue>,
    /// How many keys of the range follow after this page.
    pub remaining: u64,
}

/// What a transaction demands of a key before it writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    pub key: String,
    pub expected: Expected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The key does not exist.
    Absent,
    /// The key exists and was last written by this revision.
    ModRevision(Revision),
}

/// A change to one key. A transaction names each key at most once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A put is a change even if the value is the same.
    Put { key: String, value: Bytes, lifetime: Lifetime },
    /// Deleting a key that does not exist changes nothing.
    Delete { key: String },
}

/// How long a key stays that nobody deletes. The last put alone decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifetime {
    #[default]
    Endless,
    /// The store deletes the key (with an event) that long after the put. An engine may round it up to its own smallest,
    /// and be a few seconds late.
    For(Duration),
    /// As the put before said, counted from then. Only for a key that a compare of the transaction says exists.
    Kept,
}

impl From<Option<Duration>> for Lifetime {
    fn from(ttl: Option<Duration>) -> Self {
        ttl.map_or(Lifetime::Endless, Lifetime::For)
    }
}

impl Operation {
    pub fn key(&self) -> &str {
        match self {
            Operation::Put { key, .. } | Operation::Delete { key } => key,
        }
    }
}

/// When a commit is acknowledged, relative to its being on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// After it is durable.
    #[default]
    Durable,
    /// Once it is ordered and visible; it becomes durable with the next durable commit or shortly after, and is never
    /// reordered. For node heartbeats and events only. An engine without the distinction treats it as durable.
    Relaxed,
}

/// Compares, then applies all operations at one new revision, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    pub compares: Vec<Compare>,
    pub operations: Vec<Operation>,
    pub durability: Durability,
}

impl Transaction {
    pub fn require(mut self, key: impl Into<String>, expected: Expected) -> Self {
        self.compares.push(Compare { key: key.into(), expected });
        self
    }

    pub fn put(mut self, key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.operations.push(Operation::Put { key: key.into(), value: value.into(), lifetime: Lifetime::Endless });
        self
    }

    pub fn put_with_ttl(mut self, key: impl Into<String>, value: impl Into<Bytes>, ttl: Duration) -> Self {
        let lifetime = Lifetime::For(ttl);
        self.operations.push(Operation::Put { key: key.into(), value: value.into(), lifetime });
        self
    }

    pub fn delete(mut self, key: impl Into<String>) -> Self {
        self.operations.push(Operation::Delete { key: key.into() });
        self
    }

    pub fn relaxed(mut self) -> Self {
        self.durability = Durability::Relaxed;
        self
    }

    /// What every engine checks before anything else: keys are not empty and contain no NUL, no key is changed twice,
    /// no value is too large.
    pub fn validate(&self) -> Result<(), Error> {
        let keys = self.compares.iter().map(|compare| compare.key.as_str());
        for key in keys.chain(self.operations.iter().map(Operation::key)) {
            if key.is_empty() || key.contains('\0') {
                return Err(Error::Invalid(format!("the key {key:?} is empty or contains a NUL")));
            }
        }
        let mut changed = HashSet::new();
        for operation in &self.operations {
            if self.operations.len() > 1 && !changed.insert(operation.key()) {
                return Err(Error::Invalid(format!("the key {} is changed twice", operation.key())));
            }
            if let Operation::Put { key, value, .. } = operation
                && value.len() > MAX_VALUE_BYTES
            {
                return Err(Error::TooLarge { key: key.clone(), bytes: value.len() });
            }
        }
        Ok(())
    }
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All operations are applied. A transaction that changed nothing carries the revision current at that moment.
    Committed(Revision),
    /// A compare did not hold and nothing was applied. One entry per compare, as the key was at that moment.
    Conflict(At<Vec<Option<KeyValue>>>),
}

/// Something that happened to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put(KeyValue),
    Delete { key: String, revision: Revision },
}

/// What a watch delivers, in revision order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// All changes of one revision that the watch selects: never split, never empty.
    Changes { revision: Revision, changes: Vec<Change> },
    /// Everything up to and including this revision has been delivered.
    Progress(Revision),
}

/// The events of one watch. Dropping it ends the watch. After an `Err` item (for example
/// [`Error::Compacted`] when the reader was too slow) the watch has ended; an engine never drops an event silently.
pub struct Watch {
    events: mpsc::Receiver<Result<WatchEvent, Error>>,
    translate: Option<Translate>,
}

type Translate = Box<dyn FnMut(WatchEvent) -> Result<WatchEvent, Error> + Send>;

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch {
    /// For engines: a watch fed through the returned sender.
    pub fn channel(capacity: usize) -> (mpsc::Sender<Result<WatchEvent, Error>>, Self) {
        let (sender, events) = mpsc::channel(capacity);
        (sender, Self { events, translate: None })
    }

    /// For layers over a store: the same watch with every event passed through `translate`. An error of it ends the
    /// watch.
    pub fn translated(
        self,
        mut translate: impl FnMut(WatchEvent) -> Result<WatchEvent, Error> + Send + 'static,
    ) -> Self {
        let translate: Translate = match self.translate {
            Some(mut first) => Box::new(move |event| translate(first(event)?)),
            None => Box::new(translate),
        };
        Self { events: self.events, translate: Some(translate) }
    }

    /// The next event, or `None` once the store is closed.
    pub async fn next(&mut self) -> Option<Result<WatchEvent, Error>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    pub fn poll_next(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Option<Result<WatchEvent, Error>>> {
        let event = std::task::ready!(self.events.poll_recv(cx));
        std::task::Poll::Ready(match (event, &mut self.translate) {
            (Some(Ok(event)), Some(translate)) => {
                let translated = translate(event);
                if translated.is_err() {
                    self.events = mpsc::channel(1).1;
                }
                Some(translated)
            }
            (event, _) => event,
        })
    }
}

/// Why the store could not answer.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    #[error("revision {requested} has been compacted; the oldest kept is {oldest}: list again and continue from there")]
    Compacted { requested: Revision, oldest: Revision },
    #[error("revision {requested} is in the future; the store is at {current}")]
    FutureRevision { requested: Revision, current: Revision },
    #[error("the value of {key} has {bytes} bytes; at most {MAX_VALUE_BYTES} are accepted")]
    TooLarge { key: String, bytes: usize },
    #[error("the transaction is malformed: {0}")]
    Invalid(String),
    /// Not a verdict: whether a write that got this answer took effect is unknown.
    #[error("the store cannot be reached right now: {0}")]
    Unavailable(String),
    /// The store gave a value that a layer over it cannot make sense of. A commit with this answer changed nothing.
    #[error("the value of {key} cannot be read: {reason}")]
    Unreadable { key: String, reason: String },
    #[error("the store is damaged: {0}")]
    Corrupt(String),
}

/// A revisioned, watchable, transactional map. See the crate documentation for its model.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The newest revision, linearizable: not older than any write acknowledged before the call.
    async fn current_revision(&self) -> Result<Revision, Error>;

    /// One key, at a revision or now (linearizable).
    async fn get(&self, key: &str, revision: Option<Revision>) -> Result<At<Option<KeyValue>>, Error>;

    /// The keys of a range in order. `At::revision` is the revision to continue at.
    async fn range(&self, range: Range) -> Result<At<Page>, Error>;

    /// Compare and commit, after [`Transaction::validate`]. Dropping the future does not undo it.
    async fn commit(&self, transaction: Transaction) -> Result<Outcome, Error>;

    /// Every change of keys with `prefix` at revisions greater than `after`, first those of history, then those to
    /// come, each exactly once and in order. An `after` below the compaction revision is [`Error::Compacted`], one that
    /// the store has not reached is [`Error::FutureRevision`]: either from the call or as the first item.
    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error>;

    /// Asks every open watch of this store to report [`WatchEvent::Progress`] soon.
    async fn request_progress(&self) -> Result<(), Error>;

    /// Forgets history below `revision`: values that were already superseded at it. Current values stay; reads at
    /// `revision` and watches after it still work. Done already is fine; in the future is [`Error::FutureRevision`].
    async fn compact(&self, revision: Revision) -> Result<(), Error>;
}
