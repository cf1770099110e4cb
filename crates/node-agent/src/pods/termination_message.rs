//! What a container leaves behind when it ends: its termination message, or the end of its log.

use std::{
    io::{self, SeekFrom},
    path::Path,
};

use container_runtime::services::ContainerStatus;
use k8s_openapi::api::core::v1::Pod;
use rustix::fs::OFlags;
use tokio::{
    fs::OpenOptions,
    io::{AsyncReadExt, AsyncSeekExt},
};

use super::containers;

/// The most that is taken of the message, from its end.
const LONGEST_MESSAGE: u64 = 4096;
/// The most that is taken of the log, from its end.
const LONGEST_OF_LOG: usize = 2048;
const MOST_LINES_OF_LOG: usize = 80;

/// Adds the message of a container that has exited.
pub async fn add(status: &mut ContainerStatus, pod: &Pod) {
    let Some((_, container)) = containers::find(pod, &status.metadata.name) else { return };
    let from_log = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError")
        && status.exit_code != 0
        && status.reason != "StartError";
    let path = container.termination_message_path.as_deref().unwrap_or("/dev/termination-log");
    let mounted = status.mounts.iter().find(|mount| mount.container_path == path);
    let mut message = match mounted {
        None => String::new(),
        Some(mount) => match end_of(Path::new(&mount.host_path), LONGEST_MESSAGE).await {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => format!("Error on reading termination log {}: {error}", mount.host_path),
        },
    };
    if message.is_empty() && from_log {
        message = match end_of_log(Path::new(&status.log_path)).await {
            Ok(text) => text,
            Err(error) => format!("Error on reading termination message from logs: {error}"),
        };
    }
    if !message.is_empty() && !status.message.is_empty() {
        status.message.push_str(": ");
    }
    status.message.push_str(&message);
}

async fn end_of(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // Where a volume of the pod is mounted, it may be anything: a pipe must not keep the agent waiting.
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path).await?;
    let metadata = file.metadata().await?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let length = metadata.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most))).await?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

/// The last lines that the container wrote, out of the log's own form: `<time> <stream> <P|F> <text>`.
async fn end_of_log(path: &Path) -> io::Result<String> {
    // The form adds some 40 bytes to each line.
    let bytes = end_of(path, (LONGEST_OF_LOG + 64 * MOST_LINES_OF_LOG) as u64).await?;
    Ok(last_of_log(&bytes))
}

fn last_of_log(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut written = Vec::new();
    for line in lines.iter().skip(lines.len().saturating_sub(MOST_LINES_OF_LOG)) {
        let mut parts = line.trim_end_matches('\n').splitn(4, ' ');
        let (Some(_), Some(_), Some(tag), Some(content)) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        written.extend_from_slice(content.as_bytes());
        if tag.starts_with('F') {
            written.push(b'\n');
        }
    }
    let from = written.len().saturating_sub(LONGEST_OF_LOG);
    String::from_utf8_lossy(written.get(from..).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_what_was_written() {
        let log =
            "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:00Z stderr P tw\n2026-01-01T00:00:01Z stderr F o\n";
        assert_eq!(last_of_log(log.as_bytes()), "one\ntwo\n");
        let long: String = (0..200).map(|line| format!("2026-01-01T00:00:00Z stdout F {line}\n")).collect();
        let last = last_of_log(long.as_bytes());
        assert!(last.starts_with("120\n") && last.ends_with("199\n"), "{last}");
        let wide = format!("2026-01-01T00:00:00Z stdout F {}\n", "x".repeat(5000));
        assert_eq!(last_of_log(wide.as_bytes()).len(), LONGEST_OF_LOG);
    }
}
