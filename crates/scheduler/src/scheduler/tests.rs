//! The task as a whole, with a server that cannot be reached.

use std::{net::TcpListener, time::Duration};

use controller_runtime::{Clock, SystemClock, events::Recorder};
use futures::FutureExt;
use kube::{Client, Config};
use serde_json::{Value, json};

use super::*;
use crate::{
    fixtures::{asking, framework, node, pod},
    framework::{Bind, Plugin, PreFilter, PreFiltered, Step},
};

/// Did not foresee one pod.
struct Shortsighted;

impl Plugin for Shortsighted {
    fn name(&self) -> &'static str {
        "Shortsighted"
    }

    fn helps(&self, _event: &Event<'_>, _pod: &PodInfo) -> bool {
        false
    }
}

impl PreFilter for Shortsighted {
    fn pre_filter<'a>(&'a self, pod: &'a PodInfo, _snapshot: &'a Snapshot) -> PreFiltered<'a> {
        assert_ne!(pod.uid, "odd", "on purpose");
        PreFiltered::Skip
    }
}

/// Tells who is bound.
struct Telling(UnboundedSender<String>);

impl Bind for Telling {
    fn bind<'a>(&'a self, pod: &'a PodInfo, _node: &'a str) -> Step<'a> {
        let _ = self.0.send(pod.uid.clone());
        async { Ok(()) }.boxed()
    }
}

fn scheduler(framework: Framework) -> Scheduler {
    asking_port(1, framework)
}

/// A scheduler whose server is at a port of this machine.
fn asking_port(port: u16, framework: Framework) -> Scheduler {
    let server = Config::new(format!("http://127.0.0.1:{port}").parse().expect("an address"));
    let client = Client::try_from(server).expect("a client");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let recorder = Recorder::new(client.clone(), NAME, clock.clone());
    let teller = Teller::new(client.clone(), recorder.clone(), clock.clone());
    Scheduler::new(Arc::new(framework), teller, Evictions { client, recorder, clock })
}

/// A pod that takes all of a node.
fn large(name: &str, priority: i32, mut changes: Value) -> Told {
    changes["spec"]["priority"] = json!(priority);
    changes["spec"]["containers"] = asking(json!({"cpu": "2"}))["spec"]["containers"].take();
    Told::Pod(pod(name, changes).pod.clone())
}

fn on(node: &str) -> Value {
    json!({"spec": {"nodeName": node}})
}

fn evicted_for(pod: &str) -> Told {
    Told::Evicted { for_pod: pod.to_owned(), failed: false }
}

fn tainted(name: &str) -> Told {
    Told::Node(node(name, json!({"spec": {"taints": [{"key": "for", "effect": "NoSchedule"}]}})))
}

/// Everything that was to be written about where room was made, until now: for whom, and where.
fn nominated(told: &mut UnboundedReceiver<(Arc<PodInfo>, Value)>) -> Vec<(String, Value)> {
    let told = std::iter::from_fn(|| told.try_recv().ok());
    told.filter_map(|(pod, status)| Some((pod.uid.clone(), status.get("nominatedNodeName")?.clone()))).collect()
}

impl Scheduler {
    /// Tries the next pod.
    fn try_next(&mut self) -> Option<String> {
        let queued = self.queue.pop(Instant::now())?;
        let uid = queued.pod.uid.clone();
        self.place(queued);
        Some(uid)
    }
}

#[tokio::test]
async fn who_gets_no_room_after_all_is_tried_again() {
    let mut scheduler = scheduler(framework());
    scheduler.hear(Told::Node(node("one", json!({}))));
    scheduler.hear(large("victim", 0, on("one")));
    scheduler.hear(large("urgent", 10, json!({})));
    assert_eq!(scheduler.try_next().as_deref(), Some("urgent"));
    assert_eq!(scheduler.nominations.node_of("urgent"), Some("one"));
    let soon = || Instant::now() + Duration::from_secs(10);
    assert!(scheduler.queue.next_change().is_some_and(|next| next > soon()), "it waits for the victim to go");
    let told = scheduler.told.recv().await.expect("what came of it");
    assert!(matches!(&told, Told::Evicted { for_pod, failed: true } if for_pod == "urgent"));
    scheduler.hear(told);
    assert!(scheduler.queue.next_change().is_some_and(|next| next < soon()));
}

#[tokio::test]
async fn nobody_else_goes_for_a_pod_while_not_all_were_told_to_go() {
    let never_answers = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = never_answers.local_addr().expect("an address").port();
    let mut scheduler = asking_port(port, framework());
    let small = |name: &str, node: &str, priority: i32| {
        let mut small = asking(json!({"cpu": "1"}));
        small["spec"]["nodeName"] = json!(node);
        small["spec"]["priority"] = json!(priority);
        pod(name, small).pod.clone()
    };
    let first = small("first", "one", 0);
    for told in [
        Told::Node(node("one", json!({}))),
        Told::Node(node("two", json!({}))),
        Told::Pod(first.clone()),
        Told::Pod(small("last", "one", 1)),
        large("other", 2, on("two")),
        large("urgent", 10, json!({})),
    ] {
        scheduler.hear(told);
    }
    assert_eq!(scheduler.try_next().as_deref(), Some("urgent"));
    assert_eq!(scheduler.nominations.node_of("urgent"), Some("one"));
    scheduler.hear(Told::PodGone(first));
    assert_eq!(scheduler.try_next(), None);
    assert_eq!(scheduler.at_work.len(), 1);
    scheduler.hear(evicted_for("urgent"));
    assert_eq!(scheduler.try_next().as_deref(), Some("urgent"));
}

