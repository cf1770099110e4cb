//! Where the server is, whom to trust and as whom to come: the current context of a kubeconfig.

use std::{fs, net::SocketAddr, net::ToSocketAddrs, path::Path, sync::Arc};

use anyhow::{Context, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use object_model::{codec::yaml, value::Fields};
use rustls::{
    CipherSuite, ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use serde_json::Value;

/// A server that can be connected to.
#[derive(Clone)]
pub struct Cluster {
    pub address: SocketAddr,
    pub name: ServerName<'static>,
    pub tls: Arc<ClientConfig>,
    /// The same without the user's certificate.
    pub tls_of_nobody: Arc<ClientConfig>,
}

impl Cluster {
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let config = yaml::read(&fs::read(path)?)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let context = named(&config, "contexts", config.text("current-context"), "context")?;
        let cluster = named(&config, "clusters", context.text("cluster"), "cluster")?;
        let user = named(&config, "users", context.text("user"), "user")?;

        let server =
            cluster.text("server").strip_prefix("https://").context("the server is not an https:// address")?;
        let server = server.trim_end_matches('/');
        let address = server.to_socket_addrs().or_else(|_| (server, 443).to_socket_addrs())?.next();
        let address = address.with_context(|| format!("{server} has no address"))?;
        let host = server.rsplit_once(':').map_or(server, |(host, _)| host).trim_matches(['[', ']']);

        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&data(cluster, "certificate-authority", folder)?) {
            roots.add(certificate?)?;
        }
        let certificate = data(user, "client-certificate", folder)?;
        let certificates = CertificateDer::pem_slice_iter(&certificate).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&data(user, "client-key", folder)?)?;
        let trusting = ClientConfig::builder_with_provider(Arc::new(as_go_offers()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let tls_of_nobody = Arc::new(trusting.clone().with_no_client_auth());
        let tls = Arc::new(trusting.with_client_auth_cert(certificates, key)?);
        Ok(Self { address, name: ServerName::try_from(host.to_owned())?, tls, tls_of_nobody })
    }
}

/// Most clients of an API server are written in Go, and ask for AES with 128 bits first.
fn as_go_offers() -> rustls::crypto::CryptoProvider {
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider
}

fn named<'a>(config: &'a Value, list: &str, name: &str, content: &str) -> anyhow::Result<&'a Value> {
    let entry = config.items(list).iter().find(|entry| entry.text("name") == name);
    entry.and_then(|entry| entry.field(content)).with_context(|| format!("it has no {content} named {name:?}"))
}

/// A file that the kubeconfig holds or names.
fn data(of: &Value, what: &str, folder: &Path) -> anyhow::Result<Vec<u8>> {
    let inline = of.text(&format!("{what}-data"));
    if !inline.is_empty() {
        return STANDARD.decode(inline).with_context(|| format!("{what}-data is not base64"));
    }
    let file = of.text(what);
    ensure!(!file.is_empty(), "it has no {what}: the load generator comes with a client certificate");
    fs::read(folder.join(file)).with_context(|| format!("cannot read {file}"))
}
