//! `ferry up`: start a cluster.

mod authentication;
mod authorization;

use std::{
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use api_server::{admission, fairness::Limits};
use clap::Args;
use object_model::names;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

use crate::{
    cluster::{self, EncryptionChoice, NodeChoice, Settings, StoreChoice},
    node, progress, running,
};

const ROOTS_DATA_DIR: &str = "/var/lib/ferry";
/// What a cluster without a terminal says, in its data folder.
pub const LOG: &str = "ferry.log";

#[derive(Args)]
// Some flags have long names, which would leave no room for what they do.
#[command(next_line_help = true)]
pub struct Up {
    /// Run the API server, controllers and scheduler only, without a node
    #[arg(long)]
    control_plane_only: bool,
    /// Go on without the terminal as soon as the cluster is up
    #[arg(long)]
    detach: bool,
    /// How many nodes the cluster has on this machine; each further one is a process in a network of its own
    #[arg(long, value_name = "COUNT", default_value_t = 1, conflicts_with = "control_plane_only")]
    nodes: usize,
    /// The name of the node [default: the machine's]
    #[arg(long, value_name = "NAME", conflicts_with = "control_plane_only")]
    node_name: Option<String>,
    /// The address of the node, by which pods reach the API [default: the one by which this machine reaches others]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "control_plane_only")]
    node_ip: Option<Ipv4Addr>,
    /// Where the cluster keeps its state
    #[arg(long, value_name = "FOLDER", default_value_os_t = default_data_dir())]
    data_dir: PathBuf,
    /// Where to write the administrator's kubeconfig [default: kubeconfig.yaml in the data folder]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The port of the API
    #[arg(long, value_name = "PORT", default_value_t = 6443)]
    api_port: u16,
    /// The address the API listens on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    bind: IpAddr,
    /// Where objects are stored: embedded, or etcd://host:port[,host:port…][/prefix]
    #[arg(long, value_name = "STORE", default_value = "embedded")]
    store: String,
    /// An EncryptionConfiguration that says what is encrypted at rest [default: encryption.yaml in the data folder, which
    /// is made at the first start and encrypts Secrets]. Servers that share an etcd need the same
    #[arg(long, value_name = "FILE")]
    encryption_provider_config: Option<PathBuf>,
    /// Read the encryption configuration again when it changes, and rewrite what is stored
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    encryption_provider_config_automatic_reload: bool,
    #[command(flatten)]
    authorization: authorization::Flags,
    /// Admission plugins to run beside the default ones
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    enable_admission_plugins: Vec<String>,
    /// Default admission plugins not to run
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    disable_admission_plugins: Vec<String>,
    /// An AdmissionConfiguration that tells admission plugins more
    #[arg(long, value_name = "FILE")]
    admission_control_config_file: Option<PathBuf>,
    /// Components that are not started: controllers, scheduler, node, dns, proxy
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    disable: Vec<String>,
    #[command(flatten)]
    authentication: authentication::Flags,
    #[command(flatten)]
    audit: super::audit::Audit,
    /// How many requests are answered at once, together with the next number; 0 and 0 is no limit
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().max_requests_inflight)]
    max_requests_inflight: u32,
    /// See --max-requests-inflight: the sum is shared out by priority and fairness
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().max_mutating_requests_inflight)]
    max_mutating_requests_inflight: u32,
}

