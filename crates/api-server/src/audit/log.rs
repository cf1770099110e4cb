//! Events in a file, a line each, with the file moved aside when it is large.
//!
//! Old files are named `<name>-<time><extension>`, as Kubernetes names them; there are at most so many of them and none is
//! older than so many days.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use flate2::{Compression, write::GzEncoder};
use object_model::time::Time;

use super::{backend::Sink, event::Event};

const MEGABYTE: u64 = 1 << 20;
const DAY: Duration = Duration::from_secs(86_400);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Json,
    Legacy,
}

#[derive(Clone, Debug, Default)]
pub struct LogSettings {
    /// `-` is standard output.
    pub path: PathBuf,
    pub format: Format,
    /// In megabytes; zero is no limit. So are the next two.
    pub max_size: u64,
    pub max_backups: usize,
    pub max_age_days: u32,
    pub compress: bool,
}

pub struct Log {
    format: Format,
    /// Away while a thread writes to it.
    out: Option<Output>,
}

enum Output {
    Standard,
    File(Rotated),
}

impl Log {
    pub fn open(settings: LogSettings) -> io::Result<Self> {
        let format = settings.format;
        let out =
            if settings.path == Path::new("-") { Output::Standard } else { Output::File(Rotated::open(settings)?) };
        Ok(Self { format, out: Some(out) })
    }
}

#[async_trait]
impl Sink for Log {
    fn name(&self) -> &'static str {
        "log"
    }

    async fn write(&mut self, events: &[Arc<Event>]) -> Result<(), String> {
        let mut out = self.out.take().ok_or("an earlier write did not come back")?;
        let (format, events) = (self.format, events.to_vec());
        let written = tokio::task::spawn_blocking(move || {
            // One line that cannot be written takes no other with it.
            let result = events.iter().map(|event| out.line(&encode(event, format))).fold(Ok(()), Result::and);
            (result.and(out.flush()), out)
        });
        let (result, out) = written.await.map_err(|e| e.to_string())?;
        self.out = Some(out);
        result.map_err(|e| e.to_string())
    }
}

fn encode(event: &Event, format: Format) -> Vec<u8> {
    let mut line = match format {
        Format::Json => serde_json::to_vec(event).unwrap_or_default(),
        Format::Legacy => event.legacy().into_bytes(),
    };
    line.push(b'\n');
    line
}

impl Output {
    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Output::Standard => io::stdout().write_all(line),
            Output::File(file) => file.line(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Standard => io::stdout().flush(),
            Output::File(file) => file.out.flush(),
        }
    }
}

struct Rotated {
    settings: LogSettings,
    out: io::BufWriter<File>,
    size: u64,
    /// The file should have been moved aside and could not be.
    stuck: bool,
}

