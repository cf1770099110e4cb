//! Registries (OCI distribution specification): images come from them and go to them.
//!
//! What is fetched is checked against its digest before it becomes content, and an image is recorded when all of its content is
//! there; so nothing that is half there is ever seen. Documents are limited in size, and a layer to what its manifest says.

mod auth;
mod client;
mod hosts;
mod pull;
mod push;
mod tls;

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    images::{ImageError, content::Digest},
    services::ServiceError,
};

pub use auth::from_docker_config;
pub use hosts::Hosts;
pub(crate) use pull::Puller;
pub(crate) use push::Pusher;

/// The registry that nobody has: its images are made here.
pub const LOCAL: &str = "ferry.local";

#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("{0}: not found")]
    NotFound(String),
    #[error("pull access denied, repository does not exist or may require authorization: server message: {0}")]
    Denied(String),
    #[error("unexpected status {status}: {message}")]
    Status { status: StatusCode, message: String },
    #[error("cannot reach {url}: {error}")]
    Unreachable { url: String, error: String },
    #[error("{what} is not as it should be: {error}")]
    Malformed { what: String, error: String },
    #[error("no match for platform in manifest: not found: it has {0}")]
    Platform(String),
    #[error("cannot use TLS: {0}")]
    Tls(String),
    #[error("cannot use {file}: {error}")]
    Hosts { file: String, error: String },
    #[error("{0}")]
    Image(#[from] ImageError),
}

impl From<std::io::Error> for RegistryError {
    fn from(error: std::io::Error) -> Self {
        Self::Image(error.into())
    }
}

impl RegistryError {
    /// What a registry says with a status that is no success.
    fn refused(status: StatusCode, body: &[u8]) -> Self {
        let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
        let errors = parsed.get("errors").and_then(Value::as_array).into_iter().flatten();
        let said = errors.map(|error| {
            let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            format!("{}: {}", text("code").to_lowercase(), text("message"))
        });
        let details = parsed.get("details").and_then(Value::as_str).map(String::from);
        let message = said.chain(details).collect::<Vec<_>>().join(", ");
        let message = if message.is_empty() { status.to_string() } else { message };
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Self::Denied(message),
            StatusCode::NOT_FOUND => Self::NotFound(message),
            status => Self::Status { status, message },
        }
    }

    /// As callers of the service see it.
    fn of_image(self, verb: &str, image: &str) -> ServiceError {
        let text = format!("failed to {verb} image {image:?}: {self}");
        match self {
            Self::NotFound(_) | Self::Platform(_) => ServiceError::NotFound(text),
            Self::Image(ImageError::Name(_)) => ServiceError::InvalidArgument(text),
            _ => ServiceError::Internal(text),
        }
    }
}

/// What happens to a layer while an image is fetched or sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub digest: String,
    pub done: u64,
    pub total: u64,
}

/// Is told of progress, often.
pub type Watcher = std::sync::Arc<dyn Fn(Progress) + Send + Sync>;

/// Part of a manifest or an index.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: Digest,
    size: u64,
    #[serde(default, skip_serializing)]
    platform: Option<Platform>,
}

#[derive(Debug, Clone, Deserialize)]
struct Platform {
    os: String,
    architecture: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: u32,
    #[serde(default)]
    media_type: String,
    config: Descriptor,
    layers: Vec<Descriptor>,
}

mod media {
    pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    pub(super) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
    pub(super) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
    pub(super) const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
    pub(super) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
}

#[cfg(test)]
mod tests;
