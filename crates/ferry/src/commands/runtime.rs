//! What the commands about images and containers share: the way to a running runtime, and tables.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::anyhow;
pub use container_runtime::cri::client::Client;
use container_runtime::cri::{SOCKET, client::ClientError};

/// The folder of a node's runtime.
pub fn root(node: &Path) -> PathBuf {
    node.join("runtime")
}

/// The runtime of a node that runs, if it does.
pub async fn connect(node: &Path) -> anyhow::Result<Option<Client>> {
    let socket = node.join(SOCKET);
    if !socket.exists() {
        return Ok(None);
    }
    match Client::connect(&socket).await {
        Ok(client) => Ok(Some(client)),
        // What a process has left that was killed.
        Err(ClientError::Unreachable { error, .. }) if error.contains("refused") => Ok(None),
        Err(error) => Err(anyhow!("{error}\nhint: the socket of the runtime is root's; try sudo")),
    }
}

pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(work)
}

/// The beginning of an id, enough to tell it from others.
pub fn short(id: &str) -> String {
    id.trim_start_matches("sha256:").chars().take(12).collect()
}

/// Bytes as people read them.
pub fn human(bytes: u64) -> String {
    let (mut size, mut unit) = (bytes as f64, "B");
    for next in ["kB", "MB", "GB", "TB"] {
        if size < 1000.0 {
            break;
        }
        (size, unit) = (size / 1000.0, next);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{size:.1} {unit}") }
}

/// How long ago something was, given in nanoseconds since 1970.
pub fn age(since: i64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seconds = now.as_secs().saturating_sub(u64::try_from(since / 1_000_000_000).unwrap_or(0));
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

/// Columns as wide as what is in them.
pub fn table<const N: usize>(titles: &[&str; N], rows: &[[String; N]]) -> anyhow::Result<()> {
    let titles = titles.map(String::from);
    let mut widths = [0; N];
    for row in rows.iter().chain([&titles]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut out = io::stdout().lock();
    for row in [&titles].into_iter().chain(rows) {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ids() {
        assert_eq!([999, 1000, 31_400_000].map(human), ["999 B", "1.0 kB", "31.4 MB"]);
        assert_eq!(short("sha256:0123456789abcdef"), "0123456789ab");
    }
}
