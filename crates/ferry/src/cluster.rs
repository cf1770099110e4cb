//! The only place where components are wired together.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use api_server::{
    Server,
    authentication::{self, token_secrets},
    authorization::configuration::Configuration,
    certificates::{self, Signing},
    encryption,
    serving::{
        self, ServerCertificate,
        authority::{Authority, Names},
        kubeconfig,
    },
    streaming::Agents,
};
use storage::{Store, encryption::Encrypted};
use storage_embedded::EmbeddedStore;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

/// The parts of a cluster that `--disable` can leave out.
pub const COMPONENTS: &[&str] = &["controllers", "scheduler", "node", "dns", "proxy"];
/// The first address of the service network, which the `kubernetes` Service has.
const SERVICE_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1));
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

/// The file that names the process which runs the cluster of a data folder.
pub fn pid_file(data_dir: &Path) -> PathBuf {
    data_dir.join("ferry.pid")
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
    let listener = TcpListener::bind(settings.address).await.with_context(|| {
        format!("cannot listen on {}\nhint: is another cluster running? try --api-port", settings.address)
    })?;
    let address = listener.local_addr()?;
    let store = Opened::open(&settings)?;
    let (encrypted, rules) = encrypt(store.store.clone(), &settings)?;
    let _pid = PidFile::write(&settings.data_dir)?;

    let authority = Arc::new(Authority::open(&settings.data_dir.join("pki"))?);
    let names = server_names(address.ip());
    let certificate = Arc::new(ServerCertificate::new(&authority, &names)?);
    let tls = Arc::new(serving::server_config(certificate.clone())?);
    remember(&settings.data_dir, &settings.kubeconfig)?;
    kubeconfig::write_admin(&settings.kubeconfig, &authority, address).context("cannot write the kubeconfig")?;

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
    let server = Server::start(encrypted.clone(), api).await.context("cannot start the API server")?;
    let stop = CancellationToken::new();
    let serving = tokio::spawn(serving::serve(listener, tls, server.clone(), stop.clone(), STOP_WITHIN));
    if settings.controllers {
        let authority_pem = authority.certificate_pem().to_owned();
        tokio::spawn(certificates::run(server.clone(), Signing::new(authority.clone())));
        tokio::spawn(token_secrets::run(server.clone(), authority_pem));
    }
    let renewal = tokio::spawn(renew(authority, certificate, agents, names));
    let rewriting = tokio::spawn(encryption::keep(encrypted, rules, settings.encryption.reload));
    say(&format!("API ready on https://{address} after {} ms", started.elapsed().as_millis()));
    say(&format!("try: kubectl --kubeconfig {} get namespaces", settings.kubeconfig.display()));

    told_to_stop().await?;
    say("stopping");
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

/// Notes a file outside of the data folder before it is made, so that removing the cluster removes it too.
fn remember(data_dir: &Path, file: &Path) -> anyhow::Result<()> {
    let (folder, file) = (std::path::absolute(data_dir)?, std::path::absolute(file)?);
    let path = traces_file(data_dir);
    let known = fs::read_to_string(&path).unwrap_or_default();
    let line = file.display().to_string();
    if file.starts_with(folder) || known.lines().any(|known| known == line) {
        return Ok(());
    }
    fs::write(&path, format!("{known}{line}\n")).with_context(|| format!("cannot write {}", path.display()))
}

/// Keeps the server's certificates young for as long as it runs.
async fn renew(authority: Arc<Authority>, certificate: Arc<ServerCertificate>, agents: Arc<Agents>, names: Names) {
    loop {
        tokio::time::sleep(ServerCertificate::lifetime()).await;
        if let Err(error) = certificate.renew(&authority, &names) {
            tracing::error!(%error, "cannot renew the server certificate");
        }
        if let Err(error) = agents.renew(&authority) {
            tracing::error!(%error, "cannot renew the certificate for agents");
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
                Self { store: Arc::new(storage_etcd::Etcd::open(options.clone())?), embedded: None }
            }
        })
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
    dns.extend(fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned()));
    let mut addresses = vec![Ipv4Addr::LOCALHOST.into(), SERVICE_ADDRESS];
    if !addresses.contains(&address) && !address.is_unspecified() {
        addresses.push(address);
    }
    Names { dns, addresses }
}

async fn told_to_stop() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result?,
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// Names this process for as long as it runs.
struct PidFile(PathBuf);

impl PidFile {
    fn write(data_dir: &Path) -> anyhow::Result<Self> {
        let path = pid_file(data_dir);
        fs::write(&path, std::process::id().to_string()).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Tells the person at the terminal.
fn say(text: &str) {
    eprintln!("{text}");
}
