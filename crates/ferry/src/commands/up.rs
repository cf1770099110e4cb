//! `ferry up`: start a cluster.

mod authentication;
mod authorization;

use std::{net::IpAddr, path::PathBuf};

use anyhow::Context;
use api_server::{admission, fairness::Limits};
use clap::Args;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

use crate::cluster::{self, EncryptionChoice, Settings, StoreChoice};

#[derive(Args)]
// Some flags have long names, which would leave no room for what they do.
#[command(next_line_help = true)]
pub struct Up {
    /// Run the API server only, without a node
    #[arg(long)]
    control_plane_only: bool,
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
        if !self.control_plane_only && !self.disable.iter().any(|name| name == "node") {
            eprintln!("this version has no node yet: objects are stored, but no pod runs");
        }
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
            controllers: !self.disable.iter().any(|name| name == "controllers"),
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
        raise_file_limit();
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            // Bodies may be nested 512 levels deep, which unoptimised code cannot follow on the usual 2 MiB.
            .thread_stack_size(8 << 20)
            .build()
            .context("cannot start the runtime")?
            .block_on(cluster::run(settings))
    }
}

/// Every connection takes a file descriptor, and the 1,024 that a shell hands on are soon used up: as many as may be.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Up to the hard limit this is always allowed; if it fails all the same, there are just fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// In the folder for state of the system for root, of the user otherwise.
pub fn default_data_dir() -> PathBuf {
    let folder = |name| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    if geteuid().is_root() {
        return "/var/lib/ferry".into();
    }
    match (folder("XDG_STATE_HOME"), folder("HOME")) {
        (Some(state), _) => state.join("ferry"),
        (None, Some(home)) => home.join(".local/state/ferry"),
        (None, None) => "/var/lib/ferry".into(),
    }
}
