//! The rules of the queue, as properties of whatever is done with it.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    AddAfter(u8, u64),
    Fail(u8),
    Take,
    /// Finishes one of those in work.
    Done(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..6u8).prop_map(Step::Add),
        (0..6u8, 0..50u64).prop_map(|(key, ms)| Step::AddAfter(key, ms)),
        (0..6u8).prop_map(Step::Fail),
        Just(Step::Take),
        any::<usize>().prop_map(Step::Done),
        (0..40u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn every_wish_is_answered_and_no_key_is_taken_twice(steps in prop::collection::vec(step(), 1..200)) {
        let mut now = Instant::now();
        let mut state = State::new(now, LONGEST_DELAY);
        let mut in_work: BTreeSet<u8> = BTreeSet::new();
        // Wishes that no later start of work has answered yet, and from when on they count.
        let mut wishes: BTreeMap<u8, Instant> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Add(key) => {
                    state.add(key, now);
                    let due = wishes.entry(key).or_insert(now);
                    *due = now.min(*due);
                }
                Step::AddAfter(key, ms) => {
                    let due = now + Duration::from_millis(ms);
                    state.add_at(key, due);
                    let known = wishes.entry(key).or_insert(due);
                    *known = due.min(*known);
                }
                Step::Fail(key) => {
                    state.add_after_failure(key, now);
                    wishes.entry(key).or_insert(now + Duration::from_secs(2000));
                }
                Step::Take => if let Some(key) = state.take(now) {
                    prop_assert!(in_work.insert(key), "{key} is worked on twice at once");
                    wishes.remove(&key);
                },
                Step::Done(which) => if let Some(key) = in_work.iter().nth(which % in_work.len().max(1)).copied() {
                    in_work.remove(&key);
                    state.done(&key);
                },
                Step::Wait(ms) => now += Duration::from_millis(ms),
            }
        }
        in_work.iter().for_each(|key| state.done(key));
        now += Duration::from_secs(4000);
        let mut answered = BTreeSet::new();
        while let Some(key) = state.take(now) {
            prop_assert!(answered.insert(key), "{key} came twice for one wish");
            state.done(&key);
        }
        for key in wishes.keys() {
            prop_assert!(answered.contains(key), "the wish for {key} was lost");
        }
        prop_assert_eq!(state.stats().ready + state.stats().waiting + state.stats().in_work, 0);
    }
}

#[test]
fn failures_of_a_key_double_its_delay_up_to_a_thousand_seconds() {
    let start = Instant::now();
    let mut state = State::new(start, LONGEST_DELAY);
    let mut delays = Vec::new();
    let mut now = start;
    for _ in 0..20 {
        state.add_after_failure("a", now);
        let due = state.next_due().expect("it waits");
        delays.push((due - now).as_millis());
        now = due + Duration::from_secs(60);
        assert_eq!(state.take(now), Some("a"));
        state.done(&"a");
    }
    assert_eq!(delays[..4], [5, 10, 20, 40]);
    assert_eq!(delays[17..], [655_360, 1_000_000, 1_000_000]);
    state.forget_failures(&"a");
    state.add_after_failure("a", now);
    assert_eq!(state.next_due(), Some(now + Duration::from_millis(5)));
}

#[test]
fn many_failing_keys_share_ten_tries_a_second_after_the_first_hundred() {
    let now = Instant::now();
    let mut state = State::new(now, LONGEST_DELAY);
    for key in 0..200 {
        state.add_after_failure(key, now);
    }
    let mut within = |time: Duration| {
        let mut taken = 0;
        while state.take(now + time).is_some() {
            taken += 1;
        }
        taken
    };
    assert_eq!(within(Duration::from_millis(5)), 100);
    assert_eq!(within(Duration::from_secs(1)), 10);
    assert_eq!(within(Duration::from_secs(10)), 90);
}

#[test]
fn first_come_first_served() {
    let now = Instant::now();
    let mut state = State::new(now, LONGEST_DELAY);
    for key in ["a", "b", "a", "c"] {
        state.add(key, now);
    }
    assert_eq!(state.take(now), Some("a"));
    state.add("a", now);
    assert_eq!(state.take(now), Some("b"), "what is in work waits its turn");
    state.done(&"a");
    assert_eq!((state.take(now), state.take(now), state.take(now)), (Some("c"), Some("a"), None));
}

#[tokio::test(start_paused = true)]
async fn workers_wait_for_keys_and_for_delays() {
    let queue = WorkQueue::default();
    let started = Instant::now();
    queue.add_after("late", Duration::from_secs(30));
    queue.add("soon");
    let first = queue.next().await.expect("a key");
    assert_eq!((*first.key(), started.elapsed()), ("soon", Duration::ZERO));
    let second = queue.next().await.expect("a key");
    assert_eq!(*second.key(), "late");
    assert!(started.elapsed() >= Duration::from_secs(30));

    queue.add("soon");
    let other = queue.clone();
    let waiting = tokio::spawn(async move { other.next().await.map(|item| *item.key()) });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished(), "the key is in work");
    drop(first);
    assert_eq!(waiting.await.expect("no panic"), Some("soon"));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_every_worker() {
    let queue: WorkQueue<u8> = WorkQueue::default();
    let workers: Vec<_> = (0..5)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { while queue.next().await.is_some() {} })
        })
        .collect();
    queue.add(1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    queue.shut_down();
    for worker in workers {
        worker.await.expect("it ends");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_can_ask_for_too_long_a_time() {
    let queue = WorkQueue::default();
    queue.add_after("endless", Duration::from_secs(u64::MAX));
    let began = Instant::now();
    let item = queue.next().await.expect("a key");
    assert_eq!((*item.key(), began.elapsed().as_secs()), ("endless", LONGEST_WAIT.as_secs()));
}
