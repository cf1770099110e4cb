//! The flags of audit, under kube-apiserver's names.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use api_server::{
    audit::{Batching, Format, LogSettings, Mode, Policy, Settings, Throttle, WebhookSettings},
    outbound::Peer,
};
use clap::{Args, ValueEnum};

#[derive(Args)]
#[command(next_help_heading = "Audit")]
pub struct Audit {
    /// What is recorded: an audit.k8s.io/v1 Policy. Without it nothing is
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,
    /// Write events to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,
    #[arg(long, value_name = "FORMAT", default_value = "json", hide_default_value = true)]
    audit_log_format: LogFormat,
    /// Move the file aside at this size in megabytes; 0 is never
    #[arg(long, value_name = "MEGABYTES", default_value_t = 100)]
    audit_log_maxsize: u64,
    /// Keep at most this many old files; 0 is all
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    audit_log_maxbackup: usize,
    /// Keep old files for this many days; 0 is for ever
    #[arg(long, value_name = "DAYS", default_value_t = 0)]
    audit_log_maxage: u32,
    /// Compress old files
    #[arg(long)]
    audit_log_compress: bool,
    /// Whether requests wait until their events are in the file
    #[arg(long, value_name = "MODE", default_value = "batch")]
    audit_log_mode: Waiting,
    /// How many events may wait to be written; more are dropped
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    audit_log_batch_buffer_size: usize,
    /// How many events are written at once
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    audit_log_batch_max_size: usize,
    /// Send events to the collector that this kubeconfig names
    #[arg(long, value_name = "FILE")]
    audit_webhook_config_file: Option<PathBuf>,
    /// How long to wait before a batch is sent again; longer each time
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = super::up::duration)]
    audit_webhook_initial_backoff: Duration,
    /// Whether requests wait until their events are sent
    #[arg(long, value_name = "MODE", default_value = "batch")]
    audit_webhook_mode: Waiting,
    /// How many events may wait to be sent; more are dropped
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    audit_webhook_batch_buffer_size: usize,
    /// How many events are sent at once
    #[arg(long, value_name = "COUNT", default_value_t = 400)]
    audit_webhook_batch_max_size: usize,
    /// How long a batch waits to become full
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = super::up::duration)]
    audit_webhook_batch_max_wait: Duration,
    /// Whether batches are throttled
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    audit_webhook_batch_throttle_enable: bool,
    /// How many batches are sent in a second
    #[arg(long, value_name = "COUNT", default_value_t = 10.0)]
    audit_webhook_batch_throttle_qps: f64,
    /// How many batches are sent at once after a pause
    #[arg(long, value_name = "COUNT", default_value_t = 15)]
    audit_webhook_batch_throttle_burst: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    Json,
    Legacy,
}

#[derive(Clone, Copy, ValueEnum)]
enum Waiting {
    Batch,
    Blocking,
    BlockingStrict,
}

impl From<Waiting> for Mode {
    fn from(waiting: Waiting) -> Self {
        match waiting {
            Waiting::Batch => Mode::Batch,
            Waiting::Blocking => Mode::Blocking,
            Waiting::BlockingStrict => Mode::BlockingStrict,
        }
    }
}

impl Audit {
    /// What the flags say, if anything is to be recorded.
    pub fn settings(self) -> anyhow::Result<Option<Settings>> {
        let Some(policy) = &self.audit_policy_file else {
            anyhow::ensure!(
                self.audit_log_path.is_none() && self.audit_webhook_config_file.is_none(),
                "there is no audit policy\nhint: say with --audit-policy-file what is to be recorded"
            );
            return Ok(None);
        };
        Ok(Some(Settings { policy: Policy::read(policy)?, log: self.log(), webhook: self.webhook()? }))
    }

    fn log(&self) -> Option<(LogSettings, Batching)> {
        let settings = LogSettings {
            path: self.audit_log_path.clone()?,
            format: match self.audit_log_format {
                LogFormat::Json => Format::Json,
                LogFormat::Legacy => Format::Legacy,
            },
            max_size: self.audit_log_maxsize,
            max_backups: self.audit_log_maxbackup,
            max_age_days: self.audit_log_maxage,
            compress: self.audit_log_compress,
        };
        let batching = Batching {
            mode: self.audit_log_mode.into(),
            buffer_size: self.audit_log_batch_buffer_size,
            max_size: self.audit_log_batch_max_size,
            max_wait: Duration::ZERO,
            throttle: None,
        };
        Some((settings, batching))
    }

    fn webhook(&self) -> anyhow::Result<Option<(WebhookSettings, Batching)>> {
        let Some(file) = &self.audit_webhook_config_file else { return Ok(None) };
        let peer = Peer::from_kubeconfig(file).context("cannot use --audit-webhook-config-file")?;
        let throttle = Throttle {
            per_second: self.audit_webhook_batch_throttle_qps,
            burst: self.audit_webhook_batch_throttle_burst,
        };
        let batching = Batching {
            mode: self.audit_webhook_mode.into(),
            buffer_size: self.audit_webhook_batch_buffer_size,
            max_size: self.audit_webhook_batch_max_size,
            max_wait: self.audit_webhook_batch_max_wait,
            throttle: self.audit_webhook_batch_throttle_enable.then_some(throttle),
        };
        Ok(Some((WebhookSettings { peer, initial_backoff: self.audit_webhook_initial_backoff }, batching)))
    }
}
