//! Turns: whoever has many connections does not fill the processors before those who have few.
//!
//! Every connection is a task, and so is every stream of an HTTP/2 connection. Tasks with something to do are polled in the
//! order in which that came, so a user who sends on 200 connections would have 200 requests before everybody else's. The
//! queues of priority and fairness do not help: most requests are answered within one poll, and never meet there.
//!
//! So a poll takes a turn. The tasks of one user share a lane; those who find no turn stand in line. A turn that was used rests
//! until its thread has polled everything else that is ready, and has asked the network what came in meanwhile; then it is
//! given to the first in line. A lane has a turn for each thread that polls while its user is alone, so that no thread is
//! idle for lack of turns, and one less in company: whoever has something to do finds a thread that does not serve that flood.
//!
//! Other processes of the machine, and other threads of this one, need the processors too: those who sent the requests, the
//! kernel's for the network, the store's. When a thread has served lanes for long without having had nothing to do, a turn of a
//! crowded lane does not rest, but pauses: it is given away after a moment in which the thread can sleep.
//!
//! Before somebody is known, the lane is that of the address they come from: handshakes take turns as well. Administrators
//! need no turns, nor does a lane with so few tasks that each always has one.
//!
//! What holds in every lane: turns that are held in a poll, at rest, paused, and given to a task that was woken for it are
//! together those in use; nobody stands in line while they are fewer than the lane has in company. A task that ends gives back
//! what it has and leaves the line.

mod company;
#[cfg(test)]
mod tests;
mod timer;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    future::Future,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    io,
    net::IpAddr,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker, ready},
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use company::Company;
use hyper::rt::Executor;
use pin_project_lite::pin_project;
use timer::Timer;

use crate::{authorization::MASTERS, context::User};

/// How many pieces of a long answer are made in one turn. They have 64 KiB, which takes about 30 µs.
const PIECES: u32 = 1;
/// For how long a lane is crowded after its line was long: a flood's requests come in bursts.
const CROWDED: Duration = Duration::from_millis(10);
/// After so much work of a thread, crowded lanes pause. The kernel looks only every few milliseconds whether a thread has had
/// its share; whoever needs the processor for a moment would wait that long.
const LONG: Duration = Duration::from_micros(100);
/// How long a pause is. (To yield is not enough: a thread that stays ready is given the processor again before others are done.)
const PAUSE: Duration = Duration::from_micros(50);

/// The lanes of a server.
pub struct Turns {
    threads: usize,
    company: Company,
    lanes: Mutex<HashMap<Whose, Weak<Lane>>>,
}

/// Whose tasks take turns among themselves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Whose {
    /// Nobody is known yet on a connection from here.
    Address(IpAddr),
    User(String),
    Administrators,
}

impl Whose {
    fn is_user(&self, user: &User) -> bool {
        match self {
            Self::Address(_) => false,
            Self::User(name) => *name == user.name && !user.is_in(MASTERS),
            Self::Administrators => user.is_in(MASTERS),
        }
    }
}

impl From<&User> for Whose {
    fn from(user: &User) -> Self {
        if user.is_in(MASTERS) { Self::Administrators } else { Self::User(user.name.clone()) }
    }
}

struct Lane {
    turns: Arc<Turns>,
    whose: Whose,
    /// Of whose it is.
    number: u64,
    tasks: AtomicUsize,
    line: Mutex<Line>,
    /// For pauses, from the first on.
    timer: OnceLock<Timer>,
}

/// Who waits for a turn of a lane, by number, in the order in which they came. Whoever is called is no longer here.
#[derive(Default)]
struct Line {
    /// The turns in use, with those that rest or pause.
    used: usize,
    resting: usize,
    pausing: usize,
    next: u64,
    waiting: BTreeMap<u64, Waker>,
    /// When as many stood here as there are threads, the last time.
    crowded: Option<Instant>,
}

impl Line {
    fn is_crowded(&self) -> bool {
        self.crowded.is_some_and(|at| at.elapsed() < CROWDED)
    }
}

/// A connection, and whose it is as far as that is known.
pub struct Connection(ArcSwap<Lane>);

