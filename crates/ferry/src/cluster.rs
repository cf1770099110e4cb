//! The only place where components are wired together.

mod access;
mod components;
mod further_nodes;
mod listening;

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use api_server::{
    Server,
    authentication::{self, token_secrets},
    authorization::configuration::Configuration,
    certificates::{self, Signing},
    context::User,
    encryption,
    serving::{
        self, ServerCertificate,
        authority::{Authority, Names},
    },
    streaming::Agents,
};
use storage::{Store, encryption::Encrypted};
use storage_embedded::EmbeddedStore;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use self::{
    access::{AdminAccess, remember, renew, server_names},
    components::Components,
    further_nodes::FurtherNodes,
    listening::{listen_on_all, reached_at},
};
pub use self::{
    access::{host_name, outward_address, traces_file},
    further_nodes::{
        folders as folders_of_further_nodes, inside as inside_further_node, remove as remove_further_node,
    },
};
use crate::{
    node,
    progress::{self, say},
    running::Running,
};

/// The parts of a cluster that `--disable` can leave out.
pub const COMPONENTS: &[&str] = &["controllers", "scheduler", "node", "dns", "proxy"];
/// How long the past can be read from an etcd, as from the embedded store.
const HISTORY: Duration = Duration::from_secs(300);
/// After how long it is told that the store does not answer; a node may take five times as long.
const TELL_AFTER: Duration = Duration::from_secs(2);
/// How long open requests may take to finish when the server stops.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// Some who stop a process tell it twice in the same moment, and mean it once.
const SAME_MOMENT: Duration = Duration::from_millis(250);
/// Where the name server listens on its node.
const DNS_PORT: u16 = 10053;

pub struct Settings {
    pub data_dir: PathBuf,
    pub kubeconfig: PathBuf,
    pub address: SocketAddr,
    pub store: StoreChoice,
    pub authentication: authentication::Settings,
    /// Whether the controllers run in this process.
    pub controllers: bool,
    pub scheduler: bool,
    /// The node of this process, if it has one.
    pub node: Option<NodeChoice>,
    pub encryption: EncryptionChoice,
    pub audit: Option<api_server::audit::Settings>,
    pub limits: api_server::fairness::Limits,
    /// Who decides about requests.
    pub authorization: Configuration,
    pub admission: api_server::admission::Settings,
}

/// A node in the process of the API server, and how many more there are on this machine.
#[derive(Clone)]
pub struct NodeChoice {
    pub name: String,
    pub address: IpAddr,
    pub further: usize,
    pub dns: bool,
    pub proxy: bool,
}

/// Where it is written down what is encrypted at rest.
pub struct EncryptionChoice {
    /// By default a file in the data folder, made at the first start.
    pub file: Option<PathBuf>,
    /// Whether the file is read again when it changes.
    pub reload: bool,
}

pub enum StoreChoice {
    Embedded,
    Etcd(storage_etcd::Options),
}