#[tokio::test]
async fn room_that_is_given_up_is_for_those_who_left_it_free() {
    let first = |mut changes: Value| {
        changes["spec"]["schedulingGates"] = json!([{"name": "not yet"}]);
        large("first", 10, changes)
    };
    let nominated = |node: &str| json!({"status": {"nominatedNodeName": node}});
    for then in [json!({}), nominated("two"), on("two")] {
        let mut scheduler = scheduler(framework());
        scheduler.hear(Told::Node(node("one", json!({}))));
        scheduler.hear(first(nominated("one")));
        scheduler.hear(large("second", 10, json!({})));
        assert_eq!(scheduler.try_next().as_deref(), Some("second"));
        scheduler.hear(first(nominated("one")));
        assert_eq!(scheduler.try_next(), None, "there is no room yet");
        scheduler.hear(first(then.clone()));
        assert_eq!(scheduler.try_next().as_deref(), Some("second"), "{then}");
        assert!(scheduler.assumed.contains_key("second"), "{then}");
    }
}

#[tokio::test]
async fn who_loses_its_room_looks_for_another() {
    let mut scheduler = scheduler(framework());
    scheduler.hear(Told::Node(node("one", json!({}))));
    scheduler.hear(large("victim", 0, on("one")));
    for (name, priority) in [("urgent", 10), ("more urgent", 20)] {
        scheduler.hear(large(name, priority, json!({})));
        assert_eq!(scheduler.try_next().as_deref(), Some(name));
        assert_eq!(scheduler.nominations.node_of(name), Some("one"));
    }
    assert_eq!(scheduler.nominations.node_of("urgent"), None);
    scheduler.hear(evicted_for("urgent"));
    assert_eq!(scheduler.try_next().as_deref(), Some("urgent"));
    assert_eq!(scheduler.try_next(), None);
}

#[tokio::test]
async fn a_pod_that_nobody_foresaw_keeps_no_other_from_its_node() {
    let (bound, mut who) = mpsc::unbounded_channel();
    let scheduler = scheduler(Framework {
        bind: Arc::new(Telling(bound)),
        pre_filters: vec![Arc::new(Shortsighted)],
        ..framework()
    });
    let of = |name: &str| Told::Pod(pod(name, json!({})).pod.clone());
    for told in [Told::Node(node("one", json!({}))), of("odd"), of("good")] {
        scheduler.tell.send(told).expect("it listens");
    }
    let stop = CancellationToken::new();
    let running = tokio::spawn(scheduler.run(stop.clone()));
    assert_eq!(who.recv().await.as_deref(), Some("good"));
    stop.cancel();
    running.await.expect("it ends in peace");
}

/// A pod for which room was made at the node `one`, and what pods are told, this included.
fn with_room() -> (Scheduler, UnboundedReceiver<(Arc<PodInfo>, Value)>) {
    let mut scheduler = scheduler(framework());
    let (teller, told) = scheduler.teller.overheard();
    scheduler.teller = teller;
    for told in [Told::Node(node("one", json!({}))), large("victim", 0, on("one")), large("urgent", 10, json!({}))] {
        scheduler.hear(told);
    }
    assert_eq!(scheduler.try_next().as_deref(), Some("urgent"));
    scheduler.hear(evicted_for("urgent"));
    (scheduler, told)
}

#[tokio::test]
async fn room_is_taken_back_before_the_status_says_that_it_was_made() {
    let at_one = ("urgent".to_owned(), json!("one"));
    let nowhere = ("urgent".to_owned(), Value::Null);

    let (mut scheduler, mut told) = with_room();
    scheduler.hear(tainted("one"));
    for again in ["once", "twice"] {
        scheduler.hear(large("urgent", 10, json!({"metadata": {"labels": {"tried": again}}})));
        assert_eq!(scheduler.try_next().as_deref(), Some("urgent"));
    }
    assert_eq!(nominated(&mut told), [at_one.clone(), nowhere.clone()]);

    let (mut scheduler, mut told) = with_room();
    scheduler.hear(large("more urgent", 20, json!({})));
    assert_eq!(scheduler.try_next().as_deref(), Some("more urgent"));
    assert_eq!(nominated(&mut told), [at_one.clone(), nowhere.clone(), ("more urgent".to_owned(), json!("one"))]);

    let (mut scheduler, mut told) = with_room();
    scheduler.hear(Told::NodeGone(node("one", json!({}))));
    scheduler.hear(large("urgent", 10, json!({"metadata": {"labels": {"tried": "once"}}})));
    assert_eq!(scheduler.try_next().as_deref(), Some("urgent"));
    assert_eq!(nominated(&mut told), [at_one, nowhere]);
}

#[tokio::test]
async fn room_is_made_again_before_the_status_says_that_there_is_none() {
    let (mut scheduler, mut told) = with_room();
    for (tried, node) in [("once", tainted("one")), ("twice", Told::Node(node("one", json!({}))))] {
        scheduler.hear(node);
        let seen = json!({"metadata": {"labels": {"tried": tried}}, "status": {"nominatedNodeName": "one"}});
        scheduler.hear(large("urgent", 10, seen));
        assert_eq!(scheduler.try_next().as_deref(), Some("urgent"));
    }
    let written: Vec<Value> = nominated(&mut told).into_iter().map(|(_, node)| node).collect();
    assert_eq!(written, [json!("one"), Value::Null, json!("one")]);
    assert_eq!(scheduler.nominations.node_of("urgent"), Some("one"));
}
