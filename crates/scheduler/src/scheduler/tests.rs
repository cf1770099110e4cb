//! The task as a whole, with a server that cannot be reached.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
};

use controller_runtime::{Clock, SystemClock, events::Recorder};
use futures::FutureExt;
use serde_json::{Value, json};
use tokio::{
    sync::{Semaphore, oneshot},
    task::JoinHandle,
};

use super::*;
use crate::{
    fixtures::{asking, client, framework, node, pod},
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

/// Tells who is being bound, and binds no sooner than it may. Did not foresee one pod.
struct Telling {
    who: UnboundedSender<String>,
    may: Arc<Semaphore>,
}

impl Bind for Telling {
    fn bind<'a>(&'a self, pod: &'a PodInfo, _node: &'a str) -> Step<'a> {
        async {
            assert_ne!(pod.uid, "not bound", "on purpose");
            let _ = self.who.send(pod.uid.clone());
            let _ = self.may.acquire().await;
            Ok(())
        }
        .boxed()
    }
}

/// Plugins that bind only when they may, and who is being bound.
fn telling(may: &Arc<Semaphore>) -> (Framework, UnboundedReceiver<String>) {
    let (who, bound) = mpsc::unbounded_channel();
    (Framework { bind: Arc::new(Telling { who, may: may.clone() }), ..framework() }, bound)
}

fn scheduler(framework: Framework) -> Scheduler {
    asking_port(1, framework)
}

/// A scheduler whose server is at a port of this machine. It records no events.
fn asking_port(port: u16, framework: Framework) -> Scheduler {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let recorder = Recorder::new(client(1), NAME, clock.clone());
    let client = client(port);
    let teller = Teller::new(client.clone(), recorder.clone(), clock.clone());
    Scheduler::new(Arc::new(framework), teller, Evictions { client, recorder, clock })
}

/// A pod that takes all of a node.
fn large(name: &str, priority: i32, mut changes: Value) -> Told {
    changes["spec"]["priority"] = json!(priority);
    changes["spec"]["containers"] = asking(json!({"cpu": "2"}))["spec"]["containers"].take();
    Told::Pod(pod(name, changes).pod.clone())
}

/// A pod that fits nearly everywhere.
fn small(name: &str) -> Told {
    Told::Pod(pod(name, json!({})).pod.clone())
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
fn rooms(told: &mut UnboundedReceiver<(Arc<PodInfo>, Value)>) -> Vec<(String, Value)> {
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
    let half = |name: &str, priority: i32| {
        let mut half = asking(json!({"cpu": "1"}));
        half["spec"]["nodeName"] = json!("one");
        half["spec"]["priority"] = json!(priority);
        pod(name, half).pod.clone()
    };
    let first = half("first", 0);
    for told in [
        Told::Node(node("one", json!({}))),
        Told::Node(node("two", json!({}))),
        Told::Pod(first.clone()),
        Told::Pod(half("last", 1)),
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
    let (framework, mut who) = telling(&Arc::new(Semaphore::new(1)));
    let scheduler = scheduler(Framework { pre_filters: vec![Arc::new(Shortsighted)], ..framework });
    for told in [Told::Node(node("one", json!({}))), small("odd"), small("good")] {
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
    assert_eq!(rooms(&mut told), [at_one.clone(), nowhere.clone()]);

    let (mut scheduler, mut told) = with_room();
    scheduler.hear(large("more urgent", 20, json!({})));
    assert_eq!(scheduler.try_next().as_deref(), Some("more urgent"));
    assert_eq!(rooms(&mut told), [at_one.clone(), nowhere.clone(), ("more urgent".to_owned(), json!("one"))]);

    let (mut scheduler, mut told) = with_room();
    scheduler.hear(Told::NodeGone(node("one", json!({}))));
    scheduler.hear(large("urgent", 10, json!({"metadata": {"labels": {"tried": "once"}}})));
    assert_eq!(scheduler.try_next().as_deref(), Some("urgent"));
    assert_eq!(rooms(&mut told), [at_one, nowhere]);
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
    let written: Vec<Value> = rooms(&mut told).into_iter().map(|(_, node)| node).collect();
    assert_eq!(written, [json!("one"), Value::Null, json!("one")]);
    assert_eq!(scheduler.nominations.node_of("urgent"), Some("one"));
}

#[tokio::test]
async fn a_binding_that_nobody_foresaw_has_failed() {
    let (framework, _who) = telling(&Arc::new(Semaphore::new(1)));
    let mut scheduler = scheduler(framework);
    scheduler.hear(Told::Node(node("one", json!({}))));
    scheduler.hear(small("not bound"));
    assert_eq!(scheduler.try_next().as_deref(), Some("not bound"));
    assert_eq!(scheduler.bindings, 1);
    scheduler.at_work.join_next().await;
    scheduler.hear_all();
    assert_eq!(scheduler.bindings, 0);
    assert!(scheduler.assumed.is_empty());
    assert!(scheduler.queue.get("not bound").is_some());
}

/// Tells a scheduler to stop, and gives it the time to do so. Does it wait for anything?
async fn waits(running: &JoinHandle<()>, stop: &CancellationToken) -> bool {
    stop.cancel();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    !running.is_finished()
}

/// Answers requests on one connection, the first of them when it may. Gives their number when the connection ends.
fn answer(listener: &TcpListener, asked: oneshot::Sender<()>, may: oneshot::Receiver<()>) -> std::io::Result<usize> {
    let (mut connection, _) = listener.accept()?;
    let mut reader = BufReader::new(connection.try_clone()?);
    let (mut count, mut first) = (0, Some((asked, may)));
    loop {
        let (mut line, mut length) = (String::new(), 0);
        while reader.read_line(&mut line)? > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a number");
            }
            line.clear();
        }
        if line.is_empty() {
            return Ok(count);
        }
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
        count += 1;
        if let Some((asked, may)) = first.take() {
            let _ = asked.send(());
            let _ = may.blocking_recv();
        }
        connection.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}")?;
    }
}

#[tokio::test]
async fn a_scheduler_that_stops_waits_for_its_bindings() {
    let may = Arc::new(Semaphore::new(0));
    let (framework, mut who) = telling(&may);
    let scheduler = scheduler(framework);
    for told in [Told::Node(node("one", json!({}))), small("web")] {
        scheduler.tell.send(told).expect("it listens");
    }
    let stop = CancellationToken::new();
    let running = tokio::spawn(scheduler.run(stop.clone()));
    assert_eq!(who.recv().await.as_deref(), Some("web"));
    assert!(waits(&running, &stop).await);
    may.add_permits(1);
    running.await.expect("it ends in peace");
}

#[tokio::test]
async fn a_scheduler_that_stops_tells_pods_what_it_has_to_say() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let mut scheduler = asking_port(listener.local_addr().expect("an address").port(), framework());
    for name in ["first", "second", "third"] {
        scheduler.hear(small(name));
        assert_eq!(scheduler.try_next().as_deref(), Some(name), "there are no nodes");
    }
    let ((ask, asked), (allow, may)) = (oneshot::channel(), oneshot::channel());
    let server = tokio::task::spawn_blocking(move || answer(&listener, ask, may));
    let stop = CancellationToken::new();
    let running = tokio::spawn(scheduler.run(stop.clone()));
    asked.await.expect("a request");
    assert!(waits(&running, &stop).await);
    allow.send(()).expect("it waits");
    running.await.expect("it ends in peace");
    assert_eq!(server.await.expect("no panic").expect("the connection was closed"), 3);
}
