//! Fair queuing of the requests of one priority level. Pure: the time is an argument, and nobody waits in here.
//!
//! A request occupies seats while it is executed, and the level has so many of them. When none is free, requests wait in
//! queues. A flow (say, one user) is dealt a few of all queues by its hash, and each of its requests goes to the one among
//! them with the least work waiting: two flows rarely share all their queues, so a flow that floods its own leaves the
//! others free (shuffle sharding).
//!
//! Which queue is next is decided by virtual time. Imagine that all queues with work were served at once, each at the
//! same rate; the clock `r` counts the seat-seconds that each would have got so far. A queue's `next` is the reading
//! at which its next request would begin there, and the request that would end first is dispatched. How long a request
//! takes is a guess until it ends, when `next` is put right.
//!
//! The last quarter of the seats goes to flows that have none. A flood therefore leaves seats free, and a request of somebody
//! else need not wait until one of the flood's has been answered, however long that takes. (Kubernetes has no such rule.)
//!
//! Invariants: the seats in use are those of the requests that were dispatched and not released, and they exceed the limit
//! only by a request that is wider than the limit and runs alone, or after the limit was lowered. While a request waits
//! that would fit and may go, none is free. A request that waits is dispatched, cancelled or expired, exactly once.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    time::Duration,
};

/// What a request is guessed to take before that is known.
const SERVICE: Duration = Duration::from_millis(3);
/// One in so many seats is kept for flows that have none.
const KEPT: u32 = 4;

/// How many seats a request takes, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// While it is executed.
    pub seats: u32,
    /// For some time after it has been answered, while its watchers are told.
    pub after: u32,
    pub after_for: Duration,
}

impl Work {
    pub fn of(seats: u32) -> Self {
        Self { seats, after: 0, after_for: Duration::ZERO }
    }

    /// The seats that are set aside for it from beginning to end.
    pub fn most_seats(self) -> u32 {
        self.seats.max(self.after)
    }

    /// In seat-seconds.
    fn total(self) -> f64 {
        f64::from(self.seats) * SERVICE.as_secs_f64() + f64::from(self.after) * self.after_for.as_secs_f64()
    }
}

/// What happens to requests that find no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// There is always one.
    Exempt,
    Reject,
    Queue {
        queues: usize,
        hand: usize,
        length: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NoSeat,
    QueueFull,
}

/// What a request is told when it arrives.
#[derive(Debug, PartialEq)]
pub enum Arrival {
    Dispatched(Seat),
    /// It waits, under this number, in this queue.
    Waits {
        number: u64,
        queue: usize,
    },
    Refused(Refusal),
}

/// A dispatched request. To be given back once, by [`QueueSet::finish`].
#[derive(Debug, PartialEq)]
pub struct Seat {
    /// In which queue it was, and of which flow. A level without queues does not tell flows apart.
    of: Option<(usize, u64)>,
    work: Work,
    begun: Duration,
}

impl Seat {
    pub fn begun(&self) -> Duration {
        self.begun
    }

    pub fn work(&self) -> Work {
        self.work
    }
}

/// Requests of one priority level. `T` is whatever the caller keeps for a request that waits.
pub struct QueueSet<T> {
    response: Response,
    limit: u32,
    queues: Vec<Queue<T>>,
    in_use: u32,
    /// The same by flow.
    in_use_by: HashMap<u64, u32>,
    executing: u32,
    waiting: usize,
    waiting_seats: u32,
    /// Queues with requests that wait or are executed.
    active: usize,
    r: f64,
    now: Duration,
    /// Where the search for the next queue goes on, so that equals take turns.
    robin: usize,
    arrivals: usize,
    last_number: u64,
    demand: Demand,
}

#[derive(Debug)]
struct Queue<T> {
    requests: VecDeque<Waiting<T>>,
    /// Of the requests that wait.
    work: f64,
    next: f64,
    executing: u32,
    in_use: u32,
}

#[derive(Debug)]
struct Waiting<T> {
    number: u64,
    flow: u64,
    work: Work,
    arrived: Duration,
    arrived_r: f64,
    kept: T,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { requests: VecDeque::new(), work: 0.0, next: 0.0, executing: 0, in_use: 0 }
    }
}

impl<T> Queue<T> {
    fn is_active(&self) -> bool {
        !self.requests.is_empty() || self.executing > 0
    }

    /// Nobody waits in it, and nobody will give a seat back to it.
    fn is_idle(&self) -> bool {
        self.requests.is_empty() && self.in_use == 0
    }

