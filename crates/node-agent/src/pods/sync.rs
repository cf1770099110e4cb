//! Carries out a plan: stops what is to be stopped, makes the sandbox, starts containers one after the other.
//!
//! It can be told to stop: then it ends as soon as what it is doing has ended, and hooks and pulls are not waited for.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use container_runtime::{
    services::{ContainerStatus, Image, LinuxContainerResources, NamespaceMode, PodSandboxStatus, ServiceError},
    shim::rotated,
};
use controller_runtime::events::EventType;
use k8s_openapi::api::{
    core::v1::{Container, Pod},
    node::v1::RuntimeClass,
};
use kube::Api;
use tokio_util::sync::CancellationToken;

use super::{
    containers::{Kind, ephemeral_containers, find, init_containers, is_on_host_network},
    context::Context,
    hooks,
    images::{self, Wanted},
    kill::{self, Kill},
    observed::Observed,
    plan::{NewSandbox, Plan, Start},
};
use crate::{
    status::Reason,
    volumes::{self, VolumeError},
};

/// What happened on the way.
#[derive(Debug)]
pub enum Progress {
    /// The pod has a sandbox.
    SandboxReady,
    /// The container runs, and its hook is running now.
    Hooked(String),
    /// The container was started, or waits for this reason.
    Started(String, Result<(), Reason>),
}

/// Why a plan could not be carried out to its end. It is made and tried again after a while.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    #[error("the pod is to end")]
    Stopped,
    #[error("{0}")]
    Failed(String),
}

/// One plan for one pod, on its way.
pub struct SyncJob {
    pub context: Arc<Context>,
    /// With its status as it was told last.
    pub pod: Arc<Pod>,
    pub observed: Observed,
    pub stop: CancellationToken,
    pub tell: Box<dyn Fn(Progress) + Send + Sync>,
}

/// How the volumes are, when the plan is done: when they want to be looked at again.
pub type Renewal = Option<Duration>;

impl SyncJob {
    pub async fn run(self, plan: Plan) -> Result<Renewal, SyncError> {
        let (context, pod) = (&*self.context, &*self.pod);
        context.objects.register(pod);
        let failed = |error: &dyn std::fmt::Display| SyncError::Failed(error.to_string());
        // Volumes first: a sandbox without them is of no use, and containers that run want them kept up to date.
        let mut renewal = None;
        if plan.sandbox.is_some() || !plan.stop_pod {
            let due = self.or_stopped(context.volumes.due(pod)).await?;
            let not_mounted = |why: &VolumeError| {
                context.event(pod, EventType::Warning, "FailedMount", why.to_string());
            };
            let ready = context.volumes.set_up(pod, due).await.inspect_err(not_mounted);
            let ready = ready.map_err(|error| failed(&error))?;
            ready.outdated.iter().for_each(not_mounted);
            renewal = ready.renewal;
        }
        if let Some(NewSandbox { replaces: true, .. }) = plan.sandbox {
            let message = "Pod sandbox changed, it will be killed and re-created.";
            context.event(pod, EventType::Normal, "SandboxChanged", message);
        }
        if plan.stop_pod {
            let killed = self.or_stopped(kill::kill_pod(context, pod, &self.observed, None)).await?;
            killed.map_err(|error| failed(&error))?;
        }
        for stop in &plan.stop {
            let kill =
                Kill { id: &stop.id, name: &stop.name, message: Some(&stop.message), probe: stop.probe, grace: None };
            // A pod that is to end may have less time than this container has.
            let killed =
                self.or_stopped(kill::kill(context, pod, &self.observed, &kill, std::future::ready(()))).await?;
            killed.map_err(|error| failed(&error))?;
        }
        self.resize(&plan).await?;
        for id in &plan.reset {
            if let Some(old) = self.observed.containers.iter().find(|container| container.id == *id) {
                self.remove(old).await.map_err(|error| failed(&error))?;
            }
        }
        let sandbox = match &plan.sandbox {
            Some(new) => {
                self.purge_init_containers().await;
                let made = self.make_sandbox(new.attempt).await.inspect_err(|error| {
                    let message = format!("Failed to create pod sandbox: {error}");
                    context.event(pod, EventType::Warning, "FailedCreatePodSandBox", message);
                })?;
                (self.tell)(Progress::SandboxReady);
                made
            }
            None if plan.start.is_empty() => return Ok(renewal),
            None => match self.observed.usable_sandbox(pod) {
                Some(sandbox) => sandbox.clone(),
                None => return Ok(renewal),
            },
        };
        for start in &plan.start {
            if self.stop.is_cancelled() {
                return Err(SyncError::Stopped);
            }
            let result = self.start(&sandbox, start).await;
            let blocks = result.is_err() && start.kind == Kind::Init;
            if let Err(Some(reason)) = &result {
                (self.tell)(Progress::Started(start.name.clone(), Err(reason.clone())));
            } else if result.is_ok() {
                (self.tell)(Progress::Started(start.name.clone(), Ok(())));
            }
            if blocks {
                break;
            }
        }
        Ok(renewal)
    }

