use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::fixtures::{framework, node, pod};

fn queue() -> Queue {
    Queue::new(Arc::new(framework()), Instant::now())
}

fn named(name: &str, priority: i32) -> Arc<PodInfo> {
    pod(name, json!({"spec": {"priority": priority}}))
}

fn next(queue: &mut Queue, now: Instant) -> Option<String> {
    queue.pop(now).map(|queued| queued.pod.uid.clone())
}

fn rejected(by: &'static str) -> BTreeSet<&'static str> {
    BTreeSet::from([by])
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_most_important_comes_first_then_who_came_first() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.set(named("late", 0), now + SECOND);
    queue.set(named("early", 0), now);
    queue.set(named("also early", 0), now);
    queue.set(named("important", 10), now + 2 * SECOND);
    let order: Vec<_> = std::iter::from_fn(|| next(&mut queue, now + 3 * SECOND)).collect();
    assert_eq!(order, ["important", "early", "also early", "late"]);
}

#[test]
fn who_fits_nowhere_waits_for_an_event_that_could_help() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.set(pod("web", crate::fixtures::asking(json!({"cpu": "3"}))), now);
    let queued = queue.pop(now).expect("a pod");
    queue.misfit(queued, rejected("NodeResourcesFit"), now);
    let later = now + 2 * SECOND;
    assert_eq!(next(&mut queue, later), None);
    queue.wake(&Event::NodeAdded(&node("small", json!({}))), later);
    assert_eq!(next(&mut queue, later), None);
    queue.wake(&Event::NodeAdded(&node("large", json!({"status": {"allocatable": {"cpu": "4"}}}))), later);
    assert_eq!(next(&mut queue, later).as_deref(), Some("web"));
}

#[test]
fn who_backs_off_lets_others_go_first_but_does_not_wait_for_nobody() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.set(named("failed", 100), now);
    let queued = queue.pop(now).expect("a pod");
    queue.misfit(queued, rejected("NodePorts"), now);
    queue.set(named("other", 0), now);
    queue.wake(&Event::NodeAdded(&node("new", json!({}))), now);
    assert_eq!(next(&mut queue, now).as_deref(), Some("other"));
    assert_eq!(next(&mut queue, now).as_deref(), Some("failed"));
}

#[test]
fn of_those_whose_backoff_ends_in_the_same_second_the_most_important_comes_first() {
    let now = Instant::now();
    let mut queue = Queue::new(Arc::new(framework()), now);
    let after = |tenths: u32| now + tenths * SECOND / 10;
    for (name, priority, tenths) in [("first", 0, 3), ("important", 10, 6), ("most important, but later", 20, 11)] {
        queue.set(named(name, priority), now);
        let queued = queue.pop(now).expect("a pod");
        queue.misfit(queued, rejected("NodePorts"), after(tenths));
    }
    queue.wake(&Event::NodeAdded(&node("new", json!({}))), after(12));
    assert_eq!(queue.next_change(), Some(now + 2 * SECOND));
    let order: Vec<_> = std::iter::from_fn(|| next(&mut queue, after(12))).collect();
    assert_eq!(order, ["important", "first", "most important, but later"]);
}

#[test]
fn who_was_helped_in_vain_waits_no_longer_than_its_backoff() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.set(named("web", 0), now);
    let queued = queue.pop(now).expect("a pod");
    queue.misfit(queued, rejected("NodePorts"), now);
    queue.release("web", true, now);
    assert_eq!(next(&mut queue, now), None, "not at once, although nobody else wants to");
    assert_eq!(queue.next_change(), Some(now + SECOND));
    assert_eq!(next(&mut queue, now + SECOND).as_deref(), Some("web"));
    queue.release("web", true, now);
    assert_eq!(queue.next_change(), None);
}

#[test]
fn who_is_being_helped_is_tried_when_that_has_an_end() {
    let now = Instant::now();
    for (wakes, failed, then, later) in [
        (false, false, None, None),
        (true, false, Some("web"), None),
        (true, true, None, Some("web")),
        (false, true, None, Some("web")),
    ] {
        let mut queue = queue();
        queue.set(named("web", 0), now);
        let queued = queue.pop(now).expect("a pod");
        queue.hold("web");
        queue.misfit(queued, rejected("NodePorts"), now);
        if wakes {
            queue.wake(&Event::NodeAdded(&node("new", json!({}))), now);
            queue.set(named("web", 0), now);
            assert_eq!(next(&mut queue, now + TRIED_AGAIN_AFTER), None, "{failed}");
        }
        assert_eq!(next(&mut queue, now), None, "{wakes} {failed}");
        queue.release("web", failed, now);
        assert_eq!(next(&mut queue, now).as_deref(), then, "{wakes} {failed}");
        assert_eq!(next(&mut queue, now + SECOND).as_deref(), later, "{wakes} {failed}");
    }
}

