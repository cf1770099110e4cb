//! What nodes do, without any: pods meet their fate, and end when they are deleted.

use std::sync::Arc;

use controller_runtime::{Change, Informer, Informers};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// What becomes of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It waits for a node.
    Pending,
    Ready,
    Succeeded,
    /// Its container ends with this code.
    Failed(i32),
}

/// Gives every pod of the default namespace its fate once, as soon as it is there.
pub fn play(client: &Client, informers: &Informers, fate: impl Fn(&Pod) -> Fate + Send + 'static) {
    let (pods, informer): (Api<Pod>, Informer<Pod>) = (Api::default_namespaced(client.clone()), informers.of());
    let (sender, mut changed) = mpsc::unbounded_channel::<Arc<Pod>>();
    informer.on_change(move |change| {
        if let Change::Applied { new, .. } = change {
            let _ = sender.send(new.clone());
        }
    });
    tokio::spawn(async move {
        while let Some(pod) = changed.recv().await {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
            if pod.metadata.deletion_timestamp.is_some() {
                pods.delete(name, &DeleteParams::default().grace_period(0)).await.ok();
            } else if phase == "Pending" {
                meet(&pods, name, fate(&pod)).await;
            }
        }
    });
}

/// Writes the status a node would write. The pod may be gone by now.
pub async fn meet(pods: &Api<Pod>, name: &str, fate: Fate) {
    let now = "2026-01-01T00:00:00Z";
    let ended = |code: i32| {
        let state = json!({"terminated": {"exitCode": code, "finishedAt": now}});
        json!([{"name": "a", "image": "a", "imageID": "", "ready": false, "restartCount": 0, "state": state}])
    };
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": now}]);
    let status: Value = match fate {
        Fate::Pending => return,
        Fate::Ready => json!({"phase": "Running", "conditions": ready}),
        Fate::Succeeded => json!({"phase": "Succeeded", "containerStatuses": ended(0)}),
        Fate::Failed(code) => json!({"phase": "Failed", "containerStatuses": ended(code)}),
    };
    let status = Patch::Merge(json!({"status": status}));
    match pods.patch_status(name, &PatchParams::default(), &status).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        answer => drop(answer.expect("patched")),
    }
}
