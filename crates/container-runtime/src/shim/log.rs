//! A container's log, in the format of CRI: each line with its time, its stream and whether it ends there.
//!
//! A line longer than [`LONGEST`] is written in parts, marked `P`; the last part of a line is marked `F`. The file is rotated when it
//! has reached its size, by the shim itself, so that logs stay small while nothing else runs.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use super::spec::LogSpec;

/// How much of a line is kept in memory.
const LONGEST: usize = 16 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Stdout,
    Stderr,
}

pub(super) struct Log {
    spec: LogSpec,
    file: File,
    size: u64,
    /// The unfinished lines of stdout and stderr.
    unfinished: [Vec<u8>; 2],
}

impl Log {
    pub(super) fn open(spec: LogSpec) -> io::Result<Self> {
        if let Some(parent) = spec.path.parent() {
            fs::create_dir_all(parent)?;
        }
        let (file, size) = open(&spec.path)?;
        Ok(Self { spec, file, size, unfinished: Default::default() })
    }

    /// Continues in a new file, after the old one was renamed.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.size) = open(&self.spec.path)?;
        Ok(())
    }

    pub(super) fn write(&mut self, source: Source, bytes: &[u8]) -> io::Result<()> {
        let mut lines = Vec::with_capacity(bytes.len() + 64);
        let unfinished = &mut self.unfinished[source as usize];
        let mut head = None;
        let head = || *head.get_or_insert_with(SystemTime::now);
        append(&mut lines, unfinished, source, bytes, head);
        self.put(&lines)
    }

    /// Writes what has no end of line, when the stream ends.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let mut lines = Vec::new();
        for source in [Source::Stdout, Source::Stderr] {
            let rest = std::mem::take(&mut self.unfinished[source as usize]);
            if !rest.is_empty() {
                put_line(&mut lines, source, SystemTime::now(), b'P', &rest);
            }
        }
        self.put(&lines)
    }

    /// Writes whole lines, as many at once as fit into the file.
    fn put(&mut self, mut lines: &[u8]) -> io::Result<()> {
        while !lines.is_empty() {
            let room = self.spec.max_size.saturating_sub(self.size);
            let mut length = 0;
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                if (length + line.len()) as u64 > room {
                    break;
                }
                length += line.len();
            }
            if length == 0 && self.size > 0 {
                self.rotate()?;
                continue;
            }
            // One line alone may be larger than a file should be.
            let first = || lines.iter().position(|byte| *byte == b'\n').map_or(lines.len(), |end| end + 1);
            let (now, later) = lines.split_at(if length == 0 { first() } else { length });
            self.file.write_all(now)?;
            self.size += now.len() as u64;
            lines = later;
        }
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let now = rfc3339(SystemTime::now());
        let stamp: String = now.chars().filter(char::is_ascii_digit).take(23).collect();
        let mut name = self.spec.path.clone().into_os_string();
        name.push(format!(".{}-{}", stamp.get(..8).unwrap_or_default(), stamp.get(8..).unwrap_or_default()));
        match fs::rename(&self.spec.path, PathBuf::from(name)) {
            // Somebody has taken it away: a new one is begun all the same.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut old = rotated(&self.spec.path);
        // The current file counts, too.
        while old.len() + 1 > self.spec.max_files.max(1) {
            fs::remove_file(old.remove(0))?;
        }
        self.reopen()
    }
}

/// The files that were rotated away from a log, the oldest first: their names end in the time.
pub fn rotated(path: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    let prefix = format!("{name}.");
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = OpenOptions::new().create(true).append(true).mode(0o640).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

fn append(
    lines: &mut Vec<u8>,
    unfinished: &mut Vec<u8>,
    source: Source,
    mut bytes: &[u8],
    mut now: impl FnMut() -> SystemTime,
) {
    while !bytes.is_empty() {
        let room = LONGEST - unfinished.len();
        let end = bytes.iter().position(|byte| *byte == b'\n');
        match end {
            Some(end) if end <= room => {
                unfinished.extend_from_slice(&bytes[..end]);
                put_line(lines, source, now(), b'F', unfinished);
                unfinished.clear();
                bytes = &bytes[end + 1..];
            }
            _ if bytes.len() < room => {
                unfinished.extend_from_slice(bytes);
                return;
            }
            _ => {
                unfinished.extend_from_slice(&bytes[..room]);
                put_line(lines, source, now(), b'P', unfinished);
                unfinished.clear();
                bytes = &bytes[room..];
            }
        }
    }
}

fn put_line(lines: &mut Vec<u8>, source: Source, now: SystemTime, tag: u8, line: &[u8]) {
    let stream = match source {
        Source::Stdout => " stdout ",
        Source::Stderr => " stderr ",
    };
    lines.extend_from_slice(rfc3339(now).as_bytes());
    lines.extend_from_slice(stream.as_bytes());
    lines.extend_from_slice(&[tag, b' ']);
    lines.extend_from_slice(line);
    lines.push(b'\n');
}

/// With nanoseconds, in UTC. The calendar is that of days counted from 1 March, so that leap days come last.
fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, nanos) = (since.as_secs(), since.subsec_nanos());
    let (day, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_utc_with_nanoseconds() {
        let at = |seconds, nanos| rfc3339(UNIX_EPOCH + Duration::new(seconds, nanos));
        assert_eq!(at(0, 1), "1970-01-01T00:00:00.000000001Z");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00.000000000Z");
        assert_eq!(at(1_798_761_599, 999_999_999), "2026-12-31T23:59:59.999999999Z");
    }

    fn texts(chunks: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut unfinished) = (Vec::new(), Vec::new());
        for chunk in chunks {
            append(&mut lines, &mut unfinished, Source::Stdout, chunk, || UNIX_EPOCH);
        }
        let text = String::from_utf8(lines).expect("text");
        text.lines().map(|line| line.split_once(" stdout ").map_or("?", |(_, rest)| rest).to_owned()).collect()
    }

    #[test]
    fn lines_come_out_whole_however_they_come_in() {
        assert_eq!(texts(&[b"a", b"b\n\nc\nrest"]), ["F ab", "F ", "F c"]);
    }

    #[test]
    fn long_lines_come_in_parts() {
        let long = vec![b'x'; LONGEST + 3];
        let lines = texts(&[&long, b"\n"]);
        assert_eq!(
            lines.iter().map(|line| (&line[..1], line.len() - 2)).collect::<Vec<_>>(),
            [("P", LONGEST), ("F", 3)]
        );
        let exact = [vec![b'x'; LONGEST], b"\n".to_vec()].concat();
        assert_eq!(texts(&[&exact]).iter().map(|line| &line[..1]).collect::<Vec<_>>(), ["F"]);
    }

    #[test]
    fn rotation_keeps_the_newest_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("0.log");
        let mut log = Log::open(LogSpec { path: path.clone(), max_size: 200, max_files: 3 }).expect("it opens");
        for number in 0..40 {
            log.write(Source::Stderr, format!("line {number}\n").as_bytes()).expect("it is written");
        }
        assert_eq!(rotated(&path).len(), 2);
        assert!(fs::read_to_string(&path).expect("the log").contains("stderr F line 39\n"));
        let newest = rotated(&path).pop().expect("a rotated file");
        assert!(fs::metadata(newest).expect("it exists").len() <= 200);
    }
}
