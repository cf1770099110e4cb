//! The only place where components are wired together.

mod controllers;

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, anyhow};
use api_server::{
    Server,
    authentication::{self, token_secrets},
    authorization::configuration::Configuration,
    certificates::{self, Signing},
    encryption,
    serving::{
        self, ServerCertificate,
        authority::{Authority, Names, RENEW_AFTER},
        kubeconfig,
    },
    streaming::Agents,
};
use storage::{Store, encryption::Encrypted};
use storage_embedded::EmbeddedStore;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::running::Running;

/// The parts of a cluster that `--disable` can leave out.
pub const COMPONENTS: &[&str] = &["controllers", "scheduler", "node", "dns", "proxy"];
/// The first address of the service network, which the `kubernetes` Service has.
const SERVICE_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1));
/// An address that is nowhere near: one of those for documentation.
const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);
/// How long the past can be read from an etcd, as from the embedded store.
const HISTORY: Duration = Duration::from_secs(300);
/// After how long it is told that the store does not answer.
const TELL_AFTER: Duration = Duration::from_secs(2);
/// How often it is looked whether certificates are due for renewal.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// How long open requests may take to finish when the server stops.
const STOP_WITHIN: Duration = Duration::from_secs(10);

pub struct Settings {
    pub data_dir: PathBuf,
    pub kubeconfig: PathBuf,
    pub address: SocketAddr,
    pub store: StoreChoice,
    pub authentication: authentication::Settings,
    /// Whether the controllers run in this process.
    pub controllers: bool,
    pub encryption: EncryptionChoice,
    pub audit: Option<api_server::audit::Settings>,
    pub limits: api_server::fairness::Limits,
    /// Who decides about requests.
    pub authorization: Configuration,
    pub admission: api_server::admission::Settings,
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

/// The file that names what the cluster has made outside of its data folder, a path per line.
pub fn traces_file(data_dir: &Path) -> PathBuf {
    data_dir.join("traces")
}

/// Runs a cluster until it is told to stop.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    let started = Instant::now();
    fs::create_dir_all(&settings.data_dir)
        .with_context(|| format!("cannot make the data folder {}", settings.data_dir.display()))?;
    let _running = Running::begin(&settings.data_dir)?;
    let listener = listen(settings.address).await?;
    let address = reached_at(listener.local_addr()?);
    let store = Opened::open(&settings)?;
    let (encrypted, rules) = encrypt(store.store.clone(), &settings)?;

    let authority = Arc::new(Authority::open(&settings.data_dir.join("pki"))?);
    let names = server_names(settings.address.ip());
    let certificate = Arc::new(ServerCertificate::new(&authority, &names)?);
    let tls = Arc::new(serving::server_config(certificate.clone())?);
    let admin = AdminAccess { kubeconfig: settings.kubeconfig, address };
    remember(&settings.data_dir, &admin.kubeconfig)?;
    admin.write(&authority)?;

    let mut authentication = settings.authentication;
    authentication.client_authorities.push(authority.certificate()?);
    let agents = Arc::new(Agents::new(&authority)?);
    let api = api_server::Settings {
        authentication,
        audit: settings.audit,
        authorization: settings.authorization,
        agents: Some(agents.clone()),
        limits: settings.limits,
        admission: settings.admission,
        counts_quotas: settings.controllers,
        ..api_server::Settings::new(address.to_string())
    };
    let server = store.awaited(Server::start(encrypted.clone(), api)).await.context("cannot start the API server")?;
    let (stop, stop_controllers) = (CancellationToken::new(), CancellationToken::new());
    let serving = tokio::spawn(serving::serve(listener, tls, server.clone(), stop.clone(), STOP_WITHIN));
    let mut running = Vec::new();
    if settings.controllers {
        let authority_pem = authority.certificate_pem().to_owned();
        tokio::spawn(certificates::run(server.clone(), Signing::new(authority.clone())));
        tokio::spawn(token_secrets::run(server.clone(), authority_pem.clone()));
        let shared = matches!(settings.store, StoreChoice::Etcd(_));
        running.push(tokio::spawn(controllers::run(server.clone(), authority_pem, shared, stop_controllers.clone())));
    }
    say(&format!("API ready on https://{address} after {} ms", started.elapsed().as_millis()));
    say(&format!("try: kubectl --kubeconfig {} get namespaces", admin.kubeconfig.display()));
    let renewal = tokio::spawn(renew(authority, certificate, agents, names, admin));
    let rewriting = tokio::spawn(encryption::keep(encrypted, rules, settings.encryption.reload));

