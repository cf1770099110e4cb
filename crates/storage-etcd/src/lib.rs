//! The storage engine for clusters: a real etcd, 3.4 or later, over its v3 API.
//!
//! Several API servers share one etcd through one engine each; everything is ordered by etcd's own revision. The
//! engine keeps no state that matters: what it promises it gets from etcd, and while etcd is away, slow or without a
//! leader it waits, tells (by `tracing`) and resumes.
//!
//! - Reads are linearizable and repeated until the caller's patience ends ([`Options::patience`]).
//! - A write that may have been executed is never sent again: its caller gets [`Error::Unavailable`].
//! - A watch resumes by itself where it was, see `watch.rs`, and knows its progress, see `progress.rs`.
//! - Every commit is durable; [`storage::Durability::Relaxed`] makes no difference.
//! - Compaction ([`keep_compact`]) concerns the whole etcd, also what others keep in it.
//! - etcd's default limit for a request is the size of the largest value alone. To accept it, start etcd with
//!   `--max-request-bytes=2097152`.

mod client;
mod compaction;
mod failure;
mod keys;
mod leases;
mod options;
mod progress;
#[cfg(feature = "testing")]
pub mod testing;
mod watch;
mod wire;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use storage::{
    At, Compare, Error, Expected, KeyValue, Lifetime, Operation, Outcome, Page, Range, Revision, Store, Transaction,
    Watch,
};
use tonic::Status;

pub use crate::compaction::keep_compact;
pub use crate::options::{Credentials, Options, OptionsError, Tls};
use crate::{
    client::{Client, Repeat, method},
    keys::{KeySpace, etcd_revision},
    leases::Leases,
    progress::{Marker, Proof},
    watch::{Awaited, Follower},
    wire::{Request, RequestOp},
};

/// How many events a watch holds for its reader; behind them etcd waits.
const WATCH_BUFFER: usize = 256;
/// How many keys are read at once. Larger ranges are read in pieces, at one revision.
const PIECE: usize = 1000;
/// How often idle watches learn the current revision. Otherwise a watch that is lost after a long silence would have
/// to resume from a revision that is compacted by now.
const HEARTBEAT: Duration = Duration::from_secs(60);

/// A store on etcd.
pub struct Etcd {
    inner: Arc<Inner>,
}

/// What etcd answers to a range.
struct Pieces {
    kvs: Vec<wire::KeyValue>,
    remaining: u64,
}

struct Inner {
    client: Arc<Client>,
    keys: KeySpace,
    leases: Leases,
    marker: Arc<Marker>,
    /// The revision up to which watches shall report progress.
    asked: tokio::sync::watch::Sender<Revision>,
    proof: Option<Proof>,
}

impl Etcd {
    /// An engine for the etcd that `options` describe. Connects when needed: etcd need not be there yet. Must be called
    /// inside a tokio runtime.
    pub fn open(options: Options) -> Result<Self, OptionsError> {
        Self::with_proof(options, None)
    }

    /// An engine that trusts etcd's answers to progress requests whatever its version, to test them where only an
    /// older etcd is at hand.
    #[cfg(feature = "testing")]
    pub fn open_trusting_progress_answers(options: Options) -> Result<Self, OptionsError> {
        Self::with_proof(options, Some(Proof::Answer))
    }

    fn with_proof(options: Options, proof: Option<Proof>) -> Result<Self, OptionsError> {
        let keys = KeySpace::new(&options.prefix);
        let client = Arc::new(Client::new(options)?);
        let marker = Arc::new(Marker::new(client.clone(), keys.marker()));
        let asked = tokio::sync::watch::Sender::new(Revision(0));
        let inner = Arc::new(Inner { client, keys, leases: Leases::default(), marker, asked, proof });
        tokio::spawn(heartbeat(Arc::downgrade(&inner)));
        Ok(Self { inner })
    }
}

async fn heartbeat(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        let Some(inner) = inner.upgrade() else { return };
        if inner.asked.receiver_count() > 0 {
            // An etcd that is away has no news; its watches say so themselves.
            let _ = inner.request_progress().await;
        }
    }
}

impl Inner {
    async fn current_revision(&self) -> Result<Revision, Error> {
        self.client.current_revision(self.keys.marker()).await
    }

