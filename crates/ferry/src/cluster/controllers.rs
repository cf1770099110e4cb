//! The controllers of a cluster: in this process, under the identities of Kubernetes' policy.

use std::{fs, sync::Arc};

use api_server::{Server, context::User};
use controller_runtime::{
    Clock, Informers, SystemClock,
    events::Recorder,
    leader::{Elector, Timing},
    transport,
};
use tokio_util::sync::CancellationToken;

/// How Kubernetes' goes by, in `managedFields` and as the name of its lease.
const NAME: &str = "kube-controller-manager";

/// Runs until it is told to stop. Where several servers share a store, only in the one that leads.
pub async fn run(server: Arc<Server>, root_ca: String, shared: bool, stop: CancellationToken) {
    let manager = || client(&server, User::component("system:kube-controller-manager"));
    let work = |stop: CancellationToken| {
        let accounts = server.clone();
        let setting = controllers::Setting {
            informers: Informers::new(manager(), stop.clone()),
            client_of: Box::new(move |account| client(&accounts, User::service_account("kube-system", account))),
            clock: Arc::new(SystemClock),
            root_ca: root_ca.clone(),
            several_servers: shared,
            pod_blocks: controllers::PodBlocks::default(),
        };
        controllers::run(Arc::new(setting), stop)
    };
    if !shared {
        return work(stop).await;
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let recorder = Recorder::new(manager(), NAME, clock.clone());
    let identity = format!("{}_{}", super::host_name().unwrap_or_default(), process_name());
    let elector = Elector::new(manager(), "kube-system", NAME, identity, Timing::default(), clock, recorder);
    elector.run(stop, work).await;
}

fn client(server: &Arc<Server>, user: User) -> kube::Client {
    transport::in_process(server.answers_to(user), NAME).expect("the name is plain text")
}

/// Unlike the name of any other process that has ever run.
fn process_name() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    if id.is_empty() { std::process::id().to_string() } else { id.trim().to_owned() }
}