impl Up {
    pub fn run(self) -> anyhow::Result<()> {
        for name in &self.disable {
            anyhow::ensure!(
                cluster::COMPONENTS.contains(&name.as_str()),
                "there is no component {name:?}\nhint: --disable knows {}",
                cluster::COMPONENTS.join(", ")
            );
        }
        let node = self.node()?;
        let detach = self.detach;
        let store = if self.store == "embedded" {
            StoreChoice::Embedded
        } else {
            StoreChoice::Etcd(self.store.parse().context("cannot read --store")?)
        };
        let authorization = self.authorization.configuration()?;
        let admission = admission::Settings::read(
            &self.enable_admission_plugins,
            &self.disable_admission_plugins,
            self.admission_control_config_file.as_deref(),
        )?;
        let settings = Settings {
            controllers: self.has("controllers"),
            scheduler: self.has("scheduler"),
            node,
            authentication: self.authentication.settings(&self.data_dir)?,
            admission,
            kubeconfig: self.kubeconfig.unwrap_or_else(|| self.data_dir.join("kubeconfig.yaml")),
            data_dir: self.data_dir,
            address: (self.bind, self.api_port).into(),
            store,
            audit: self.audit.settings()?,
            limits: Limits {
                max_requests_inflight: self.max_requests_inflight,
                max_mutating_requests_inflight: self.max_mutating_requests_inflight,
            },
            authorization,
            encryption: EncryptionChoice {
                file: self.encryption_provider_config,
                reload: self.encryption_provider_config_automatic_reload,
            },
        };
        // What can be seen to be wrong before anything is made has been told by now.
        if detach {
            running::make_folder(&settings.data_dir)?;
            return progress::detach(&settings.data_dir.join(LOG));
        }
        raise_file_limit();
        let threads = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .on_thread_park(api_server::serving::idle)
            // Bodies may be nested deeply, which unoptimised code cannot always follow on the usual 2 MiB.
            .thread_stack_size(8 << 20)
            .build()
            .context("cannot start the runtime")?;
        let ended = threads.block_on(cluster::run(settings));
        // Everything that matters has stopped in order, or nobody wants to wait for it.
        threads.shutdown_background();
        ended
    }
}

impl Up {
    fn has(&self, component: &str) -> bool {
        !self.disable.iter().any(|name| name == component)
    }

    /// The node of this process, unless there is to be none.
    fn node(&self) -> anyhow::Result<Option<NodeChoice>> {
        if self.control_plane_only || !self.has("node") || self.nodes == 0 {
            let named = self.nodes > 1 || self.node_name.is_some() || self.node_ip.is_some();
            anyhow::ensure!(
                !named,
                "there is to be no node, but something is said of it\nhint: leave one of both away"
            );
            return Ok(None);
        }
        node::requirements::check()?;
        let name = self.node_name.clone().or_else(cluster::host_name).unwrap_or_default().to_lowercase();
        let wrong = names::dns_subdomain(&name);
        anyhow::ensure!(
            wrong.is_empty(),
            "a node cannot have the name {name:?}: {}\nhint: name it with --node-name",
            wrong.join("; ")
        );
        let address = self.node_ip.map(IpAddr::from).or_else(cluster::outward_address);
        let address =
            address.context("this machine has no address that pods could reach\nhint: name one with --node-ip")?;
        Ok(Some(NodeChoice { name, address, further: self.nodes - 1, dns: self.has("dns"), proxy: self.has("proxy") }))
    }
}

/// A duration as Go writes it, such as 1m30s.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed = object_model::time::Duration::parse(text).map_err(|error| error.to_string())?;
    let nanos = u64::try_from(parsed.nanos()).map_err(|_| "a duration must not be negative".to_owned())?;
    Ok(Duration::from_nanos(nanos))
}

/// Every connection takes a file descriptor, and the 1,024 that a shell hands on are soon used up: as many as may be.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Up to the hard limit this is always allowed; if it fails all the same, there are just fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The one that `FERRY_DATA_DIR` names, else in the folder for state: of the system for root, of the user otherwise.
pub fn default_data_dir() -> PathBuf {
    let folder = |name| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    if let Some(named) = folder("FERRY_DATA_DIR") {
        return named;
    }
    if geteuid().is_root() {
        return ROOTS_DATA_DIR.into();
    }
    match (folder("XDG_STATE_HOME"), folder("HOME")) {
        (Some(state), _) => state.join("ferry"),
        (None, Some(home)) => home.join(".local/state/ferry"),
        (None, None) => ROOTS_DATA_DIR.into(),
    }
}

/// What to do where there is no cluster in a folder: whoever started one with sudo has it elsewhere.
pub fn hint_of_no_cluster(data_dir: &Path) -> &'static str {
    let roots = Path::new(ROOTS_DATA_DIR);
    if !geteuid().is_root() && data_dir != roots && roots.exists() {
        return "hint: root has one in /var/lib/ferry: try sudo; or start one with: ferry up";
    }
    "hint: start one with: ferry up; or name the folder of one with --data-dir"
}