    async fn request_progress(&self) -> Result<(), Error> {
        let current = self.current_revision().await?;
        self.asked.send_replace(current);
        Ok(())
    }

    /// What a failed read or compaction means to the caller.
    async fn refusal(&self, status: Status, requested: Revision) -> Error {
        if failure::is_compacted(&status) {
            let oldest = watch::compaction_revision(&self.client, &self.keys).await;
            return Error::Compacted { requested, oldest: oldest.unwrap_or(Revision(requested.0 + 1)) };
        }
        if failure::is_future(&status) {
            return match self.current_revision().await {
                Ok(current) => Error::FutureRevision { requested, current },
                Err(error) => error,
            };
        }
        failure::error(&status)
    }

    async fn read(&self, request: wire::RangeRequest) -> Result<wire::RangeResponse, Status> {
        self.client.call(method::RANGE, request, Repeat::Harmless).await
    }

    /// The pieces of a range, all at the revision of the first.
    async fn pieces(&self, range: &Range) -> Result<At<Pieces>, Status> {
        let mut at = range.revision;
        let mut wanted = self.keys.range(&range.prefix, range.after.as_deref());
        let mut kvs: Vec<wire::KeyValue> = Vec::new();
        loop {
            let limit = range.limit.map_or(PIECE, |limit| PIECE.min(limit.saturating_sub(kvs.len())));
            let request = wire::RangeRequest {
                key: wanted.start,
                range_end: wanted.end.clone(),
                limit: limit as i64,
                revision: at.map_or(0, read_revision),
                count_only: limit == 0,
            };
            let answer = self.read(request).await?;
            let revision = *at.get_or_insert(keys::revision(wire::revision(&answer.header)));
            let remaining = (answer.count.max(0).cast_unsigned()).saturating_sub(answer.kvs.len() as u64);
            let full = range.limit.is_some_and(|limit| kvs.len() + answer.kvs.len() >= limit);
            let last = answer.kvs.last().map(|kv| kv.key.clone());
            kvs.extend(answer.kvs);
            match last {
                Some(mut key) if remaining > 0 && !full => {
                    key.push(0);
                    wanted.start = key.into();
                }
                _ => return Ok(At { revision, value: Pieces { kvs, remaining } }),
            }
        }
    }

    async fn transaction(&self, transaction: &Transaction) -> Result<wire::TxnRequest, Status> {
        let mut granted: Vec<(Duration, i64)> = Vec::new();
        let mut success = Vec::with_capacity(transaction.operations.len());
        for operation in &transaction.operations {
            let request = match operation {
                Operation::Delete { key } => Request::DeleteRange(wire::DeleteRangeRequest { key: self.keys.key(key) }),
                Operation::Put { key, value, lifetime } => {
                    let lease = match lifetime {
                        Lifetime::Endless | Lifetime::Kept => 0,
                        Lifetime::For(ttl) => match granted.iter().find(|(granted, _)| granted == ttl) {
                            Some((_, lease)) => *lease,
                            None => {
                                let lease = self.leases.lease(&self.client, *ttl).await?;
                                granted.push((*ttl, lease));
                                lease
                            }
                        },
                    };
                    let ignore_lease = *lifetime == Lifetime::Kept;
                    Request::Put(wire::PutRequest {
                        key: self.keys.key(key),
                        value: value.clone(),
                        lease,
                        ignore_lease,
                    })
                }
            };
            success.push(RequestOp { request: Some(request) });
        }
        let get = |compare: &Compare| {
            let request = wire::RangeRequest { key: self.keys.key(&compare.key), ..Default::default() };
            RequestOp { request: Some(Request::Range(request)) }
        };
        Ok(wire::TxnRequest {
            compare: transaction.compares.iter().map(|compare| self.compare(compare)).collect(),
            success,
            failure: transaction.compares.iter().map(get).collect(),
        })
    }

    fn compare(&self, compare: &Compare) -> wire::Compare {
        let revision = match compare.expected {
            Expected::Absent => 0,
            // No key was ever written by it, but to etcd it would mean "absent".
            Expected::ModRevision(Revision(0)) => -1,
            Expected::ModRevision(revision) => etcd_revision(revision),
        };
        wire::Compare::with_mod_revision(self.keys.key(&compare.key), revision)
    }

