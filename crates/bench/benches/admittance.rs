//! What it costs to know who asks, whether they may, and what admission says: the CPU that all of this adds to a create of a
//! ConfigMap, with 1,000 roles and bindings. `cargo bench -p bench --bench admittance`
//!
//! Two servers answer the same requests. One has everything that a cluster has by default; on the other everybody is let
//! through, no plugin runs and nobody waits for a seat. The creates are dry runs: what the store costs is the same for both,
//! and varies more than what is looked for. Authentication is measured by itself, for a service account's token.

#![allow(clippy::print_stdout, reason = "figures are for people to read")]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use api_server::{
    Server, Settings,
    admission::{
        self,
        all::{PLUGINS, State},
    },
    authentication::Identity,
    authorization::configuration::Configuration,
    body::RequestBody,
    context::{Annotations, User},
    fairness::Limits,
    serving::Peer,
};
use bench::process::cpu_time;
use hyper::{HeaderMap, Method, Request, header};
use serde_json::{Value, json};
use storage_embedded::{EmbeddedStore, Options};
use tempfile::TempDir;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ROLES: usize = 1000;
const NAMESPACES: usize = 50;
const MOST: Duration = Duration::from_micros(15);
/// Rounds take turns, so that a busy moment of the machine is not held against one of the two.
const ROUNDS: u32 = 15;
/// So many that the ticks in which the system counts are short beside them.
const PER_ROUND: u32 = 5000;

struct Road {
    server: Arc<Server>,
    user: Arc<User>,
    _folder: TempDir,
}

impl Road {
    async fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let store = EmbeddedStore::open(Options::new(folder.path().join("store"))).expect("a new store opens");
        let mut settings = Settings::new("bench");
        change(&mut settings);
        let server = Server::start(Arc::new(store), settings).await.expect("a server");
        let road = Self { server, user: Arc::new(User::service_account("ns-7", "account-7")), _folder: folder };
        road.fill().await;
        road
    }

    async fn fill(&self) {
        let made = (0..NAMESPACES).map(|n| async move {
            self.make("/api/v1/namespaces", json!({"metadata": {"name": format!("ns-{n}")}})).await;
        });
        futures::future::join_all(made).await;
        let made = (0..ROLES).map(|n| async move {
            let path = format!("{RBAC}/namespaces/ns-{}", n % NAMESPACES);
            let rules = json!([
                {"verbs": ["get", "list", "watch", "create"], "apiGroups": [""], "resources": ["configmaps", "pods"]},
                {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"]},
            ]);
            self.make(&format!("{path}/roles"), json!({"metadata": {"name": format!("role-{n}")}, "rules": rules})).await;
            let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": format!("role-{n}")});
            let subjects = json!([
                {"kind": "User", "name": format!("user-{n}")},
                {"kind": "ServiceAccount", "name": format!("account-{n}"), "namespace": format!("ns-{}", n % NAMESPACES)},
            ]);
            let binding = json!({"metadata": {"name": format!("role-{n}")}, "roleRef": role, "subjects": subjects});
            self.make(&format!("{path}/rolebindings"), binding).await;
        });
        futures::future::join_all(made).await;
        self.make("/api/v1/namespaces/ns-7/serviceaccounts", json!({"metadata": {"name": "account-7"}})).await;
    }

    async fn make(&self, path: &str, object: Value) -> Value {
        let admin = Arc::new(User { name: "admin".into(), groups: vec!["system:masters".into()], ..User::default() });
        let (code, answer) = self.server.exchange(&admin, Method::POST, path, &object).await;
        assert!(code.is_success(), "{path}: {answer}");
        answer
    }

    async fn create(&self) {
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"m"}},"data":{{"payload":"{}"}}}}"#,
            "x".repeat(1024)
        );
        let mut request = Request::new(RequestBody::Whole(body.into()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = "/api/v1/namespaces/ns-7/configmaps?dryRun=All".parse().expect("a path");
        request.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        let response = self.server.call(self.user.clone(), request).await;
        assert_eq!(response.status(), 201);
    }

    /// What somebody with a token comes with.
    async fn credentials(&self) -> (Identity, HeaderMap) {
        let path = "/api/v1/namespaces/ns-7/serviceaccounts/account-7/token";
        let asked = self.make(path, json!({"spec": {}})).await;
        let token = asked["status"]["token"].as_str().expect("a token");
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse().expect("a header"));
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        (Identity::Remote(Peer { address, presented: None }), headers)
    }
}

fn everybody_is_let_through(settings: &mut Settings) {
    let on = PLUGINS.iter().filter(|(_, state)| *state == State::On).map(|(name, _)| (*name).to_owned());
    settings.admission = admission::Settings::read(&[], &on.collect::<Vec<_>>(), None).expect("no plugins");
    settings.authorization = Configuration::from_modes(&["AlwaysAllow".to_owned()], None).expect("a mode");
    settings.limits = Limits { max_requests_inflight: 0, max_mutating_requests_inflight: 0 };
}

/// What it costs on the processor to do something so many times, of all threads.
async fn cost(times: u32, one: impl AsyncFn()) -> Duration {
    let before = cpu_time(std::process::id());
    for _ in 0..times {
        one().await;
    }
    cpu_time(std::process::id()).saturating_sub(before)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (whole, bare) = (Road::new(|_| ()).await, Road::new(everybody_is_let_through).await);
    let (peer, headers) = whole.credentials().await;
    let remarks = Annotations::default();
    let authenticated = async || {
        let authentication = &whole.server.authentication;
        let user = authentication.authenticate(&peer, "/api/v1", &headers, &remarks).await.expect("known");
        assert_eq!(user.name, whole.user.name);
    };
    let times = if cfg!(debug_assertions) { 10 } else { PER_ROUND };
    let (mut with, mut without, mut known) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for _ in 0..ROUNDS {
        with += cost(times, async || whole.create().await).await;
        without += cost(times, async || bare.create().await).await;
        known += cost(10 * times, &authenticated).await / 10;
    }
    let [with, without, known] = [with, without, known].map(|all| all.as_secs_f64() * 1e6 / f64::from(ROUNDS * times));
    let added = with - without + known;
    println!(
        "a create, but for the store: {with:.1} µs of CPU with permission, fairness and admission, {without:.1} µs without"
    );
    println!("authentication by a token: {known:.1} µs");
    println!("together they add {added:.1} µs; at most {} µs", MOST.as_micros());
    if cfg!(debug_assertions) {
        println!("not optimised: what it costs says nothing");
        return;
    }
    assert!(added < MOST.as_secs_f64() * 1e6, "it costs too much");
}
