//! Forgetting the past. etcd keeps every revision until somebody says otherwise, and stops taking writes when it is full:
//! as in Kubernetes it is the API server who says.

use std::{sync::Weak, time::Duration};

use storage::Store;

use crate::Etcd;

/// Forgets what is older than `history`, and at the latest twice that, for as long as the store lives. Each of several
/// servers goes by what it saw itself, so none of them forgets too early.
pub async fn keep_compact(store: Weak<Etcd>, history: Duration) {
    let mut seen = None;
    loop {
        {
            let Some(store) = store.upgrade() else { return };
            if let Some(revision) = seen.take()
                && let Err(error) = store.compact(revision).await
            {
                tracing::warn!(%error, "cannot compact etcd, which grows meanwhile; trying again");
            }
            seen = store.current_revision().await.ok();
        }
        tokio::time::sleep(history).await;
    }
}