    /// Gives running containers other limits, and the pod as a whole.
    async fn resize(&self, plan: &Plan) -> Result<(), SyncError> {
        let refused = |error: ServiceError| {
            let message = format!("Pod resize error: {error}");
            self.context.event(&self.pod, EventType::Warning, "ResizeError", message);
            SyncError::Failed(error.to_string())
        };
        if let Some(limits) = plan.limit_pod.as_ref().filter(|_| !plan.update.is_empty()) {
            // The whole must not have less than a part, neither before nor after: in between only the parts are limited.
            let loose = LinuxContainerResources { cpu_quota: -1, memory_limit_in_bytes: -1, ..limits.clone() };
            self.limit_pod(loose).await.map_err(refused)?;
        }
        for update in &plan.update {
            let updated = self.context.runtime().update_container_resources(&update.id, update.resources.clone()).await;
            updated.map_err(refused)?;
        }
        match &plan.limit_pod {
            Some(limits) => self.limit_pod(limits.clone()).await.map_err(refused),
            None => Ok(()),
        }
    }

    async fn limit_pod(&self, limits: LinuxContainerResources) -> Result<(), ServiceError> {
        let Some(sandbox) = self.observed.usable_sandbox(&self.pod) else { return Ok(()) };
        self.context.runtime().update_pod_sandbox_resources(&sandbox.id, limits).await
    }

    async fn or_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, SyncError> {
        self.stop.run_until_cancelled(work).await.ok_or(SyncError::Stopped)
    }

    /// In a new sandbox the pod starts from the beginning.
    async fn purge_init_containers(&self) {
        for container in &self.observed.containers {
            if init_containers(&self.pod).iter().any(|init| init.name == container.metadata.name) {
                // What stays is removed with the pod.
                let _ = self.remove(container).await;
            }
        }
    }

    async fn make_sandbox(&self, attempt: u32) -> Result<PodSandboxStatus, SyncError> {
        let failed = |error: &dyn std::fmt::Display| SyncError::Failed(error.to_string());
        let config = self.context.configuration.sandbox(&self.pod, attempt).map_err(|error| failed(&error))?;
        self.check_runtime_class().await.map_err(SyncError::Failed)?;
        let runtime = self.context.runtime();
        let id = runtime.run_pod_sandbox(config).await.map_err(|error| failed(&error))?;
        runtime.pod_sandbox_status(&id).await.map_err(|error| failed(&error))
    }

