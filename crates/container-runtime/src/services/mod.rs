//! What a node agent asks of a container runtime: CRI's RuntimeService and ImageService as traits.
//!
//! Requests and answers have CRI v1's names and meanings ([`types`]), with three differences that a caller in the same process
//! gains from: changes come as events that are never dropped ([`RuntimeService::events`]), streams of exec, attach and
//! port-forward are handed over instead of a URL to fetch them from, and times are nanoseconds since 1970 as in CRI, absent
//! instead of zero.

pub mod network;
pub mod streams;
pub mod types;

use async_trait::async_trait;
use tokio::sync::mpsc;

pub use network::{NoNetwork, PodNetwork, SandboxNetwork};
pub use streams::{Streams, TerminalSize};
pub use types::*;

/// Why a call failed. The variants are the gRPC codes that CRI's callers tell apart.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    InvalidArgument(String),
    #[error("{0}")]
    AlreadyExists(String),
    /// The thing is in a state that does not allow the call, such as an exec in a container that has exited.
    #[error("{0}")]
    FailedPrecondition(String),
    #[error("{0}")]
    DeadlineExceeded(String),
    /// This runtime does not do that.
    #[error("{0}")]
    Unimplemented(String),
    #[error("{0}")]
    Internal(String),
}

pub type Result<T, E = ServiceError> = std::result::Result<T, E>;

/// Sandboxes and containers.
#[async_trait]
pub trait RuntimeService: Send + Sync {
    async fn version(&self) -> Result<VersionResponse>;
    async fn status(&self) -> Result<Vec<RuntimeCondition>>;

    /// Makes and starts the sandbox of a pod; it is ready when this answers. Its containers start in its namespaces.
    async fn run_pod_sandbox(&self, config: PodSandboxConfig) -> Result<String>;
    /// Kills what runs in the sandbox and gives its network back. May be called again, and for a sandbox that is gone.
    async fn stop_pod_sandbox(&self, pod_sandbox_id: &str) -> Result<()>;
    /// Removes the sandbox with its containers, running or not. A sandbox that is gone is no error.
    async fn remove_pod_sandbox(&self, pod_sandbox_id: &str) -> Result<()>;
    /// Changes the limits of the pod as a whole.
    async fn update_pod_sandbox_resources(&self, pod_sandbox_id: &str, linux: LinuxContainerResources) -> Result<()>;
    async fn pod_sandbox_status(&self, pod_sandbox_id: &str) -> Result<PodSandboxStatus>;
    async fn list_pod_sandbox(&self, filter: &PodSandboxFilter) -> Result<Vec<PodSandbox>>;

    /// Records a container; no process exists before it is started.
    async fn create_container(&self, pod_sandbox_id: &str, config: ContainerConfig) -> Result<String>;
    /// Answers when the container's command has been executed, or with why it could not be.
    async fn start_container(&self, container_id: &str) -> Result<()>;
    /// Sends the stop signal and, when `timeout` seconds have passed, SIGKILL; answers when the container has exited.
    async fn stop_container(&self, container_id: &str, timeout: i64) -> Result<()>;
    /// Removes a container, with force if it runs. A container that is gone is no error.
    async fn remove_container(&self, container_id: &str) -> Result<()>;
    async fn container_status(&self, container_id: &str) -> Result<ContainerStatus>;
    async fn list_containers(&self, filter: &ContainerFilter) -> Result<Vec<Container>>;
    async fn update_container_resources(&self, container_id: &str, linux: LinuxContainerResources) -> Result<()>;
    /// Continues a container's log in a new file at the same path, after the caller has renamed the old one.
    async fn reopen_container_log(&self, container_id: &str) -> Result<()>;

    async fn exec_sync(&self, container_id: &str, cmd: Vec<String>, timeout: i64) -> Result<ExecSyncResponse>;
    async fn exec(&self, request: ExecRequest) -> Result<Streams>;
    async fn attach(&self, request: AttachRequest) -> Result<Streams>;
    /// A connection to a port on the pod's loopback.
    async fn port_forward(&self, pod_sandbox_id: &str, port: u16) -> Result<tokio::net::TcpStream>;

    async fn container_stats(&self, container_id: &str) -> Result<ContainerStats>;
    async fn list_container_stats(&self, filter: &ContainerFilter) -> Result<Vec<ContainerStats>>;

    /// Everything that happens from now on, in order and without gaps. A listener that does not read keeps what it did not
    /// read in memory; it ends when the listener or the runtime does.
    fn events(&self) -> mpsc::UnboundedReceiver<ContainerEvent>;
}

/// Images.
#[async_trait]
pub trait ImageService: Send + Sync {
    async fn list_images(&self, filter: Option<&str>) -> Result<Vec<Image>>;
    /// The image that a name, a digest or an id means, if it is here.
    async fn image_status(&self, image: &str) -> Result<Option<Image>>;
    /// Fetches an image, and answers with its id.
    async fn pull_image(&self, image: &str, auth: Option<&AuthConfig>) -> Result<String>;
    async fn remove_image(&self, image: &str) -> Result<()>;
    async fn image_fs_info(&self) -> Result<Vec<FilesystemUsage>>;
}
