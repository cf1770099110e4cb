//! Turns are neither made nor lost, nobody is forgotten, and a flood of one user keeps nobody else waiting.

use std::{net::Ipv4Addr, sync::atomic::AtomicBool, task::Wake, time::Duration};

use bytes::Bytes;
use hyper::{Response, header::CONTENT_TYPE};
use proptest::prelude::*;
use tokio::sync::{Notify, mpsc};

use super::*;
use crate::{
    body::{Body, Chunks},
    filters::compression::compress,
};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const THREADS: usize = 2;

fn user(name: &str) -> User {
    User { name: name.into(), ..User::default() }
}

/// A connection of somebody who is known.
fn connection_of(turns: &Arc<Turns>, user: &User) -> Arc<Connection> {
    let connection = turns.connection(HERE);
    let _polling = Polling::begin(&connection);
    identified(user);
    connection
}

/// A task of the model: it is polled when it is woken, and sees what happened when it has a turn.
struct Task {
    connection: Arc<Connection>,
    place: Place,
    woken: Arc<Woken>,
    /// Something happened that the task has not seen.
    missed: bool,
    /// It is being polled.
    turn: Option<Turn>,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Task {
    fn new(turns: &Arc<Turns>) -> Self {
        let connection = turns.connection(HERE);
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        Self { place: Place::new(connection.clone()), connection, woken, missed: true, turn: None }
    }

    fn happens(&mut self) {
        self.missed = true;
        self.woken.clone().wake();
    }

    /// What a runtime does with a task that was woken.
    fn poll(&mut self) {
        if self.turn.is_none() && self.woken.0.swap(false, Ordering::Relaxed) {
            let waker = Waker::from(self.woken.clone());
            if let Poll::Ready(turn) = self.place.poll_turn(&Context::from_waker(&waker)) {
                self.turn = Some(turn);
                self.missed = false;
            }
        }
    }

    /// Has it been given a turn, or is it using one?
    fn has_turn_of(&self, lane: &Lane) -> bool {
        let held = self.turn.as_ref().and_then(|turn| turn.0.as_ref()).is_some_and(|of| std::ptr::eq(&**of, lane));
        let given = |number: u64| !self.place.lane.line().waiting.contains_key(&number);
        held || std::ptr::eq(&*self.place.lane, lane) && self.place.number.is_some_and(given)
    }
}

fn check(turns: &Turns, tasks: &[Task]) -> Result<(), TestCaseError> {
    let lanes: Vec<Arc<Lane>> = turns.lanes().values().filter_map(Weak::upgrade).collect();
    for lane in &lanes {
        let members = tasks.iter().filter(|task| Arc::ptr_eq(&task.place.lane, lane)).count();
        prop_assert_eq!(lane.tasks.load(Ordering::Relaxed), members);
        let taken = tasks.iter().filter(|task| task.has_turn_of(lane)).count();
        let line = lane.line();
        prop_assert_eq!(line.used, line.resting + line.pausing + taken, "turns are neither made nor lost");
        prop_assert!(line.used <= THREADS);
        prop_assert!(line.waiting.is_empty() || line.used >= turns.fewest(), "nobody waits while a turn is free");
    }
    Ok(())
}

#[derive(Clone, Debug)]
enum Step {
    Connects,
    Happens(prop::sample::Index),
    Polls(prop::sample::Index),
    Identifies(prop::sample::Index, u8),
    Returns(prop::sample::Index),
    Goes(prop::sample::Index),
    /// For long, only one of them had something to do.
    Alone,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let any = any::<prop::sample::Index>;
    let step = prop_oneof![
        2 => Just(Step::Connects),
        4 => any().prop_map(Step::Happens),
        8 => any().prop_map(Step::Polls),
        2 => (any(), 0..4u8).prop_map(|(which, user)| Step::Identifies(which, user)),
        6 => any().prop_map(Step::Returns),
        1 => any().prop_map(Step::Goes),
        1 => Just(Step::Alone),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn turns_are_conserved_and_nobody_is_forgotten(steps in steps()) {
        let turns = Turns::new(THREADS);
        let mut tasks: Vec<Task> = (0..4).map(|_| Task::new(&turns)).collect();
        for step in steps {
            let count = tasks.len();
            match step {
                Step::Connects => tasks.push(Task::new(&turns)),
                Step::Alone => turns.company.forget(),
                _ if count == 0 => {}
                Step::Happens(which) => tasks[which.index(count)].happens(),
                Step::Polls(which) => tasks[which.index(count)].poll(),
                Step::Identifies(which, name) => {
                    // In the middle of a poll, as requests are authenticated there.
                    let task = &tasks[which.index(count)];
                    if task.turn.is_some() {
                        let groups = if name == 0 { vec![MASTERS.to_owned()] } else { Vec::new() };
                        let _polling = Polling::begin(&task.connection);
                        identified(&User { name: name.to_string(), groups, ..User::default() });
                    }
                }
                Step::Returns(which) => drop(tasks[which.index(count)].turn.take()),
                // Whatever it was doing.
                Step::Goes(which) => drop(tasks.swap_remove(which.index(count))),
            }
            check(&turns, &tasks)?;
        }
        for _ in 0..tasks.len() * 2 {
            for task in &mut tasks {
                task.turn = None;
                task.poll();
                task.turn = None;
            }
        }
        check(&turns, &tasks)?;
        prop_assert!(tasks.iter().all(|task| !task.missed), "somebody was not told");
        tasks.clear();
        prop_assert!(turns.lanes().is_empty(), "lanes end with their tasks");
    }
}

/// Real threads: tasks that wake each other, and some that are ended in the middle.
#[test]
fn no_wakeup_is_lost_between_threads() {
    const TASKS: usize = 40;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let turns = Turns::new(THREADS);
        let connection = connection_of(&turns, &user("many"));
        let (polled, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..TASKS).map(|_| mpsc::unbounded_channel::<u32>()).unzip();
        let tasks: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(i, mut receiver)| {
                let next = senders[(i + 1) % TASKS].clone();
                let (polled, most) = (polled.clone(), most.clone());
                let mut work = Box::pin(async move {
                    while let Some(left) = receiver.recv().await {
                        if left == 0 {
                            return;
                        }
                        let _ = next.send(left - 1);
                    }
                });
                let task = std::future::poll_fn(move |cx| {
                    most.fetch_max(polled.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let outcome = work.as_mut().poll(cx);
                    polled.fetch_sub(1, Ordering::SeqCst);
                    outcome
                });
                InTurn::new(connection.clone(), task)
            })
            .collect();
        let idle: Vec<_> = (0..TASKS).map(|_| InTurn::new(connection.clone(), std::future::pending::<()>())).collect();
        let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
        for task in idle.into_iter().map(tokio::spawn) {
            task.abort();
        }
        for sender in &senders {
            // Each is handed on until somebody has nothing left to hand on, and ends with it.
            let _ = sender.send(2000);
        }
        drop(senders);
        for task in tasks {
            tokio::time::timeout(Duration::from_secs(120), task).await.expect("everybody ends").unwrap();
        }
        assert!(most.load(Ordering::SeqCst) <= THREADS, "{most:?}");
    });
}