    told_to_stop().await?;
    say("stopping");
    stop_controllers.cancel();
    for component in running {
        // A lease is given back through the server, which therefore stops last.
        let _ = timeout(STOP_WITHIN, component).await;
    }
    server.drain();
    stop.cancel();
    serving.await.context("the API server did not stop in order")?;
    if let Some(audit) = &server.audit {
        audit.flush().await;
    }
    renewal.abort();
    rewriting.abort();
    store.close().await
}

async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => "\nhint: another program listens there, a cluster perhaps; try --api-port",
            io::ErrorKind::AddrNotAvailable => "\nhint: this machine does not have that address; try another --bind",
            io::ErrorKind::PermissionDenied => "\nhint: the ports below 1024 are for root; try --api-port",
            _ => "",
        };
        anyhow!("cannot listen on {address}: {error}{hint}")
    })
}

/// Where this machine reaches a server that listens on `address`, which may be all that the machine has.
fn reached_at(address: SocketAddr) -> SocketAddr {
    let loopback = match address.ip() {
        ip if !ip.is_unspecified() => return address,
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    (loopback, address.port()).into()
}

/// How the person who started the cluster administers it.
struct AdminAccess {
    kubeconfig: PathBuf,
    address: SocketAddr,
}

impl AdminAccess {
    fn write(&self, authority: &Authority) -> anyhow::Result<()> {
        kubeconfig::write_admin(&self.kubeconfig, authority, self.address).context("cannot write the kubeconfig")
    }
}

/// Notes a file outside of the data folder before it is made, so that removing the cluster removes it too. A kubeconfig
/// that somebody else has made stays as it is: it may be the only way into another cluster.
fn remember(data_dir: &Path, file: &Path) -> anyhow::Result<()> {
    let (folder, file) = (std::path::absolute(data_dir)?, std::path::absolute(file)?);
    let path = traces_file(data_dir);
    let known = fs::read_to_string(&path).unwrap_or_default();
    let line = file.display().to_string();
    if file.starts_with(folder) || known.lines().any(|known| known == line) {
        return Ok(());
    }
    anyhow::ensure!(
        kubeconfig::is_ours(&file),
        "{line} exists, and ferry did not write it\nhint: name another file with --kubeconfig, or move that one away"
    );
    fs::write(&path, format!("{known}{line}\n")).with_context(|| format!("cannot write {}", path.display()))
}

/// Keeps all certificates young for as long as the server runs.
async fn renew(
    authority: Arc<Authority>,
    certificate: Arc<ServerCertificate>,
    agents: Arc<Agents>,
    names: Names,
    admin: AdminAccess,
) {
    let mut made = SystemTime::now();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        // By the calendar: timers stand still while a machine is suspended.
        if made.elapsed().unwrap_or_default() < RENEW_AFTER {
            continue;
        }
        let renewed = certificate
            .renew(&authority, &names)
            .and_then(|()| agents.renew(&authority))
            .map_err(anyhow::Error::from)
            .and_then(|()| admin.write(&authority));
        match renewed {
            Ok(()) => made = SystemTime::now(),
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "cannot renew the certificates; trying again soon")
            }
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

fn server_names(address: IpAddr) -> Names {
    let mut dns: Vec<String> = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
    ]
    .map(String::from)
    .to_vec();
    dns.extend(host_name());
    let mut addresses = vec![Ipv4Addr::LOCALHOST.into(), SERVICE_ADDRESS];
    if address.is_unspecified() {
        addresses.push(Ipv6Addr::LOCALHOST.into());
        addresses.extend(outward_address());
    } else if !addresses.contains(&address) {
        addresses.push(address);
    }
    Names { dns, addresses }
}

/// The address by which this machine speaks to others. Nothing is sent to find out.
fn outward_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(ELSEWHERE).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn host_name() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned())
}

async fn told_to_stop() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result?,
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// Tells the person at the terminal.
fn say(text: &str) {
    eprintln!("{text}");
}
