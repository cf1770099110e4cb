//! The flags that say who decides about requests.

use std::path::PathBuf;

use anyhow::Context;
use api_server::authorization::{
    configuration::Configuration,
    webhook::{Settings, Version},
};
use clap::{Args, ValueEnum};
use object_model::time::Duration;

#[derive(Args)]
#[group(skip)]
pub struct Flags {
    /// Who decides about requests, the first opinion counting: Node, RBAC, Webhook, AlwaysAllow, AlwaysDeny
    #[arg(long, value_name = "MODES", value_delimiter = ',', default_value = "Node,RBAC")]
    authorization_mode: Vec<String>,
    /// An AuthorizationConfiguration that says the same, and more
    #[arg(long, value_name = "FILE", conflicts_with_all = ["authorization_mode", "authorization_webhook_config_file"])]
    authorization_config: Option<PathBuf>,
    /// The kubeconfig by which the mode Webhook reaches its webhook
    #[arg(long, value_name = "FILE")]
    authorization_webhook_config_file: Option<PathBuf>,
    /// The version of the SubjectAccessReviews that the webhook is sent
    #[arg(long, value_name = "VERSION", default_value = "v1beta1")]
    authorization_webhook_version: WebhookVersion,
    /// How long the webhook's "yes" is remembered
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = Duration::parse)]
    authorization_webhook_cache_authorized_ttl: Duration,
    /// How long the webhook's other answers are remembered
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = Duration::parse)]
    authorization_webhook_cache_unauthorized_ttl: Duration,
}

#[derive(Clone, Copy, ValueEnum)]
enum WebhookVersion {
    V1,
    V1beta1,
}

impl Flags {
    pub fn configuration(&self) -> anyhow::Result<Configuration> {
        if let Some(file) = &self.authorization_config {
            return Configuration::from_file(file).context("cannot use --authorization-config");
        }
        let ttl = |given: Duration| Some(given.to_std()).filter(|ttl| !ttl.is_zero());
        let settings = Settings {
            authorized_ttl: ttl(self.authorization_webhook_cache_authorized_ttl),
            unauthorized_ttl: ttl(self.authorization_webhook_cache_unauthorized_ttl),
            version: match self.authorization_webhook_version {
                WebhookVersion::V1 => Version::V1,
                WebhookVersion::V1beta1 => Version::V1Beta1,
            },
            ..Settings::default()
        };
        let webhook = self.authorization_webhook_config_file.as_deref().map(|file| (file, settings));
        Configuration::from_modes(&self.authorization_mode, webhook).context("cannot use --authorization-mode")
    }
}