impl Rotated {
    fn open(settings: LogSettings) -> io::Result<Self> {
        if let Some(folder) = settings.path.parent().filter(|f| !f.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&settings.path)?;
        let size = file.metadata()?.len();
        Ok(Self { settings, out: io::BufWriter::new(file), size, stuck: false })
    }

    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        let limit = self.settings.max_size.saturating_mul(MEGABYTE);
        if limit > 0 && self.size > 0 && self.size + line.len() as u64 > limit {
            // A file that is too long is better than events that are lost; the next line tries again.
            let moved = self.rotate();
            if let (Err(error), false) = (&moved, self.stuck) {
                tracing::warn!(%error, path = %self.settings.path.display(), "the audit log cannot be moved aside");
            }
            self.stuck = moved.is_err();
        }
        self.out.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }

    /// Moves the file aside and opens another one. Until that is open, lines go where they went before.
    fn rotate(&mut self) -> io::Result<()> {
        self.out.flush()?;
        let aside = self.aside();
        let moved = match fs::rename(&self.settings.path, &aside) {
            Ok(()) => Some(aside),
            // Somebody else moved it, or an earlier attempt came this far.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        *self = Self::open(self.settings.clone())?;
        // What went before is not worth failing for what comes now.
        if let Err(error) = self.tidy(moved.as_deref()) {
            tracing::warn!(%error, "old audit logs could not be tidied up");
        }
        Ok(())
    }

    /// A name that no old file has.
    fn aside(&self) -> PathBuf {
        let mut now = Time::from(SystemTime::now());
        loop {
            let stamp = now.micro().replace(':', "-");
            let stamp = &stamp[..stamp.len() - 4];
            let path = self.settings.path.with_file_name(format!("{}-{stamp}{}", self.stem(), self.extension()));
            if !path.exists() && !with_gz(&path).exists() {
                return path;
            }
            now = now.plus(object_model::time::Duration::from_nanos(1_000_000));
        }
    }

    fn stem(&self) -> String {
        self.settings.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn extension(&self) -> String {
        self.settings.path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default()
    }

    fn tidy(&self, newest: Option<&Path>) -> io::Result<()> {
        if let Some(newest) = newest.filter(|_| self.settings.compress) {
            let mut packed = GzEncoder::new(
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(with_gz(newest))?,
                Compression::default(),
            );
            io::copy(&mut File::open(newest)?, &mut packed)?;
            packed.finish()?;
            fs::remove_file(newest)?;
        }
        let folder = self.settings.path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (start, end) = (format!("{}-", self.stem()), self.extension());
        let mut old: Vec<PathBuf> = fs::read_dir(folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                name.starts_with(&start) && name.trim_end_matches(".gz").ends_with(&end)
            })
            .collect();
        // Their names sort by time, newest last.
        old.sort();
        let surplus = match self.settings.max_backups {
            0 => 0,
            most => old.len().saturating_sub(most),
        };
        let oldest = SystemTime::now().checked_sub(DAY * self.settings.max_age_days).unwrap_or(SystemTime::UNIX_EPOCH);
        for (i, path) in old.iter().enumerate() {
            let aged = self.settings.max_age_days > 0 && fs::metadata(path)?.modified()? < oldest;
            if i < surplus || aged {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

fn with_gz(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn large_files_move_aside_and_few_stay() {
        for compress in [false, true] {
            let folder = tempfile::tempdir().expect("a folder");
            let settings = LogSettings {
                path: folder.path().join("sub/audit.log"),
                max_size: 1,
                max_backups: 2,
                compress,
                ..LogSettings::default()
            };
            let mut log = Rotated::open(settings).expect("opened");
            let line = vec![b'x'; 400 << 10];
            for _ in 0..9 {
                log.line(&line).expect("written");
            }
            log.out.flush().expect("flushed");
            let names = files(&folder.path().join("sub"));
            assert_eq!(names.len(), 3, "{names:?}");
            assert!(names.iter().filter(|n| n.starts_with("audit-20")).count() == 2, "{names:?}");
            assert_eq!(names.iter().filter(|n| n.ends_with(".log.gz")).count(), if compress { 2 } else { 0 });
            assert_eq!(log.size, 400 << 10, "nine lines of 400 KiB, two in a file");
        }
    }

    /// How many lines there are in all files of a folder.
    fn lines(folder: &Path) -> usize {
        let texts = files(folder).into_iter().map(|name| fs::read(folder.join(name)).expect("text"));
        texts.map(|text| text.iter().filter(|byte| **byte == b'\n').count()).sum()
    }

    #[test]
    fn what_cannot_be_moved_aside_is_written_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let (sub, away) = (folder.path().join("sub"), folder.path().join("away"));
        let path = sub.join("audit.log");
        let settings = LogSettings { path: path.clone(), max_size: 1, ..LogSettings::default() };
        let mut log = Rotated::open(settings).expect("opened");
        let mut line = vec![b'x'; 700 << 10];
        line.push(b'\n');
        let mut write = |times: usize| {
            (0..times).for_each(|_| log.line(&line).expect("written"));
            log.out.flush().expect("flushed");
        };
        write(1);
        // Where its folder was there is a file for a while.
        fs::rename(&sub, &away).expect("moved");
        fs::write(&sub, "").expect("written");
        write(3);
        fs::remove_file(&sub).expect("removed");
        fs::rename(&away, &sub).expect("moved");
        assert_eq!((files(&sub).len(), lines(&sub)), (1, 4));
        // Then it is moved, and what others move or remove is no trouble either.
        write(1);
        assert_eq!((files(&sub).len(), lines(&sub)), (2, 5));
        fs::rename(&path, sub.join("mine")).expect("moved");
        write(1);
        assert_eq!((files(&sub).len(), lines(&sub)), (3, 6));
        fs::remove_dir_all(&sub).expect("removed");
        write(2);
        assert_eq!((files(&sub).len(), lines(&sub)), (2, 2));
    }

    #[test]
    fn without_a_limit_nothing_moves_and_what_was_there_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        fs::write(&path, "before\n").expect("written");
        let mut log = Rotated::open(LogSettings { path: path.clone(), ..LogSettings::default() }).expect("opened");
        log.line(&vec![b'x'; 3 << 20]).expect("written");
        log.line(b"last\n").expect("written");
        log.out.flush().expect("flushed");
        assert_eq!(files(folder.path()), ["audit.log"]);
        assert!(fs::read(&path).expect("text").starts_with(b"before\nxxx"));
    }
}
