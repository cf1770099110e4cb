//! The image of a container: here already, or fetched, as its pull policy says.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use container_runtime::{
    images::normalize,
    services::{AuthConfig, Image},
};
use controller_runtime::events::EventType;
use k8s_openapi::{
    api::core::v1::{Container, ImageVolumeSource, Pod},
    jiff::Timestamp,
};

use super::{backoff::Backoff, containers::uid, context::Context, credentials};
use crate::status::Reason;

/// What is remembered of images.
#[derive(Default)]
pub struct Pulls {
    /// Pulls that failed: when each may be tried again, and why it failed. By the pod's uid and the image.
    failed: Mutex<HashMap<(String, String), (Backoff, String)>>,
    /// When images were last wanted, by their ids.
    used: Mutex<HashMap<String, Timestamp>>,
}

impl Pulls {
    fn failed(&self) -> MutexGuard<'_, HashMap<(String, String), (Backoff, String)>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn forget(&self, uid: &str) {
        self.failed().retain(|(of, _), _| of != uid);
    }

    /// Somebody wants an image, or has it.
    pub fn used(&self, id: &str, now: Timestamp) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), now);
    }

    /// When an image was last wanted; one that is seen for the first time counts from `now`. Only these ids are remembered.
    pub fn last_used(&self, ids: &[&str], now: Timestamp) -> HashMap<String, Timestamp> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|id, _| ids.contains(&id.as_str()));
        for id in ids {
            used.entry((*id).to_owned()).or_insert(now);
        }
        used.clone()
    }

    /// When an image of the pod may be tried again.
    pub fn remaining(&self, uid: &str, image: &str, now: Timestamp) -> Option<Duration> {
        let failed = self.failed();
        let (backoff, _) = failed.get(&(uid.to_owned(), image.to_owned()))?;
        backoff.remaining_since_update(now)
    }
}

/// An image that a pod wants, and by which policy.
pub struct Wanted<'a> {
    name: &'a str,
    policy: &'a str,
    /// Whose image it is; none if it is a volume.
    container: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    pub fn by_container(container: &'a Container) -> Self {
        Self {
            name: container.image.as_deref().unwrap_or_default(),
            policy: container.image_pull_policy.as_deref().unwrap_or("IfNotPresent"),
            container: Some(&container.name),
        }
    }

    pub fn by_volume(source: &'a ImageVolumeSource) -> Self {
        Self {
            name: source.reference.as_deref().unwrap_or_default(),
            policy: source.pull_policy.as_deref().unwrap_or("IfNotPresent"),
            container: None,
        }
    }

    fn event(&self, context: &Context, pod: &Pod, type_: EventType, reason: &str, message: &str) {
        match self.container {
            Some(container) => context.container_event(pod, container, type_, reason, message),
            None => context.event(pod, type_, reason, message),
        }
    }
}

/// The image that is wanted. The reason is what the container waits for.
pub async fn ensure(context: &Context, pod: &Pod, wanted: &Wanted<'_>) -> Result<Image, Reason> {
    let name = wanted.name;
    let event = |type_, reason: &str, message: &str| wanted.event(context, pod, type_, reason, message);
    let Ok(full) = normalize(name) else {
        let why = format!("couldn't parse image name {name:?}: invalid reference format");
        let message = format!("Failed to apply default image tag {name:?}: {why}");
        event(EventType::Warning, "InspectFailed", &message);
        return Err(Reason::new("InvalidImageName", message));
    };
    if wanted.policy != "Always" {
        match context.images().image_status(&full).await {
            Ok(Some(image)) if may_use(context, pod, &full, &image).await => {
                let message =
                    format!("Container image {name:?} already present on machine and can be accessed by the pod");
                event(EventType::Normal, "Pulled", &message);
                context.pulls.used(&image.id, context.settings.clock.now());
                return Ok(image);
            }
            // It is not here, or not for this pod.
            Ok(_) if wanted.policy == "Never" => {
                let message = format!("Container image {name:?} is not present with pull policy of Never");
                event(EventType::Warning, "ErrImageNeverPull", &message);
                return Err(Reason::new("ErrImageNeverPull", message));
            }
            Ok(_) => {}
            Err(error) => {
                let message = format!("Failed to inspect image {full:?}: {error}");
                event(EventType::Warning, "InspectFailed", &message);
                return Err(Reason::new("ImageInspectError", message));
            }
        }
    }
    pull(context, pod, wanted, &full).await
}

/// Whether the pod has what the image was fetched with, if that needed something.
async fn may_use(context: &Context, pod: &Pod, full: &str, image: &Image) -> bool {
    !context.access.is_closed(&image.id)
        || context.access.has_one(&image.id, &credentials::of(context, pod, full).await)
}

async fn pull(context: &Context, pod: &Pod, wanted: &Wanted<'_>, full: &str) -> Result<Image, Reason> {
    let name = wanted.name;
    let event = |type_, reason: &str, message: &str| wanted.event(context, pod, type_, reason, message);
    let key = (uid(pod).to_owned(), name.to_owned());
    let before = context.pulls.failed().get(&key).cloned();
    if let Some((backoff, why)) = &before
        && backoff.remaining_since_update(context.settings.clock.now()).is_some()
    {
        let message = format!("Back-off pulling image {name:?}");
        event(EventType::Normal, "BackOff", &message);
        return Err(Reason::new("ImagePullBackOff", format!("{message}: {why}")));
    }
    event(EventType::Normal, "Pulling", &format!("Pulling image {name:?}"));
    let began = Instant::now();
    match fetch(context, &credentials::of(context, pod, full).await, full).await {
        Ok(image) => {
            context.pulls.failed().remove(&key);
            context.pulls.used(&image.id, context.settings.clock.now());
            let took = shown(began.elapsed());
            let message = format!(
                "Successfully pulled image {name:?} in {took} ({took} including waiting). Image size: {} bytes.",
                image.size
            );
            event(EventType::Normal, "Pulled", &message);
            Ok(image)
        }
        Err(error) => {
            event(EventType::Warning, "Failed", &format!("Failed to pull image {name:?}: {error}"));
            let now = context.settings.clock.now();
            let backoff = Backoff::next(before.as_ref().map(|(backoff, _)| backoff), now, now);
            context.pulls.failed().insert(key, (backoff, format!("ErrImagePull: {error}")));
            Err(Reason::new("ErrImagePull", error))
        }
    }
}

/// With each credential in turn until one opens the door; without any if there is none.
async fn fetch(context: &Context, credentials: &[AuthConfig], full: &str) -> Result<Image, String> {
    let with = credentials.iter().map(Some);
    let mut problem = None;
    for auth in with.chain(credentials.is_empty().then_some(None)) {
        match context.images().pull_image(full, auth).await {
            Ok(id) => {
                let image = context.images().image_status(&id).await.map_err(|error| error.to_string())?;
                if let Err(error) = context.access.fetched(&id, auth) {
                    tracing::warn!(image = id, %error, "cannot note whose an image is");
                }
                return image.ok_or_else(|| format!("image {full:?} was pulled and is not there"));
            }
            Err(error) => problem = Some(error.to_string()),
        }
    }
    Err(problem.unwrap_or_default())
}

/// A duration as Go writes it, in milliseconds.
fn shown(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    if milliseconds < 1000 { format!("{milliseconds}ms") } else { format!("{}s", milliseconds as f64 / 1000.0) }
}