impl Turns {
    /// For a runtime with so many threads.
    pub fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self { threads: threads.max(1), company: Company::default(), lanes: Mutex::default() })
    }

    /// The turns of a lane in company.
    fn fewest(&self) -> usize {
        (self.threads - 1).max(1)
    }

    /// The turns of a lane at present.
    fn each(&self) -> usize {
        if self.company.is_there() { self.fewest() } else { self.threads }
    }

    pub fn connection(self: &Arc<Self>, from: IpAddr) -> Arc<Connection> {
        Arc::new(Connection(ArcSwap::new(self.lane(Whose::Address(from)))))
    }

    fn lane(self: &Arc<Self>, whose: Whose) -> Arc<Lane> {
        let mut lanes = self.lanes();
        if let Some(lane) = lanes.get(&whose).and_then(Weak::upgrade) {
            return lane;
        }
        let (tasks, line, timer) = (AtomicUsize::new(0), Mutex::default(), OnceLock::new());
        let number = BuildHasherDefault::<DefaultHasher>::default().hash_one(&whose);
        let lane = Arc::new(Lane { turns: self.clone(), whose: whose.clone(), number, tasks, line, timer });
        lanes.insert(whose, Arc::downgrade(&lane));
        lane
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<Whose, Weak<Lane>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn was used. It rests until everything else that is ready was polled, or pauses.
    fn rest(self: &Arc<Self>) {
        let mut line = self.line();
        if !(line.is_crowded() && SERVING.get().is_some_and(|since| since.elapsed() > LONG)) {
            line.resting += 1;
            drop(line);
            // This wakes the lane once, or once for several turns.
            return wake_behind_others(&Waker::from(self.clone()));
        }
        line.pausing += 1;
        let is_first = line.pausing == 1;
        drop(line);
        SERVING.set(None);
        if is_first {
            let paused = Waker::from(Arc::new(Paused(Arc::downgrade(self))));
            // Without a timer, for lack of descriptors, it rests.
            self.wake_soon(&paused).unwrap_or_else(|_| wake_behind_others(&paused));
        }
    }

    fn wake_soon(&self, paused: &Waker) -> io::Result<()> {
        let timer = match self.timer.get() {
            Some(timer) => timer,
            None => {
                let timer = Timer::new()?;
                self.timer.get_or_init(|| timer)
            }
        };
        timer.wake(paused, PAUSE)
    }

    /// Calls as many as there are turns for, when some were given back.
    fn pass_on(&self, given_back: impl FnOnce(&mut Line) -> usize) {
        let each = self.turns.each();
        let mut called = Vec::new();
        {
            let mut line = self.line();
            line.used -= given_back(&mut line);
            while line.used < each
                && let Some((_, waker)) = line.waiting.pop_first()
            {
                line.used += 1;
                called.push(waker);
            }
        }
        called.into_iter().for_each(Waker::wake);
    }
}

/// The rest of its turns is over.
impl Wake for Lane {
    fn wake(self: Arc<Self>) {
        self.pass_on(|line| std::mem::take(&mut line.resting));
    }
}

/// A lane, some of whose turns pause.
struct Paused(Weak<Lane>);

impl Wake for Paused {
    fn wake(self: Arc<Self>) {
        if let Some(lane) = self.0.upgrade() {
            lane.pass_on(|line| std::mem::take(&mut line.pausing));
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let mut lanes = self.turns.lanes();
        // Somebody may have made another one meanwhile.
        if lanes.get(&self.whose).is_some_and(|lane| lane.strong_count() == 0) {
            lanes.remove(&self.whose);
        }
    }
}

/// Wakes after whatever is ready was polled, and the network was asked what else is.
fn wake_behind_others(waker: &Waker) {
    let mut later = pin!(tokio::task::yield_now());
    let _ = later.as_mut().poll(&mut Context::from_waker(waker));
}

/// A task's place in a lane.
struct Place {
    connection: Arc<Connection>,
    lane: Arc<Lane>,
    /// Its number in the line. If that is no longer there, the task has a turn.
    number: Option<u64>,
}

/// The right to be polled now, which was used when it is dropped.
struct Turn(Option<Arc<Lane>>);

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(lane) = self.0.take() {
            lane.rest();
        }
    }
}

impl Place {
    fn new(connection: Arc<Connection>) -> Self {
        let lane = connection.0.load_full();
        lane.tasks.fetch_add(1, Ordering::Relaxed);
        Self { connection, lane, number: None }
    }

    fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<Turn> {
        if let Some(number) = self.number {
            if let Some(waker) = self.lane.line().waiting.get_mut(&number) {
                waker.clone_from(cx.waker());
                return Poll::Pending;
            }
            self.number = None;
            return Poll::Ready(Turn(Some(self.lane.clone())));
        }
        self.follow();
        let Self { lane, .. } = self;
        let turns = &lane.turns;
        if !matches!(lane.whose, Whose::Address(_)) {
            turns.company.saw(lane.number);
        }
        if lane.whose == Whose::Administrators || lane.tasks.load(Ordering::Relaxed) <= turns.fewest() {
            return Poll::Ready(Turn(None));
        }
        let mut line = lane.line();
        if line.used < turns.each() {
            line.used += 1;
            return Poll::Ready(Turn(Some(lane.clone())));
        }
        let number = line.next;
        line.next += 1;
        line.waiting.insert(number, cx.waker().clone());
        if line.waiting.len() >= turns.threads {
            line.crowded = Some(Instant::now());
        }
        self.number = Some(number);
        Poll::Pending
    }

    /// Goes over to the lane of the user who was seen last on the connection.
    fn follow(&mut self) {
        let lane = self.connection.0.load();
        if !Arc::ptr_eq(&lane, &self.lane) {
            lane.tasks.fetch_add(1, Ordering::Relaxed);
            self.lane.tasks.fetch_sub(1, Ordering::Relaxed);
            self.lane = lane.clone();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lane.tasks.fetch_sub(1, Ordering::Relaxed);
        if let Some(number) = self.number {
            let waker = self.lane.line().waiting.remove(&number);
            if waker.is_none() {
                self.lane.pass_on(|_| 1);
            }
        }
    }
}

pin_project! {
    /// A task of a connection, which is polled when it has a turn.
    pub struct InTurn<F> {
        #[pin]
        task: F,
        place: Place,
    }
}

impl<F> InTurn<F> {
    pub fn new(connection: Arc<Connection>, task: F) -> Self {
        Self { task, place: Place::new(connection) }
    }
}

impl<F: Future> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let turn = ready!(this.place.poll_turn(cx));
        if turn.0.is_some() && SERVING.get().is_none() {
            SERVING.set(Some(Instant::now()));
        }
        let _polling = Polling::begin(&this.place.connection);
        this.task.poll(cx)
    }
}

/// Runs the streams of an HTTP/2 connection, in turn.
#[derive(Clone)]
pub struct Streams(pub Arc<Connection>);

impl<F> Executor<F> for Streams
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(InTurn::new(self.0.clone(), stream));
    }
}

thread_local! {
    static POLLED: RefCell<Option<Polled>> = const { RefCell::new(None) };
    /// Since when this thread has served lanes with many tasks without having had nothing to do.
    static SERVING: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// This thread of the runtime has nothing to do for now.
pub fn idle() {
    SERVING.set(None);
}

/// The connection that this thread polls, and how many pieces of answers it has made in this turn.
struct Polled {
    connection: Arc<Connection>,
    pieces: u32,
}

/// Until this is dropped, a connection is polled.
struct Polling;

impl Polling {
    fn begin(connection: &Arc<Connection>) -> Self {
        POLLED.set(Some(Polled { connection: connection.clone(), pieces: 0 }));
        Self
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        POLLED.set(None);
    }
}

/// The connection that is being polled is one of this user.
pub fn identified(user: &User) {
    POLLED.with_borrow(|polled| {
        let Some(Polled { connection, .. }) = polled else { return };
        let lane = connection.0.load();
        if !lane.whose.is_user(user) {
            connection.0.store(lane.turns.lane(user.into()));
        }
    });
}

/// May another piece of a long answer be made? If enough were made in this turn, the next one goes on with it.
pub fn poll_piece(cx: &Context<'_>) -> Poll<()> {
    let spent = POLLED.with_borrow_mut(|polled| match polled {
        Some(polled) if polled.pieces == PIECES => true,
        Some(polled) => {
            polled.pieces += 1;
            false
        }
        // Not on a connection.
        None => false,
    });
    if spent {
        wake_behind_others(cx.waker());
        return Poll::Pending;
    }
    Poll::Ready(())
}
