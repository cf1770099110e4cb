//! A priority level at work: its queues, who waits in them, and the seats that are taken.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use object_model::value::Fields;
use serde_json::Value;
use tokio::sync::oneshot;

use super::{
    allocation::{Seats, Shares},
    metrics::Counts,
    queue_set::{Arrival, Dispatched, Figures, Lingering, QueueFigures, QueueSet, Refusal, Response, Seat, Work},
};

pub struct Level {
    pub name: String,
    clock: Instant,
    set: Mutex<QueueSet<Waiter>>,
    pub seats: Mutex<Seats>,
    hand: AtomicUsize,
    widest: AtomicU32,
}

/// A request that waits.
pub struct Waiter {
    tell: oneshot::Sender<(Seat, Duration)>,
    pub about: About,
}

/// What is shown of a request that waits.
#[derive(Clone, Debug, Default)]
pub struct About {
    pub schema: Arc<str>,
    pub flow: Box<str>,
    pub user: Box<str>,
    pub verb: &'static str,
    pub path: Box<str>,
}

/// What the configuration of a level says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    pub response: Response,
    pub shares: Shares,
}

impl Rules {
    pub fn of(object: &Value) -> Self {
        let spec = &object["spec"];
        let exempt = spec.text("type") == "Exempt";
        let part = if exempt { &spec["exempt"] } else { &spec["limited"] };
        let number = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
        let queuing = &part["limitResponse"]["queuing"];
        let size = |name: &str| queuing[name].as_u64().map_or(1, |n| n as usize);
        let response = match (exempt, queuing.is_object()) {
            (true, _) => Response::Exempt,
            (false, false) => Response::Reject,
            (false, true) => {
                Response::Queue { queues: size("queues"), hand: size("handSize"), length: size("queueLengthLimit") }
            }
        };
        let shares = Shares {
            exempt,
            nominal: number(&part["nominalConcurrencyShares"]).unwrap_or(if exempt { 0 } else { 30 }),
            lendable_percent: number(&part["lendablePercent"]).unwrap_or(0),
            borrowing_percent: number(&part["borrowingLimitPercent"]),
        };
        Self { response, shares }
    }
}

impl Level {
    pub fn new(name: &str, clock: Instant) -> Self {
        Self {
            name: name.to_owned(),
            clock,
            set: Mutex::new(QueueSet::new(Response::Exempt, 0, clock.elapsed())),
            seats: Mutex::default(),
            hand: AtomicUsize::new(1),
            widest: AtomicU32::new(1),
        }
    }

    /// Goes by other rules and another number of seats.
    pub fn configure(self: &Arc<Self>, response: Response, seats: Seats) {
        let hand = if let Response::Queue { hand, .. } = response { hand } else { 1 };
        self.hand.store(hand, Ordering::Relaxed);
        self.widest.store(seats.widest(hand), Ordering::Relaxed);
        *self.seats.lock().unwrap_or_else(PoisonError::into_inner) = seats;
        let dispatched = self.set().configure(response, seats.current, self.now());
        self.tell(dispatched);
    }

    /// The same rules with another number of seats.
    pub fn resize(self: &Arc<Self>, seats: Seats) {
        *self.seats.lock().unwrap_or_else(PoisonError::into_inner) = seats;
        let dispatched = self.set().resize_to(seats.current, self.now());
        self.tell(dispatched);
    }

    /// The most seats that one request may take.
    pub fn widest(&self) -> u32 {
        self.widest.load(Ordering::Relaxed)
    }

    pub fn figures(&self) -> Figures {
        self.set().figures()
    }

    pub fn is_idle(&self) -> bool {
        self.set().is_idle()
    }

    pub fn take_demand(&self) -> super::queue_set::Observed {
        let now = self.now();
        self.set().take_demand(now)
    }

    pub fn each_queue<R>(
        &self,
        read: impl FnOnce(&mut dyn Iterator<Item = QueueFigures<'_, Waiter>>, Duration) -> R,
    ) -> R {
        let set = self.set();
        read(&mut set.each_queue(), self.now())
    }

    fn set(&self) -> MutexGuard<'_, QueueSet<Waiter>> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.clock.elapsed()
    }

