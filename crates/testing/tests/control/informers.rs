//! Informers follow the server whatever happens to their connection.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use api_server::{body::Body, context::User};
use bytes::Bytes;
use controller_runtime::{Change, Informer, Informers, Key, transport};
use futures::StreamExt;
use hyper::{
    Request, Response,
    body::{Body as HttpBody, Frame},
};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use testing::TestServer;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{client, eventually};

fn config(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some(BTreeMap::from([("a".into(), "b".into())])), ..ConfigMap::default() }
}

/// A line to the server that a test can cut.
#[derive(Default)]
struct Line {
    cut: Mutex<CancellationToken>,
    down: AtomicBool,
    /// Watches are answered with 410 this many times.
    gone: AtomicUsize,
    lists: AtomicUsize,
}

impl Line {
    fn client(self: &Arc<Self>, server: &TestServer) -> Client {
        let user = User { groups: vec!["system:masters".into()], ..User::component("test") };
        let (line, answer) = (self.clone(), server.server().answers_to(user));
        let over = move |request: Request<Bytes>| {
            let (line, answer) = (line.clone(), answer.clone());
            async move { line.pass(request, answer).await }
        };
        transport::in_process(over, "test").expect("a client")
    }

    async fn pass<A: Future<Output = Response<Body>>>(
        &self,
        request: Request<Bytes>,
        answer: impl Fn(Request<Bytes>) -> A,
    ) -> Response<Cuttable> {
        let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let cut = self.cut.lock().expect("no panic").clone();
        let refuse = |code: u16| {
            let status = json!({"kind": "Status", "status": "Failure", "code": code, "message": "", "reason": ""});
            Response::builder().status(code).body(Body::from(status.to_string())).expect("a response")
        };
        let response = if self.down.load(Ordering::SeqCst) {
            refuse(503)
        } else if watches && self.gone.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
            refuse(410)
        } else {
            if !watches {
                self.lists.fetch_add(1, Ordering::SeqCst);
            }
            answer(request).await
        };
        response.map(|body| Cuttable { body, cut: Box::pin(cut.cancelled_owned()) })
    }

    /// Ends every answer that is under way.
    fn cut(&self) {
        std::mem::take(&mut *self.cut.lock().expect("no panic")).cancel();
    }
}

struct Cuttable {
    body: Body,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl HttpBody for Cuttable {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }
}

/// Writes down all that it hears of the namespace `default`.
fn listen(informer: &Informer<ConfigMap>) -> Arc<Mutex<Vec<String>>> {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let writer = heard.clone();
    informer.on_change(move |change| {
        let key = Key::of(&**change.object());
        let what = match change {
            Change::Applied { old: None, .. } => "+",
            Change::Applied { .. } => "~",
            Change::Deleted(_) => "-",
        };
        if key.namespace == "default" {
            writer.lock().expect("no panic").push(format!("{what}{}", key.name));
        }
    });
    heard
}

