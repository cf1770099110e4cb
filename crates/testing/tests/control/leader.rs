//! Of two who want to lead, one does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use controller_runtime::{
    Clock, SystemClock,
    events::Recorder,
    leader::{Elector, Timing},
};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Event};
use kube::{Api, Client, api::ListParams};
use testing::TestServer;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{client, eventually};

/// Who leads now, and how many have ever led at once.
#[derive(Default)]
struct Leading {
    now: AtomicUsize,
    most: AtomicUsize,
}

fn elect(client: Client, identity: &str, leading: Arc<Leading>, stop: CancellationToken) -> JoinHandle<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let recorder = Recorder::new(client.clone(), "tester", clock.clone());
    // Short to retry, long to run out: a busy machine must not lose a lease.
    let timing = Timing {
        lease: Duration::from_secs(600),
        renew_deadline: Duration::from_secs(500),
        retry: Duration::from_millis(50),
    };
    let elector = Elector::new(client, "kube-system", "test", identity, timing, clock, recorder);
    tokio::spawn(elector.run(stop, move |term| {
        let leading = leading.clone();
        async move {
            let now = leading.now.fetch_add(1, Ordering::SeqCst) + 1;
            leading.most.fetch_max(now, Ordering::SeqCst);
            term.cancelled().await;
            leading.now.fetch_sub(1, Ordering::SeqCst);
        }
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_goes_from_one_to_the_other() {
    let server = TestServer::embedded().await;
    let client = client(&server).await;
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let holder = || async {
        let spec = leases.get_opt("test").await.expect("an answer")?.spec?;
        Some((spec.holder_identity?, spec.lease_transitions?, spec.lease_duration_seconds?))
    };
    let leading = Arc::new(Leading::default());
    let (stop_a, stop_b) = (CancellationToken::new(), CancellationToken::new());
    let a = elect(client.clone(), "a", leading.clone(), stop_a.clone());
    let first = eventually("a leader", holder).await;
    assert_eq!(first, ("a".to_owned(), 0, 600));
    let renewed = |time: Option<String>| {
        let leases = leases.clone();
        async move {
            let spec = leases.get("test").await.expect("a lease").spec.expect("a spec");
            let now = spec.renew_time.map(|time| time.0.to_string());
            (now != time).then_some(now)
        }
    };
    let before = renewed(None).await.expect("a time");
    eventually("it is renewed", || renewed(before.clone())).await;

    let b = elect(client.clone(), "b", leading.clone(), stop_b.clone());
    stop_a.cancel();
    a.await.expect("it ends");
    eventually("b leads", || async { holder().await.filter(|(who, ..)| who == "b") }).await;
    assert_eq!(holder().await.map(|found| found.1), Some(1), "one change of leaders");
    stop_b.cancel();
    b.await.expect("it ends");
    assert_eq!(holder().await, Some((String::new(), 1, 1)), "given back");
    assert_eq!((leading.now.load(Ordering::SeqCst), leading.most.load(Ordering::SeqCst)), (0, 1));

    let events: Api<Event> = Api::namespaced(client, "kube-system");
    let event = eventually("an event", || async {
        let found = events.list(&ListParams::default()).await.expect("a list").items;
        found.into_iter().find(|event| event.message.as_deref() == Some("b became leader"))
    })
    .await;
    assert_eq!(
        (event.reason.as_deref(), event.involved_object.kind.as_deref()),
        (Some("LeaderElection"), Some("Lease"))
    );
}
