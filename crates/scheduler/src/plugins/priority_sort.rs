//! The most important pod is next; of equals, the one that has waited longest.

use std::cmp::Reverse;

use tokio::time::Instant;

use crate::{framework::QueueSort, queue::Queued};

pub struct PrioritySort;

impl QueueSort for PrioritySort {
    fn order(&self, queued: &Queued) -> (Reverse<i32>, Instant) {
        (Reverse(queued.pod.priority), queued.since)
    }
}
