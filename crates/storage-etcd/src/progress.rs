//! How a watch learns that everything up to some revision has been delivered, though nothing it watches has changed.
//!
//! etcd answers progress requests on the watch's stream. Before 3.4.31 and 3.5.13 such an answer may overtake events
//! that were still to be sent, so there the engine does without: its watches cover all keys of the store (those that
//! were not asked for are left out here), so that any write moves them on, and if none does, because the revision
//! comes from somebody else's keys, the engine writes one key of its own, the marker. Its event, in order like any
//! other, proves that everything before it has been delivered. On an etcd of its own Ferry never writes the marker.

use std::sync::Arc;

use bytes::Bytes;
use storage::Revision;
use tokio::sync::Mutex;

use crate::{
    client::{Client, Repeat, method},
    failure, keys, wire,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// etcd's answer to a progress request.
    Answer,
    /// An event, of the marker if need be.
    Event,
}

impl Proof {
    /// What an etcd of this version can be trusted with.
    pub fn of(version: &str) -> Self {
        let mut numbers = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().unwrap_or(0));
        let mut number = || numbers.next().unwrap_or(0);
        match (number(), number(), number()) {
            (3, ..4, _) | (..3, _, _) => Proof::Event,
            (3, 4, patch) if patch < 31 => Proof::Event,
            (3, 5, patch) if patch < 13 => Proof::Event,
            _ => Proof::Answer,
        }
    }
}

/// The key whose only use is to be written.
pub(crate) struct Marker {
    client: Arc<Client>,
    key: Bytes,
    /// The revision that wrote it last.
    written: Mutex<Revision>,
}

impl Marker {
    pub fn new(client: Arc<Client>, key: Bytes) -> Self {
        Self { client, key, written: Mutex::default() }
    }

    /// Makes sure that there is an event of the marker at `revision` or later.
    pub async fn write(&self, revision: Revision) {
        let mut written = self.written.lock().await;
        if *written >= revision {
            return;
        }
        let put = wire::PutRequest { key: self.key.clone(), value: Bytes::new(), ..Default::default() };
        let answer: Result<wire::PutResponse, _> = self.client.call(method::PUT, put, Repeat::Harmless).await;
        match answer {
            Ok(answer) => *written = keys::revision(wire::revision(&answer.header)),
            // Whoever waits for it asks again.
            Err(status) => tracing::debug!(error = failure::describe(&status), "the progress marker was not written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_that_keep_the_order_are_trusted() {
        for version in ["3.4.23", "3.4.30", "3.5.0-rc.1", "3.5.12", "3.3.27", "2.3.8", "", "nonsense"] {
            assert_eq!(Proof::of(version), Proof::Event, "{version}");
        }
        for version in ["3.4.31", "3.5.13", "3.5.21+git", "3.6.0", "4.0.0"] {
            assert_eq!(Proof::of(version), Proof::Answer, "{version}");
        }
    }
}