    fn outcome(&self, answer: wire::TxnResponse) -> Result<Outcome, Error> {
        let revision = keys::revision(wire::revision(&answer.header));
        if answer.succeeded {
            return Ok(Outcome::Committed(revision));
        }
        let found = answer.responses.into_iter().map(|response| self.first(response.range.unwrap_or_default()));
        Ok(Outcome::Conflict(At { revision, value: found.collect::<Result<_, _>>()? }))
    }

    fn first(&self, answer: wire::RangeResponse) -> Result<Option<KeyValue>, Error> {
        answer.kvs.into_iter().next().map(|kv| self.keys.key_value(kv)).transpose()
    }
}

/// To etcd zero means "now"; at its revision one there is nothing yet.
fn read_revision(revision: Revision) -> i64 {
    etcd_revision(revision).max(1)
}

#[async_trait]
impl Store for Etcd {
    async fn current_revision(&self) -> Result<Revision, Error> {
        self.inner.current_revision().await
    }

    async fn get(&self, key: &str, revision: Option<Revision>) -> Result<At<Option<KeyValue>>, Error> {
        let request = wire::RangeRequest {
            key: self.inner.keys.key(key),
            revision: revision.map_or(0, read_revision),
            ..Default::default()
        };
        match self.inner.read(request).await {
            Ok(answer) => {
                let revision = revision.unwrap_or(keys::revision(wire::revision(&answer.header)));
                Ok(At { revision, value: self.inner.first(answer)? })
            }
            Err(status) => Err(self.inner.refusal(status, revision.unwrap_or_default()).await),
        }
    }

    async fn range(&self, range: Range) -> Result<At<Page>, Error> {
        loop {
            match self.inner.pieces(&range).await {
                Ok(At { revision, value: Pieces { kvs, remaining } }) => {
                    let items = kvs.into_iter().map(|kv| self.inner.keys.key_value(kv)).collect::<Result<_, _>>()?;
                    return Ok(At { revision, value: Page { items, remaining } });
                }
                // Compacted between two pieces; "now" is a newer revision.
                Err(status) if range.revision.is_none() && failure::is_compacted(&status) => {}
                Err(status) => return Err(self.inner.refusal(status, range.revision.unwrap_or_default()).await),
            }
        }
    }

    async fn commit(&self, transaction: Transaction) -> Result<Outcome, Error> {
        transaction.validate()?;
        let mut leases_lost = 0;
        loop {
            let answer = match self.inner.transaction(&transaction).await {
                Ok(request) => self.inner.client.call(method::TXN, request, Repeat::Never).await,
                Err(status) => Err(status),
            };
            match answer {
                Ok(answer) => return self.inner.outcome(answer),
                // etcd looks for all leases before it changes anything.
                Err(status) if failure::is_lease_not_found(&status) && leases_lost < 3 => {
                    leases_lost += 1;
                    self.inner.leases.forget().await;
                }
                Err(status) => return Err(failure::error(&status)),
            }
        }
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error> {
        let (events, watch) = Watch::channel(WATCH_BUFFER);
        let follower = Follower {
            client: self.inner.client.clone(),
            keys: self.inner.keys.clone(),
            marker: self.inner.marker.clone(),
            prefix: prefix.to_owned(),
            position: after,
            events,
            asked: self.inner.asked.subscribe(),
            awaited: Awaited::default(),
            lost_since: None,
            proof: self.inner.proof,
        };
        tokio::spawn(follower.run());
        Ok(watch)
    }

    async fn request_progress(&self) -> Result<(), Error> {
        self.inner.request_progress().await
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        if revision == Revision(0) {
            return Ok(());
        }
        let request = wire::CompactionRequest { revision: etcd_revision(revision) };
        let answer: Result<wire::CompactionResponse, _> =
            self.inner.client.call(method::COMPACT, request, Repeat::Harmless).await;
        match answer {
            Ok(_) => Ok(()),
            Err(status) if failure::is_compacted(&status) => Ok(()),
            Err(status) => Err(self.inner.refusal(status, revision).await),
        }
    }
}
