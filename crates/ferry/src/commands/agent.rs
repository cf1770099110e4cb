//! `ferry agent`: a node of its own, in the network namespace that it is started in.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use api_server::serving::authority::{self, Authority, Names, write_private};
use clap::Args;
use controller_runtime::{Informers, transport};
use rustls::{
    crypto::ring,
    pki_types::{PrivateKeyDer, pem::PemObject},
    sign::{CertifiedKey, SingleCertAndKey},
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{cluster, node};

#[derive(Args)]
pub struct Agent {
    /// The name of the node
    #[arg(long)]
    name: String,
    /// The address of the node, by which the API server, pods and other nodes reach it
    #[arg(long)]
    address: IpAddr,
    /// Where the node keeps its state; it has the node's credentials: kubeconfig.yaml, proxy.yaml, ca.crt, serving.crt and
    /// serving.key
    #[arg(long, value_name = "FOLDER")]
    data_dir: PathBuf,
    /// Components that are not started: proxy
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    disable: Vec<String>,
}

/// The credentials of a node, by their names in its folder.
pub struct Files {
    pub kubeconfig: PathBuf,
    pub proxy_kubeconfig: PathBuf,
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    pub fn of(folder: &Path) -> Self {
        Self {
            kubeconfig: folder.join("kubeconfig.yaml"),
            proxy_kubeconfig: folder.join("proxy.yaml"),
            authority: folder.join("ca.crt"),
            certificate: folder.join("serving.crt"),
            key: folder.join("serving.key"),
        }
    }

    /// A new certificate for the agent's server.
    pub fn write_certificate(&self, authority: &Authority, names: &Names) -> anyhow::Result<()> {
        let leaf = authority.server(names)?;
        write_private(&self.authority, authority.certificate_pem())?;
        write_private(&self.certificate, &leaf.certificate_pem)?;
        write_private(&self.key, &leaf.key_pem)?;
        Ok(())
    }

    fn tls(&self) -> anyhow::Result<rustls::ServerConfig> {
        let certificates = authority::certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .with_context(|| format!("cannot read a key from {}", self.key.display()))?;
        let own = CertifiedKey::from_der(certificates, key, &ring::default_provider())?;
        let trusted = authority::certificates(&self.authority)?.swap_remove(0);
        Ok(node_agent::tls::server_config(Arc::new(SingleCertAndKey::from(own)), trusted)?)
    }
}

impl Agent {
    pub fn run(self) -> anyhow::Result<()> {
        for name in &self.disable {
            anyhow::ensure!(name == "proxy", "a node has no component {name:?}\nhint: --disable knows proxy");
        }
        node::requirements::check()?;
        super::up::raise_file_limit();
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        threads.block_on(self.serve())
    }

    async fn serve(self) -> anyhow::Result<()> {
        let files = Files::of(&self.data_dir);
        let stop = CancellationToken::new();
        let reader = transport::from_kubeconfig(&files.proxy_kubeconfig, "kube-proxy").await?;
        let settings = node::Settings {
            tls: Arc::new(files.tls()?),
            client: transport::from_kubeconfig(&files.kubeconfig, "kubelet").await?,
            informers: Informers::new(reader, stop.clone()),
            proxy: self.disable.is_empty(),
            name: self.name,
            address: self.address,
            folder: self.data_dir,
        };
        let (name, (tell, ready)) = (settings.name.clone(), oneshot::channel());
        tokio::spawn(async move {
            if ready.await.is_ok() {
                eprintln!("node {name} is Ready");
            }
        });
        let mut signals = cluster::Signals::listen()?;
        let mut running = tokio::spawn(node::run(settings, tell, stop.clone()));
        tokio::select! {
            () = signals.told() => {}
            failed = &mut running => return failed.context("the node has ended")?,
        }
        stop.cancel();
        running.await?
    }
}
