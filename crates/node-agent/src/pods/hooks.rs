//! Lifecycle hooks: what runs right after a container starts, and before it is stopped.

use std::{net::IpAddr, time::Duration};

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};
use tokio::time::sleep;

use super::context::Context;
use crate::{configuration::named, probes::http};

/// No hook takes longer; the grace period usually ends it earlier.
const LONGEST_REQUEST: Duration = Duration::from_secs(3600);

/// Runs a hook to its end. The error is what Kubernetes says in the state of the container.
pub async fn run(
    context: &Context,
    pod: &Pod,
    container: &Container,
    id: &str,
    addresses: &[IpAddr],
    hook: &LifecycleHandler,
) -> Result<(), String> {
    let about = || format!("for Container {:?} in Pod {:?} failed - error:", container.name, named(pod));
    if let Some(exec) = &hook.exec {
        let command = exec.command.clone().unwrap_or_default();
        let shown = command.join(" ");
        let failed = |why: String, output: &[u8]| {
            let output = String::from_utf8_lossy(output);
            format!("Exec lifecycle hook ([{shown}]) {} {why}, message: {output:?}", about())
        };
        let answer = context.runtime().exec_sync(id, command.clone(), 0).await;
        return match answer {
            Ok(answer) if answer.exit_code == 0 => Ok(()),
            Ok(answer) => {
                let why = format!("command '{shown}' exited with {}: {}", answer.exit_code, lossy(&answer.stderr));
                Err(failed(why, &[answer.stdout.as_slice(), &answer.stderr].concat()))
            }
            Err(error) => Err(failed(error.to_string(), &[])),
        };
    }
    if let Some(get) = &hook.http_get {
        let address = addresses.first().map(IpAddr::to_string).unwrap_or_default();
        let answer = http::get(get, container, &address, "kube-lifecycle/1.36", LONGEST_REQUEST).await;
        let path = get.path.as_deref().unwrap_or("/");
        // Any answer will do.
        return answer.map(drop).map_err(|why| format!("HTTP lifecycle hook ({path}) {} {why}", about()));
    }
    if let Some(pause) = &hook.sleep {
        sleep(Duration::from_secs(u64::try_from(pause.seconds).unwrap_or(0))).await;
        return Ok(());
    }
    Err("Cannot run handler: invalid handler: it names nothing to do".to_owned())
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
