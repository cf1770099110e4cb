//! Pods that nobody else can end: those of nodes that are gone or out of service, those that end before they had a node, and
//! finished ones when there are too many.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use controller_runtime::{Change, Clock, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, Preconditions},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{Setting, pods};

const ACCOUNT: &str = "pod-garbage-collector";
const WORKERS: usize = 4;
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// So many finished pods may stay.
const MOST_FINISHED: usize = 12_500;
/// How often they are counted at most.
const COUNT_EVERY: Duration = Duration::from_secs(20);
/// The index of finished pods.
const FINISHED: &str = "finished";

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Subject {
    /// One that ends, and may need help.
    Pod(Key),
    /// One that pods are bound to and that is not there.
    Node(String),
    Finished,
}

struct PodGarbageCollector {
    client: Client,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    own_writes: OwnWrites<Subject>,
    clock: Arc<dyn Clock>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let controller = PodGarbageCollector {
        client: setting.client(ACCOUNT),
        nodes: setting.informers.of(),
        pods: setting.informers.of(),
        own_writes: own_writes.clone(),
        clock: setting.clock.clone(),
    };
    controller.pods.index(pods::NODE, pods::by_node);
    controller.pods.index(FINISHED, |pod| pods::is_finished(pod).then(String::new).into_iter().collect());
    controller.nodes.synced_or_stopped().await;
    controller.pods.synced_or_stopped().await;
    let gone = setting.node_grace.gone;
    let (on_pod, nodes) = (queue.clone(), controller.nodes.clone());
    controller.pods.on_change(move |change| {
        let Change::Applied { new: pod, .. } = change else { return };
        let node = pods::node(pod);
        if !node.is_empty() && nodes.get(&Key::new("", node)).is_none() {
            on_pod.add_after(Subject::Node(node.to_owned()), gone);
        }
        if pods::is_finished(pod) {
            on_pod.add_after(Subject::Finished, COUNT_EVERY);
        }
        if pod.metadata.deletion_timestamp.is_some() {
            on_pod.add(Subject::Pod(Key::of(&**pod)));
        }
    });
    let (on_node, pods) = (queue.clone(), controller.pods.clone());
    controller.nodes.on_change(move |change| {
        let name = change.object().metadata.name.clone().unwrap_or_default();
        match change {
            Change::Deleted(_) => on_node.add_after(Subject::Node(name), gone),
            Change::Applied { new, .. } if is_out_of_service(new) => {
                let there = pods.by_index(pods::NODE, &name);
                let ending = there.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some());
                ending.for_each(|pod| on_node.add(Subject::Pod(Key::of(&**pod))));
            }
            Change::Applied { .. } => {}
        }
    });
    controller_runtime::run(Arc::new(controller), queue, own_writes, WORKERS, stop).await;
}

/// A node whose administrator says that it will not come back.
fn is_out_of_service(node: &Node) -> bool {
    let conditions = node.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    let ready = conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten();
    !ready && taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

impl Controller for PodGarbageCollector {
    type Key = Subject;

    fn name(&self) -> &'static str {
        "pod-garbage-collector-controller"
    }

    async fn reconcile(&self, subject: &Subject) -> Result<Next, Error> {
        let (victims, why) = match subject {
            Subject::Pod(key) => {
                let helpless = |pod: &Arc<Pod>| {
                    let node = self.nodes.get(&Key::new("", pods::node(pod)));
                    pod.metadata.deletion_timestamp.is_some()
                        && (pods::node(pod).is_empty() || node.is_some_and(|node| is_out_of_service(&node)))
                };
                (self.pods.get(key).filter(helpless).into_iter().collect(), None)
            }
            Subject::Node(name) => {
                let nodes: Api<Node> = Api::all(self.client.clone());
                let cached = self.nodes.get(&Key::new("", name)).is_some();
                // The server's word counts, not the cache's.
                if cached || nodes.get_opt(name).await?.is_some() {
                    return Ok(Next::WhenChanged);
                }
                (self.pods.by_index(pods::NODE, name), Some("PodGC: node no longer exists"))
            }
            Subject::Finished => (too_many(self.pods.by_index(FINISHED, ""), MOST_FINISHED), None),
        };
        join_all(victims.iter().map(|pod| self.end(subject, pod, why)))
            .await
            .into_iter()
            .collect::<kube::Result<()>>()?;
        Ok(Next::WhenChanged)
    }
}

impl PodGarbageCollector {
    /// Fails a pod that has not ended, and takes it away without waiting for anybody.
    async fn end(&self, subject: &Subject, pod: &Pod, why: Option<&str>) -> kube::Result<()> {
        let ended = pods::is_finished(pod);
        // Only finalizers keep one that was taken away already.
        if ended && pod.metadata.deletion_grace_period_seconds == Some(0) {
            return Ok(());
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default());
        let exactly = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let gone = async {
            if !ended {
                let why = why.and_then(|why| pods::disrupted(pod, "DeletionByPodGC", why, self.clock.time()));
                let mut status = json!({"phase": "Failed", "observedGeneration": pod.metadata.generation});
                if let Some(why) = why {
                    status["conditions"] = json!([why]);
                }
                let failed = pods::patch_status(&api, pod, status).await?;
                self.own_writes.wrote(subject, &self.pods, &failed);
            }
            let at_once = DeleteParams::default().grace_period(0).preconditions(exactly);
            api.delete(pod.metadata.name.as_deref().unwrap_or_default(), &at_once).await.map(drop)
        };
        match gone.await {
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            answer => answer,
        }
    }
}

/// Those of finished pods that are more than may stay: evicted ones first, then the oldest.
fn too_many(mut finished: Vec<Arc<Pod>>, most: usize) -> Vec<Arc<Pod>> {
    let count = finished.len().saturating_sub(most);
    if count > 0 {
        let evicted = |pod: &Pod| {
            let status = pod.status.as_ref();
            pods::phase(pod) == "Failed" && status.and_then(|status| status.reason.as_deref()) == Some("Evicted")
        };
        let made = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        finished.sort_by_cached_key(|pod| (Reverse(evicted(pod)), made(pod), pod.metadata.name.clone()));
    }
    finished.truncate(count);
    finished
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evicted_pods_go_first_and_then_the_oldest() {
        let pod = |name: &str, hour: u8, reason: &str| {
            let pod = json!({
                "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T{hour:02}:00:00Z")},
                "status": {"phase": "Failed", "reason": reason},
            });
            Arc::new(serde_json::from_value::<Pod>(pod).expect("a pod"))
        };
        let all = vec![pod("d", 4, ""), pod("e", 5, "Evicted"), pod("b", 2, ""), pod("c", 2, ""), pod("f", 1, "")];
        let names = |most: usize| -> String {
            too_many(all.clone(), most).iter().filter_map(|pod| pod.metadata.name.clone()).collect()
        };
        assert_eq!(names(5), "");
        assert_eq!(names(4), "e");
        assert_eq!(names(0), "efbcd");
    }
}
