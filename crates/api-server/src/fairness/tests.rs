//! The queue set by its properties, with a clock that only the test moves.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::queue_set::{Arrival, Dispatched, QueueSet, Refusal, Response, Seat, Work};

const QUEUES: Response = Response::Queue { queues: 64, hand: 6, length: 50 };

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A server that executes what the queue set dispatches, each request for its own time.
struct Simulation {
    set: QueueSet<u64>,
    now: Duration,
    /// By the time of their end and a number: the flow and the seat.
    running: BTreeMap<(Duration, u64), (u64, Seat)>,
    started: u64,
    /// How long a request of a flow takes, and with how much work.
    takes: fn(u64) -> (Duration, Work),
    /// Requests executed, and their seat time, by flow.
    done: BTreeMap<u64, (u64, f64)>,
    most_in_use: u32,
}

impl Simulation {
    fn new(response: Response, limit: u32, takes: fn(u64) -> (Duration, Work)) -> Self {
        let set = QueueSet::new(response, limit, Duration::ZERO);
        Self {
            set,
            now: Duration::ZERO,
            running: BTreeMap::new(),
            started: 0,
            takes,
            done: BTreeMap::new(),
            most_in_use: 0,
        }
    }

    fn begin(&mut self, flow: u64, seat: Seat) {
        self.started += 1;
        let (takes, _) = (self.takes)(flow);
        self.running.insert((self.now + takes, self.started), (flow, seat));
        self.most_in_use = self.most_in_use.max(self.set.figures().in_use);
    }

    fn begin_all(&mut self, dispatched: Vec<Dispatched<u64>>) {
        for Dispatched { kept, seat, .. } in dispatched {
            self.begin(kept, seat);
        }
    }

    /// One more request of a flow. False if it was refused.
    fn arrive(&mut self, flow: u64) -> bool {
        let (_, work) = (self.takes)(flow);
        // Any spread will do.
        let hash = flow.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17);
        match self.set.arrive(self.now, hash, work, || flow) {
            Arrival::Dispatched(seat) => self.begin(flow, seat),
            Arrival::Waits { .. } => {}
            Arrival::Refused(_) => return false,
        }
        true
    }

    /// The next request ends. Says of which flow it was.
    fn step(&mut self) -> Option<u64> {
        let ((end, _), (flow, seat)) = self.running.pop_first()?;
        self.now = end;
        let (takes, work) = (self.takes)(flow);
        let done = self.done.entry(flow).or_default();
        done.0 += 1;
        done.1 += takes.as_secs_f64() * f64::from(work.most_seats());
        let (lingering, dispatched) = self.set.finish(seat, self.now);
        self.begin_all(dispatched);
        if let Some(lingering) = lingering {
            let dispatched = self.set.release(lingering, self.now);
            self.begin_all(dispatched);
        }
        Some(flow)
    }
}

/// Flows that always have `requests[flow]` requests in the system get their fair part of the seats' time.
fn saturated(flows: &[(u64, u64)], limit: u32, steps: u64, takes: fn(u64) -> (Duration, Work)) -> BTreeMap<u64, f64> {
    let mut simulation = Simulation::new(QUEUES, limit, takes);
    for (flow, count) in flows {
        for _ in 0..*count {
            assert!(simulation.arrive(*flow));
        }
    }
    for _ in 0..steps {
        let flow = simulation.step().expect("somebody runs");
        assert!(simulation.arrive(flow), "whoever was served comes again");
    }
    assert!(simulation.most_in_use <= limit);
    let total: f64 = simulation.done.values().map(|(_, time)| time).sum();
    simulation.done.iter().map(|(flow, (_, time))| (*flow, time / total)).collect()
}

