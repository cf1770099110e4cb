//! A container: its command, its labels, its log.

use std::collections::{BTreeMap, HashMap};

use container_runtime::services::{
    ContainerConfig, ContainerMetadata, Image, KeyValue, Labels, LinuxContainerConfig, Mount,
};
use k8s_openapi::api::core::v1::{Container, Pod};

use super::{expansion::expand, labels, sandbox::own_labels};

/// What the agent wants to know of a container whose pod is gone from the API, under Kubernetes' names.
pub mod annotations {
    pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    /// The image by the name that the pod gave it: the only part of a container that can be changed while it runs.
    pub const IMAGE: &str = "io.kubernetes.container.image";
    pub const GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
}

pub(super) fn config(
    pod: &Pod,
    container: &Container,
    image: &Image,
    envs: Vec<KeyValue>,
    mounts: Vec<Mount>,
    restarts: u32,
    linux: LinuxContainerConfig,
) -> ContainerConfig {
    let known: HashMap<&str, &str> = envs.iter().map(|env| (env.key.as_str(), env.value.as_str())).collect();
    let expanded = |words: &Option<Vec<String>>| -> Vec<String> {
        let value = |name: &str| known.get(name).map(|value| (*value).to_owned());
        words.iter().flatten().map(|word| expand(word, value)).collect()
    };
    let (command, args) = (expanded(&container.command), expanded(&container.args));
    ContainerConfig {
        metadata: ContainerMetadata { name: container.name.clone(), attempt: restarts },
        image: image.id.clone(),
        command,
        args,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs,
        mounts,
        devices: Vec::new(),
        labels: own_labels(pod).chain([(labels::CONTAINER_NAME.to_owned(), container.name.clone())]).collect(),
        annotations: annotated(pod, container, restarts),
        log_path: format!("{}/{restarts}.log", container.name),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        linux,
        stop_signal: container.lifecycle.as_ref().and_then(|l| l.stop_signal.clone()).unwrap_or_default(),
    }
}

fn annotated(pod: &Pod, container: &Container, restarts: u32) -> Labels {
    let mut all = BTreeMap::from([(annotations::RESTART_COUNT.to_owned(), restarts.to_string())]);
    let mut note = |name: &str, value: Option<String>| all.extend(value.map(|value| (name.to_owned(), value)));
    note(annotations::IMAGE, container.image.clone());
    note(annotations::TERMINATION_MESSAGE_PATH, container.termination_message_path.clone());
    note(annotations::TERMINATION_MESSAGE_POLICY, container.termination_message_policy.clone());
    let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    note(annotations::GRACE_PERIOD, grace.map(|seconds| seconds.to_string()));
    all
}
