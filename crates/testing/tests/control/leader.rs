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
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use testing::TestServer;
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{client, eventually};

/// Who leads now, and how many have ever led at once.
#[derive(Default)]
struct Leading {
    now: AtomicUsize,
    most: AtomicUsize,
}

fn elector(client: Client, identity: &str, renew_deadline: Duration) -> Elector {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let recorder = Recorder::new(client.clone(), "tester", clock.clone());
    let timing = Timing { lease: Duration::from_secs(600), renew_deadline, retry: Duration::from_millis(50) };
    Elector::new(client, "kube-system", "test", identity, timing, clock, recorder)
}

fn elect(client: Client, identity: &str, leading: Arc<Leading>, stop: CancellationToken) -> JoinHandle<()> {
    // Short to retry, long to run out: a busy machine must not lose a lease.
    let elector = elector(client, identity, Duration::from_secs(500));
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

/// Says that it is dropped, and whether it was told to stop before.
struct Dropped(CancellationToken, mpsc::UnboundedSender<bool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.1.send(self.0.is_cancelled());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_lost_the_lease_drops_its_work() {
    let server = TestServer::embedded().await;
    let client = client(&server).await;
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let ((begin, mut began), (tell, mut dropped)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    let elector = elector(client, "a", Duration::from_secs(2));
    let work = move |term: CancellationToken| {
        let (begin, dropped) = (begin.clone(), Dropped(term, tell.clone()));
        async move {
            let _dropped = dropped;
            let _ = begin.send(());
            std::future::pending::<()>().await
        }
    };
    let stop = CancellationToken::new();
    let running = tokio::spawn(elector.run(stop.clone(), work));
    began.recv().await.expect("a leads");
    let other = Patch::Merge(json!({"spec": {"holderIdentity": "b", "renewTime": "2030-01-01T00:00:00.000000Z"}}));
    let taken = leases.patch("test", &PatchParams::default(), &other).await.expect("taken");
    let told = timeout(Duration::from_secs(100), dropped.recv()).await.expect("the work is dropped");
    assert_eq!(told, Some(false), "who is told to stop might still finish something");
    let spec = leases.get("test").await.expect("a lease").spec;
    assert_eq!(spec, taken.spec, "it is not given back");
    stop.cancel();
    running.await.expect("it ends");
}