    /// A queue saves up nothing: its next request does not begin before it has arrived.
    fn bound(&mut self) {
        if let Some(first) = self.requests.front() {
            self.next = self.next.max(first.arrived_r);
        }
    }
}

/// Somebody who waited and may go.
#[derive(Debug, PartialEq)]
pub struct Dispatched<T> {
    pub kept: T,
    pub seat: Seat,
    pub waited: Duration,
}

impl<T> QueueSet<T> {
    pub fn new(response: Response, limit: u32, now: Duration) -> Self {
        let mut set = Self {
            response,
            limit,
            queues: Vec::new(),
            in_use: 0,
            in_use_by: HashMap::new(),
            executing: 0,
            waiting: 0,
            waiting_seats: 0,
            active: 0,
            r: 0.0,
            now,
            robin: 0,
            arrivals: 0,
            last_number: 0,
            demand: Demand::default(),
        };
        set.resize();
        set
    }

    /// Changes the rules. Requests that wait stay where they are.
    pub fn configure(&mut self, response: Response, limit: u32, now: Duration) -> Vec<Dispatched<T>> {
        self.sync(now);
        (self.response, self.limit) = (response, limit);
        self.resize();
        self.dispatch()
    }

    /// Changes the number of seats.
    pub fn resize_to(&mut self, limit: u32, now: Duration) -> Vec<Dispatched<T>> {
        self.configure(self.response, limit, now)
    }

    /// As many queues as there should be, and those beyond that are still in use.
    fn resize(&mut self) {
        let wanted = match self.response {
            Response::Queue { queues, .. } => queues.max(1),
            Response::Exempt | Response::Reject => 0,
        };
        while self.queues.len() > wanted && self.queues.last().is_some_and(Queue::is_idle) {
            self.queues.pop();
        }
        if self.queues.len() < wanted {
            self.queues.resize_with(wanted, Queue::default);
        }
    }

    /// A request of the flow with this hash. `keep` is called only if it has to wait.
    pub fn arrive(&mut self, now: Duration, hash: u64, work: Work, keep: impl FnOnce() -> T) -> Arrival {
        self.sync(now);
        let Response::Queue { queues, hand, length } = self.response else {
            if self.response != Response::Exempt && !self.has_room(work) {
                return Arrival::Refused(Refusal::NoSeat);
            }
            return Arrival::Dispatched(self.occupy(None, work));
        };
        let chosen = self.choose(hash, queues.max(1), hand);
        let queue = &mut self.queues[chosen];
        // Kubernetes lets a queue grow while a wide request at its head waits for seats that are free one by one.
        if queue.requests.len() >= length.max(1) {
            return Arrival::Refused(Refusal::QueueFull);
        }
        if !queue.is_active() {
            queue.next = self.r;
            self.active += 1;
        }
        let may_go = match self.waiting {
            0 => !self.is_held_back(hash, work),
            _ => self.has_none(hash) && self.next_queue(|first| self.has_none(first.flow)).is_none(),
        };
        if may_go && self.has_room(work) {
            return Arrival::Dispatched(self.occupy(Some((chosen, hash)), work));
        }
        self.last_number += 1;
        let (number, arrived_r) = (self.last_number, self.r);
        let queue = &mut self.queues[chosen];
        queue.requests.push_back(Waiting { number, flow: hash, work, arrived: now, arrived_r, kept: keep() });
        queue.work += work.total();
        queue.bound();
        self.waiting += 1;
        self.waiting_seats += work.most_seats();
        self.note_demand();
        Arrival::Waits { number, queue: chosen }
    }

    /// The request has been answered. Its seats are free again, or, if its work goes on after that, when
    /// [`QueueSet::release`] is called. Whoever may go now is returned.
    pub fn finish(&mut self, seat: Seat, now: Duration) -> (Option<Lingering>, Vec<Dispatched<T>>) {
        self.sync(now);
        self.executing -= 1;
        if let Some(queue) = seat.of.map(|(at, _)| &mut self.queues[at]) {
            let took = now.saturating_sub(seat.begun).as_secs_f64();
            queue.next -= f64::from(seat.work.seats) * (SERVICE.as_secs_f64() - took);
            queue.bound();
            queue.executing -= 1;
            if !queue.is_active() {
                self.active -= 1;
            }
        }
        let lingering = Lingering { of: seat.of, work: seat.work };
        if seat.work.after > 0 && !seat.work.after_for.is_zero() {
            return (Some(lingering), self.dispatch());
        }
        (None, self.release(lingering, now))
    }

