//! One look at a container: a command, a request, a connection, a question about its health.

use std::time::{Duration, Instant};

use container_runtime::services::{RuntimeService, ServiceError};
use k8s_openapi::api::core::v1::{Container, Probe};
use tokio::{net::TcpStream, time::timeout};

use super::{grpc, http};
use crate::configuration::expansion::expand;

/// The most that is said of a command's output.
const LONGEST_OUTPUT: usize = 10 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub enum Finding {
    Success,
    Warning(String),
    Failure(String),
    /// It could not be found out.
    Error(String),
}

pub struct Check<'a> {
    pub runtime: &'a dyn RuntimeService,
    pub container: &'a Container,
    pub container_id: &'a str,
    /// Of the pod.
    pub address: &'a str,
}

impl Check<'_> {
    pub async fn look(&self, probe: &Probe) -> Finding {
        let seconds = probe.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(1).max(1);
        if let Some(exec) = &probe.exec {
            return self.exec(self.expanded(exec.command.as_deref().unwrap_or_default()), seconds).await;
        }
        let (patience, began) = (Duration::from_secs(seconds), Instant::now());
        let finding = self.knock(probe, patience).await;
        unless_late(finding, patience, began.elapsed())
    }

    /// From outside, over the network.
    async fn knock(&self, probe: &Probe, patience: Duration) -> Finding {
        if let Some(action) = &probe.http_get {
            if let Err(error) = http::port(&action.port, self.container) {
                return Finding::Error(error);
            }
            return match http::get(action, self.container, self.address, "kube-probe/1.36", patience).await {
                Ok(answer) if answer.sent_away => {
                    Finding::Warning(format!("Probe terminated redirects, Response body: {}", answer.body))
                }
                Ok(answer) if (200..400).contains(&answer.status) => Finding::Success,
                Ok(answer) => Finding::Failure(format!("HTTP probe failed with statuscode: {}", answer.status)),
                Err(error) => Finding::Failure(error),
            };
        }
        if let Some(action) = &probe.tcp_socket {
            let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(self.address);
            return match http::port(&action.port, self.container) {
                Ok(port) => tcp(host, port, patience).await,
                Err(error) => Finding::Error(error),
            };
        }
        if let Some(action) = &probe.grpc {
            let service = action.service.as_deref().unwrap_or_default();
            return match u16::try_from(action.port) {
                Ok(port) => grpc::check(self.address, port, service, patience).await,
                Err(_) => Finding::Error(format!("invalid port number: {}", action.port)),
            };
        }
        Finding::Error(format!("missing probe handler for {}", self.container.name))
    }

    /// With the variables that are written in the container itself.
    fn expanded(&self, command: &[String]) -> Vec<String> {
        let value = |name: &str| {
            let mut variables = self.container.env.iter().flatten();
            variables.find(|variable| variable.name == name).map(|variable| variable.value.clone().unwrap_or_default())
        };
        command.iter().map(|word| expand(word, value)).collect()
    }

    async fn exec(&self, command: Vec<String>, seconds: u64) -> Finding {
        let shown = command.join(" ");
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        match self.runtime.exec_sync(self.container_id, command, seconds).await {
            Ok(answer) if answer.exit_code == 0 => Finding::Success,
            Ok(answer) => {
                let output = [answer.stdout, answer.stderr].concat();
                let output = output.get(..LONGEST_OUTPUT).unwrap_or(&output);
                Finding::Failure(String::from_utf8_lossy(output).into_owned())
            }
            Err(ServiceError::DeadlineExceeded(_)) => Finding::Failure(format!("command {shown:?} timed out")),
            Err(error) => Finding::Error(error.to_string()),
        }
    }
}

/// A failure that came much later than the patience ended says that this node had no time to look, and nothing of the container:
/// whatever answered in time was not read in time.
fn unless_late(finding: Finding, patience: Duration, took: Duration) -> Finding {
    match finding {
        Finding::Failure(why) if took > patience + patience / 4 => {
            Finding::Error(format!("{why} (after {:.1}s: the node is too busy to tell)", took.as_secs_f64()))
        }
        finding => finding,
    }
}

async fn tcp(host: &str, port: u16, patience: Duration) -> Finding {
    let authority = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    match timeout(patience, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Finding::Success,
        Ok(Err(error)) => Finding::Failure(http::dial_error(&authority, &error)),
        Err(_) => Finding::Failure(format!("dial tcp {authority}: i/o timeout")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_late_blames_nobody() {
        let second = Duration::from_secs(1);
        let late = |finding, milliseconds| unless_late(finding, second, Duration::from_millis(milliseconds));
        assert_eq!(late(Finding::Failure("refused".into()), 3), Finding::Failure("refused".into()));
        assert_eq!(late(Finding::Failure("timeout".into()), 1100), Finding::Failure("timeout".into()));
        assert!(matches!(late(Finding::Failure("timeout".into()), 4400), Finding::Error(_)));
        assert_eq!(late(Finding::Success, 4400), Finding::Success);
    }
}
