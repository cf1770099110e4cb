//! A whole API server in the test's process: real HTTPS on a free port of loopback, with a folder, an authority and an
//! administrator's kubeconfig of its own.
//!
//! Each server has a runtime of its own, so that [`TestServer::kill`] ends everything of it at once, as a crash does.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use api_server::{
    Server, Settings,
    authentication::token_secrets,
    certificates::{self, Signing},
    context::User,
    serving::{
        self, ServerCertificate,
        authority::{Authority, Names},
        kubeconfig,
    },
    streaming::Agents,
};
use controller_runtime::{Informers, SystemClock, transport};
use storage::Store;
use storage_embedded::EmbeddedStore;
use storage_etcd::Etcd;
use tempfile::TempDir;
use tokio::{net::TcpListener, runtime::Runtime};
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Trust};

const CONTROLLERS: &str = "kube-controller-manager";
const STOP_WITHIN: Duration = Duration::from_secs(5);

pub struct TestServer {
    pub address: SocketAddr,
    pub store: Arc<dyn Store>,
    trust: Trust,
    folder: TempDir,
    stop: CancellationToken,
    server: Arc<Server>,
    runtime: Option<Runtime>,
}

impl TestServer {
    /// On an embedded store of its own.
    pub async fn embedded() -> Self {
        Self::with(|_, _| {}).await
    }

    /// The same, with settings of its own. They are made with the server's folder at hand, in which the authority is already.
    pub async fn with(change: impl FnOnce(&mut Settings, &Path) + Send + 'static) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = EmbeddedStore::open(storage_embedded::Options::new(folder.path().join("state.redb")));
        let store = Arc::new(store.expect("an embedded store"));
        Self::begin(folder, runtime(), store, change).await
    }

    /// On an etcd that other servers may use as well.
    pub async fn on_etcd(etcd: &storage_etcd::testing::Server) -> Self {
        let (runtime, options) = (runtime(), storage_etcd::Options::new([etcd.endpoint()]));
        let store = {
            let _inside = runtime.enter();
            Arc::new(Etcd::open(options).expect("valid options"))
        };
        Self::begin(tempfile::tempdir().expect("a temporary folder"), runtime, store, |_, _| {}).await
    }

    /// On any store.
    pub async fn start(store: Arc<dyn Store>) -> Self {
        Self::start_with(store, |_, _| {}).await
    }

    /// On any store, with settings of its own.
    pub async fn start_with(store: Arc<dyn Store>, change: impl FnOnce(&mut Settings, &Path) + Send + 'static) -> Self {
        Self::begin(tempfile::tempdir().expect("a temporary folder"), runtime(), store, change).await
    }

    /// On an embedded store of its own, with all controllers.
    pub async fn with_controllers() -> Self {
        let server = Self::embedded().await;
        server.run_controllers();
        server
    }

    /// Runs all controllers in the server's process, as `ferry up` does.
    pub fn run_controllers(&self) {
        self.run_controllers_with(|_| {});
    }

    /// The same, with settings of their own.
    pub fn run_controllers_with(&self, change: impl FnOnce(&mut controllers::Setting)) {
        let Some(runtime) = &self.runtime else { return };
        let _inside = runtime.enter();
        let server = self.server.clone();
        let all = User::component("system:kube-controller-manager");
        let mut setting = controllers::Setting {
            informers: Informers::new(in_process(&server, all, CONTROLLERS), self.stop.child_token()),
            client_of: Box::new(move |account| {
                in_process(&server, User::service_account("kube-system", account), CONTROLLERS)
            }),
            clock: Arc::new(SystemClock),
            root_ca: self.authority().certificate_pem().to_owned(),
            several_servers: false,
            pod_blocks: controllers::PodBlocks::default(),
            node_grace: controllers::NodeGrace::default(),
        };
        change(&mut setting);
        runtime.spawn(controllers::run(Arc::new(setting), self.stop.child_token()));
    }

