//! The task as a whole, with a server that cannot be reached.

use controller_runtime::{Clock, SystemClock, events::Recorder};
use futures::FutureExt;
use kube::{Client, Config};
use serde_json::json;

use super::*;
use crate::{
    fixtures::{framework, node, pod},
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

#[tokio::test]
async fn a_pod_that_nobody_foresaw_keeps_no_other_from_its_node() {
    let (bound, mut who) = mpsc::unbounded_channel();
    let framework =
        Framework { bind: Arc::new(Telling(bound)), pre_filters: vec![Arc::new(Shortsighted)], ..framework() };
    let nowhere = Config::new("http://127.0.0.1:1".parse().expect("an address"));
    let client = Client::try_from(nowhere).expect("a client");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let recorder = Recorder::new(client.clone(), NAME, clock.clone());
    let teller = Teller::new(client.clone(), recorder.clone(), clock.clone());
    let scheduler = Scheduler::new(Arc::new(framework), teller, Evictions { client, recorder, clock });
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
