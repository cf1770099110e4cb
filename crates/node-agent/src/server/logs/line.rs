//! One line of a log: its time, its stream, whether it ends there, and what was written.

use k8s_openapi::jiff::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    time: &'a str,
    stream: Stream,
    /// The writer's line goes on in the next one.
    partial: bool,
    text: &'a [u8],
}

/// Without its end of line. `None` for what is no line of a log.
fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let time = std::str::from_utf8(parts.next()?).ok()?;
    let stream = match parts.next()? {
        b"stdout" => Stream::Stdout,
        b"stderr" => Stream::Stderr,
        _ => return None,
    };
    let partial = parts.next()?.split(|byte| *byte == b':').next() == Some(b"P");
    Some(Line { time, stream, partial, text: parts.next()? })
}

/// Writes lines as they were asked for.
pub(super) struct Printer {
    timestamps: bool,
    since: Option<Timestamp>,
    stream: Option<Stream>,
    /// How many bytes are still wanted.
    remaining: Option<u64>,
    at_line_start: bool,
}

impl Printer {
    pub(super) fn new(timestamps: bool, since: Option<Timestamp>, stream: Option<Stream>, limit: Option<u64>) -> Self {
        Self { timestamps, since, stream, remaining: limit, at_line_start: true }
    }

    pub(super) fn is_done(&self) -> bool {
        self.remaining == Some(0)
    }

    pub(super) fn print(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let Some(line) = parse(line) else { return };
        let too_old = self.since.is_some_and(|since| line.time.parse::<Timestamp>().is_ok_and(|time| time < since));
        if too_old || self.stream.is_some_and(|stream| stream != line.stream) {
            return;
        }
        if self.timestamps && self.at_line_start {
            self.put(line.time.as_bytes(), out);
            self.put(b" ", out);
        }
        self.put(line.text, out);
        if !line.partial {
            self.put(b"\n", out);
        }
        self.at_line_start = !line.partial;
    }

    fn put(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let wanted = self
            .remaining
            .map_or(bytes.len(), |remaining| bytes.len().min(usize::try_from(remaining).unwrap_or(usize::MAX)));
        out.extend_from_slice(bytes.get(..wanted).unwrap_or(bytes));
        if let Some(remaining) = &mut self.remaining {
            *remaining -= wanted as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: [&str; 6] = [
        "2026-01-01T00:00:01.000000000Z stdout F one",
        "2026-01-01T00:00:02.000000000Z stderr P tw",
        "2026-01-01T00:00:03.000000000Z stderr F o",
        "nonsense",
        "2026-01-01T02:00:04.000000000+02:00 stdout F:x  three ",
        "2026-01-01T00:00:05.000000000Z stdout F ",
    ];

    fn printed(mut printer: Printer) -> String {
        let mut out = Vec::new();
        LOG.iter().for_each(|line| printer.print(line.as_bytes(), &mut out));
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn lines_come_out_as_they_were_written() {
        assert_eq!(printed(Printer::new(false, None, None, None)), "one\ntwo\n three \n\n");
        assert_eq!(printed(Printer::new(false, None, Some(Stream::Stderr), None)), "two\n");
    }

    #[test]
    fn times_are_told_once_for_each_line() {
        assert_eq!(
            printed(Printer::new(true, None, None, None)),
            "2026-01-01T00:00:01.000000000Z one\n2026-01-01T00:00:02.000000000Z two\n\
             2026-01-01T02:00:04.000000000+02:00  three \n2026-01-01T00:00:05.000000000Z \n"
        );
    }

    #[test]
    fn old_lines_and_more_bytes_than_wanted_are_left_out() {
        let since = "2026-01-01T00:00:03Z".parse().ok();
        assert_eq!(printed(Printer::new(false, since, None, None)), "o\n three \n\n");
        assert_eq!(printed(Printer::new(false, None, None, Some(5))), "one\nt");
        let mut printer = Printer::new(false, None, None, Some(2));
        printer.print(LOG[0].as_bytes(), &mut Vec::new());
        assert!(printer.is_done());
    }
}
