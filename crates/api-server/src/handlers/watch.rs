//! WATCH: the events of a selection, as lines of JSON or frames of protobuf, or as messages of a WebSocket.
//!
//! A state machine: the initial events (if asked for), then the live ones, with bookmarks when nothing happens, until the
//! time is up, the server drains, or the window has moved on (which the client is told with a 410).

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use hyper::{Request, Response, header};
use object_model::status::{Reason, Status};
use storage::Revision;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{
    Call,
    read::negotiate_for,
    respond::{Encoded, Writer},
};
use crate::{
    body::{Body, Chunks, RequestBody},
    chain::SENT_WITHIN,
    context::TakenSeats,
    negotiation::{Content, Encoding},
    options::ListOptions,
    registry::{Items, Selection, parse_revision, store_error},
    streaming,
    watch_cache::{Entry, WatchCache, Watcher},
};

/// How long a watch lasts that names no time: between this and twice this, so that they do not all end at once.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// However long it was asked to last.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// So long before its end a watch gets a last bookmark, from which the next one can go on.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_millis(5);
/// How much of a burst goes out in one write.
const BURST_BYTES: usize = 64 << 10;
/// What an event has beside the object's body, roughly.
const WRAPPING: usize = 192;

pub async fn watch(call: &Call<'_>, request: Request<RequestBody>) -> Result<Response<Body>, Status> {
    let options = ListOptions::read(&call.query)?;
    let content = Content::Events { custom: call.resource.custom };
    let (encoding, writer) = negotiate_for(content, call, request.headers(), options.include_object.as_deref())?;
    let drain = &call.server.drain;
    let mut lasts = Duration::ZERO;
    let body = match begin(call, &options).await {
        Ok(start) => {
            let (cache, seats) = (call.server.registry.cache.clone(), call.context.seats.clone());
            lasts = start.timeout;
            Body::Chunks(Box::new(WatchStream::new(cache, writer, start, drain.clone(), seats)))
        }
        // Clients look for this among the events, whether the past is gone now or later.
        Err(expired) if expired.is(Reason::EXPIRED) => {
            let mut out = BytesMut::new();
            writer.error(&expired, &mut out);
            Body::from(out.freeze())
        }
        Err(status) => return Err(status),
    };
    if ::streaming::upgrade::is_websocket(request.headers()) {
        let framing = match encoding {
            Encoding::Protobuf => streaming::Framing::Frames,
            _ => streaming::Framing::Lines,
        };
        call.context.seats.give_back_after(SENT_WITHIN);
        let drain = drain.clone();
        // Whoever does not read does not let it come to its end.
        let over = async move {
            let _ = tokio::time::timeout(lasts, drain.cancelled()).await;
            tokio::time::sleep(LAST_BOOKMARK).await;
        };
        return streaming::over_websocket(request, body, framing, over);
    }
    let mut response = Response::new(body);
    let media = match encoding {
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        _ => "application/json",
    };
    let media = header::HeaderValue::from_static(media);
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    Ok(response)
}

/// Where a watch begins: at a revision, or with everything there is.
async fn begin(call: &Call<'_>, options: &ListOptions) -> Result<Start, Status> {
    options.validate_watch()?;
    let registry = &call.server.registry;
    let cache = &call.resource.cache;
    let selection = Selection::new(&call.target(), options)?;
    let timeout = match options.timeout_seconds {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds).min(LONGEST),
        _ => DEFAULT_TIMEOUT + DEFAULT_TIMEOUT.mul_f64(jitter()),
    };
    let version = options.resource_version.as_str();
    let from_scratch = options.send_initial_events == Some(true) || matches!(version, "" | "0");
    let (mut initial, mut initial_end) = (VecDeque::new(), None);
    let after = if from_scratch && options.send_initial_events != Some(false) {
        registry.settle(version).await?;
        let (snapshot, revision) = registry.cache.snapshot(cache);
        let prefix = selection.prefix();
        Items::Snapshot { snapshot, prefix, after: None, selection: selection.clone() }.each(|entry| {
            initial.push_back(entry.clone());
            true
        });
        initial_end = (options.send_initial_events == Some(true)).then_some(revision);
        revision
    } else if matches!(version, "" | "0") {
        registry.settle(version).await?;
        registry.cache.snapshot(cache).1
    } else {
        let after = parse_revision(version)?;
        registry.cache.reach(after).await.map_err(store_error)?;
        after
    };
    let watcher = cache.watch(selection.scope(), after).map_err(|_| too_old(after))?;
    let bookmarks = options.allow_watch_bookmarks;
    Ok(Start { watcher, selection, initial, initial_end, bookmarks, timeout })
}

