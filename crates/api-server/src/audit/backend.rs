//! From events to a place outside: a bounded queue, batches, and how long requests wait for them.
//!
//! One task per backend takes events from its queue and hands them to a [`Sink`] in batches. In batch mode a request never
//! waits: when the queue is full, events are dropped and counted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout_at},
};

use super::event::Event;

/// Where events end up.
#[async_trait]
pub trait Sink: Send + 'static {
    fn name(&self) -> &'static str;

    /// Writes all of them, or says why not.
    async fn write(&mut self, events: &[Arc<Event>]) -> Result<(), String>;
}

/// Whether requests wait until their events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They do not.
    #[default]
    Batch,
    /// They do.
    Blocking,
    /// They do, and are refused if the first event of theirs cannot be written.
    BlockingStrict,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batching {
    pub mode: Mode,
    /// How many events may wait.
    pub buffer_size: usize,
    pub max_size: usize,
    /// How long a batch waits to become full.
    pub max_wait: Duration,
    pub throttle: Option<Throttle>,
}

/// How many batches go out: so many a second, and so many at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    pub per_second: f64,
    pub burst: u32,
}

pub struct Backend {
    name: &'static str,
    mode: Mode,
    queue: mpsc::Sender<Item>,
    pub counts: Arc<Counts>,
}

#[derive(Default)]
pub struct Counts {
    pub failed: AtomicU64,
    pub dropped: AtomicU64,
}

struct Item {
    /// None asks only to be told when everything before is written.
    event: Option<Arc<Event>>,
    written: Option<oneshot::Sender<bool>>,
}

impl Backend {
    pub fn start(sink: impl Sink, batching: Batching) -> Self {
        let (queue, events) = mpsc::channel(batching.buffer_size.max(1));
        let counts = Arc::new(Counts::default());
        let name = sink.name();
        tokio::spawn(Worker { sink, batching, events, counts: counts.clone(), tokens: Tokens::new(batching) }.run());
        Self { name, mode: batching.mode, queue, counts }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn is_strict(&self) -> bool {
        self.mode == Mode::BlockingStrict
    }

    /// Queues an event; in a blocking mode waits until it is written. False if it was lost.
    pub async fn record(&self, event: Arc<Event>) -> bool {
        if self.mode == Mode::Batch {
            return self.offer(event);
        }
        let (written, told) = oneshot::channel();
        let item = Item { event: Some(event), written: Some(written) };
        self.queue.send(item).await.is_ok() && told.await.unwrap_or(false)
    }

    /// Queues an event without waiting, whatever the mode.
    pub fn offer(&self, event: Arc<Event>) -> bool {
        let taken = self.queue.try_send(Item { event: Some(event), written: None }).is_ok();
        if !taken && self.counts.dropped.fetch_add(1, Ordering::Relaxed).is_power_of_two() {
            tracing::error!(backend = self.name, "audit events are dropped: the queue is full");
        }
        taken
    }

    /// Waits until everything that is queued has been written.
    pub async fn flush(&self) {
        let (written, told) = oneshot::channel();
        if self.queue.send(Item { event: None, written: Some(written) }).await.is_ok() {
            let _ = told.await;
        }
    }
}

struct Worker<S> {
    sink: S,
    batching: Batching,
    events: mpsc::Receiver<Item>,
    counts: Arc<Counts>,
    tokens: Option<Tokens>,
}

impl<S: Sink> Worker<S> {
    async fn run(mut self) {
        loop {
            let batch = self.collect().await;
            if batch.is_empty() {
                return;
            }
            let events: Vec<_> = batch.iter().filter_map(|item| item.event.clone()).collect();
            let mut done = true;
            if !events.is_empty() {
                if let Some(tokens) = &mut self.tokens {
                    tokens.take().await;
                }
                if let Err(error) = self.sink.write(&events).await {
                    done = false;
                    self.counts.failed.fetch_add(events.len() as u64, Ordering::Relaxed);
                    tracing::error!(backend = self.sink.name(), %error, events = events.len(), "audit events are lost");
                }
            }
            for told in batch.into_iter().filter_map(|item| item.written) {
                let _ = told.send(done);
            }
        }
    }

    /// The next batch: full, or as old as it may get, or with somebody waiting for it. Empty at the end.
    async fn collect(&mut self) -> Vec<Item> {
        let mut batch = Vec::new();
        let Some(first) = self.events.recv().await else { return batch };
        let until = Instant::now() + self.batching.max_wait;
        let mut urgent = first.written.is_some();
        batch.push(first);
        while batch.len() < self.batching.max_size.max(1) {
            let next = match self.events.try_recv() {
                Ok(item) => item,
                Err(_) if urgent => break,
                Err(_) => match timeout_at(until, self.events.recv()).await {
                    Ok(Some(item)) => item,
                    _ => break,
                },
            };
            urgent |= next.written.is_some();
            batch.push(next);
        }
        batch
    }
}

/// A token bucket.
struct Tokens {
    throttle: Throttle,
    left: f64,
    since: Instant,
}

impl Tokens {
    fn new(batching: Batching) -> Option<Self> {
        let throttle = batching.throttle.filter(|t| t.per_second > 0.0 && batching.mode == Mode::Batch)?;
        Some(Self { throttle, left: f64::from(throttle.burst.max(1)), since: Instant::now() })
    }

    async fn take(&mut self) {
        let now = Instant::now();
        let most = f64::from(self.throttle.burst.max(1));
        self.left = (self.left + (now - self.since).as_secs_f64() * self.throttle.per_second).min(most) - 1.0;
        self.since = now;
        if self.left < 0.0 {
            sleep_until(now + Duration::from_secs_f64(-self.left / self.throttle.per_second)).await;
        }
    }
}