    /// Frees the seats of a request whose work went on after its answer.
    pub fn release(&mut self, lingering: Lingering, now: Duration) -> Vec<Dispatched<T>> {
        self.sync(now);
        let seats = lingering.seats();
        self.in_use -= seats;
        if let Some((at, flow)) = lingering.of {
            self.queues[at].in_use -= seats;
            if let Entry::Occupied(mut entry) = self.in_use_by.entry(flow) {
                *entry.get_mut() -= seats;
                if *entry.get() == 0 {
                    entry.remove();
                }
            }
        }
        self.note_demand();
        self.resize();
        self.dispatch()
    }

    /// Takes a request out of its queue that no longer wants to wait. None if it has been dispatched meanwhile.
    pub fn cancel(&mut self, number: u64, queue: usize, now: Duration) -> Option<(T, Vec<Dispatched<T>>)> {
        self.sync(now);
        let found = self.queues.get_mut(queue)?;
        let at = found.requests.iter().position(|waiting| waiting.number == number)?;
        let waiting = found.requests.remove(at)?;
        self.left(queue, waiting.work);
        if !self.queues[queue].is_active() {
            self.active -= 1;
        }
        self.queues[queue].bound();
        self.note_demand();
        // It may have been the one that all others waited behind.
        Some((waiting.kept, self.dispatch()))
    }

    fn left(&mut self, queue: usize, work: Work) {
        self.queues[queue].work -= work.total();
        self.waiting -= 1;
        self.waiting_seats -= work.most_seats();
    }

    fn dispatch(&mut self) -> Vec<Dispatched<T>> {
        let mut dispatched = Vec::new();
        while self.waiting > 0 && self.in_use < self.limit.max(1) {
            let held_back = |first: &Waiting<T>| self.is_held_back(first.flow, first.work);
            let chosen = match self.next_queue(|_| true) {
                Some((_, first)) if held_back(first) => self.next_queue(|first| self.has_none(first.flow)),
                chosen => chosen,
            };
            let Some((chosen, _)) = chosen.filter(|(_, first)| self.has_room(first.work)) else { break };
            let Some(waiting) = self.queues[chosen].requests.pop_front() else { break };
            self.robin = chosen;
            self.left(chosen, waiting.work);
            let seat = self.occupy(Some((chosen, waiting.flow)), waiting.work);
            self.queues[chosen].bound();
            let waited = self.now.saturating_sub(waiting.arrived);
            dispatched.push(Dispatched { kept: waiting.kept, seat, waited });
        }
        dispatched
    }

    /// Among the queues whose first request is such, the one whose would end first in virtual time.
    fn next_queue(&self, is_such: impl Fn(&Waiting<T>) -> bool) -> Option<(usize, &Waiting<T>)> {
        let count = self.queues.len();
        let mut best: Option<(usize, &Waiting<T>, f64)> = None;
        for step in 1..=count {
            let at = (self.robin + step) % count;
            let Some(first) = self.queues[at].requests.front().filter(|first| is_such(first)) else { continue };
            let end = self.queues[at].next + first.work.total();
            if best.is_none_or(|(.., earliest)| end < earliest) {
                best = Some((at, first, end));
            }
        }
        best.map(|(at, first, _)| (at, first))
    }

    /// Would it take one of the last seats, though its flow has some?
    fn is_held_back(&self, flow: u64, work: Work) -> bool {
        self.in_use + work.most_seats() > self.limit - self.limit / KEPT && !self.has_none(flow)
    }

    fn has_none(&self, flow: u64) -> bool {
        !self.in_use_by.contains_key(&flow)
    }

    fn has_room(&self, work: Work) -> bool {
        let seats = work.most_seats();
        if seats > self.limit { self.executing == 0 && self.in_use == 0 } else { self.in_use + seats <= self.limit }
    }

    fn occupy(&mut self, of: Option<(usize, u64)>, work: Work) -> Seat {
        self.executing += 1;
        self.in_use += work.most_seats();
        if let Some((at, flow)) = of {
            *self.in_use_by.entry(flow).or_default() += work.most_seats();
            let queue = &mut self.queues[at];
            queue.executing += 1;
            queue.in_use += work.most_seats();
            queue.next += work.total();
        }
        self.note_demand();
        Seat { of, work, begun: self.now }
    }

