//! Priority and fairness over HTTPS: what is configured, what is told, and that a flood drowns nobody else.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use api_server::fairness::Limits;
use serde_json::{Value, json};
use testing::{TestServer, client::Client};

use super::configmap;

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";

/// The condition that says whether the priority level of a flow schema exists, once it is this.
async fn dangling(client: &Client, name: &str, wanted: &str) -> Value {
    let path = format!("{SCHEMAS}/{name}");
    let begun = Instant::now();
    loop {
        let schema = client.get(&path).await.expect(200);
        let condition = schema["status"]["conditions"][0].clone();
        if condition["type"] == "Dangling" && condition["status"] == wanted {
            assert!(schema["metadata"]["managedFields"].to_string().contains(CONSUMER), "{schema}");
            return condition;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{schema}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn flow_schemas_say_whether_their_level_exists() {
    let server = TestServer::embedded().await;
    let client = server.client();
    assert_eq!(client.get(SCHEMAS).await.expect(200)["items"].as_array().map(Vec::len), Some(11));
    assert_eq!(client.get(LEVELS).await.expect(200)["items"].as_array().map(Vec::len), Some(8));
    let found = dangling(&client, "catch-all", "False").await;
    assert_eq!(found["reason"], "Found");
    let schema = json!({
        "metadata": {"name": "mine"},
        "spec": {"priorityLevelConfiguration": {"name": "nowhere"}, "matchingPrecedence": 50, "rules": []},
    });
    client.post(SCHEMAS, &schema).await.expect(201);
    let condition = dangling(&client, "mine", "True").await;
    assert_eq!(condition["reason"], "NotFound");
    let message = "This FlowSchema references the PriorityLevelConfiguration object named \"nowhere\" but there is no such object";
    assert_eq!(condition["message"], message);
    let level = json!({
        "metadata": {"name": "nowhere"},
        "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}},
    });
    client.post(LEVELS, &level).await.expect(201);
    dangling(&client, "mine", "False").await;
}

/// Those that must exist come back as they must be, and others are left as somebody made them.
#[tokio::test]
async fn the_mandatory_ones_are_restored_at_start() {
    let mut server = TestServer::embedded().await;
    let client = server.client();
    let change = json!({"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}},
        "spec": {"limited": {"nominalConcurrencyShares": 77}}});
    let merge = testing::client::MERGE_PATCH;
    client.patch(&format!("{LEVELS}/system"), merge, &change).await.expect(200);
    let followed = json!({"spec": {"limited": {"nominalConcurrencyShares": 78}}});
    client.patch(&format!("{LEVELS}/node-high"), merge, &followed).await.expect(200);
    client.delete(&format!("{SCHEMAS}/catch-all")).await.expect(200);
    client.delete(&format!("{LEVELS}/workload-low")).await.expect(200);
    let store = server.store.clone();
    server.kill();
    let again = TestServer::start(store).await;
    let client = again.client();
    let shares = async |name: &str| {
        let level = client.get(&format!("{LEVELS}/{name}")).await.expect(200);
        level["spec"]["limited"]["nominalConcurrencyShares"].as_u64()
    };
    assert_eq!((shares("system").await, shares("node-high").await), (Some(77), Some(40)));
    assert_eq!(shares("workload-low").await, Some(100));
    client.get(&format!("{SCHEMAS}/catch-all")).await.expect(200);
}

#[tokio::test]
async fn answers_say_how_they_were_sorted() {
    let limits = Limits { max_requests_inflight: 400, max_mutating_requests_inflight: 200 };
    let server = TestServer::with(move |settings, _| settings.limits = limits).await;
    let (client, user) = (server.client(), server.client_of("alice", "tenants"));
    let uid = async |path: &str| {
        let object = client.get(path).await.expect(200);
        object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
    };
    for (client, path, schema, level) in [
        (&client, "/api/v1/namespaces", "exempt", "exempt"),
        (&user, "/version", "global-default", "global-default"),
        (&user, "/livez", "probes", "exempt"),
        // Also to those who are refused.
        (&user, "/api/v1/secrets", "global-default", "global-default"),
    ] {
        let answer = client.get(path).await;
        let told =
            (answer.header("x-kubernetes-pf-flowschema-uid"), answer.header("x-kubernetes-pf-prioritylevel-uid"));
        let wanted = (uid(&format!("{SCHEMAS}/{schema}")).await, uid(&format!("{LEVELS}/{level}")).await);
        assert_eq!(told, (wanted.0.as_str(), wanted.1.as_str()), "{path}");
    }
    let metrics = client.get("/metrics").await.text();
    let nominal = "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"global-default\"} 49\n";
    assert!(metrics.contains(nominal), "{metrics}");
    let dispatched = "apiserver_flowcontrol_dispatched_requests_total{flow_schema=\"global-default\"";
    assert!(metrics.contains(dispatched), "{metrics}");
    for (what, wanted) in
        [("priority_levels", "global-default,"), ("queues", "TotalWorkSum"), ("requests", "FlowDistingsher")]
    {
        let path = format!("/debug/api_priority_and_fairness/dump_{what}");
        assert!(client.get(&path).await.text().contains(wanted), "{what}");
        user.get(&path).await.refused(403);
    }
}

/// Lets everybody of a group do everything with config maps.
async fn permit(client: &Client, group: &str) {
    let role = json!({
        "metadata": {"name": "tenants"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}],
    });
    client.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.expect(201);
    let binding = json!({
        "metadata": {"name": "tenants"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tenants"},
        "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": group}],
    });
    client.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.expect(201);
}

struct Flood {
    stop: Arc<AtomicBool>,
    /// Answers with 200, and with 429.
    served: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Flood {
    /// One tenant on so many connections at full speed.
    fn start(server: &TestServer, connections: usize, path: &'static str) -> Self {
        let (stop, served, refused) =
            (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let tasks = (0..connections)
            .map(|_| {
                let client = server.client_of("mallory", "tenants");
                let (stop, served, refused) = (stop.clone(), served.clone(), refused.clone());
                tokio::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        match client.get(path).await.code {
                            200 => served.fetch_add(1, Ordering::Relaxed),
                            429 => refused.fetch_add(1, Ordering::Relaxed),
                            other => panic!("the flood was answered {other}"),
                        };
                    }
                })
            })
            .collect();
        Self { stop, served, refused, tasks }
    }

    async fn reaches(&self, answers: u64) {
        while self.served.load(Ordering::Relaxed) + self.refused.load(Ordering::Relaxed) < answers {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("a connection of the flood");
        }
        (self.served.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = "/api/v1/namespaces/default/configmaps/m";

/// A counter in the metrics of a flow schema.
async fn counted(client: &Client, metric: &str, schema: &str) -> u64 {
    let text = client.get("/metrics").await.text();
    let start = format!("apiserver_flowcontrol_{metric}{{flow_schema=\"{schema}\"");
    text.lines()
        .filter(|line| line.starts_with(&start))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

fn resident_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("a number") / 1024
}

/// One tenant floods. Its own requests wait or are refused; another tenant, nodes, controllers and the administrator get
/// theirs answered, every one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_drowns_nobody_else() {
    // Few seats, so that the flood fills them on any machine.
    let limits = Limits { max_requests_inflight: 8, max_mutating_requests_inflight: 4 };
    let server = TestServer::with(move |settings, _| settings.limits = limits).await;
    let admin = server.client();
    permit(&admin, "tenants").await;
    admin.post(MAPS, &configmap("m")).await.expect(201);
    let flood = Flood::start(&server, 200, MAP);
    flood.reaches(400).await;
    let before = resident_megabytes();

    let alice = server.client_of("alice", "tenants");
    let node = server.client_of("system:node:n1", "system:nodes");
    let scheduler = server.client_of("system:kube-scheduler", "none");
    for round in 0..50 {
        alice.get(MAP).await.expect(200);
        let name = format!("a{round}");
        alice.post(MAPS, &configmap(&name)).await.expect(201);
        assert_ne!(node.get("/api/v1/nodes/n1").await.code, 429);
        assert_ne!(scheduler.get("/api/v1/pods").await.code, 429);
        admin.get(MAP).await.expect(200);
        assert_eq!(alice.get("/livez").await.code, 200);
    }
    flood.reaches(2000).await;
    let after = resident_megabytes();
    let metrics = admin.get("/metrics").await.text();
    let sum = "apiserver_flowcontrol_request_wait_duration_seconds_sum{execute=\"true\",flow_schema=\"global-default\"";
    let waited =
        metrics.lines().find(|line| line.starts_with(sum)).and_then(|line| line.rsplit(' ').next()?.parse().ok());
    assert!(waited.is_some_and(|seconds: f64| seconds > 0.0), "the flood waits: {waited:?}");
    for schema in ["system-nodes", "system-node-high", "kube-scheduler", "exempt", "probes"] {
        assert_eq!(counted(&admin, "rejected_requests_total", schema).await, 0, "{schema}");
    }
    let levels = admin.get("/debug/api_priority_and_fairness/dump_priority_levels").await.text();
    let (served, refused) = flood.end().await;
    eprintln!("flood: {served} served, {refused} refused; memory {before} MB before, {after} MB after\n{levels}");
    assert!(served > 0, "whoever floods is still served");
    assert!(after < before + 200, "memory grew from {before} to {after} MB");
    // Nothing is left behind.
    let begun = Instant::now();
    while counted(&admin, "current_executing_requests", "global-default").await
        + counted(&admin, "current_inqueue_requests", "global-default").await
        > 0
    {
        assert!(begun.elapsed() < Duration::from_secs(20), "seats are still taken");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Somebody who asks for long answers and does not take them keeps nobody else waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_no_answers_occupies_nobody() {
    let limits = Limits { max_requests_inflight: 8, max_mutating_requests_inflight: 4 };
    let server = TestServer::with(move |settings, _| settings.limits = limits).await;
    let admin = server.client();
    permit(&admin, "tenants").await;
    admin.post(MAPS, &configmap("m")).await.expect(201);
    // More than the sockets in between can hold.
    for n in 0..20 {
        let mut large = configmap(&format!("large-{n}"));
        large["data"] = json!({"text": "x".repeat(900_000)});
        admin.post(MAPS, &large).await.expect(201);
    }
    let mut begun = Vec::new();
    for n in 0..24 {
        let query = if n % 2 == 0 { "" } else { "?watch=1" };
        let request = hyper::Request::get(format!("{MAPS}{query}")).body(Default::default()).expect("a request");
        begun.push(server.client_of("mallory", "tenants").http1().begin(request).await.expect("an answer begins"));
    }
    assert!(begun.iter().all(|answer| answer.status() == 200));
    let alice = server.client_of("alice", "tenants");
    for _ in 0..20 {
        alice.get(MAP).await.expect(200);
    }
    drop(begun);
}

/// Queues that are full refuse, with Kubernetes' words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_finds_no_place_is_told_to_come_back() {
    let server = TestServer::embedded().await;
    let admin = server.client();
    permit(&admin, "tenants").await;
    let level = json!({
        "metadata": {"name": "narrow"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"},
        }},
    });
    admin.post(LEVELS, &level).await.expect(201);
    let everything = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]});
    let schema = json!({
        "metadata": {"name": "narrow"},
        "spec": {
            "priorityLevelConfiguration": {"name": "narrow"},
            "matchingPrecedence": 50,
            "rules": [{"subjects": [{"kind": "User", "user": {"name": "mallory"}}], "resourceRules": [everything]}],
        },
    });
    admin.post(SCHEMAS, &schema).await.expect(201);
    let flood = Flood::start(&server, 20, MAPS);
    let mallory = server.client_of("mallory", "tenants");
    let begun = Instant::now();
    let answer = loop {
        let answer = mallory.get(MAP).await;
        if answer.code == 429 {
            break answer;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "one at a time, and twenty ask");
    };
    assert_eq!(answer.text(), "Too many requests, please try again later.\n");
    assert_eq!((answer.header("retry-after"), answer.header("content-type")), ("1", "text/plain; charset=utf-8"));
    assert!(!answer.header("x-kubernetes-pf-prioritylevel-uid").is_empty());
    let (_, refused) = flood.end().await;
    assert!(refused > 0 && counted(&admin, "rejected_requests_total", "narrow").await > refused);
}
