//! The agent over a real API server and a runtime in memory: what pods go through, and what is told of them.

mod life;
mod pressure;
mod restarts;
mod room;
mod runtime;
mod trouble;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use controller_runtime::{SystemClock, transport};
use k8s_openapi::api::core::v1::{Event, Pod, PodStatus, ServiceAccount};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use node_agent::{Settings, settings::Thresholds};
use runtime::FakeRuntime;
use serde_json::{Value, json};
use testing::TestServer;
use tokio::{sync::watch, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

/// Longer than anything takes, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);
const NODE: &str = "node-1";

/// A cluster of one node.
struct Cluster {
    server: TestServer,
    client: Client,
    runtime: Arc<FakeRuntime>,
    network: watch::Sender<Result<(), String>>,
    folder: tempfile::TempDir,
    thresholds: Thresholds,
    agent: Option<(CancellationToken, JoinHandle<()>)>,
}

impl Cluster {
    async fn new() -> Self {
        Self::with(Thresholds::default()).await
    }

    /// Whose node is short of something below these.
    async fn with(thresholds: Thresholds) -> Self {
        let server = TestServer::with_controllers().await;
        let client = transport::from_kubeconfig(&server.kubeconfig(), "test").await.expect("a client");
        let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
        eventually("an account", || async { accounts.get_opt("default").await.expect("an answer") }).await;
        let folder = tempfile::tempdir().expect("a folder");
        let network = watch::Sender::new(Ok(()));
        let runtime = FakeRuntime::new();
        let mut cluster = Self { server, client, runtime, network, folder, thresholds, agent: None };
        cluster.start().await;
        cluster
    }

    /// Starts the agent, with the identity of its node.
    async fn start(&mut self) {
        let kubeconfig = self.server.kubeconfig_of(&format!("system:node:{NODE}"), "system:nodes");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let resolver = Arc::new(rustls::server::ResolvesServerCertUsingSni::new());
        let settings = Settings {
            node_name: NODE.into(),
            addresses: vec![IpAddr::from([127, 0, 0, 1])],
            root: self.folder.path().to_owned(),
            port: 0,
            tls: Arc::new(tls.expect("versions").with_no_client_auth().with_cert_resolver(resolver)),
            client: transport::from_kubeconfig(&kubeconfig, "kubelet").await.expect("a client"),
            runtime: self.runtime.clone(),
            images: self.runtime.clone(),
            network: self.network.subscribe(),
            cluster_dns: vec![IpAddr::from([10, 96, 0, 10])],
            cluster_domain: "cluster.local".into(),
            labels: BTreeMap::from([("disk".to_owned(), "fast".to_owned())]),
            taints: Vec::new(),
            max_pods: 110,
            control_groups: None,
            thresholds: self.thresholds.clone(),
            clock: Arc::new(SystemClock),
        };
        let stop = CancellationToken::new();
        self.agent = Some((stop.clone(), tokio::spawn(node_agent::run(settings, stop))));
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        eventually("the node", || async { nodes.get_opt(NODE).await.expect("an answer") }).await;
    }

    async fn stop(&mut self) {
        if let Some((stop, agent)) = self.agent.take() {
            stop.cancel();
            agent.await.expect("the agent ends");
        }
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// Makes a pod of this spec on the node.
    async fn create(&self, name: &str, spec: Value) -> Pod {
        let mut spec = spec;
        spec["nodeName"] = json!(NODE);
        spec["automountServiceAccountToken"] = json!(false);
        let pod = json!({"metadata": {"name": name}, "spec": spec});
        let pod = serde_json::from_value(pod).expect("a pod");
        self.pods().create(&PostParams::default(), &pod).await.expect("the pod is made")
    }

    /// Waits until the pod's status is as wanted.
    async fn until(&self, name: &str, what: &str, is: impl Fn(&PodStatus) -> bool) -> PodStatus {
        let pods = self.pods();
        let last = std::sync::Mutex::new(None);
        let look = looking(|| async {
            let status = pods.get_opt(name).await.expect("an answer").and_then(|pod| pod.status);
            last.lock().expect("a lock").clone_from(&status);
            status.filter(|status| is(status))
        });
        match timeout(PATIENCE, look).await {
            Ok(status) => status,
            Err(_) => {
                let events: Api<Event> = Api::default_namespaced(self.client.clone());
                let told: Vec<_> = events.list(&ListParams::default()).await.expect("events").items;
                let told: Vec<_> = told.into_iter().map(|event| event.message.unwrap_or_default()).collect();
                let done = self.runtime.done();
                panic!("{name} was never {what}: {} {told:?} {done:?}", json!(*last.lock().expect("a lock")))
            }
        }
    }

    async fn running(&self, name: &str) -> PodStatus {
        self.until(name, "running", |status| status.phase.as_deref() == Some("Running")).await
    }

    /// The files of all logs of containers of a name.
    fn logs(&self, container: &str) -> Vec<String> {
        let names = |folder: &std::path::Path| -> Vec<_> {
            std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
        };
        let pods = names(&self.folder.path().join("logs"));
        let files = pods.iter().flat_map(|pod| names(&pod.join(container)));
        let mut files: Vec<String> =
            files.filter_map(|file| Some(file.file_name()?.to_string_lossy().into_owned())).collect();
        files.sort();
        files
    }

    async fn gone(&self, name: &str) {
        let pods = self.pods();
        eventually("the pod is gone", || async {
            pods.get_opt(name).await.expect("an answer").is_none().then_some(())
        })
        .await;
    }

    /// Waits until an event of the pod has this reason, and gives its message.
    async fn event(&self, pod: &str, reason: &str) -> String {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let of_pod = ListParams::default().fields(&format!("involvedObject.name={pod},reason={reason}"));
        let found = eventually(reason, || async { events.list(&of_pod).await.expect("a list").items.pop() }).await;
        found.message.unwrap_or_default()
    }
}

async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, look: impl Fn() -> F) -> T {
    timeout(PATIENCE, looking(look)).await.unwrap_or_else(|_| panic!("never happened: {what}"))
}

async fn looking<T, F: Future<Output = Option<T>>>(look: impl Fn() -> F) -> T {
    loop {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The condition of a type: its status and its reason.
fn condition(status: &PodStatus, type_: &str) -> Option<(String, String)> {
    let found = status.conditions.iter().flatten().find(|condition| condition.type_ == type_)?;
    Some((found.status.clone(), found.reason.clone().unwrap_or_default()))
}

fn is_true(status: &PodStatus, type_: &str) -> bool {
    condition(status, type_).is_some_and(|(status, _)| status == "True")
}

/// A container of the image that is here.
fn container(name: &str) -> Value {
    json!({"name": name, "image": "present:1"})
}

/// Why the container of a name waits.
fn waits(status: &PodStatus, name: &str) -> Option<String> {
    let lists = [&status.container_statuses, &status.init_container_statuses];
    let found = lists.into_iter().flatten().flatten().find(|status| status.name == name)?;
    found.state.as_ref()?.waiting.as_ref()?.reason.clone()
}
