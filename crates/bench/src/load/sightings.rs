//! Numbered pods, watched: how long after it was created each was first seen with a mark in it.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use memchr::memmem;
use tokio::{sync::watch, task::JoinHandle};

use super::{Cluster, Connection, requests::request};

/// The label of everything that belongs to the load; its value says what it is.
pub const LABEL: &str = "bench";
/// Nothing takes longer.
const SEEN_WITHIN: Duration = Duration::from_secs(600);

pub fn pod_name(i: usize) -> String {
    format!("bench-pod-{i:05}")
}

/// When pods were created, and how many were seen.
pub struct Board {
    began: Instant,
    /// In microseconds since the beginning, by the pod's number.
    created: Mutex<HashMap<usize, u64>>,
    seen: AtomicUsize,
}

impl Board {
    /// To be called right before a pod is created.
    pub fn creates(&self, pod: usize) {
        let now = self.now();
        self.created.lock().unwrap_or_else(PoisonError::into_inner).insert(pod, now);
    }

    /// Microseconds since it was created. Nothing, if it was seen before that was noted.
    fn since_created(&self, pod: usize) -> u32 {
        let now = self.now();
        let created = self.created.lock().unwrap_or_else(PoisonError::into_inner).get(&pod).copied();
        now.saturating_sub(created.unwrap_or(now)) as u32
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }
}

/// A watch that goes on until it is told to end.
pub struct Sightings {
    pub board: Arc<Board>,
    end: watch::Sender<()>,
    watching: JoinHandle<anyhow::Result<Vec<u32>>>,
}

impl Sightings {
    /// Watches the pods of the load in a collection.
    pub async fn begin(cluster: &Cluster, collection: &str, mark: &'static str) -> anyhow::Result<Self> {
        let board = Arc::new(Board { began: Instant::now(), created: Mutex::default(), seen: AtomicUsize::new(0) });
        let path = format!("{collection}?watch=1&labelSelector={LABEL}%3Dpod");
        let request = request("GET", &cluster.address.to_string(), &path, "", b"");
        let (end, ended) = watch::channel(());
        let connection = Connection::open(cluster).await?;
        let watching = tokio::spawn(see(connection, request, mark, board.clone(), ended));
        Ok(Self { board, end, watching })
    }

    /// Waits until so many pods were seen; whether they were.
    pub async fn wait_for(&self, pods: usize) -> bool {
        let all_seen = || self.board.seen.load(Ordering::Relaxed) >= pods;
        let began = Instant::now();
        while !all_seen() && !self.watching.is_finished() && began.elapsed() < SEEN_WITHIN {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        all_seen()
    }

    /// How long after they were created pods were seen, in microseconds: so many must have been.
    pub async fn end(self, pods: usize) -> anyhow::Result<Vec<u32>> {
        drop(self.end);
        let took = self.watching.await??;
        ensure!(took.len() == pods, "only {} of {pods} pods were seen in time", took.len());
        Ok(took)
    }
}

async fn see(
    mut connection: Connection,
    request: Vec<u8>,
    mark: &'static str,
    board: Arc<Board>,
    mut ended: watch::Receiver<()>,
) -> anyhow::Result<Vec<u32>> {
    let (mut took, mut line, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    let watching = connection.stream(&request, 200, |mut chunk| {
        while let Some(end) = memchr::memchr(b'\n', chunk) {
            line.extend_from_slice(&chunk[..end]);
            chunk = &chunk[end + 1..];
            let marked = memmem::find(&line, mark.as_bytes()).is_some();
            if let Some(number) = number_in(&line).filter(|number| marked && seen.insert(*number)) {
                took.push(board.since_created(number));
                board.seen.fetch_add(1, Ordering::Relaxed);
            }
            line.clear();
        }
        line.extend_from_slice(chunk);
    });
    tokio::select! {
        // The other end of the channel says nothing and goes away at the end.
        _ = ended.changed() => {}
        broken = watching => broken.context("a watch ended")?,
    }
    Ok(took)
}

fn number_in(event: &[u8]) -> Option<usize> {
    const FIELD: &[u8] = br#""name":"bench-pod-"#;
    let at = memmem::find(event, FIELD)? + FIELD.len();
    let digits: String = event.get(at..)?.iter().take_while(|b| b.is_ascii_digit()).map(|b| char::from(*b)).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{number_in, pod_name};

    #[test]
    fn a_pod_is_known_by_its_name() {
        let event = format!(r#"{{"type":"ADDED","object":{{"metadata":{{"name":"{}"}}}}}}"#, pod_name(42));
        assert_eq!(number_in(event.as_bytes()), Some(42));
        assert_eq!(number_in(br#"{"type":"BOOKMARK"}"#), None);
    }
}
