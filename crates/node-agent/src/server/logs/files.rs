//! The files of a log as one: those that were rotated away, the oldest first, and the one that is written now.
//!
//! Files are known by what they are, not by their names, which change when the writer rotates: at the end of a file the
//! next one is whatever follows it now, so that nothing is read twice and nothing is missed that still exists.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use bytes::Bytes;

use super::line::Printer;

/// How much is handed out at once.
const PIECE: usize = 32 << 10;
/// How much is read at once when lines are counted from the end.
const BLOCK: u64 = 64 << 10;

pub(super) struct Files {
    path: PathBuf,
    current: BufReader<File>,
    identity: Identity,
    /// A line whose end is not written yet.
    unfinished: Vec<u8>,
}

type Identity = (u64, u64);

pub(super) enum Reading {
    /// There is more.
    Some(Bytes),
    /// There is no more, for now.
    End(Bytes),
}

impl Files {
    /// At the beginning, or so many lines before the end.
    pub(super) fn open(path: &Path, tail: Option<u64>) -> io::Result<Self> {
        // What is written now is opened first: if it is rotated in between, it is among the others and is not lost.
        let newest = File::open(path)?;
        let mut files = rotated(path)?;
        let known = identity(&newest)?;
        files.retain(|(_, _, identity)| *identity != known);
        files.push((path.to_owned(), newest, known));
        let Some(mut wanted) = tail else {
            let (_, first, identity) = files.swap_remove(0);
            return Ok(Self::at(path, first, identity));
        };
        while let Some((_, mut file, identity)) = files.pop() {
            let (start, found) = lines_before_end(&mut file, wanted)?;
            wanted -= found;
            if wanted == 0 || files.is_empty() {
                file.seek(SeekFrom::Start(start))?;
                return Ok(Self::at(path, file, identity));
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    fn at(path: &Path, file: File, identity: Identity) -> Self {
        Self { path: path.to_owned(), current: BufReader::new(file), identity, unfinished: Vec::new() }
    }

    /// Prints a piece of what follows, at most so many lines if a number is given.
    pub(super) fn print(&mut self, printer: &mut Printer, lines: &mut Option<u64>) -> io::Result<Reading> {
        let mut out = Vec::new();
        while out.len() < PIECE {
            if printer.is_done() || *lines == Some(0) {
                return Ok(Reading::End(out.into()));
            }
            self.current.read_until(b'\n', &mut self.unfinished)?;
            if let Some((b'\n', line)) = self.unfinished.split_last() {
                printer.print(line, &mut out);
                self.unfinished.clear();
                lines.iter_mut().for_each(|lines| *lines -= 1);
            } else if !self.go_on()? {
                return Ok(Reading::End(out.into()));
            }
        }
        Ok(Reading::Some(out.into()))
    }

    /// Goes on to the next file, if the writer has.
    fn go_on(&mut self) -> io::Result<bool> {
        let newest = match File::open(&self.path) {
            Ok(file) => file,
            // Between two files.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let newest_identity = identity(&newest)?;
        if newest_identity == self.identity {
            return Ok(false);
        }
        // What the writer had still written before it went on.
        let before = self.unfinished.len();
        self.current.read_until(b'\n', &mut self.unfinished)?;
        if self.unfinished.len() > before {
            return Ok(true);
        }
        let others = rotated(&self.path)?;
        let own = others.iter().position(|(_, _, identity)| *identity == self.identity);
        // If this file is gone already, whatever is left comes after it.
        let mut next = others.into_iter().skip(own.map_or(0, |own| own + 1));
        let (file, identity) = match next.next() {
            Some((_, file, identity)) => (file, identity),
            None => (newest, newest_identity),
        };
        (self.current, self.identity) = (BufReader::new(file), identity);
        self.unfinished.clear();
        Ok(true)
    }
}

fn identity(file: &File) -> io::Result<Identity> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// The files that were rotated away, the oldest first.
fn rotated(path: &Path) -> io::Result<Vec<(PathBuf, File, Identity)>> {
    let mut files = Vec::new();
    for path in container_runtime::shim::rotated(path) {
        // The oldest may be removed meanwhile.
        let Ok(file) = File::open(&path) else { continue };
        let identity = identity(&file)?;
        files.push((path, file, identity));
    }
    Ok(files)
}

/// Where the last so many lines begin, and how many there are, if there are fewer.
fn lines_before_end(file: &mut File, wanted: u64) -> io::Result<(u64, u64)> {
    let mut end = file.metadata()?.len();
    let (mut found, mut block) = (0, Vec::new());
    let mut is_last_byte = true;
    if wanted == 0 {
        return Ok((end, 0));
    }
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(start))?;
        block.clear();
        file.by_ref().take(end - start).read_to_end(&mut block)?;
        for (at, byte) in block.iter().enumerate().rev() {
            // The last line's own end begins no other.
            if *byte == b'\n' && !is_last_byte {
                found += 1;
                if found == wanted {
                    return Ok((start + at as u64 + 1, found));
                }
            }
            is_last_byte = false;
        }
        end = start;
    }
    // The first line has no end of line before it.
    Ok((0, if is_last_byte { 0 } else { found + 1 }))
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use super::*;

    struct Log(tempfile::TempDir);

    impl Log {
        fn path(&self) -> PathBuf {
            self.0.path().join("0.log")
        }

        fn write(&self, texts: &[&str]) {
            let mut file = fs::OpenOptions::new().create(true).append(true).open(self.path()).expect("a log");
            for text in texts {
                writeln!(file, "2026-01-01T00:00:00Z stdout F {text}").expect("it is written");
            }
        }

        fn rotate(&self, stamp: &str) {
            fs::rename(self.path(), self.0.path().join(format!("0.log.{stamp}"))).expect("it is renamed");
        }
    }

    fn all(files: &mut Files, lines: Option<u64>) -> String {
        let (mut printer, mut lines, mut text) = (Printer::new(false, None, None, None), lines, Vec::new());
        loop {
            match files.print(&mut printer, &mut lines).expect("it is read") {
                Reading::Some(piece) => text.extend_from_slice(&piece),
                Reading::End(piece) => {
                    text.extend_from_slice(&piece);
                    return String::from_utf8(text).expect("text").replace('\n', " ");
                }
            }
        }
    }

    #[test]
    fn rotated_files_are_part_of_the_log() {
        let log = Log(tempfile::tempdir().expect("a folder"));
        log.write(&["1", "2"]);
        log.rotate("20260101-000001");
        log.write(&["3", "4"]);
        log.rotate("20260101-000002");
        log.write(&["5"]);
        let tail = |count| all(&mut Files::open(&log.path(), Some(count)).expect("a log"), Some(count));
        assert_eq!(all(&mut Files::open(&log.path(), None).expect("a log"), None), "1 2 3 4 5 ");
        assert_eq!((tail(0), tail(1), tail(2), tail(3)), ("".into(), "5 ".into(), "4 5 ".into(), "3 4 5 ".into()));
        assert_eq!((tail(4), tail(99)), ("2 3 4 5 ".into(), "1 2 3 4 5 ".into()));
    }

    #[test]
    fn whoever_follows_goes_on_over_rotations() {
        let log = Log(tempfile::tempdir().expect("a folder"));
        log.write(&["1"]);
        let mut files = Files::open(&log.path(), None).expect("a log");
        assert_eq!(all(&mut files, None), "1 ");
        log.write(&["2"]);
        log.rotate("20260101-000001");
        assert_eq!(all(&mut files, None), "2 ");
        log.write(&["3"]);
        log.rotate("20260101-000002");
        log.write(&["4"]);
        assert_eq!(all(&mut files, None), "3 4 ");
        fs::remove_file(log.0.path().join("0.log.20260101-000001")).expect("it is removed");
        log.rotate("20260101-000003");
        log.write(&["5"]);
        assert_eq!(all(&mut files, None), "5 ");
    }

    #[test]
    fn half_a_line_waits_for_its_end() {
        let log = Log(tempfile::tempdir().expect("a folder"));
        fs::write(log.path(), "2026-01-01T00:00:00Z stdout F on").expect("it is written");
        let mut files = Files::open(&log.path(), None).expect("a log");
        assert_eq!(all(&mut files, None), "");
        let mut file = fs::OpenOptions::new().append(true).open(log.path()).expect("a log");
        file.write_all(b"e\n").expect("it is written");
        assert_eq!(all(&mut files, None), "one ");
    }

    #[test]
    fn long_logs_are_counted_in_blocks() {
        let log = Log(tempfile::tempdir().expect("a folder"));
        let lines: Vec<String> = (0..5000).map(|number| format!("line {number}")).collect();
        log.write(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let text = all(&mut Files::open(&log.path(), Some(3000)).expect("a log"), Some(3000));
        assert!(text.starts_with("line 2000 line 2001 ") && text.ends_with("line 4999 "), "{}", &text[..40]);
        let mut piece = Files::open(&log.path(), None).expect("a log");
        let mut printer = Printer::new(false, None, None, None);
        assert!(matches!(piece.print(&mut printer, &mut None), Ok(Reading::Some(piece)) if piece.len() < PIECE + 100));
    }
}
