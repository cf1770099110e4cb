//! Controllers, and how they are run.

use std::{any::Any, fmt::Debug, hash::Hash, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use kube::core::Status;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{OwnWrites, WorkQueue};

/// Makes what is into what should be, one key at a time.
pub trait Controller: Send + Sync + 'static {
    type Key: Clone + Eq + Hash + Ord + Debug + Send + Sync + 'static;

    /// The name in logs.
    fn name(&self) -> &'static str;

    /// Compares what is with what should be, whatever it was that changed, and writes the difference. May be called at any
    /// time and any number of times, but never for one key twice at once.
    fn reconcile(&self, key: &Self::Key) -> impl Future<Output = Result<Next, Error>> + Send;
}

/// When a key wants work again that went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    WhenChanged,
    After(Duration),
}

/// Why a key could not be worked on. It will be tried again, later with every failure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// Whether the namespace of the key is gone or going. What is left in it is told as deleted, so nothing is to be done.
    fn is_of_ended_namespace(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if refuses_new_objects(status))
    }
}

/// Whether a write was refused because its namespace is gone or going, which no later try will change.
pub fn refuses_new_objects(status: &Status) -> bool {
    let Some(details) = &status.details else { return false };
    let gone = status.is_not_found() && details.group.is_empty() && details.kind == "namespaces";
    gone || details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Runs a controller with a number of workers until it is told to stop. What is in work is finished. Who drops this drops that
/// as well.
pub async fn run<C: Controller>(
    controller: Arc<C>,
    queue: WorkQueue<C::Key>,
    own_writes: OwnWrites<C::Key>,
    workers: usize,
    stop: CancellationToken,
) {
    let worker = || work(controller.clone(), queue.clone(), own_writes.clone(), stop.clone());
    let mut working: JoinSet<()> = (0..workers).map(|_| worker()).collect();
    stop.cancelled().await;
    queue.shut_down();
    while working.join_next().await.is_some() {}
}

async fn work<C: Controller>(
    controller: Arc<C>,
    queue: WorkQueue<C::Key>,
    own_writes: OwnWrites<C::Key>,
    stop: CancellationToken,
) {
    while let Some(item) = queue.next().await {
        let key = item.key();
        // The caches stop at the same time, and will not see them any more.
        if stop.run_until_cancelled(own_writes.seen(key)).await.is_none() {
            return;
        }
        let problem = match AssertUnwindSafe(controller.reconcile(key)).catch_unwind().await {
            Ok(Ok(next)) => {
                queue.forget_failures(key);
                if let Next::After(delay) = next {
                    queue.add_after(key.clone(), delay);
                }
                continue;
            }
            Ok(Err(error)) if error.is_of_ended_namespace() => {
                queue.forget_failures(key);
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("panicked: {}", words(&*panic)),
        };
        // Most that fails once was overtaken by somebody else's write, and the next try knows of it.
        if queue.failures(key) == 0 {
            tracing::debug!(controller = controller.name(), ?key, problem, "trying again");
        } else {
            tracing::warn!(controller = controller.name(), ?key, problem, "trying again");
        }
        queue.add_after_failure(key.clone());
    }
}

pub(crate) fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::{Mutex, PoisonError},
    };

    use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;
    use crate::Informer;

    /// Fails in its own way for every key.
    #[derive(Default)]
    struct Failing(Mutex<BTreeMap<&'static str, usize>>);

    fn refused(status: serde_json::Value) -> Result<Next, Error> {
        let status: Status = serde_json::from_value(status).expect("a status");
        Err(Error::Api(kube::Error::Api(Box::new(status))))
    }

    impl Controller for Failing {
        type Key = &'static str;

        fn name(&self) -> &'static str {
            "failing"
        }

        async fn reconcile(&self, key: &&'static str) -> Result<Next, Error> {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(*key).or_default() += 1;
            let not_found =
                |kind: &str| json!({"code": 404, "reason": "NotFound", "details": {"kind": kind, "name": "x"}});
            match *key {
                "namespace gone" => refused(not_found("namespaces")),
                "namespace going" => {
                    let cause = json!({"reason": "NamespaceTerminating"});
                    refused(json!({"code": 403, "reason": "Forbidden", "details": {"causes": [cause]}}))
                }
                "object gone" => refused(not_found("pods")),
                "panic" => panic!("on purpose"),
                _ => Ok(Next::WhenChanged),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_comes_again_later_each_time_unless_its_namespace_has_ended() {
        let (controller, queue, stop) = (Arc::new(Failing::default()), WorkQueue::default(), CancellationToken::new());
        for key in ["namespace gone", "namespace going", "object gone", "panic", "good"] {
            queue.add(key);
        }
        let running = tokio::spawn(run(controller.clone(), queue.clone(), OwnWrites::default(), 2, stop.clone()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.cancel();
        running.await.expect("it ends");
        let tried = controller.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // After 0, 5, 15, 35, 75, 155, 315 and 635 ms.
        let expected = [("good", 1), ("namespace going", 1), ("namespace gone", 1), ("object gone", 8), ("panic", 8)];
        assert_eq!(tried, BTreeMap::from(expected));
        assert_eq!((queue.failures(&"object gone"), queue.failures(&"namespace gone")), (8, 0));
    }

    /// Works for ever, and says when it began and when that was dropped.
    struct Endless(mpsc::UnboundedSender<&'static str>);

    struct Dropped(mpsc::UnboundedSender<&'static str>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            let _ = self.0.send("dropped");
        }
    }

    impl Controller for Endless {
        type Key = &'static str;

        fn name(&self) -> &'static str {
            "endless"
        }

        async fn reconcile(&self, _key: &&'static str) -> Result<Next, Error> {
            let _dropped = Dropped(self.0.clone());
            let _ = self.0.send("began");
            std::future::pending().await
        }
    }

    /// As one who has lost the lease does.
    #[tokio::test]
    async fn who_drops_a_controller_drops_what_is_in_work() {
        let (tell, mut told) = mpsc::unbounded_channel();
        let queue = WorkQueue::default();
        queue.add("endless");
        let stop = CancellationToken::new();
        let running = tokio::spawn(run(Arc::new(Endless(tell)), queue, OwnWrites::default(), 1, stop));
        assert_eq!(told.recv().await, Some("began"));
        running.abort();
        let next = tokio::time::timeout(Duration::from_secs(60), told.recv()).await;
        assert_eq!(next.expect("it does not go on"), Some("dropped"));
    }

    /// The caches stop when the controller does, so nobody will see the write any more.
    #[tokio::test(start_paused = true)]
    async fn who_waits_for_own_writes_stops_at_once() {
        let (controller, queue, stop) = (Arc::new(Failing::default()), WorkQueue::default(), CancellationToken::new());
        let (own_writes, informer) = (OwnWrites::default(), Informer::<ConfigMap>::detached());
        let metadata = ObjectMeta { resource_version: Some("7".into()), ..ObjectMeta::default() };
        own_writes.wrote(&"good", &informer, &ConfigMap { metadata, ..ConfigMap::default() });
        queue.add("good");
        let running = tokio::spawn(run(controller.clone(), queue, own_writes, 1, stop.clone()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.cancel();
        tokio::time::timeout(Duration::from_secs(1), running).await.expect("it does not wait").expect("it ends");
        assert!(controller.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty(), "it is not worked on either");
    }
}