async fn has(informer: &Informer<ConfigMap>, name: &str, there: bool) {
    eventually(name, || async { (informer.get(&Key::new("default", name)).is_some() == there).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_loses_nothing() {
    let server = TestServer::embedded().await;
    let configs: Api<ConfigMap> = Api::default_namespaced(client(&server).await);
    let line = Arc::new(Line::default());
    let stop = CancellationToken::new();
    let informers = Informers::new(line.client(&server), stop.clone());
    let informer: Informer<ConfigMap> = informers.of();
    informer.synced().await;
    let heard = listen(&informer);
    let take = || std::mem::take(&mut *heard.lock().expect("no panic"));

    for name in ["a", "b", "c"] {
        configs.create(&PostParams::default(), &config(name)).await.expect("created");
    }
    has(&informer, "c", true).await;
    assert_eq!(take(), ["+a", "+b", "+c"]);
    assert!(informer.all().iter().all(|object| object.metadata.managed_fields.is_none()));
    assert!(Arc::ptr_eq(
        &informers.of::<ConfigMap>().get(&Key::new("default", "a")).expect("there"),
        &informer.get(&Key::new("default", "a")).expect("there")
    ));

    // Away for a while: the watch goes on where it was, without another list.
    let lists = line.lists.load(Ordering::SeqCst);
    line.down.store(true, Ordering::SeqCst);
    line.cut();
    configs.delete("a", &DeleteParams::default()).await.expect("deleted");
    let change = Patch::Merge(json!({"data": {"a": "c"}}));
    configs.patch("b", &PatchParams::default(), &change).await.expect("patched");
    line.down.store(false, Ordering::SeqCst);
    has(&informer, "a", false).await;
    eventually("b", || async { (heard.lock().expect("no panic").len() == 2).then_some(()) }).await;
    assert_eq!(take(), ["-a", "~b"]);
    assert_eq!(line.lists.load(Ordering::SeqCst), lists);

    // Away for too long: everything is listed again, and told as the difference.
    line.down.store(true, Ordering::SeqCst);
    line.gone.store(1, Ordering::SeqCst);
    line.cut();
    configs.delete("b", &DeleteParams::default()).await.expect("deleted");
    configs.create(&PostParams::default(), &config("d")).await.expect("created");
    line.down.store(false, Ordering::SeqCst);
    has(&informer, "d", true).await;
    assert_eq!(take(), ["-b", "+d"]);
    assert!(line.lists.load(Ordering::SeqCst) > lists);

    stop.cancel();
    configs.create(&PostParams::default(), &config("e")).await.expect("created");
    assert!(informer.get(&Key::new("default", "e")).is_none(), "stopped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_objects_come_in_pages_over_https() {
    let server = TestServer::embedded().await;
    let client = client(&server).await;
    let configs: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let names: Vec<String> = (0..1200).map(|i| format!("c{i:04}")).collect();
    futures::stream::iter(&names)
        .for_each_concurrent(16, |name| async {
            configs.create(&PostParams::default(), &config(name)).await.expect("created");
        })
        .await;
    let informers = Informers::new(client, CancellationToken::new());
    let informer: Informer<ConfigMap> = informers.of();
    informer.synced().await;
    let known: Vec<String> = informer.in_namespace("default").iter().map(|object| Key::of(&**object).name).collect();
    assert_eq!(known, names);
    informers.stop().cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_odd_costs_no_list() {
    let server = TestServer::embedded().await;
    let line = Arc::new(Line::default());
    let informers = Informers::new(line.client(&server), CancellationToken::new());
    let informer: Informer<Service> = informers.of();
    informer.synced().await;
    let lists = line.lists.load(Ordering::SeqCst);
    let service = json!({"metadata": {"name": "odd"}, "spec": {"ports": [{"port": 80}]}});
    let http = server.client();
    http.post("/api/v1/namespaces/default/services", &service).await.expect(201);
    // As clients of Kubernetes write a time that is not set; the typed structs demand one.
    let condition = json!({"type": "A", "status": "True", "reason": "R", "message": "", "lastTransitionTime": null});
    let status = json!({"status": {"conditions": [condition]}});
    for round in 0..3 {
        let path = "/api/v1/namespaces/default/services/odd/status";
        let written = http.patch(path, testing::client::MERGE_PATCH, &status).await.expect(200);
        assert!(written["status"]["conditions"][0]["lastTransitionTime"].is_null(), "{written}");
        let note = json!({"metadata": {"annotations": {"round": round.to_string()}}});
        http.patch("/api/v1/namespaces/default/services/odd", testing::client::MERGE_PATCH, &note).await.expect(200);
        eventually("the odd object", || async {
            let known = informer.get(&Key::new("default", "odd"))?;
            let seen = known.metadata.annotations.as_ref()?.get("round")? == &round.to_string();
            let conditions = known.status.as_ref()?.conditions.as_ref()?;
            (seen && conditions.len() == 1).then_some(())
        })
        .await;
    }
    http.delete("/api/v1/namespaces/default/services/odd").await.expect(200);
    eventually("its end", || async { informer.get(&Key::new("default", "odd")).is_none().then_some(()) }).await;
    assert_eq!(line.lists.load(Ordering::SeqCst), lists, "nothing is listed again");
    informers.stop().cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_what_is_stopped_is_told() {
    let server = TestServer::embedded().await;
    let line = Arc::new(Line::default());
    let stop = CancellationToken::new();
    stop.cancel();
    let informer: Informer<ConfigMap> = Informers::new(line.client(&server), stop).of();
    informer.synced_or_stopped().await;
    assert!(!informer.progress().borrow().synced);
    // Who would act on it as if it were everything is not told.
    assert!(tokio::time::timeout(Duration::from_millis(50), informer.synced()).await.is_err());
}
