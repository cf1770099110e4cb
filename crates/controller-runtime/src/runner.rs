//! Controllers, and how they are run.

use std::{any::Any, fmt::Debug, hash::Hash, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::join_all};
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

/// Runs a controller with a number of workers until it is told to stop. What is in work is finished.
pub async fn run<C: Controller>(
    controller: Arc<C>,
    queue: WorkQueue<C::Key>,
    own_writes: OwnWrites<C::Key>,
    workers: usize,
    stop: CancellationToken,
) {
    let work =
        join_all((0..workers).map(|_| tokio::spawn(work(controller.clone(), queue.clone(), own_writes.clone()))));
    stop.cancelled().await;
    queue.shut_down();
    work.await;
}

async fn work<C: Controller>(controller: Arc<C>, queue: WorkQueue<C::Key>, own_writes: OwnWrites<C::Key>) {
    while let Some(item) = queue.next().await {
        let key = item.key();
        own_writes.seen(key).await;
        let problem = match AssertUnwindSafe(controller.reconcile(key)).catch_unwind().await {
            Ok(Ok(next)) => {
                queue.forget_failures(key);
                if let Next::After(delay) = next {
                    queue.add_after(key.clone(), delay);
                }
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("panicked: {}", words(&*panic)),
        };
        tracing::warn!(controller = controller.name(), ?key, problem, "trying again");
        queue.add_after_failure(key.clone());
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}
