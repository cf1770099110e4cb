//! One watch: follows etcd's events from a revision on, across lost streams, restarts and leader changes.
//!
//! Its state is the position: everything up to that revision has been delivered, nothing behind it has. Whatever goes
//! wrong with a stream, the next one starts from the position. A revision is delivered whole: its events are gathered
//! until etcd sends a later one or ends the response, and what was gathered when a stream is lost comes again.
//!
//! A stream starts not behind the position but at it, and what was delivered is left out. For etcd before 3.4.35 and
//! 3.5.16 forgets deletions made by the very revision it is compacted to, and a watch starting there would not notice;
//! started one earlier it is told of the compaction.

use std::{sync::Arc, time::Duration};

use storage::{Change, Error, Revision, WatchEvent};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::{
    client::{Client, Connection, Pauses},
    failure,
    keys::{self, KeySpace, etcd_revision},
    progress::{Marker, Proof},
    wire::{self, WatchAction, WatchRequest},
};

/// How long events of others may prove progress before the marker is written.
const GRACE: Duration = Duration::from_millis(50);
/// After this long without an answer, progress is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How long opening a stream may take before another member is tried.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How often in a row etcd may refuse a watch (our token may be old) before the reader is told.
const REFUSALS: u32 = 3;

pub(crate) struct Follower {
    pub client: Arc<Client>,
    pub keys: KeySpace,
    pub marker: Arc<Marker>,
    pub prefix: String,
    pub position: Revision,
    pub events: mpsc::Sender<Result<WatchEvent, Error>>,
    /// The revision up to which progress was asked for last. Closed with the store.
    pub asked: watch::Receiver<Revision>,
    pub awaited: Awaited,
    /// Since when there is no stream, told once.
    pub lost_since: Option<Instant>,
    /// Instead of what the version of etcd suggests.
    pub proof: Option<Proof>,
}

/// Why a stream came to its end.
enum End {
    /// Nobody listens any more, or the store is closed.
    Closed,
    Lost(Status),
    /// etcd does not want to serve this watch.
    Refused(String),
    Failed(Error),
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        End::Failed(error)
    }
}

impl Follower {
    pub async fn run(mut self) {
        let mut pauses = Pauses::default();
        let mut refusals = 0;
        loop {
            let error = match self.follow().await {
                End::Closed => return,
                End::Failed(error) => error,
                End::Refused(reason) if refusals < REFUSALS => {
                    tracing::debug!(prefix = self.prefix, reason, "etcd refused a watch; trying again");
                    refusals += 1;
                    if !self.pause(pauses.next()).await {
                        return;
                    }
                    continue;
                }
                End::Refused(reason) => Error::Unavailable(format!("etcd refuses to watch: {reason}")),
                End::Lost(status) => {
                    let (position, error) = (self.position.0, failure::describe(&status));
                    if self.lost_since.is_none() {
                        tracing::warn!(prefix = self.prefix, position, error, "the watch of etcd was lost; resuming");
                        self.lost_since = Some(Instant::now());
                        pauses = Pauses::default();
                    } else {
                        tracing::debug!(prefix = self.prefix, position, error, "the watch of etcd is still lost");
                    }
                    refusals = 0;
                    if !self.pause(pauses.next()).await {
                        return;
                    }
                    continue;
                }
            };
            let _ = self.events.send(Err(error)).await;
            return;
        }
    }

    /// Waits; `false` when the watch is over meanwhile.
    async fn pause(&mut self, pause: Duration) -> bool {
        tokio::select! {
            () = sleep(pause) => true,
            () = self.events.closed() => false,
            () = closed(self.asked.clone()) => false,
        }
    }