/// Runs a cluster until it is told to stop.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    let started = Instant::now();
    let _running = Running::begin(&settings.data_dir)?;
    let listeners = listen_on_all(&settings).await?;
    let address = reached_at(listeners[0].local_addr()?);
    let store = Opened::open(&settings)?;
    let (encrypted, rules) = encrypt(store.store.clone(), &settings)?;

    let authority = Arc::new(Authority::open(&settings.data_dir.join("pki"))?);
    let bound: Vec<IpAddr> = listeners.iter().filter_map(|l| Some(l.local_addr().ok()?.ip())).collect();
    let names = server_names(&bound);
    let certificate = Arc::new(ServerCertificate::new(&authority, &names)?);
    let tls = Arc::new(serving::server_config(certificate.clone())?);
    let mut certificates = vec![(certificate, names)];
    let admin = AdminAccess { kubeconfig: settings.kubeconfig.clone(), address };
    remember(&settings.data_dir, &admin.kubeconfig)?;
    admin.write(&authority)?;

    let place = Place { data_dir: settings.data_dir.clone(), kubeconfig: settings.kubeconfig, port: address.port() };
    let mut authentication = settings.authentication;
    authentication.client_authorities.push(authority.certificate()?);
    let agents = Arc::new(Agents::new(&authority)?);
    let advertise = settings.node.as_ref().map(|node| SocketAddr::new(node.address, address.port()));
    let api = api_server::Settings {
        authentication,
        audit: settings.audit,
        authorization: settings.authorization,
        agents: Some(agents.clone()),
        limits: settings.limits,
        admission: settings.admission,
        counts_quotas: settings.controllers,
        advertise,
        // What clients are told must be reached from pods, too.
        ..api_server::Settings::new(advertise.unwrap_or(address).to_string())
    };
    let server = store.awaited(Server::start(encrypted.clone(), api)).await.context("cannot start the API server")?;
    let (stop, stop_components) = (CancellationToken::new(), CancellationToken::new());
    let serving: Vec<_> = listeners
        .into_iter()
        .map(|listener| tokio::spawn(server.clone().serve(listener, tls.clone(), stop.clone(), STOP_WITHIN)))
        .collect();
    // From here on it stops in order.
    let mut signals = Signals::listen()?;
    say(&format!("API ready on https://{address} after {} ms", started.elapsed().as_millis()));

    let shared = matches!(settings.store, StoreChoice::Etcd(_));
    let components = Components::new(server.clone(), shared, stop_components.clone());
    let mut running = Vec::new();
    if settings.controllers {
        let authority_pem = authority.certificate_pem().to_owned();
        tokio::spawn(certificates::run(server.clone(), Signing::new(authority.clone())));
        tokio::spawn(token_secrets::run(server.clone(), authority_pem.clone()));
        running.push(tokio::spawn(components.clone().controllers(authority_pem)));
    }
    if settings.scheduler {
        running.push(tokio::spawn(components.clone().scheduler()));
    }
    let mut node = None;
    if let Some(choice) = &settings.node {
        if choice.dns {
            let listen = SocketAddr::new(choice.address, DNS_PORT);
            running.push(tokio::spawn(components.clone().name_server(listen, choice.name.clone())));
        }
        let begun = OwnNode::begin(choice, &settings.data_dir, &authority, &components)?;
        certificates.push((begun.certificate.clone(), begun.names.clone()));
        node = Some(begun);
    }
    let renewal = tokio::spawn(renew(authority.clone(), certificates, agents, admin));
    let rewriting = tokio::spawn(encryption::keep(encrypted, rules, settings.encryption.reload));
    let mut further = FurtherNodes::default();
    let ended = tokio::select! {
        () = signals.told() => Ok(()),
        failed = watch_over(&mut node, &mut further, &place, &authority, started) => failed,
    };

    say("stopping; Ctrl-C stops at once");
    let in_order = async {
        stop_components.cancel();
        further.stop(STOP_WITHIN).await;
        if let Some(node) = node {
            node.stop().await;
        }
        for component in running {
            // A lease is given back through the server, which therefore stops last.
            let _ = timeout(STOP_WITHIN, component).await;
        }
        server.drain();
        stop.cancel();
        for listener in serving {
            listener.await.context("the API server did not stop in order")?;
        }
        if let Some(audit) = &server.audit {
            audit.flush().await;
        }
        renewal.abort();
        rewriting.abort();
        store.close().await
    };
    let told_again = async {
        let _ = timeout(SAME_MOMENT, signals.told()).await;
        signals.told().await;
    };
    tokio::select! {
        stopped = in_order => stopped?,
        () = told_again => {
            bail!("stopped at once: nothing that was acknowledged is lost, but some parts could not finish");
        }
    }
    ended
}

/// Where this cluster is to be found.
struct Place {
    data_dir: PathBuf,
    kubeconfig: PathBuf,
    port: u16,
}

/// Tells when the nodes are ready, and what to try then. It returns only if one fails.
async fn watch_over(
    node: &mut Option<OwnNode>,
    further: &mut FurtherNodes,
    place: &Place,
    authority: &Authority,
    started: Instant,
) -> anyhow::Result<()> {
    let kubectl = format!("kubectl --kubeconfig {}", place.kubeconfig.display());
    let Some(node) = node else {
        say(&format!("try: {kubectl} get namespaces"));
        progress::up();
        return std::future::pending().await;
    };
    let name = node.choice.name.clone();
    let telling = async {
        tokio::time::sleep(TELL_AFTER * 5).await;
        say(&format!("waiting for the node; what it says of itself: {kubectl} describe node {name}"));
        std::future::pending::<()>().await;
    };
    tokio::select! {
        Ok(()) = &mut node.ready => {}
        failed = &mut node.running => return failed.context("the node has ended")?.context("the node cannot run"),
        () = telling => {}
    }
    say(&format!("node {name} is Ready after {} ms", started.elapsed().as_millis()));
    let api = SocketAddr::new(node.choice.address, place.port);
    further.start(&place.data_dir, &node.choice, authority, api).await?;
    say(&format!(
        "try: {kubectl} create deployment web --image ferry.local/toolbox -- httpd\n     {kubectl} get pods --all-namespaces"
    ));
    progress::up();
    tokio::select! {
        failed = &mut node.running => failed.context("the node has ended")?.context("the node cannot go on"),
        () = further.keep(authority, api) => Ok(()),
    }
}