    /// A runtime has one way to run pods: its own. Whoever asks for another is told that there is none.
    async fn check_runtime_class(&self) -> Result<(), String> {
        let Some(class) = self.pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.as_deref()) else {
            return Ok(());
        };
        let classes: Api<RuntimeClass> = Api::all(self.context.settings.client.clone());
        let handler = classes.get(class).await.map_err(|error| error.to_string())?.handler;
        let own = [self.context.runtime_name.as_str(), "runc"];
        if own.contains(&handler.as_str()) { Ok(()) } else { Err(format!("no runtime for {handler:?} is configured")) }
    }

    /// Starts one container. No reason means that the pod is to end.
    async fn start(&self, sandbox: &PodSandboxStatus, start: &Start) -> Result<(), Option<Reason>> {
        let (context, pod) = (&*self.context, &*self.pod);
        let Some((_, container)) = find(pod, &start.name) else { return Ok(()) };
        let images = self.stop.run_until_cancelled(self.images(&container)).await.ok_or(None)?;
        let (image, mounted) = images.map_err(|reason| {
            self.error(&container.name, &reason.reason);
            Some(reason)
        })?;
        let addresses = self.addresses(sandbox);
        let id = self.create(sandbox, start.kind, &container, (&image, &mounted), &addresses).await.map_err(Some)?;
        context.container_event(pod, &container.name, EventType::Normal, "Created", "Container created");
        let Some(hook) = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref()) else {
            return self.run_container(&container.name, &id).await.map_err(Some);
        };
        (self.tell)(Progress::Hooked(container.name.clone()));
        self.run_container(&container.name, &id).await.map_err(Some)?;
        let run = hooks::run(context, pod, &container, &id, &addresses, hook);
        match self.stop.run_until_cancelled(run).await {
            None => Err(None),
            Some(Ok(())) => Ok(()),
            Some(Err(why)) => {
                let event = "FailedPostStartHook";
                context.container_event(pod, &container.name, EventType::Warning, event, "PostStartHook failed");
                let kill = Kill { id: &id, name: &container.name, message: Some(event), probe: None, grace: None };
                if let Err(error) = kill::kill(context, pod, &self.observed, &kill, std::future::ready(())).await {
                    tracing::warn!(container = container.name, %error, "cannot stop a container whose hook failed");
                }
                Err(Some(Reason::new("PostStartHookError", why)))
            }
        }
    }

    /// The image of a container, and the ids of those that are volumes of it.
    async fn images(&self, container: &Container) -> Result<(Image, BTreeMap<String, String>), Reason> {
        let (context, pod) = (&*self.context, &*self.pod);
        let image = images::ensure(context, pod, &Wanted::by_container(container)).await?;
        let mut mounted = BTreeMap::new();
        for (volume, source) in volumes::mounted_images(pod, container) {
            let image = images::ensure(context, pod, &Wanted::by_volume(source)).await?;
            mounted.insert(volume.to_owned(), image.id);
        }
        Ok((image, mounted))
    }

    async fn run_container(&self, name: &str, id: &str) -> Result<(), Reason> {
        self.context.runtime().start_container(id).await.map_err(|error| {
            self.error(name, &error.to_string());
            Reason::new("RunContainerError", error.to_string())
        })?;
        self.context.container_event(&self.pod, name, EventType::Normal, "Started", "Container started");
        Ok(())
    }

    fn error(&self, container: &str, what: &str) {
        self.context.container_event(&self.pod, container, EventType::Warning, "Failed", format!("Error: {what}"));
    }

    fn addresses(&self, sandbox: &PodSandboxStatus) -> Vec<IpAddr> {
        if is_on_host_network(&self.pod) { self.context.settings.addresses.clone() } else { sandbox.ips.clone() }
    }

    async fn create(
        &self,
        sandbox: &PodSandboxStatus,
        kind: Kind,
        container: &Container,
        (image, mounted): (&Image, &BTreeMap<String, String>),
        addresses: &[IpAddr],
    ) -> Result<String, Reason> {
        let (context, pod) = (&*self.context, &*self.pod);
        let config_error = |message: String| {
            self.error(&container.name, &message);
            Reason::new("CreateContainerConfigError", message)
        };
        let restarts = self.restarts(&container.name);
        let environment = context.configuration.environment(pod, container, addresses).await;
        let environment = environment.map_err(|error| config_error(error.to_string()))?;
        let mounts = context.volumes.mounts(pod, container, addresses, &environment, mounted).await;
        let mounts = mounts.map_err(|error| config_error(error.to_string()))?;
        let config = context.configuration.container(pod, container, image, environment, mounts, restarts);
        let mut config = config.map_err(|error| config_error(error.to_string()))?;
        if kind == Kind::Ephemeral
            && let Some(target) = self.target(&container.name).map_err(config_error)?
        {
            let namespaces = &mut config.linux.security_context.namespace_options;
            namespaces.pid = NamespaceMode::Target;
            namespaces.target_id.clone_from(&target.id);
        }
        self.make_room(&container.name).await;
        context.runtime().create_container(&sandbox.id, config).await.map_err(|error| {
            self.error(&container.name, &error.to_string());
            Reason::new("CreateContainerError", error.to_string())
        })
    }

    /// The container whose processes an ephemeral container wants to see.
    fn target(&self, name: &str) -> Result<Option<&ContainerStatus>, String> {
        let target = ephemeral_containers(&self.pod).into_iter().find(|(container, _)| container.name == name);
        let Some(target) = target.and_then(|(_, target)| target) else { return Ok(None) };
        match self.observed.latest(&target) {
            Some(found) => Ok(Some(found)),
            None => Err(format!("unable to find target container {target}")),
        }
    }

    /// Counts from what the runtime knows; when that is nothing, from what the pod's status says.
    fn restarts(&self, name: &str) -> u32 {
        if let Some(latest) = self.observed.latest(name) {
            return latest.metadata.attempt + 1;
        }
        let status = self.pod.status.as_ref();
        let lists = status.map(|status| [&status.container_statuses, &status.init_container_statuses]);
        let mut told = lists.into_iter().flatten().flatten().flatten().filter(|told| told.name == name);
        let before = told.find(|told| told.container_id.is_some()).map(|told| told.restart_count + 1);
        before.and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
    }

    /// Of each container the one before is kept, for its log; those before that go.
    async fn make_room(&self, name: &str) {
        let ended = self.observed.containers.iter().filter(|container| {
            container.metadata.name == name && container.state != container_runtime::services::ContainerState::Running
        });
        for old in ended.skip(1) {
            // Whoever asks for their logs has had time; the rest goes with the pod.
            let _ = self.remove(old).await;
        }
    }

    /// Removes a container of an earlier run with its log: whoever crashes forever must not fill the disk.
    async fn remove(&self, old: &ContainerStatus) -> Result<(), ServiceError> {
        self.context.runtime().remove_container(&old.id).await?;
        let path = PathBuf::from(&old.log_path);
        let removed = tokio::task::spawn_blocking(move || {
            for file in rotated(&path).into_iter().chain([path]) {
                // What is left goes with the pod.
                let _ = std::fs::remove_file(file);
            }
        });
        let _ = removed.await;
        Ok(())
    }
}