#[test]
fn a_flood_leaves_others_their_part() {
    // 200 requests of one flow, always; four of another.
    let parts = saturated(&[(1, 200), (2, 4)], 4, 5000, |_| (millis(5), Work::of(1)));
    assert!(parts[&2] > 0.1, "a hand is six queues, so a flood is at most six against one: {parts:?}");
    // With as many queues used by both, each has half.
    let parts = saturated(&[(1, 60), (2, 60)], 4, 5000, |_| (millis(5), Work::of(1)));
    assert!((0.4..0.6).contains(&parts[&2]), "{parts:?}");
}

#[test]
fn long_and_wide_requests_count_for_what_they_take() {
    // Flow 1 takes ten times as long: it gets as much of the time, and a tenth of the requests.
    let parts = saturated(&[(1, 60), (2, 60)], 4, 5000, |flow| (millis(if flow == 1 { 50 } else { 5 }), Work::of(1)));
    assert!((0.35..0.65).contains(&parts[&1]), "{parts:?}");
    let parts = saturated(&[(1, 60), (2, 60)], 8, 5000, |flow| (millis(5), Work::of(if flow == 1 { 4 } else { 1 })));
    assert!((0.35..0.65).contains(&parts[&1]), "{parts:?}");
}

/// A request of a quiet flow waits for about one round of the flood, however long the flood's queues are.
#[test]
fn a_quiet_flow_hardly_waits() {
    let mut simulation = Simulation::new(QUEUES, 4, |_| (millis(4), Work::of(1)));
    for _ in 0..250 {
        simulation.arrive(1);
    }
    let mut slowest = Duration::ZERO;
    for _ in 0..200 {
        let arrived = simulation.now;
        assert!(simulation.arrive(2));
        loop {
            let flow = simulation.step().expect("somebody runs");
            if flow == 2 {
                break;
            }
            simulation.arrive(flow);
        }
        slowest = slowest.max(simulation.now - arrived);
    }
    // 246 requests of the flood wait, which would be a quarter of a second.
    assert!(slowest <= millis(12), "{slowest:?}");
}

/// A flood of requests that take long leaves seats for others, and takes all there are if it comes alone but for the last
/// quarter.
#[test]
fn a_flood_leaves_seats_free() {
    let mut simulation = Simulation::new(QUEUES, 8, |flow| (millis(if flow == 1 { 1000 } else { 1 }), Work::of(1)));
    for _ in 0..100 {
        assert!(simulation.arrive(1));
    }
    assert_eq!(simulation.set.figures().in_use, 6);
    for _ in 0..50 {
        let arrived = simulation.now;
        assert!(simulation.arrive(2));
        assert_eq!(simulation.step(), Some(2), "it went at once");
        assert_eq!(simulation.now - arrived, millis(1));
    }
    // Two quiet flows find a seat each; the second request of one waits as the flood does.
    for flow in [2, 3, 3] {
        assert!(simulation.arrive(flow));
    }
    let figures = simulation.set.figures();
    assert_eq!((figures.in_use, figures.waiting), (8, 95));
}

#[test]
fn what_finds_no_place_is_refused() {
    let mut simulation = Simulation::new(Response::Reject, 3, |_| (millis(5), Work::of(1)));
    assert_eq!((0..5).filter(|_| simulation.arrive(1)).count(), 3);
    let small = Response::Queue { queues: 1, hand: 1, length: 2 };
    let mut simulation = Simulation::new(small, 1, |_| (millis(5), Work::of(1)));
    assert_eq!((0..5).filter(|_| simulation.arrive(1)).count(), 3, "one runs, two wait");
    let mut set = QueueSet::new(Response::Exempt, 0, Duration::ZERO);
    for _ in 0..1000 {
        assert!(matches!(set.arrive(Duration::ZERO, 1, Work::of(5), || ()), Arrival::Dispatched(_)));
    }
    assert_eq!(set.figures().in_use, 5000);
}

