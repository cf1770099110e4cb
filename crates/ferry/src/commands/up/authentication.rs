//! The flags of `ferry up` about who clients are, named as kube-apiserver names them.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use api_server::{
    authentication::{Settings, front_proxy, keys, webhook},
    serving::authority::certificates,
};
use clap::{ArgAction, Args};

#[derive(Args)]
#[group(skip)]
#[command(next_help_heading = "Authentication")]
pub struct Flags {
    /// Also take client certificates of the authorities in this file
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// Whether requests without credentials are answered at all [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    anonymous_auth: Option<bool>,
    /// Tokens in CSV: token, user, uid, "groups"
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// An AuthenticationConfiguration: issuers of OIDC tokens, conditions for anonymous requests
    #[arg(long, value_name = "FILE")]
    authentication_config: Option<PathBuf>,
    /// Whether tokens of Secrets of type bootstrap.kubernetes.io/token are taken
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = true, action = ArgAction::Set
    )]
    enable_bootstrap_token_auth: bool,
    /// Who issues tokens of service accounts; of several, the first issues and all are accepted
    #[arg(long, value_name = "URL")]
    service_account_issuer: Vec<String>,
    /// The key that signs tokens of service accounts [default: one made in the data folder]
    #[arg(long, value_name = "FILE")]
    service_account_signing_key_file: Option<PathBuf>,
    /// Keys that verify them; may be repeated, and each file may hold several
    #[arg(long, value_name = "FILE", requires = "service_account_signing_key_file")]
    service_account_key_file: Vec<PathBuf>,
    /// How long a token of a service account lives at the most, such as 24h
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    service_account_max_token_expiration: Option<Duration>,
    /// Whether the usual tokens of pods live a year, for programs that read theirs only once
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = true, action = ArgAction::Set
    )]
    service_account_extend_token_expiration: bool,
    /// Where others find the keys of service accounts, if not at this server
    #[arg(long, value_name = "URL")]
    service_account_jwks_uri: Option<String>,
    /// For whom tokens must be [default: the issuers of service accounts]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    api_audiences: Vec<String>,
    /// The authorities of proxies that tell in headers who their client is
    #[arg(long, value_name = "FILE")]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of such proxies [default: any]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "requestheader_client_ca_file")]
    requestheader_allowed_names: Vec<String>,
    /// Headers with the user [default: X-Remote-User]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "requestheader_client_ca_file")]
    requestheader_username_headers: Vec<String>,
    /// Headers with its uid [default: X-Remote-Uid]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "requestheader_client_ca_file")]
    requestheader_uid_headers: Vec<String>,
    /// Headers with its groups [default: X-Remote-Group]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "requestheader_client_ca_file")]
    requestheader_group_headers: Vec<String>,
    /// Beginnings of headers with more about it [default: X-Remote-Extra-]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "requestheader_client_ca_file")]
    requestheader_extra_headers_prefix: Vec<String>,
    /// A kubeconfig that names a server which reviews tokens
    #[arg(long, value_name = "FILE")]
    authentication_token_webhook_config_file: Option<PathBuf>,
}

impl Flags {
    pub fn settings(self, data_dir: &Path) -> anyhow::Result<Settings> {
        let defaults = Settings::default();
        let front_proxy = match &self.requestheader_client_ca_file {
            Some(path) => Some(self.front_proxy(path)?),
            None => None,
        };
        let service_account_keys = match self.service_account_signing_key_file {
            Some(signing) => keys::Source::Files { signing, verifying: self.service_account_key_file },
            None => keys::Source::Folder(data_dir.join("pki/service-accounts")),
        };
        Ok(Settings {
            client_authorities: self.client_ca_file.as_deref().map(certificates).transpose()?.unwrap_or_default(),
            service_account_issuers: or(self.service_account_issuer, defaults.service_account_issuers),
            service_account_keys,
            service_account_max_expiration: self.service_account_max_token_expiration,
            service_account_extend_expiration: self.service_account_extend_token_expiration,
            service_account_jwks_uri: self.service_account_jwks_uri,
            api_audiences: self.api_audiences,
            token_file: self.token_auth_file,
            bootstrap_tokens: self.enable_bootstrap_token_auth,
            configuration: self.authentication_config,
            anonymous: self.anonymous_auth,
            front_proxy,
            webhook: self.authentication_token_webhook_config_file.map(|kubeconfig| webhook::Settings { kubeconfig }),
        })
    }

    fn front_proxy(&self, authorities: &Path) -> anyhow::Result<front_proxy::Settings> {
        let usual = front_proxy::Settings::new(certificates(authorities)?, self.requestheader_allowed_names.clone());
        Ok(front_proxy::Settings {
            user_headers: or(self.requestheader_username_headers.clone(), usual.user_headers),
            uid_headers: or(self.requestheader_uid_headers.clone(), usual.uid_headers),
            group_headers: or(self.requestheader_group_headers.clone(), usual.group_headers),
            extra_prefixes: or(self.requestheader_extra_headers_prefix.clone(), usual.extra_prefixes),
            ..usual
        })
    }
}

fn or(given: Vec<String>, usual: Vec<String>) -> Vec<String> {
    if given.is_empty() { usual } else { given }
}