    /// Opens a stream and delivers what it brings.
    async fn follow(&mut self) -> End {
        let opened = tokio::select! {
            opened = timeout(OPEN_TIMEOUT, self.open()) => opened,
            () = self.events.closed() => return End::Closed,
            () = closed(self.asked.clone()) => return End::Closed,
        };
        match opened {
            Err(_) => End::Lost(Status::deadline_exceeded(format!("no watch within {OPEN_TIMEOUT:?}"))),
            Ok(Err(status)) => End::Lost(status),
            Ok(Ok(mut stream)) => {
                let Err(end) = self.deliver(&mut stream).await;
                match end {
                    End::Lost(_) => self.client.lost(&stream.connection),
                    End::Refused(_) => self.client.refused(&stream.connection).await,
                    End::Closed | End::Failed(_) => {}
                }
                end
            }
        }
    }

    async fn open(&self) -> Result<Stream, Status> {
        let connection = self.client.connect().await?;
        let proof = match self.proof {
            Some(proof) => proof,
            None => Proof::of(&connection.version().await?),
        };
        let range = match proof {
            Proof::Answer => self.keys.range(&self.prefix, None),
            Proof::Event => self.keys.everything(),
        };
        let create = wire::WatchCreateRequest {
            key: range.start,
            range_end: range.end,
            // Zero would mean "from now on".
            start_revision: etcd_revision(self.position).max(1),
            fragment: true,
        };
        Stream::open(connection, proof, create).await
    }

    async fn deliver(&mut self, stream: &mut Stream) -> Result<std::convert::Infallible, End> {
        let mut batch = Batch::default();
        loop {
            tokio::select! {
                response = stream.responses.message() => match response {
                    Ok(Some(response)) => self.receive(stream.proof, response, &mut batch).await?,
                    Ok(None) => return Err(End::Lost(Status::unavailable("etcd ended the watch"))),
                    Err(status) => return Err(End::Lost(status)),
                },
                asked = self.asked.changed() => {
                    if asked.is_err() {
                        return Err(End::Closed);
                    }
                    self.awaited.since(*self.asked.borrow_and_update(), stream.proof);
                }
                revision = self.awaited.due() => self.ask(stream, revision),
                () = self.events.closed() => return Err(End::Closed),
            }
            if self.awaited.reached(self.position) {
                self.send(WatchEvent::Progress(self.position)).await?;
            }
        }
    }

    fn ask(&self, stream: &Stream, revision: Revision) {
        match stream.proof {
            // If the requests of before still wait to be sent, one more would not help.
            Proof::Answer => drop(stream.requests.try_send(progress_request())),
            Proof::Event => {
                let marker = self.marker.clone();
                tokio::spawn(async move { marker.write(revision).await });
            }
        }
    }

    async fn receive(&mut self, proof: Proof, response: wire::WatchResponse, batch: &mut Batch) -> Result<(), End> {
        let at = keys::revision(wire::revision(&response.header));
        if response.canceled {
            return Err(match response.compact_revision {
                0 => End::Refused(response.cancel_reason),
                oldest => Error::Compacted { requested: self.position, oldest: keys::revision(oldest) }.into(),
            });
        }
        if response.created {
            if let Some(since) = self.lost_since.take() {
                let (position, after) = (self.position.0, since.elapsed());
                tracing::info!(prefix = self.prefix, position, ?after, "the watch of etcd goes on");
            }
            return if at < self.position { self.check_future().await } else { Ok(()) };
        }
        if response.events.is_empty() && batch.is_empty() {
            if proof == Proof::Answer {
                self.position = self.position.max(at);
            }
            return Ok(());
        }
        for event in response.events {
            let Some(kv) = event.kv.as_ref() else { continue };
            let revision = keys::revision(kv.mod_revision);
            if revision <= self.position {
                continue;
            }
            if revision != batch.revision {
                self.flush(batch).await?;
                batch.revision = revision;
            }
            batch.changes.extend(self.change(event)?);
        }
        if !response.fragment {
            self.flush(batch).await?;
        }
        Ok(())
    }

    /// The change of an event, if it is one that this watch selects.
    fn change(&self, event: wire::Event) -> Result<Option<Change>, Error> {
        let delete = event.is_delete();
        let Some(kv) = event.kv else { return Ok(None) };
        if !kv.key.starts_with(&self.keys.key(&self.prefix)) || kv.key == self.keys.marker() {
            return Ok(None);
        }
        let kv = self.keys.key_value(kv)?;
        Ok(Some(if delete { Change::Delete { key: kv.key, revision: kv.mod_revision } } else { Change::Put(kv) }))
    }

