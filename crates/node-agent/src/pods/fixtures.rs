//! Sandboxes and containers as a runtime may tell of them, for tests.

use std::net::IpAddr;

use container_runtime::services::{
    ContainerMetadata, ContainerState as Runtime, ContainerStatus as Known, LinuxContainerResources, NamespaceOption,
    PodSandboxMetadata, PodSandboxState, PodSandboxStatus,
};

pub fn known(name: &str, attempt: u32, state: Runtime, exit_code: i32) -> Known {
    let ended = state == Runtime::Exited;
    Known {
        id: format!("{name}-{attempt}"),
        pod_sandbox_id: "s".into(),
        metadata: ContainerMetadata { name: name.into(), attempt },
        state,
        created_at: i64::from(attempt),
        started_at: Some(1_000_000_000),
        finished_at: ended.then_some(2_000_000_000),
        exit_code,
        image: "a:1".into(),
        image_ref: "sha256:1".into(),
        reason: if !ended {
            ""
        } else if exit_code == 0 {
            "Completed"
        } else {
            "Error"
        }
        .into(),
        message: String::new(),
        labels: Default::default(),
        annotations: Default::default(),
        mounts: Vec::new(),
        log_path: String::new(),
        resources: LinuxContainerResources::default(),
        pid: None,
    }
}

pub fn running(name: &str) -> Known {
    known(name, 0, Runtime::Running, 0)
}

pub fn exited(name: &str, exit_code: i32) -> Known {
    known(name, 0, Runtime::Exited, exit_code)
}

pub fn sandbox() -> PodSandboxStatus {
    PodSandboxStatus {
        id: "s".into(),
        metadata: PodSandboxMetadata::default(),
        state: PodSandboxState::Ready,
        created_at: 0,
        ips: vec![IpAddr::from([10, 0, 0, 9])],
        netns: String::new(),
        linux: NamespaceOption::default(),
        labels: Default::default(),
        annotations: Default::default(),
    }
}