/// The node that shares this process. It has threads of its own, so that work for containers and requests to the API do not
/// wait for each other.
struct OwnNode {
    choice: NodeChoice,
    certificate: Arc<ServerCertificate>,
    names: Names,
    ready: oneshot::Receiver<()>,
    running: tokio::task::JoinHandle<anyhow::Result<()>>,
    /// Until it is dropped.
    threads: Option<tokio::runtime::Runtime>,
}

impl OwnNode {
    fn begin(
        choice: &NodeChoice,
        data_dir: &std::path::Path,
        authority: &Authority,
        components: &Components,
    ) -> anyhow::Result<Self> {
        let names = node::names(&choice.name, choice.address);
        let certificate = Arc::new(ServerCertificate::new(authority, &names)?);
        let tls = node_agent::tls::server_config(certificate.clone(), authority.certificate()?)?;
        let user = User {
            name: format!("system:node:{}", choice.name),
            groups: vec!["system:nodes".into(), "system:authenticated".into()],
            ..User::default()
        };
        let settings = node::Settings {
            name: choice.name.clone(),
            address: choice.address,
            folder: data_dir.to_owned(),
            tls: Arc::new(tls),
            client: components.client(user, "kubelet"),
            informers: components.informers.clone(),
            proxy: choice.proxy,
        };
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("node")
            .enable_all()
            .build()
            .context("cannot start the node's threads")?;
        let (tell, ready) = oneshot::channel();
        let running = threads.spawn(node::run(settings, tell, components.stop.clone()));
        Ok(Self { choice: choice.clone(), certificate, names, ready, running, threads: Some(threads) })
    }

    async fn stop(mut self) {
        if !self.running.is_finished() && timeout(STOP_WITHIN, &mut self.running).await.is_err() {
            tracing::warn!("the node did not stop in order");
        }
    }
}

/// Nobody waits for what the node's threads still do.
impl Drop for OwnNode {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

/// The store with its values encrypted, and the file that says which.
fn encrypt(store: Arc<dyn Store>, settings: &Settings) -> anyhow::Result<(Arc<Encrypted>, PathBuf)> {
    let file = match &settings.encryption.file {
        Some(file) => file.clone(),
        None => {
            let file = settings.data_dir.join("encryption.yaml");
            encryption::make_default(&file)?;
            file
        }
    };
    let rules = encryption::read(&file)?;
    Ok((Arc::new(Encrypted::new(store, rules)), file))
}

/// The store that was chosen, and how to close it.
struct Opened {
    store: Arc<dyn Store>,
    embedded: Option<Arc<EmbeddedStore>>,
}

impl Opened {
    fn open(settings: &Settings) -> anyhow::Result<Self> {
        Ok(match &settings.store {
            StoreChoice::Embedded => {
                let options = storage_embedded::Options::new(settings.data_dir.join("state.redb"));
                let store = Arc::new(EmbeddedStore::open(options)?);
                Self { store: store.clone(), embedded: Some(store) }
            }
            StoreChoice::Etcd(options) => {
                let etcd = Arc::new(storage_etcd::Etcd::open(options.clone())?);
                tokio::spawn(storage_etcd::keep_compact(Arc::downgrade(&etcd), HISTORY));
                Self { store: etcd, embedded: None }
            }
        })
    }

    /// An etcd that does not answer is waited for, and somebody should know why nothing happens.
    async fn awaited<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if self.embedded.is_none() {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(TELL_AFTER) => say("waiting for the etcd that --store names"),
            }
        }
        work.await
    }

    async fn close(self) -> anyhow::Result<()> {
        match self.embedded {
            Some(store) => store.close().await.context("the store did not close in order"),
            None => Ok(()),
        }
    }
}

/// Ctrl-C, and the signal to stop.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From now on they do not end the process by themselves.
    pub fn listen() -> anyhow::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next one.
    pub async fn told(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