    async fn flush(&mut self, batch: &mut Batch) -> Result<(), End> {
        let Batch { revision, changes } = std::mem::take(batch);
        if !changes.is_empty() {
            self.send(WatchEvent::Changes { revision, changes }).await?;
        }
        self.position = self.position.max(revision);
        Ok(())
    }

    async fn send(&self, event: WatchEvent) -> Result<(), End> {
        self.events.send(Ok(event)).await.map_err(|_| End::Closed)
    }

    /// The member we are connected to has not reached our position. It may lag behind the others; but if the whole
    /// cluster has not, then the position is wrong, or etcd was set back to a backup.
    async fn check_future(&self) -> Result<(), End> {
        let current = match self.client.current_revision(self.keys.marker()).await {
            Ok(current) => current,
            Err(error) => return Err(End::Lost(Status::unavailable(error.to_string()))),
        };
        if current < self.position {
            return Err(Error::FutureRevision { requested: self.position, current }.into());
        }
        Ok(())
    }
}

/// Until the store is closed.
async fn closed(mut asked: watch::Receiver<Revision>) {
    while asked.changed().await.is_ok() {}
}

fn progress_request() -> WatchRequest {
    WatchRequest { action: Some(WatchAction::Progress(wire::WatchProgressRequest {})) }
}

struct Stream {
    connection: Connection,
    proof: Proof,
    requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<wire::WatchResponse>,
}

impl Stream {
    async fn open(connection: Connection, proof: Proof, create: wire::WatchCreateRequest) -> Result<Self, Status> {
        let (requests, outgoing) = mpsc::channel(2);
        let create = WatchRequest { action: Some(WatchAction::Create(create)) };
        let _ = requests.try_send(create);
        let responses = connection.watch(ReceiverStream::new(outgoing)).await?;
        Ok(Self { connection, proof, requests, responses })
    }
}

/// The events of one revision, as far as they have come.
#[derive(Default)]
struct Batch {
    revision: Revision,
    changes: Vec<Change>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.revision == Revision(0)
    }
}

/// Progress that somebody waits for.
#[derive(Default)]
pub(crate) struct Awaited(Option<(Revision, Instant)>);

impl Awaited {
    fn since(&mut self, revision: Revision, proof: Proof) {
        let first = match proof {
            Proof::Answer => Duration::ZERO,
            Proof::Event => GRACE,
        };
        self.0 = Some((revision, Instant::now() + first));
    }

    /// Returns when it is time to ask for progress up to the returned revision.
    async fn due(&mut self) -> Revision {
        match &mut self.0 {
            None => std::future::pending().await,
            Some((revision, at)) => {
                sleep_until(*at).await;
                *at = Instant::now() + ASK_AGAIN;
                *revision
            }
        }
    }

    /// Whether what was awaited has come; if so, nothing is awaited any more.
    fn reached(&mut self, position: Revision) -> bool {
        let reached = self.0.is_some_and(|(revision, _)| position >= revision);
        if reached {
            self.0 = None;
        }
        reached
    }
}

/// The revision that etcd is compacted to. Only a watch that starts before it is told.
pub(crate) async fn compaction_revision(client: &Client, keys: &KeySpace) -> Option<Revision> {
    let probe = async {
        let connection = client.connect().await.ok()?;
        let key = keys.marker();
        let create = wire::WatchCreateRequest { key, start_revision: 1, ..Default::default() };
        let mut stream = Stream::open(connection, Proof::Answer, create).await.ok()?;
        loop {
            let response = stream.responses.message().await.ok()??;
            if response.compact_revision > 0 {
                return Some(keys::revision(response.compact_revision));
            }
        }
    };
    timeout(Duration::from_secs(2), probe).await.ok().flatten()
}
