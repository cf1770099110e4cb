//! What authentication is told at the start. Without any of it: service accounts with a key of their own, client
//! certificates of the cluster's authority, bootstrap tokens, and anonymous requests.

use std::{path::PathBuf, time::Duration};

use rustls::pki_types::CertificateDer;

use super::{front_proxy, keys, webhook};

/// Who issues the tokens of service accounts unless somebody says otherwise.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

#[derive(Clone, Debug)]
pub struct Settings {
    /// Client certificates of these authorities name their user.
    pub client_authorities: Vec<CertificateDer<'static>>,
    /// The first issues tokens of service accounts; those of all are accepted.
    pub service_account_issuers: Vec<String>,
    pub service_account_keys: keys::Source,
    /// No token of a service account lives longer, whatever is asked for.
    pub service_account_max_expiration: Option<Duration>,
    /// Tokens that the node agent asks for with the usual hour live a year, for programs that never read them again.
    pub service_account_extend_expiration: bool,
    /// Where others find the keys, if not at this server.
    pub service_account_jwks_uri: Option<String>,
    /// For whom tokens must be; the issuers, if empty.
    pub api_audiences: Vec<String>,
    /// Static tokens, as CSV.
    pub token_file: Option<PathBuf>,
    /// Tokens of Secrets of type `bootstrap.kubernetes.io/token`.
    pub bootstrap_tokens: bool,
    /// An AuthenticationConfiguration.
    pub configuration: Option<PathBuf>,
    /// Whether requests without credentials are let in; `None` leaves it to the configuration, else yes.
    pub anonymous: Option<bool>,
    pub front_proxy: Option<front_proxy::Settings>,
    pub webhook: Option<webhook::Settings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            client_authorities: Vec::new(),
            service_account_issuers: vec![DEFAULT_ISSUER.to_owned()],
            service_account_keys: keys::Source::Memory,
            service_account_max_expiration: None,
            service_account_extend_expiration: true,
            service_account_jwks_uri: None,
            api_audiences: Vec::new(),
            token_file: None,
            bootstrap_tokens: true,
            configuration: None,
            anonymous: None,
            front_proxy: None,
            webhook: None,
        }
    }
}
