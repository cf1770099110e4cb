//! Events of whole requests, through backends that remember or fail.

use std::{
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Semaphore;

use super::{backend::Sink, *};
use crate::clock::SystemClock;

/// Remembers what it was given; fails while `fails`, and waits for permits.
#[derive(Clone)]
struct Memory {
    events: Arc<Mutex<Vec<Value>>>,
    batches: Arc<Mutex<Vec<usize>>>,
    fails: bool,
    gate: Arc<Semaphore>,
}

impl Memory {
    fn new(fails: bool, permits: usize) -> Self {
        Self { events: Arc::default(), batches: Arc::default(), fails, gate: Arc::new(Semaphore::new(permits)) }
    }

    fn seen(&self) -> Vec<Value> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Sink for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn write(&mut self, events: &[Arc<Event>]) -> Result<(), String> {
        self.gate.acquire().await.map_err(|e| e.to_string())?.forget();
        if self.fails {
            return Err("it fails".into());
        }
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).push(events.len());
        let mut seen = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        seen.extend(events.iter().map(|event| serde_json::to_value(&**event).expect("JSON")));
        Ok(())
    }
}

fn batching(mode: Mode) -> Batching {
    Batching { mode, buffer_size: 4, max_size: 100, max_wait: Duration::ZERO, throttle: None }
}

fn auditor(rules: &str, sink: &Memory, batching: Batching) -> Arc<Auditor> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("policy.yaml");
    std::fs::write(&file, format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}")).expect("a file");
    Arc::new(Auditor {
        policy: Policy::read(&file).expect("a policy"),
        backends: vec![Backend::start(sink.clone(), batching)],
        clock: Arc::new(SystemClock),
        events: AtomicU64::new(0),
        levels: Default::default(),
        rejected: AtomicU64::new(0),
    })
}

fn begin(auditor: &Arc<Auditor>, method: &str, target: &str) -> Option<Record> {
    let user = Arc::new(User { name: "jane".into(), groups: vec!["dev".into()], ..User::default() });
    let request = Request::builder().method(method).uri(target).header("user-agent", "kubectl/1.36");
    let request = request.header("x-forwarded-for", "10.1.2.3, nonsense").body(()).expect("a request");
    let info = RequestInfo::read(request.method(), request.uri().path(), request.uri().query().unwrap_or_default());
    let from = Identity::Local(user.clone());
    auditor.begin("id-1", &from, Some(&user), &info, &request)
}

fn answer(code: u16, body: &str) -> Response<Body> {
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(Body::from(Bytes::from(body.to_owned()))).expect("a response")
}

fn put(object: &str) -> Request<RequestBody> {
    let request = Request::put("/").header("content-type", "application/json");
    request.body(RequestBody::Whole(Bytes::from(object.to_owned()))).expect("a request")
}

const EVERYTHING: &str = "rules: [{level: RequestResponse}]\nomitManagedFields: true";
const MAP: &str = "/api/v1/namespaces/a/configmaps/m";

#[tokio::test]
async fn a_request_leaves_its_events() {
    let sink = Memory::new(false, 10);
    let auditor = auditor(EVERYTHING, &sink, batching(Mode::Blocking));
    let mut record = begin(&auditor, "PUT", "/api/v1/namespaces/a/configmaps/m?dryRun=All").expect("recorded");
    record.received().await.expect("stored");
    record.annotate("authorization.k8s.io/decision", "allow");
    let object = r#"{"metadata":{"name":"m","uid":"u","resourceVersion":"7","managedFields":[{}]},"data":{}}"#;
    let request = record.read_body(put(object)).await.expect("read");
    assert_eq!(body::read(request.into_body()).await.expect("whole"), object, "the handler gets what came");
    record.answered(answer(200, r#"{"kind":"ConfigMap","metadata":{"name":"m","managedFields":[{}]}}"#)).await;
    let events = sink.seen();
    assert_eq!(
        events.iter().map(|e| e["stage"].as_str().unwrap_or("")).collect::<Vec<_>>(),
        ["RequestReceived", "ResponseComplete"]
    );
    assert!(events[0].get("responseStatus").is_none() && events[0].get("annotations").is_none());
    let mut last = events[1].clone();
    for time in ["requestReceivedTimestamp", "stageTimestamp"] {
        let text = last[time].as_str().expect("a time").to_owned();
        assert_eq!((text.len(), &text[19..20]), (27, "."), "{text}");
        last[time] = "t".into();
    }
    assert_eq!(
        last.to_string(),
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": "id-1",
            "stage": "ResponseComplete", "requestURI": "/api/v1/namespaces/a/configmaps/m?dryRun=All", "verb": "update",
            "user": {"username": "jane", "groups": ["dev"]},
            "sourceIPs": ["10.1.2.3", "127.0.0.1"], "userAgent": "kubectl/1.36",
            "objectRef": {
                "resource": "configmaps", "namespace": "a", "name": "m", "uid": "u", "apiVersion": "v1", "resourceVersion": "7",
            },
            "responseStatus": {"metadata": {}, "code": 200},
            "requestObject": {"metadata": {"name": "m", "uid": "u", "resourceVersion": "7"}, "data": {}},
            "responseObject": {"kind": "ConfigMap", "metadata": {"name": "m"}},
            "requestReceivedTimestamp": "t", "stageTimestamp": "t",
            "annotations": {"authorization.k8s.io/decision": "allow"},
        })
        .to_string()
    );
}

