//! The hot parts of the API server's road, in this process and without a connection: create, get, list, and a patch that
//! many watchers see. `cargo bench -p bench --bench api`
//!
//! Afterwards each part's CPU per operation is compared with a fifth of what Kubernetes was measured to use for the whole
//! request; a part that takes more fails the run.

#![allow(clippy::print_stdout, reason = "figures are for people to read")]

use std::{
    future::poll_fn,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use api_server::{
    Server, Settings,
    body::{Body, RequestBody},
    context::User,
};
use bench::process::cpu_time;
use criterion::Criterion;
use hyper::{Method, Request, header};
use storage_embedded::{EmbeddedStore, Options};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const OBJECTS: usize = 3000;
const WATCHERS: usize = 100;
/// Creates that are under way at once, so that they share the disk's syncs as clients on connections do.
const AT_ONCE: usize = 32;

/// A server with [`OBJECTS`] objects, and the road into it.
struct Bench {
    runtime: Runtime,
    server: Arc<Server>,
    user: Arc<User>,
    next: AtomicUsize,
    _folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let store = EmbeddedStore::open(Options::new(folder.path().join("store"))).expect("a new store opens");
        let server = runtime.block_on(Server::start(Arc::new(store), Settings::new("bench"))).expect("a server");
        let user = User { name: "bench".into(), groups: vec!["system:masters".into()], ..User::default() };
        let bench = Self { runtime, server, user: Arc::new(user), next: AtomicUsize::new(0), _folder: folder };
        bench.runtime.block_on(async {
            for _ in 0..OBJECTS.div_ceil(AT_ONCE) {
                bench.create().await;
            }
        });
        bench
    }

    async fn call(&self, method: Method, path: &str, kind: &'static str, body: String) -> Body {
        let mut request = Request::new(RequestBody::Whole(body.into()));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().expect("a path");
        request.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
        let response = self.server.call(self.user.clone(), request).await;
        assert!(response.status().is_success(), "{path}: {}", response.status());
        response.into_body()
    }

    /// Makes [`AT_ONCE`] objects.
    async fn create(&self) {
        let mut under_way = Vec::with_capacity(AT_ONCE);
        for _ in 0..AT_ONCE {
            let name = format!("bench-{:07}", self.next.fetch_add(1, Ordering::Relaxed));
            let body = format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","labels":{{"app":"bench"}}}},"data":{{"payload":"{}"}}}}"#,
                "x".repeat(1024)
            );
            under_way.push(Box::pin(self.call(Method::POST, MAPS, "application/json", body)));
        }
        futures::future::join_all(under_way).await;
    }

    async fn get(&self) {
        let body = self.call(Method::GET, &format!("{MAPS}/bench-0000001"), "application/json", String::new()).await;
        black_box(read(body).await);
    }

    async fn list(&self, query: &str) {
        let path = format!("{MAPS}?limit={OBJECTS}{query}");
        let bytes = read(self.call(Method::GET, &path, "application/json", String::new()).await).await;
        assert!(bytes > OBJECTS * 1024, "a whole list");
    }

    async fn watchers(&self) -> Vec<Body> {
        let mut watchers = Vec::with_capacity(WATCHERS);
        for _ in 0..WATCHERS {
            let path = format!("{MAPS}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
            watchers.push(self.call(Method::GET, &path, "application/json", String::new()).await);
        }
        watchers
    }

    /// One patch, until all have read its event.
    async fn patch(&self, watchers: &mut [Body]) {
        let round = self.next.fetch_add(1, Ordering::Relaxed);
        let body = format!(r#"{{"data":{{"patched":"{round}"}}}}"#);
        let path = format!("{MAPS}/bench-0000001");
        let answer = self.call(Method::PATCH, &path, "application/merge-patch+json", body).await;
        black_box(read(answer).await);
        for watcher in watchers {
            let event = poll_fn(|cx| watcher.poll_bytes(cx)).await;
            assert!(event.is_some_and(|event| event.ends_with(b"}\n")), "an event");
        }
    }
}

async fn read(mut body: Body) -> usize {
    let mut bytes = 0;
    while let Some(chunk) = poll_fn(|cx| body.poll_bytes(cx)).await {
        bytes += chunk.len();
    }
    bytes
}

fn main() {
    let bench = Bench::new();
    let runtime = &bench.runtime;
    let mut watchers = runtime.block_on(bench.watchers());
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    criterion.bench_function(&format!("patch seen by {WATCHERS} watchers"), |b| {
        b.iter(|| runtime.block_on(bench.patch(&mut watchers)));
    });
    let patched = cost(200, || runtime.block_on(bench.patch(&mut watchers)));
    drop(watchers);
    criterion.bench_function("get", |b| b.iter(|| runtime.block_on(bench.get())));
    criterion.bench_function(&format!("list {OBJECTS}"), |b| b.iter(|| runtime.block_on(bench.list(""))));
    criterion.bench_function(&format!("list {OBJECTS} by label"), |b| {
        b.iter(|| runtime.block_on(bench.list("&labelSelector=app%3Dbench")));
    });
    criterion.bench_function(&format!("{AT_ONCE} creates at once"), |b| b.iter(|| runtime.block_on(bench.create())));
    criterion.final_summary();
    if cfg!(debug_assertions) {
        println!("not optimised: what it costs says nothing");
        return;
    }

    let label = "&labelSelector=app%3Dbench";
    let rows = [
        ("patch with its events", patched, 4400),
        ("get", cost(20_000, || runtime.block_on(bench.get())), 601),
        ("list", cost(200, || runtime.block_on(bench.list(""))), 46_000),
        ("list by label", cost(200, || runtime.block_on(bench.list(label))), 59_000),
        ("create", cost(100, || runtime.block_on(bench.create())) / AT_ONCE as u32, 1313),
    ];
    let mut slow = false;
    for (name, cpu, peer) in rows {
        let limit = Duration::from_micros(peer / 5);
        println!("{name}: {:.1} µs of CPU, at most {} µs", cpu.as_secs_f64() * 1e6, limit.as_micros());
        slow |= cpu > limit;
    }
    assert!(!slow, "a part of the road costs too much");
}

/// What one round costs on the processor, of all threads.
fn cost(rounds: u32, mut round: impl FnMut()) -> Duration {
    let before = cpu_time(std::process::id());
    (0..rounds).for_each(|_| round());
    cpu_time(std::process::id()).saturating_sub(before) / rounds
}