#[test]
fn a_request_wider_than_the_level_runs_alone() {
    let mut set = QueueSet::new(QUEUES, 4, Duration::ZERO);
    let Arrival::Dispatched(narrow) = set.arrive(millis(0), 1, Work::of(1), || 1) else { panic!("there is room") };
    assert!(matches!(set.arrive(millis(0), 2, Work::of(9), || 2), Arrival::Waits { .. }));
    assert!(
        matches!(set.arrive(millis(1), 3, Work::of(1), || 3), Arrival::Waits { .. }),
        "nobody overtakes it for ever"
    );
    let (_, dispatched) = set.finish(narrow, millis(2));
    assert!(!dispatched.is_empty());
}

#[test]
fn seats_linger_while_watchers_are_told() {
    let mut set = QueueSet::new(QUEUES, 4, Duration::ZERO);
    let work = Work { seats: 1, after: 4, after_for: millis(5) };
    let Arrival::Dispatched(seat) = set.arrive(millis(0), 1, work, || 1) else { panic!("there is room") };
    assert!(matches!(set.arrive(millis(0), 2, Work::of(1), || 2), Arrival::Waits { .. }));
    let (lingering, dispatched) = set.finish(seat, millis(1));
    assert_eq!(dispatched, []);
    let dispatched = set.release(lingering.expect("it lingers"), millis(6));
    assert_eq!(dispatched.iter().map(|d| (d.kept, d.waited)).collect::<Vec<_>>(), [(2, millis(6))]);
}

#[test]
fn more_seats_and_fewer_queues_at_any_time() {
    let mut set = QueueSet::new(QUEUES, 1, Duration::ZERO);
    let Arrival::Dispatched(first) = set.arrive(millis(0), 1, Work::of(1), || 0) else { panic!("there is room") };
    for flow in 1..40 {
        assert!(matches!(set.arrive(millis(0), flow * 7919, Work::of(1), || flow), Arrival::Waits { .. }));
    }
    let fewer = Response::Queue { queues: 2, hand: 1, length: 50 };
    let mut running: Vec<Seat> = set.configure(fewer, 5, millis(1)).into_iter().map(|d| d.seat).collect();
    assert_eq!(running.len(), 4);
    running.push(first);
    let mut served = 4;
    while let Some(seat) = running.pop() {
        let (_, dispatched) = set.finish(seat, millis(2));
        served += dispatched.len();
        running.extend(dispatched.into_iter().map(|d| d.seat));
    }
    assert_eq!(served, 39, "those in queues that are no more are served too");
    assert!(set.is_idle());
    assert_eq!(set.each_queue().count(), 2);
}

/// A queue to which seats will be given back stays until then.
#[test]
fn fewer_queues_while_seats_linger() {
    let mut set = QueueSet::new(Response::Queue { queues: 1, hand: 1, length: 5 }, 4, Duration::ZERO);
    let work = Work { seats: 1, after: 2, after_for: millis(5) };
    let Arrival::Dispatched(seat) = set.arrive(millis(0), 1, work, || 0) else { panic!("there is room") };
    let (lingering, _) = set.finish(seat, millis(1));
    set.configure(Response::Exempt, 4, millis(2));
    assert_eq!(set.each_queue().count(), 1);
    set.release(lingering.expect("its work goes on"), millis(6));
    assert!(set.is_idle());
    assert_eq!(set.each_queue().count(), 0);
}