    /// Runs the scheduler in the server's process until the server ends, or the token that is returned is cancelled.
    pub fn run_scheduler(&self) -> CancellationToken {
        let stop = self.stop.child_token();
        if let Some(runtime) = &self.runtime {
            let _inside = runtime.enter();
            let client = in_process(&self.server, User::component("system:kube-scheduler"), "kube-scheduler");
            let informers = Informers::new(client.clone(), stop.clone());
            let setting = scheduler::Setting { client, informers, clock: Arc::new(SystemClock) };
            runtime.spawn(scheduler::run(setting, stop.clone()));
        }
        stop
    }

    /// The server itself, for tests that come between it and a component in this process.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    async fn begin(
        folder: TempDir,
        runtime: Runtime,
        store: Arc<dyn Store>,
        change: impl FnOnce(&mut Settings, &Path) + Send + 'static,
    ) -> Self {
        let authority = Arc::new(Authority::open(&folder.path().join("pki")).expect("an authority"));
        let signing = authority.clone();
        let names = Names { dns: vec!["localhost".into()], addresses: vec![Ipv4Addr::LOCALHOST.into()] };
        let certificate = Arc::new(ServerCertificate::new(&authority, &names).expect("a certificate"));
        let tls = Arc::new(serving::server_config(certificate).expect("TLS settings"));
        let trust = Trust::admin(&authority);
        let agents = Arc::new(Agents::new(&authority).expect("a certificate for agents"));
        let stop = CancellationToken::new();
        let (stopped, kept, path) = (stop.clone(), store.clone(), folder.path().to_owned());
        let client_authorities = vec![authority.certificate().expect("a certificate")];
        let started = runtime.spawn(async move {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
            let address = listener.local_addr().expect("its address");
            let mut settings = Settings::new(address.to_string());
            settings.authentication.client_authorities = client_authorities;
            settings.agents = Some(agents);
            change(&mut settings, &path);
            let server = Server::start(kept, settings).await.expect("the server starts");
            tokio::spawn(certificates::run(server.clone(), Signing::new(signing.clone())));
            tokio::spawn(token_secrets::run(server.clone(), signing.certificate_pem().to_owned()));
            tokio::spawn(server.clone().serve(listener, tls, stopped, STOP_WITHIN));
            (address, server)
        });
        let (address, server) = started.await.expect("the server starts");
        kubeconfig::write_admin(&folder.path().join("kubeconfig"), &authority, address).expect("a kubeconfig");
        Self { address, store, trust, folder, stop, server, runtime: Some(runtime) }
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// A folder that ends with the server, for files of the test.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whoever is of this cluster has a certificate of this authority.
    pub fn authority(&self) -> Authority {
        Authority::open(&self.folder.path().join("pki")).expect("an authority")
    }

    /// The administrator, on a connection of its own.
    pub fn client(&self) -> Client {
        Client::new(self.address, self.trust.clone())
    }

    /// Somebody without a certificate.
    pub fn client_of_nobody(&self) -> Client {
        Client::new(self.address, Trust::nobody(&self.authority()))
    }

    /// A user with a certificate of its own.
    pub fn client_of(&self, user: &str, group: &str) -> Client {
        Client::new(self.address, Trust::user(&self.authority(), user, group))
    }

    /// The kubeconfig of such a user.
    pub fn kubeconfig_of(&self, user: &str, group: &str) -> PathBuf {
        let path = self.folder.path().join(format!("kubeconfig-{}", user.replace(':', "-")));
        kubeconfig::write(&path, &self.authority(), self.address, user, group).expect("a kubeconfig");
        path
    }

    /// Stops in order: watches end, open requests finish.
    pub fn stop(&self) {
        self.server.drain();
        self.stop.cancel();
    }

    /// Ends everything at once, in the middle of whatever it does.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A client of a component in this process.
pub fn in_process(server: &Arc<Server>, user: User, program: &str) -> kube::Client {
    transport::in_process(server.answers_to(user), program).expect("a client")
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(8 << 20)
        .enable_all()
        .build()
        .expect("a runtime")
}