    /// The queue of the flow's hand with the least work waiting; among equals they take turns.
    fn choose(&mut self, hash: u64, queues: usize, hand: usize) -> usize {
        self.arrivals = self.arrivals.wrapping_add(1);
        if queues == 1 {
            return 0;
        }
        let (cards, size) = deal(hash, queues, hand);
        let turn = self.arrivals % size;
        let in_turn = (0..size).map(|i| cards[(turn + i) % size]);
        in_turn.min_by(|a, b| self.queues[*a].work.total_cmp(&self.queues[*b].work)).unwrap_or(0)
    }

    /// Moves the clocks.
    fn sync(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.now).as_secs_f64();
        self.now = self.now.max(now);
        self.demand.pass(passed);
        if self.active > 0 {
            let served = f64::from(self.in_use.min(self.limit));
            self.r += passed * served / self.active as f64;
        }
    }

    fn note_demand(&mut self) {
        self.demand.set(f64::from(self.in_use + self.waiting_seats));
    }

    /// What was asked for since this was called last.
    pub fn take_demand(&mut self, now: Duration) -> Observed {
        self.sync(now);
        self.demand.take()
    }

    pub fn is_idle(&self) -> bool {
        self.waiting == 0 && self.executing == 0 && self.in_use == 0
    }

    pub fn figures(&self) -> Figures {
        Figures {
            limit: self.limit,
            in_use: self.in_use,
            executing: self.executing,
            waiting: self.waiting,
            waiting_seats: self.waiting_seats,
            active: self.active,
            r: self.r,
        }
    }

    /// Every queue: how many wait, with how many seats in use, where its clock stands, and who waits since when.
    pub fn each_queue(&self) -> impl Iterator<Item = QueueFigures<'_, T>> {
        self.queues.iter().map(|queue| QueueFigures {
            executing: queue.executing,
            in_use: queue.in_use,
            next: queue.next,
            work: queue.work,
            waiting: queue.requests.iter().map(|w| (&w.kept, w.work, w.arrived)).collect(),
        })
    }
}

/// The seats of a request that has been answered and still has work to do.
#[derive(Debug, PartialEq)]
pub struct Lingering {
    of: Option<(usize, u64)>,
    work: Work,
}

impl Lingering {
    pub fn seats(&self) -> u32 {
        self.work.most_seats()
    }

    pub fn lasts(&self) -> Duration {
        self.work.after_for
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    pub limit: u32,
    pub in_use: u32,
    pub executing: u32,
    pub waiting: usize,
    pub waiting_seats: u32,
    pub active: usize,
    pub r: f64,
}

pub struct QueueFigures<'a, T> {
    pub executing: u32,
    pub in_use: u32,
    pub next: f64,
    pub work: f64,
    pub waiting: Vec<(&'a T, Work, Duration)>,
}

/// The most queues that a flow is dealt.
const LARGEST_HAND: usize = 16;

/// `hand` different queues of `queues`, by the hash alone.
fn deal(mut hash: u64, queues: usize, hand: usize) -> ([usize; LARGEST_HAND], usize) {
    let mut cards = [0; LARGEST_HAND];
    let size = hand.clamp(1, LARGEST_HAND.min(queues));
    for dealt in 0..size {
        let left = (queues - dealt) as u64;
        let mut card = (hash % left) as usize;
        hash /= left;
        // The card counts those that are left; those dealt before it are kept in order while that is worked out.
        let mut place = 0;
        while place < dealt && card >= cards[place] {
            card += 1;
            place += 1;
        }
        cards.copy_within(place..dealt, place + 1);
        cards[place] = card;
    }
    (cards, size)
}

/// The seats that were asked for, over time.
#[derive(Debug, Default)]
struct Demand {
    now: f64,
    time: f64,
    sum: f64,
    squares: f64,
    most: f64,
}

/// The demand of some time: its average, how much it varied, and its peak.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    pub seconds: f64,
    pub average: f64,
    pub deviation: f64,
    pub most: f64,
}

impl Demand {
    fn pass(&mut self, seconds: f64) {
        self.time += seconds;
        self.sum += self.now * seconds;
        self.squares += self.now * self.now * seconds;
    }

    fn set(&mut self, seats: f64) {
        self.now = seats;
        self.most = self.most.max(seats);
    }

    fn take(&mut self) -> Observed {
        let Self { now, time, sum, squares, most } = *self;
        *self = Self { now, most: now, ..Self::default() };
        if time <= 0.0 {
            return Observed { most, average: now, ..Observed::default() };
        }
        let average = sum / time;
        Observed { seconds: time, average, deviation: (squares / time - average * average).max(0.0).sqrt(), most }
    }
}