/// A request that waits for more seats than are free lets nobody pass, and those behind it are not without number.
#[test]
fn queues_are_bounded_behind_a_wide_request() {
    let mut set = QueueSet::new(Response::Queue { queues: 1, hand: 1, length: 3 }, 4, Duration::ZERO);
    assert!(matches!(set.arrive(millis(0), 1, Work::of(2), || 0), Arrival::Dispatched(_)));
    assert!(matches!(set.arrive(millis(0), 1, Work::of(4), || 1), Arrival::Waits { .. }));
    let waits = (2..12).filter(|n| matches!(set.arrive(millis(0), 1, Work::of(1), || *n), Arrival::Waits { .. }));
    assert_eq!(waits.count(), 2);
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { flow: u64, seats: u32, after: u32 },
    Finish(prop::sample::Index),
    Release(prop::sample::Index),
    Cancel(prop::sample::Index),
    Limit(u32),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..5u64, 1..6u32, 0..4u32).prop_map(|(flow, seats, after)| Step::Arrive { flow, seats, after }),
        6 => any::<prop::sample::Index>().prop_map(Step::Finish),
        3 => any::<prop::sample::Index>().prop_map(Step::Release),
        1 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        1 => (1..12u32).prop_map(Step::Limit),
        3 => (0..20u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Seats are neither made nor lost, everybody is told exactly once, and none waits while there is room.
    #[test]
    fn seats_are_conserved(steps in steps()) {
        let response = Response::Queue { queues: 4, hand: 2, length: 5 };
        let mut set: QueueSet<u64> = QueueSet::new(response, 6, Duration::ZERO);
        let (mut now, mut next) = (Duration::ZERO, 0u64);
        let (mut running, mut lingering, mut waiting) = (Vec::new(), Vec::new(), BTreeMap::new());
        for step in steps {
            let mut dispatched = Vec::new();
            match step {
                Step::Arrive { flow, seats, after } => {
                    next += 1;
                    let work = Work { seats, after, after_for: millis(if after > 0 { 5 } else { 0 }) };
                    match set.arrive(now, flow * 7919, work, || next) {
                        Arrival::Dispatched(seat) => running.push(seat),
                        Arrival::Waits { number, queue } => {
                            waiting.insert(next, (number, queue, work));
                        }
                        Arrival::Refused(why) => {
                            prop_assert_eq!(why, Refusal::QueueFull);
                            prop_assert!(set.each_queue().any(|queue| queue.waiting.len() == 5));
                        }
                    }
                }
                Step::Finish(which) if !running.is_empty() => {
                    let seat = running.swap_remove(which.index(running.len()));
                    let (lingers, more) = set.finish(seat, now);
                    lingering.extend(lingers);
                    dispatched = more;
                }
                Step::Release(which) if !lingering.is_empty() => {
                    let one = lingering.swap_remove(which.index(lingering.len()));
                    dispatched = set.release(one, now);
                }
                Step::Cancel(which) if !waiting.is_empty() => {
                    let key = *waiting.keys().nth(which.index(waiting.len())).expect("one of them");
                    let (number, queue, _) = waiting.remove(&key).expect("it waits");
                    let (kept, more) = set.cancel(number, queue, now).expect("it waits");
                    prop_assert_eq!(kept, key);
                    dispatched = more;
                }
                Step::Limit(new) => {
                    dispatched = set.configure(response, new, now);
                }
                Step::Pass(time) => now += millis(time),
                _ => {}
            }
            for Dispatched { kept, seat, .. } in dispatched {
                prop_assert!(waiting.remove(&kept).is_some(), "{} was not waiting", kept);
                running.push(seat);
            }
            let figures = set.figures();
            let taken: u32 = running.iter().map(|seat: &Seat| seat.work().most_seats()).sum();
            let lingers: u32 = lingering.iter().map(|one: &super::queue_set::Lingering| one.seats()).sum();
            prop_assert_eq!(figures.in_use, taken + lingers);
            prop_assert_eq!((figures.executing as usize, figures.waiting), (running.len(), waiting.len()));
            if figures.waiting > 0 && figures.in_use == 0 {
                prop_assert!(false, "they wait, and nobody is served");
            }
        }
        // Nobody is forgotten.
        while !running.is_empty() || !lingering.is_empty() {
            now += millis(1);
            let mut dispatched = Vec::new();
            if let Some(one) = lingering.pop() {
                dispatched = set.release(one, now);
            } else if let Some(seat) = running.pop() {
                let (lingers, more) = set.finish(seat, now);
                lingering.extend(lingers);
                dispatched = more;
            }
            for Dispatched { kept, seat, .. } in dispatched {
                prop_assert!(waiting.remove(&kept).is_some());
                running.push(seat);
            }
        }
        prop_assert_eq!(waiting.len(), 0);
        prop_assert!(set.is_idle());
    }
}
