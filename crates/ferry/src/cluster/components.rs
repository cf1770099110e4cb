//! Components that work on the cluster from this process: the controllers, the scheduler and the name server, each under
//! the identity that Kubernetes' policy has for it.

use std::{fs, net::SocketAddr, sync::Arc};

use api_server::{Server, context::User};
use controller_runtime::{
    Clock, Informers, SystemClock,
    events::Recorder,
    leader::{Elector, Timing},
    transport,
};
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::node::{CLUSTER_DNS, DOMAIN};

/// Who reads what all components of this process know of the cluster.
const READER: &str = "system:kube-controller-manager";

/// What components of this process share.
#[derive(Clone)]
pub struct Components {
    server: Arc<Server>,
    /// Whether other servers share the store. Then only one of each component works, the one that leads.
    shared: bool,
    /// One cache for all that work here as long as the process does.
    pub informers: Informers,
    pub stop: CancellationToken,
}

impl Components {
    pub fn new(server: Arc<Server>, shared: bool, stop: CancellationToken) -> Self {
        let informers = Informers::new(client(&server, User::component(READER), "ferry"), stop.clone());
        Self { server, shared, informers, stop }
    }

    /// A client for a component of the cluster, such as `system:kube-proxy`.
    pub fn client(&self, user: User, program: &str) -> Client {
        client(&self.server, user, program)
    }

    pub async fn controllers(self, root_ca: String) {
        const NAME: &str = "kube-controller-manager";
        let user = User::component("system:kube-controller-manager");
        let work = |informers, stop| {
            let server = self.server.clone();
            let setting = controllers::Setting {
                informers,
                client_of: Box::new(move |account| {
                    client(&server, User::service_account("kube-system", account), NAME)
                }),
                clock: Arc::new(SystemClock),
                root_ca: root_ca.clone(),
                several_servers: self.shared,
                pod_blocks: controllers::PodBlocks::default(),
                node_grace: controllers::NodeGrace::default(),
            };
            controllers::run(Arc::new(setting), stop)
        };
        self.lead(NAME, user, work).await;
    }

    pub async fn scheduler(self) {
        const NAME: &str = "kube-scheduler";
        let user = User::component("system:kube-scheduler");
        let work = |informers, stop| {
            let client = self.client(user.clone(), NAME);
            scheduler::run(scheduler::Setting { client, informers, clock: Arc::new(SystemClock) }, stop)
        };
        self.lead(NAME, user.clone(), work).await;
    }

    pub async fn name_server(self, listen: SocketAddr, node_name: String) {
        // Its Service is part of every cluster, as the one of the API is.
        let cluster =
            User { name: "system:apiserver".into(), groups: vec!["system:masters".into()], ..User::default() };
        let setting = network::dns::Setting {
            informers: self.informers.clone(),
            client: self.client(cluster, "ferry-dns"),
            service_address: CLUSTER_DNS,
            listen,
            domain: DOMAIN.into(),
            node_name,
        };
        if let Err(error) = network::dns::run(setting, self.stop).await {
            tracing::error!(%error, "names are not answered in this cluster");
        }
    }

    /// Works until it is told to stop. Where several servers share a store, only while this process leads, and then with
    /// caches of its own, which end with its turn.
    async fn lead<W>(&self, name: &str, user: User, work: impl Fn(Informers, CancellationToken) -> W)
    where
        W: Future<Output = ()> + Send + 'static,
    {
        if !self.shared {
            return work(self.informers.clone(), self.stop.clone()).await;
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let client = || self.client(user.clone(), name);
        let recorder = Recorder::new(client(), name, clock.clone());
        let identity = format!("{}_{}", super::host_name().unwrap_or_default(), process_name());
        let elector = Elector::new(client(), "kube-system", name, identity, Timing::default(), clock, recorder);
        let term = |stop: CancellationToken| {
            let reader = self.client(User::component(READER), name);
            work(Informers::new(reader, stop.clone()), stop)
        };
        elector.run(self.stop.clone(), term).await;
    }
}

fn client(server: &Arc<Server>, user: User, program: &str) -> Client {
    transport::in_process(server.answers_to(user), program).expect("the name is plain text")
}

/// Unlike the name of any other process that has ever run.
fn process_name() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    if id.is_empty() { std::process::id().to_string() } else { id.trim().to_owned() }
}