#[test]
fn errors_are_waited_out_longer_each_time_up_to_ten_seconds() {
    let (mut queue, mut now) = (queue(), Instant::now());
    queue.set(named("web", 0), now);
    for seconds in [1, 2, 4, 8, 10, 10] {
        let queued = queue.pop(now).expect("a pod");
        queue.failed(queued, now);
        let almost = now + seconds * SECOND - Duration::from_millis(1);
        assert_eq!(next(&mut queue, almost), None, "{seconds}");
        assert_eq!(queue.next_change(), Some(now + seconds * SECOND));
        now += seconds * SECOND;
    }
    assert_eq!(next(&mut queue, now).as_deref(), Some("web"));
}

#[test]
fn whoever_is_not_asked_could_not_have_helped() {
    let (plain, changed) = (node("n", json!({})), node("n", json!({"status": {"allocatable": {"cpu": "9"}}})));
    let tainted = node("n", json!({"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}], "unschedulable": true}}));
    let labelled = node("n", json!({"metadata": {"labels": {"zone": "z"}}}));
    let (small, large) = (
        pod("small", crate::fixtures::asking(json!({"cpu": "1"}))),
        pod("large", crate::fixtures::asking(json!({"cpu": "3"}))),
    );
    let choosy = pod("choosy", json!({"spec": {"nodeSelector": {"zone": "z"}}}));
    let change = |old, new| Event::NodeChanged { old, new, what: crate::framework::NodeChange::between(old, new) };
    let events = [
        Event::NodeAdded(&plain),
        Event::NodeRemoved(&plain),
        change(&plain, &changed),
        change(&tainted, &plain),
        change(&plain, &labelled),
        Event::PodAdded(&small),
        Event::PodChanged { old: &large, new: &small },
        Event::PodRemoved(&small),
        Event::NamespaceChanged,
        Event::VolumesChanged { namespace: None },
    ];
    let mut helped = 0;
    for plugin in framework().rejecters {
        for event in &events {
            for pod in [&small, &large, &choosy] {
                let helps = plugin.helps(event, pod);
                assert!(plugin.hears(event) || !helps, "{} {}", plugin.name(), pod.uid);
                helped += usize::from(helps);
            }
        }
    }
    assert!(helped > 10, "{helped}");
}

#[test]
fn after_five_minutes_it_is_tried_again_anyway() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.set(named("web", 0), now);
    let queued = queue.pop(now).expect("a pod");
    queue.misfit(queued, rejected("NodePorts"), now);
    assert_eq!(queue.next_change(), Some(now + 300 * SECOND));
    assert_eq!(next(&mut queue, now + 299 * SECOND), None);
    assert_eq!(next(&mut queue, now + 300 * SECOND).as_deref(), Some("web"));
}

#[test]
fn gates_keep_a_pod_out_until_they_are_gone() {
    let (mut queue, now) = (queue(), Instant::now());
    let gated = |gates: Value| pod("web", json!({"spec": {"schedulingGates": gates}}));
    queue.set(gated(json!([{"name": "one"}, {"name": "two"}])), now);
    queue.set(gated(json!([{"name": "one"}])), now);
    queue.wake(&Event::NodeAdded(&node("new", json!({}))), now);
    assert_eq!(next(&mut queue, now + 1000 * SECOND), None);
    queue.set(gated(json!([])), now);
    assert_eq!(next(&mut queue, now).as_deref(), Some("web"));
}

#[test]
fn a_change_of_the_pod_is_worth_a_try_its_status_is_not() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.set(named("web", 0), now);
    let queued = queue.pop(now).expect("a pod");
    queue.misfit(queued, rejected("TaintToleration"), now);
    let later = now + 2 * SECOND;
    queue.set(pod("web", json!({"spec": {"priority": 0}, "status": {"message": "told"}})), later);
    assert_eq!(next(&mut queue, later), None);
    queue.set(pod("web", json!({"spec": {"priority": 0, "tolerations": [{"operator": "Exists"}]}})), later);
    assert_eq!(next(&mut queue, later).as_deref(), Some("web"));
}

#[test]
fn who_is_removed_is_nowhere() {
    let (mut queue, now) = (queue(), Instant::now());
    for name in ["active", "unschedulable", "failed"] {
        queue.set(named(name, 0), now);
    }
    for name in ["active", "unschedulable", "failed"] {
        let queued = queue.pop(now).expect("a pod");
        match name {
            "unschedulable" => queue.misfit(queued, BTreeSet::new(), now),
            "failed" => queue.failed(queued, now),
            _ => queue.set(queued.pod, now + SECOND),
        }
    }
    for name in ["active", "unschedulable", "failed"] {
        assert!(queue.remove(name).is_some(), "{name}");
    }
    queue.wake(&Event::NamespaceChanged, now);
    assert_eq!(next(&mut queue, now + 1000 * SECOND), None);
    assert_eq!(queue.next_change(), None);
}