/// The polls of a flood between the moment when somebody else has something to do and the moment when it is done. As many
/// as the flood has tasks, if nobody took turns.
#[tokio::test]
async fn others_are_polled_between_the_polls_of_a_flood() {
    let turns = Turns::new(1);
    let (flood, other) = (connection_of(&turns, &user("mallory")), connection_of(&turns, &user("alice")));
    let (polls, ready) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    for _ in 0..200 {
        let polls = polls.clone();
        // Always ready again.
        let busy = std::future::poll_fn(move |cx| {
            polls.fetch_add(1, Ordering::Relaxed);
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        Streams(flood.clone()).execute(busy);
    }
    let (counted, told) = (polls.clone(), ready.clone());
    let quiet = tokio::spawn(InTurn::new(other, async move {
        told.notified().await;
        counted.load(Ordering::Relaxed)
    }));
    while polls.load(Ordering::Relaxed) < 1000 {
        tokio::task::yield_now().await;
    }
    let before = polls.load(Ordering::Relaxed);
    ready.notify_one();
    let between = quiet.await.unwrap() - before;
    assert!(between <= 2 * turns.threads, "{between} polls of the flood came first");
}

/// A list of many objects does not take longer than others can wait.
#[tokio::test]
async fn a_long_answer_takes_several_turns() {
    let turns = Turns::new(THREADS);
    let connection = connection_of(&turns, &user("alice"));
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = polls.clone();
    let mut left = 10 * PIECES;
    let answer = std::future::poll_fn(move |cx| {
        counted.fetch_add(1, Ordering::Relaxed);
        while left > 0 {
            ready!(poll_piece(cx));
            left -= 1;
        }
        Poll::Ready(())
    });
    tokio::spawn(InTurn::new(connection, answer)).await.unwrap();
    assert_eq!(polls.load(Ordering::Relaxed), 10);
    // In this process nobody counts.
    let cx = Context::from_waker(Waker::noop());
    assert!((0..100).all(|_| poll_piece(&cx).is_ready()));
}

/// Also if it is compressed, and guarded: each turn brings it on.
#[tokio::test]
async fn a_long_answer_that_is_compressed_comes_to_its_end() {
    struct Pieces(u32);
    impl Chunks for Pieces {
        fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Bytes>> {
            self.0 = self.0.saturating_sub(1);
            Poll::Ready((self.0 > 0).then(|| Bytes::from_static(&[b'x'; 64 << 10])))
        }
    }
    let response = Response::builder().header(CONTENT_TYPE, "application/json").body(Body::List(Box::new(Pieces(20))));
    let body = compress(response.unwrap()).into_body().guarded(());
    let connection = connection_of(&Turns::new(THREADS), &user("alice"));
    let read = tokio::spawn(InTurn::new(connection, body.collect()));
    let bytes = tokio::time::timeout(Duration::from_secs(60), read).await.expect("it ends").unwrap();
    assert!(!bytes.is_empty() && bytes.len() < 64 << 10);
}

#[test]
fn administrators_never_wait() {
    let turns = Turns::new(THREADS);
    let admin = User { name: "root".into(), groups: vec![MASTERS.into()], ..User::default() };
    let connection = connection_of(&turns, &admin);
    let mut places: Vec<Place> = (0..100).map(|_| Place::new(connection.clone())).collect();
    let cx = Context::from_waker(Waker::noop());
    let all: Vec<_> = places.iter_mut().map(|place| place.poll_turn(&cx)).collect();
    assert!(all.iter().all(Poll::is_ready));
}

/// One thread is left to the others, if there are any.
#[test]
fn a_lane_has_a_turn_less_in_company() {
    let turns = Turns::new(3);
    let cx = Context::from_waker(Waker::noop());
    let connection = connection_of(&turns, &user("mallory"));
    let mut flood: Vec<Place> = (0..10).map(|_| Place::new(connection.clone())).collect();
    let mut served = || {
        let polled: Vec<_> = flood.iter_mut().map(|place| place.poll_turn(&cx)).collect();
        polled.iter().filter(|turn| turn.is_ready()).count()
    };
    assert_eq!(served(), 3);
    let mut other = Place::new(connection_of(&turns, &user("alice")));
    assert!(other.poll_turn(&cx).is_ready());
    assert_eq!(served(), 3, "to whom turns were given before");
    assert_eq!(served(), 2);
    turns.company.forget();
    assert_eq!(served(), 3, "alone again");
}

/// Only a thread that has served a crowded lane for long makes pauses, and it begins anew when it had nothing to do.
#[tokio::test]
async fn a_crowded_lane_is_served_with_pauses() {
    let turns = Turns::new(1);
    let mut tasks = [Task::new(&turns), Task::new(&turns)];
    let lane = tasks[0].place.lane.clone();
    // An hour, as nobody knows how long anything takes here.
    let hour = Duration::from_secs(3600);
    let [long_ago, later] = [Instant::now().checked_sub(hour), Instant::now().checked_add(hour)];
    for (crowded, serving, pauses) in
        [(later, long_ago, true), (later, later, false), (later, None, false), (long_ago, long_ago, false)]
    {
        tasks.iter_mut().for_each(Task::happens);
        tasks.iter_mut().for_each(Task::poll);
        assert!(tasks[0].turn.is_some() && lane.line().waiting.len() == 1 && lane.line().crowded.is_some());
        lane.line().crowded = crowded;
        SERVING.set(serving);
        tasks[0].turn = None;
        assert_eq!(lane.line().pausing == 1, pauses);
        assert_eq!(lane.line().resting == 1, !pauses);
        assert!(!pauses || SERVING.get().is_none());
        let given = async {
            while !lane.line().waiting.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), given).await.expect("the turn is given to whoever waits");
        tasks[1].poll();
        tasks[1].turn = None;
        while lane.line().used > 0 {
            tokio::task::yield_now().await;
        }
    }
    SERVING.set(later);
    idle();
    assert!(SERVING.get().is_none());
}
