//! Other judges than the usual ones: a webhook, everybody, nobody.

use std::{
    net::Ipv4Addr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use api_server::{
    authorization::{
        configuration::Configuration,
        webhook::{Settings, Version},
    },
    body::Body,
    serving::{
        self, Handler, Peer, ServerCertificate,
        authority::{Authority, Names},
        kubeconfig,
    },
};
use http_body_util::BodyExt;
use hyper::{Request, Response, StatusCode, body::Incoming};
use serde_json::{Value, json};
use testing::TestServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::configmap;

/// Lets red users read, forbids blue ones everything, and has no opinion of others. Green ones make it fail.
#[derive(Default)]
struct Judge {
    asked: AtomicUsize,
}

impl Handler for Judge {
    async fn handle(self: Arc<Self>, peer: Peer, request: Request<Incoming>) -> Response<Body> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let bytes = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let mut review: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let (spec, known) = (&review["spec"], peer.presented.is_some());
        assert_eq!((review["apiVersion"].as_str(), known), (Some("authorization.k8s.io/v1"), true), "{review}");
        let verb = spec["resourceAttributes"]["verb"].as_str().unwrap_or_default();
        let status = match spec["user"].as_str() {
            Some("red") if matches!(verb, "get" | "list") => json!({"allowed": true, "reason": "red may read"}),
            Some("blue") => json!({"allowed": false, "denied": true, "reason": "no blue"}),
            Some("green") => {
                let mut failed = Response::new(Body::Empty);
                *failed.status_mut() = StatusCode::BAD_GATEWAY;
                return failed;
            }
            _ => json!({"allowed": false, "reason": "who?"}),
        };
        review["status"] = status;
        Response::new(Body::from(review.to_string()))
    }
}

/// Serves the judge, and writes the kubeconfig by which it is reached.
async fn judge(folder: &Path) -> Arc<Judge> {
    let authority = Authority::open(&folder.join("webhook")).expect("an authority");
    let names = Names { dns: vec![], addresses: vec![Ipv4Addr::LOCALHOST.into()] };
    let certificate = Arc::new(ServerCertificate::new(&authority, &names).expect("a certificate"));
    let tls = Arc::new(serving::server_config(certificate).expect("TLS settings"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    kubeconfig::write(&folder.join("webhook.kubeconfig"), &authority, address, "apiserver", "servers").expect("a file");
    let judge = Arc::new(Judge::default());
    let stop = CancellationToken::new();
    tokio::spawn(serving::serve(listener, tls, judge.clone(), stop, std::time::Duration::ZERO));
    judge
}

async fn server(folder: &Path, deny_on_failure: bool) -> TestServer {
    let settings = Settings { deny_on_failure, version: Version::V1, ..Settings::default() };
    let modes = ["Webhook".to_owned(), "RBAC".to_owned()];
    let file = folder.join("webhook.kubeconfig");
    let configuration = Configuration::from_modes(&modes, Some((&file, settings))).expect("a configuration");
    TestServer::with(move |settings, _| settings.authorization = configuration).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_decides() {
    let folder = tempfile::tempdir().expect("a folder");
    let judge = judge(folder.path()).await;
    let server = server(folder.path(), false).await;
    let path = "/api/v1/namespaces/default/configmaps";
    server.client().post(path, &configmap("c")).await.expect(201);
    assert_eq!(judge.asked.load(Ordering::SeqCst), 0, "masters need no judge");

    let red = server.client_of("red", "x");
    for _ in 0..3 {
        red.get(&format!("{path}/c")).await.expect(200);
    }
    assert_eq!(judge.asked.load(Ordering::SeqCst), 1, "answers are remembered");
    let why = red.delete(&format!("{path}/c")).await.refused(403);
    assert!(why.ends_with(": who?"), "{why}");
    // What the webhook has no opinion of, the next judge decides.
    red.get("/version").await.expect(200);
    let blue = server.client_of("blue", "x");
    let why = blue.get("/version").await.refused(403);
    assert_eq!(why, r#"forbidden: User "blue" cannot get path "/version": no blue"#);
    let review = json!({"spec": {"user": "blue", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let answer = server.client().post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await.expect(201);
    assert_eq!(answer["status"], json!({"allowed": false, "denied": true, "reason": "no blue"}));

    // A failure is no opinion; only what nobody allows is an error.
    let green = server.client_of("green", "x");
    green.get("/version").await.expect(200);
    let why = green.get(path).await.refused(500);
    assert!(why.contains("the authorization webhook answered 502 Bad Gateway"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_fails_can_deny() {
    let folder = tempfile::tempdir().expect("a folder");
    judge(folder.path()).await;
    let server = server(folder.path(), true).await;
    server.client_of("green", "x").get("/version").await.refused(500);
    server.client().get("/version").await.expect(200);
}

#[tokio::test]
async fn everybody_or_nobody() {
    let allow = Configuration::from_modes(&["AlwaysAllow".to_owned()], None).expect("a configuration");
    let server = TestServer::with(move |settings, _| settings.authorization = allow).await;
    server.client_of("eve", "x").get("/api/v1/secrets").await.expect(200);
    let deny = Configuration::from_modes(&["AlwaysDeny".to_owned()], None).expect("a configuration");
    let server = TestServer::with(move |settings, _| settings.authorization = deny).await;
    let why = server.client_of("eve", "x").get("/version").await.refused(403);
    assert!(why.ends_with("Everything is forbidden."), "{why}");
    server.client().get("/api/v1/secrets").await.expect(200);
}