fn too_old(after: Revision) -> Status {
    Status::expired(format!("too old resource version: {after}"))
}

/// A fraction that differs from watch to watch.
fn jitter() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    (RandomState::new().hash_one(0u8) % 1000) as f64 / 1000.0
}

struct WatchStream {
    cache: Arc<WatchCache>,
    watcher: Watcher,
    selection: Selection,
    writer: Writer,
    /// Objects that are told as ADDED before anything else.
    initial: VecDeque<Arc<Entry>>,
    /// Kept until those have been told.
    seats: Option<TakenSeats>,
    /// The bookmark that ends the initial events.
    initial_end: Option<Revision>,
    bookmarks: bool,
    next_bookmark: Pin<Box<Sleep>>,
    deadline: Pin<Box<Sleep>>,
    drain: Pin<Box<WaitForCancellationFutureOwned>>,
    ended: bool,
}

/// What a watch starts with.
struct Start {
    watcher: Watcher,
    selection: Selection,
    initial: VecDeque<Arc<Entry>>,
    initial_end: Option<Revision>,
    bookmarks: bool,
    timeout: Duration,
}

impl WatchStream {
    fn new(cache: Arc<WatchCache>, writer: Writer, start: Start, drain: CancellationToken, seats: TakenSeats) -> Self {
        let deadline = Instant::now() + start.timeout;
        Self {
            cache,
            watcher: start.watcher,
            selection: start.selection,
            writer,
            initial: start.initial,
            seats: Some(seats),
            initial_end: start.initial_end,
            bookmarks: start.bookmarks,
            next_bookmark: Box::pin(tokio::time::sleep_until(next_bookmark(deadline))),
            deadline: Box::pin(tokio::time::sleep_until(deadline)),
            drain: Box::pin(drain.cancelled_owned()),
            ended: false,
        }
    }

    /// Everything that can be told right now.
    fn fill(&mut self, out: &mut BytesMut) {
        while out.len() < BURST_BYTES {
            if let Some(entry) = self.initial.pop_front() {
                self.tell("ADDED", &entry, out);
                continue;
            }
            if let Some(seats) = self.seats.take() {
                seats.give_back();
            }
            if let Some(revision) = self.initial_end.take() {
                self.writer.bookmark(revision, true, out);
            }
            match self.watcher.take() {
                Ok(Some(event)) => {
                    if let Some((kind, entry)) = event.seen_by(|e| self.selection.selects(e)) {
                        self.tell(kind.name(), &entry, out);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    let status = store_error(error);
                    let expired = status.code == 410;
                    self.writer.error(&if expired { Status::expired("too old resource version") } else { status }, out);
                    self.ended = true;
                    return;
                }
            }
        }
    }

    fn tell(&mut self, kind: &str, entry: &Entry, out: &mut BytesMut) {
        // Most often there is one event, copied from the entry into a buffer that just fits.
        out.reserve(entry.body.len() + WRAPPING);
        self.writer.event(kind, Encoded { api_version: &entry.api_version, body: &entry.body }, out);
    }
}

/// When the next bookmark of a watch is due that ends at `deadline`.
fn next_bookmark(deadline: Instant) -> Instant {
    let now = Instant::now();
    let last = deadline.checked_sub(LAST_BOOKMARK).filter(|last| *last > now);
    last.map_or(now + BOOKMARK_EVERY, |last| last.min(now + BOOKMARK_EVERY))
}

impl Chunks for WatchStream {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mut out = BytesMut::new();
        loop {
            // First, or a watch that always has something to tell would never end.
            if self.deadline.as_mut().poll(cx).is_ready() || self.drain.as_mut().poll(cx).is_ready() {
                self.ended = true;
                return Poll::Ready(None);
            }
            // What was applied before the queue was found empty has been told.
            let applied = self.cache.applied();
            self.fill(&mut out);
            if !out.is_empty() || self.ended {
                return Poll::Ready(Some(out.freeze()));
            }
            if self.next_bookmark.as_mut().poll(cx).is_ready() {
                // What was told may be ahead of what is applied to all resources, but only for a moment.
                let ahead = self.watcher.seen() > applied;
                let next = if ahead { Instant::now() + SOON } else { next_bookmark(self.deadline.deadline()) };
                self.next_bookmark.as_mut().reset(next);
                if self.bookmarks && !ahead {
                    self.writer.bookmark(applied, false, &mut out);
                    return Poll::Ready(Some(out.freeze()));
                }
            }
            if self.watcher.poll_filled(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}
