//! What is done when no container of a pod runs any more.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, Preconditions},
};

use super::{
    containers::{name, namespace, uid},
    context::Context,
    logs,
    observed::Observed,
};

/// Takes the pod's volumes down; then, if the API waits for that, deletes the pod there. Whether the API has it no more.
pub async fn clean(context: &Context, pod: &Pod, told: impl Future<Output = ()>, delete: bool) -> Result<bool, String> {
    context.volumes.tear_down(uid(pod)).await.map_err(|error| error.to_string())?;
    context.pulls.forget(uid(pod));
    context.objects.forget(uid(pod));
    if !delete {
        return Ok(false);
    }
    // Its last status is told before it is gone.
    told.await;
    let pods: Api<Pod> = Api::namespaced(context.settings.client.clone(), namespace(pod));
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: pod.metadata.uid.clone(), resource_version: None }),
        ..DeleteParams::default()
    };
    match pods.delete(name(pod), &params).await {
        Ok(_) => Ok(true),
        // It is gone, or another has its name.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(true),
        Err(error) => Err(error.to_string()),
    }
}

/// Removes the pod's containers, sandboxes and logs.
pub async fn remove(context: &Context, pod: &Pod, observed: &Observed) -> Result<(), String> {
    for sandbox in &observed.sandboxes {
        context.runtime().remove_pod_sandbox(&sandbox.id).await.map_err(|error| error.to_string())?;
    }
    for container in &observed.containers {
        context.runtime().remove_container(&container.id).await.map_err(|error| error.to_string())?;
    }
    let (root, uid) = (context.settings.root.clone(), uid(pod).to_owned());
    let removed = tokio::task::spawn_blocking(move || logs::remove(&root, &uid)).await;
    removed.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}