#[tokio::test]
async fn levels_say_how_much() {
    let sink = Memory::new(false, 10);
    let auditor = auditor(
        "rules: [{level: None, verbs: [list]}, {level: Metadata, verbs: [update]}, {level: Request, verbs: [get]}]\n\
         omitStages: [RequestReceived]",
        &sink,
        batching(Mode::Blocking),
    );
    assert!(begin(&auditor, "GET", "/api/v1/configmaps").is_none());
    assert!(begin(&auditor, "POST", "/api/v1/namespaces/a/configmaps").is_none(), "no rule, no record");
    let mut record = begin(&auditor, "PUT", MAP).expect("recorded");
    record.received().await.expect("stored");
    record.read_body(put("{}")).await.expect("read");
    let refused =
        r#"{"kind":"Status","metadata":{},"status":"Failure","message":"no","reason":"Forbidden","code":403}"#;
    record.answered(answer(403, refused)).await;
    let record = begin(&auditor, "GET", MAP).expect("recorded");
    record.answered(answer(200, "{}")).await;
    let events = sink.seen();
    assert_eq!(events.len(), 2);
    assert_eq!(
        events[0]["responseStatus"],
        json!({"metadata": {}, "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403})
    );
    for event in &events {
        assert!(event.get("requestObject").is_none() && event.get("responseObject").is_none(), "{event}");
    }
    let mut text = String::new();
    auditor.write_metrics(&mut text);
    for line in ["level_total{level=\"None\"} 2", "level_total{level=\"Metadata\"} 1", "event_total 2"] {
        assert!(text.contains(&format!("apiserver_audit_{line}\n")), "{text}");
    }
}

#[tokio::test]
async fn whoever_does_not_get_to_the_end_is_recorded_too() {
    let sink = Memory::new(false, 10);
    let auditor = auditor("rules: [{level: Metadata}]\nomitStages: [RequestReceived]", &sink, batching(Mode::Batch));
    drop(begin(&auditor, "GET", MAP));
    let panicking = auditor.clone();
    let panicked = tokio::spawn(async move {
        let _record = begin(&panicking, "GET", MAP);
        panic!("on purpose");
    });
    assert!(panicked.await.is_err());
    // A watch is answered when it starts, and over when its body is.
    let record = begin(&auditor, "GET", "/api/v1/pods?watch=1").expect("recorded");
    struct Endless;
    impl crate::body::Chunks for Endless {
        fn poll_chunk(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Option<Bytes>> {
            std::task::Poll::Pending
        }
    }
    let response = record.answered(Response::new(Body::Chunks(Box::new(Endless)))).await;
    auditor.flush().await;
    let told = |events: &[Value]| -> Vec<(String, i64)> {
        let one = |e: &Value| {
            (e["stage"].as_str().unwrap_or("").to_owned(), e["responseStatus"]["code"].as_i64().unwrap_or(0))
        };
        events.iter().map(one).collect()
    };
    let three = [("ResponseComplete", 200), ("Panic", 500), ("ResponseStarted", 200)];
    assert_eq!(told(&sink.seen()), three.map(|(stage, code)| (stage.to_owned(), code)));
    assert_eq!(sink.seen()[0]["responseStatus"]["message"], "Connection closed early");
    drop(response);
    auditor.flush().await;
    assert_eq!(told(&sink.seen())[3..], [("ResponseComplete".to_owned(), 200)]);
}

#[tokio::test]
async fn a_slow_backend_costs_events_and_never_requests() {
    let sink = Memory::new(false, 0);
    let auditor = auditor(EVERYTHING, &sink, batching(Mode::Batch));
    for _ in 0..50 {
        let mut record = begin(&auditor, "GET", MAP).expect("recorded");
        record.received().await.expect("never refused");
        record.answered(answer(200, "{}")).await;
    }
    let dropped = auditor.backends[0].counts.dropped.load(Ordering::Relaxed);
    assert!((90..=96).contains(&dropped), "{dropped}: the queue has four, and the worker at most a batch of four");
    sink.gate.add_permits(100);
    auditor.flush().await;
    assert_eq!(sink.seen().len() as u64, 100 - dropped);
}

#[tokio::test]
async fn strict_backends_refuse_what_they_cannot_record() {
    for (mode, refused) in [(Mode::Batch, false), (Mode::Blocking, false), (Mode::BlockingStrict, true)] {
        let sink = Memory::new(true, 100);
        let auditor = auditor(EVERYTHING, &sink, batching(mode));
        let mut record = begin(&auditor, "GET", MAP).expect("recorded");
        let received = record.received().await;
        assert_eq!(received.is_err(), refused, "{mode:?}");
        if let Err(status) = received {
            assert_eq!(
                (status.code, status.message.as_str()),
                (500, "Internal error occurred: failed to store audit event")
            );
        }
        auditor.flush().await;
        assert_eq!(auditor.backends[0].counts.failed.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn batches_are_bounded_and_throttled() {
    let sink = Memory::new(false, 1000);
    let throttle = Some(Throttle { per_second: 20.0, burst: 1 });
    let max_wait = Duration::from_millis(20);
    let auditor = auditor(
        "rules: [{level: Metadata}]\nomitStages: [RequestReceived]",
        &sink,
        Batching { mode: Mode::Batch, buffer_size: 1000, max_size: 10, max_wait, throttle },
    );
    let begun = std::time::Instant::now();
    for _ in 0..25 {
        begin(&auditor, "GET", MAP).expect("recorded").answered(answer(200, "{}")).await;
    }
    // Nobody asks for it: what is not full goes out when it has waited long enough.
    while sink.seen().len() < 25 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let batches = sink.batches.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(batches, [10, 10, 5]);
    assert!(begun.elapsed() >= Duration::from_millis(100), "one at once, then one every 50 ms: {:?}", begun.elapsed());
}

/// A collector that answers with these codes, one after the other, and hands over the bodies it got.
async fn collector(codes: Vec<u16>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/collect", listener.local_addr().expect("its address"));
    let served = tokio::spawn(async move {
        let mut bodies = Vec::new();
        for code in codes {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut read = String::new();
            let body = loop {
                let mut chunk = [0; 65536];
                let count = stream.read(&mut chunk).await.expect("bytes");
                read.push_str(&String::from_utf8_lossy(&chunk[..count]));
                let Some((head, body)) = read.split_once("\r\n\r\n") else { continue };
                let length =
                    head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
                if Some(body.len()) == length {
                    assert!(head.starts_with("POST /collect "), "{head}");
                    break body.to_owned();
                }
            };
            bodies.push(body);
            let answer = format!("HTTP/1.1 {code} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.expect("answered");
        }
        bodies
    });
    (url, served)
}

#[tokio::test]
async fn a_webhook_gets_lists_and_second_chances() {
    for (codes, delivered) in [(vec![500, 429, 200], true), (vec![400], false)] {
        let tries = codes.len();
        let (url, served) = collector(codes).await;
        let sink = webhook::Webhook::new(&Peer::new(url, None), Duration::from_millis(1)).expect("usable");
        let memory = Memory::new(false, 10);
        let source = auditor(EVERYTHING, &memory, batching(Mode::Blocking));
        let sent = Backend::start(sink, batching(Mode::BlockingStrict));
        let record = begin(&source, "GET", MAP).expect("recorded");
        assert_eq!(sent.record(Arc::new((*record.event).clone())).await, delivered);
        let bodies = served.await.expect("the collector");
        assert_eq!(bodies.len(), tries);
        let list: Value = serde_json::from_str(&bodies[tries - 1]).expect("JSON");
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("EventList"), &json!("audit.k8s.io/v1")));
        assert_eq!(list["items"][0]["auditID"], "id-1");
    }
}

#[test]
fn ids_are_taken_or_made() {
    let mut headers = HeaderMap::new();
    assert_eq!(id(&headers).len(), 36);
    assert_ne!(id(&headers), id(&headers));
    headers.insert(AUDIT_ID, HeaderValue::from_str(&"x".repeat(100)).expect("a header"));
    let given = id(&headers);
    assert_eq!(given.len(), 100);
    let mut told = HeaderMap::new();
    tell(&given, &mut told);
    assert_eq!(told[AUDIT_ID], "x".repeat(64).as_str());
}

#[test]
fn the_legacy_line() {
    let now = Time::from(SystemTime::UNIX_EPOCH);
    let event = Event {
        kind: "Event",
        api_version: "audit.k8s.io/v1",
        level: Level::Metadata,
        audit_id: "id".into(),
        stage: Stage::ResponseComplete,
        request_uri: "/version".into(),
        verb: "get",
        user: Some(Arc::new(User { name: "jane".into(), groups: vec!["a".into(), "b".into()], ..User::default() })),
        impersonated_user: None,
        authentication_metadata: None,
        source_ips: vec!["10.0.0.1".into()],
        user_agent: "curl".into(),
        object_ref: None,
        response_status: json!({"code": 200}),
        request_object: Value::Null,
        response_object: Value::Null,
        request_received_timestamp: now,
        stage_timestamp: now,
        annotations: BTreeMap::new(),
    };
    assert_eq!(
        event.legacy(),
        r#"1970-01-01T00:00:00.000000Z AUDIT: id="id" stage="ResponseComplete" ip="10.0.0.1" method="get" user="jane" groups="\"a\",\"b\"" as="<self>" asgroups="<lookup>" user-agent="curl" namespace="<none>" uri="/version" response="200""#
    );
}