    /// Takes seats for a request, at once or after it has waited. `about` is asked for only if it waits.
    pub async fn enter(
        self: &Arc<Self>,
        hash: u64,
        work: Work,
        counts: &Arc<Counts>,
        within: Duration,
        about: impl FnOnce() -> About,
    ) -> Result<Ticket, &'static str> {
        let mut told = None;
        let arrival = self.set().arrive(self.now(), hash, work, || {
            let (tell, receiver) = oneshot::channel();
            told = Some(receiver);
            Waiter { tell, about: about() }
        });
        let refused = |reason| {
            counts.refused(reason);
            Err(reason)
        };
        let (number, queue, receiver) = match (arrival, told) {
            (Arrival::Dispatched(seat), _) => return Ok(Ticket::new(self, counts, seat, Duration::ZERO)),
            (Arrival::Refused(Refusal::NoSeat), _) => return refused("concurrency-limit"),
            (Arrival::Refused(Refusal::QueueFull), _) => return refused("queue-full"),
            (Arrival::Waits { number, queue }, Some(receiver)) => (number, queue, receiver),
            // Whoever waits has been asked for what to keep.
            (Arrival::Waits { .. }, None) => return refused("cancelled"),
        };
        counts.waits(work.most_seats());
        let mut waits = Waits { level: self, counts, work, number, queue, receiver, over: false };
        match tokio::time::timeout(within, &mut waits).await {
            Ok(Some((seat, waited))) => Ok(Ticket::new(self, counts, seat, waited)),
            Ok(None) => refused("cancelled"),
            Err(_) => match waits.give_up() {
                // At the last moment.
                Some((seat, waited)) => Ok(Ticket::new(self, counts, seat, waited)),
                None => {
                    counts.waited_in_vain(within);
                    refused("time-out")
                }
            },
        }
    }

    fn finish(self: &Arc<Self>, seat: Seat) {
        let (lingering, dispatched) = self.set().finish(seat, self.now());
        self.tell(dispatched);
        if let Some(lingering) = lingering {
            self.release_later(lingering);
        }
    }

    fn release_later(self: &Arc<Self>, lingering: Lingering) {
        let level = self.clone();
        let later = async move {
            tokio::time::sleep(lingering.lasts()).await;
            let dispatched = level.set().release(lingering, level.now());
            level.tell(dispatched);
        };
        // Without a runtime the server is gone.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(later);
        }
    }

    /// Wakes those who may go. The seat of one who has gone away meanwhile is free again at once.
    fn tell(self: &Arc<Self>, dispatched: Vec<Dispatched<Waiter>>) {
        let mut all = dispatched;
        while let Some(Dispatched { kept, seat, waited }) = all.pop() {
            if let Err((seat, _)) = kept.tell.send((seat, waited)) {
                let (lingering, more) = self.set().finish(seat, self.now());
                all.extend(more);
                if let Some(lingering) = lingering {
                    self.release_later(lingering);
                }
            }
        }
    }
}

/// A request in a queue. Dropping it takes it out.
struct Waits<'a> {
    level: &'a Arc<Level>,
    counts: &'a Arc<Counts>,
    work: Work,
    number: u64,
    queue: usize,
    receiver: oneshot::Receiver<(Seat, Duration)>,
    over: bool,
}

impl Waits<'_> {
    fn give_up(&mut self) -> Option<(Seat, Duration)> {
        if std::mem::replace(&mut self.over, true) {
            return None;
        }
        self.counts.waits_no_more(self.work.most_seats());
        let cancelled = self.level.set().cancel(self.number, self.queue, self.level.now());
        match cancelled {
            Some((_, dispatched)) => {
                self.level.tell(dispatched);
                None
            }
            // Dispatched meanwhile: the seat is on its way or there.
            None => {
                self.receiver.close();
                self.receiver.try_recv().ok()
            }
        }
    }
}

impl Future for Waits<'_> {
    type Output = Option<(Seat, Duration)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let told = std::task::ready!(Pin::new(&mut self.receiver).poll(cx));
        self.over = true;
        self.counts.waits_no_more(self.work.most_seats());
        Poll::Ready(told.ok())
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some((seat, _)) = self.give_up() {
            self.level.finish(seat);
        }
    }
}

/// The seats of a request that is executed. Dropping it frees them.
pub struct Ticket {
    level: Arc<Level>,
    counts: Arc<Counts>,
    seat: Option<Seat>,
}

impl Ticket {
    fn new(level: &Arc<Level>, counts: &Arc<Counts>, seat: Seat, waited: Duration) -> Self {
        counts.begins(seat.work().most_seats(), waited);
        Self { level: level.clone(), counts: counts.clone(), seat: Some(seat) }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(seat) = self.seat.take() {
            let took = self.level.now().saturating_sub(seat.begun());
            self.counts.ends(seat.work().most_seats(), took);
            self.level.finish(seat);
        }
    }
}
