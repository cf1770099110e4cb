//! What the work on all pods of a node has in common.

use std::sync::Arc;

use container_runtime::services::{ImageService, RuntimeService};
use controller_runtime::events::{EventType, Recorder, about};
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use tokio::sync::watch;

use super::{
    access::ImageAccess,
    admission::Claims,
    containers::{Kind, find},
    images::Pulls,
};
use crate::{Settings, configuration::Configuration, eviction::Pressure, objects::Objects, volumes::Volumes};

pub struct Context {
    pub settings: Settings,
    /// The scheme of container ids.
    pub runtime_name: String,
    pub objects: Arc<Objects>,
    pub volumes: Volumes,
    pub configuration: Configuration,
    pub recorder: Recorder,
    pub pulls: Pulls,
    pub access: ImageAccess,
    pub claims: Claims,
    /// The node as the API has it, once it is registered.
    pub node: watch::Receiver<Option<Arc<Node>>>,
    /// What the node is short of.
    pub pressure: watch::Receiver<Pressure>,
}

impl Context {
    pub fn runtime(&self) -> &dyn RuntimeService {
        &*self.settings.runtime
    }

    pub fn images(&self) -> &dyn ImageService {
        &*self.settings.images
    }

    pub fn event(&self, pod: &Pod, type_: EventType, reason: &str, message: impl Into<String>) {
        self.recorder.event(&about(pod), type_, reason, message);
    }

    /// An event about one container of a pod.
    pub fn container_event(
        &self,
        pod: &Pod,
        container: &str,
        type_: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        let list = match find(pod, container).map(|(kind, _)| kind) {
            Some(Kind::Init | Kind::Sidecar) => "initContainers",
            Some(Kind::Ephemeral) => "ephemeralContainers",
            Some(Kind::Main) | None => "containers",
        };
        let about = ObjectReference { field_path: Some(format!("spec.{list}{{{container}}}")), ..about(pod) };
        self.recorder.event(&about, type_, reason, message);
    }
}
