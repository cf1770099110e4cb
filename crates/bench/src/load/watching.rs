//! Patches that many watchers see: how many, and how long after each was sent.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use memchr::memmem::{self, Finder};
use tokio::task::JoinSet;

use super::{
    Connection, Load, Measured, Report, Requests,
    requests::{DIGITS, MARK},
};

/// More patches than any server does in the time.
const MOST_PATCHES: usize = 1 << 21;
const SEEN_WITHIN: Duration = Duration::from_secs(30);

/// When each patch was sent, and what the watchers saw of them.
struct Board {
    began: Instant,
    /// In microseconds since the beginning, by the patch's number.
    sent: Vec<AtomicU64>,
    events: AtomicUsize,
}

pub async fn patches(
    load: &Load,
    requests: &Arc<Requests>,
    connections: &mut Vec<Connection>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let from = newest(requests, connections).await?;
    let board = Arc::new(Board {
        began: Instant::now(),
        sent: std::iter::repeat_with(|| AtomicU64::new(0)).take(MOST_PATCHES).collect(),
        events: AtomicUsize::new(0),
    });
    let mut watches = JoinSet::new();
    let (end, ended) = tokio::sync::watch::channel(());
    for connection in load.open(load.watchers).await? {
        watches.spawn(watch(connection, requests.watch(&from), board.clone(), ended.clone()));
    }
    drop(ended);

    let (until, objects) = (Instant::now() + load.lasts, load.objects);
    let (sending, requests) = (board.clone(), requests.clone());
    let next = move |number: usize| {
        let sent = sending.sent.get(number).filter(|_| Instant::now() < until)?;
        sent.store(sending.began.elapsed().as_micros() as u64, Ordering::Relaxed);
        Some(requests.patch(number % objects, number))
    };
    let spare = connections.split_off(load.patchers.min(connections.len()));
    let (began, cpu) = (Instant::now(), load.cpu());
    let mut measured = load.all(connections, 200, next).await?;
    connections.extend(spare);
    let wanted = measured.took.len() * load.watchers;
    let seen = tokio::time::timeout(SEEN_WITHIN, async {
        while board.events.load(Ordering::Relaxed) < wanted {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let in_time = seen.await.is_ok();
    measured.time = began.elapsed();
    measured.cpu = load.cpu().saturating_sub(cpu);
    drop(end);

    let mut events = Measured { time: measured.time, ..Measured::default() };
    while let Some(ended) = watches.join_next().await {
        events.took.extend(ended??);
    }
    let count = board.events.load(Ordering::Relaxed);
    ensure!(in_time && count == wanted, "{} watchers saw {count} events of {wanted}", load.watchers);
    report.row(&format!("patch with {} watchers", load.watchers), measured);
    report.row("events of it, since sent", events);
    Ok(())
}

/// The revision to watch from.
async fn newest(requests: &Requests, connections: &mut [Connection]) -> anyhow::Result<String> {
    const FIELD: &[u8] = br#""resourceVersion":""#;
    let mut list = Vec::new();
    let connection = connections.first_mut().context("no connection")?;
    connection.stream(&requests.first, 200, |chunk| list.extend_from_slice(chunk)).await?;
    let at = memmem::find(&list, FIELD).context("a list without a resourceVersion")? + FIELD.len();
    Ok(list[at..].iter().take_while(|b| b.is_ascii_digit()).map(|b| char::from(*b)).collect())
}

/// Watches until told to end; returns how long after they were sent patches were seen, in microseconds. An event that
/// two reads share is counted, but its time is not.
async fn watch(
    mut connection: Connection,
    request: Vec<u8>,
    board: Arc<Board>,
    mut ended: tokio::sync::watch::Receiver<()>,
) -> anyhow::Result<Vec<u32>> {
    let mut took = Vec::new();
    let mark = Finder::new(MARK);
    let watching = connection.stream(&request, 200, |chunk| {
        let now = board.began.elapsed().as_micros() as u64;
        for at in mark.find_iter(chunk) {
            let digits = chunk.get(at + MARK.len()..).and_then(|rest| rest.get(..DIGITS));
            let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
            if let Some(sent) = number.and_then(|number| board.sent.get(number)) {
                took.push(now.saturating_sub(sent.load(Ordering::Relaxed)) as u32);
            }
        }
        board.events.fetch_add(memchr::memchr_iter(b'\n', chunk).count(), Ordering::Relaxed);
    });
    tokio::select! {
        // The other end of the channel says nothing and goes away at the end.
        _ = ended.changed() => {}
        broken = watching => broken.context("a watch ended")?,
    }
    Ok(took)
}
