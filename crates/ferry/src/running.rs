//! Which process runs the cluster of a data folder: a file names it, and the process holds it locked for as long as it
//! lives. A lock ends with its process, however that ends, so a file that nobody has locked names nobody.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail};
use rustix::process::Pid;

/// In the data folder.
pub const FILE: &str = "ferry.pid";
const HINT: &str = "hint: name a folder that may be written with --data-dir";
/// How long anything takes that another process does with the file, except to hold it locked.
const A_MOMENT: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Names this process for as long as it runs.
pub struct Running {
    path: PathBuf,
    _locked: File,
}

impl Running {
    /// A data folder has one cluster at a time. The folder is made if there is none.
    pub fn begin(data_dir: &Path) -> anyhow::Result<Self> {
        make_folder(data_dir)?;
        let path = file(data_dir);
        let cannot = |error: io::Error| anyhow!("cannot write {}: {error}\n{HINT}", path.display());
        let since = Instant::now();
        let mut locked = loop {
            let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(cannot)?;
            match file.try_lock() {
                // Whoever had the lock has removed the file on leaving, perhaps after it was opened here.
                Ok(()) if is_at(&file, &path) => break file,
                Ok(()) => {}
                // Who asks whether a cluster runs holds the lock for a moment, too.
                Err(TryLockError::WouldBlock) if since.elapsed() < A_MOMENT => thread::sleep(LOOK_EVERY),
                Err(TryLockError::WouldBlock) => bail!(
                    "a cluster is running in {folder} already\n\
                     hint: stop it with: ferry down --data-dir {folder}; or name another folder with --data-dir",
                    folder = data_dir.display()
                ),
                Err(TryLockError::Error(error)) => return Err(cannot(error)),
            }
        };
        locked.set_len(0).and_then(|()| locked.write_all(std::process::id().to_string().as_bytes())).map_err(cannot)?;
        Ok(Self { path, _locked: locked })
    }
}

/// Makes the data folder, if there is none. It is nobody else's business.
pub fn make_folder(data_dir: &Path) -> anyhow::Result<()> {
    let above = data_dir.parent().map_or(Ok(()), fs::create_dir_all);
    let made = above.and_then(|()| match fs::DirBuilder::new().mode(0o700).create(data_dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && data_dir.is_dir() => Ok(()),
        made => made,
    });
    made.map_err(|error| anyhow!("cannot make the data folder {}: {error}\n{HINT}", data_dir.display()))
}

/// Whether a file that is open is the one that a path leads to.
fn is_at(file: &File, path: &Path) -> bool {
    let which = |metadata: io::Result<fs::Metadata>| metadata.ok().map(|metadata| (metadata.dev(), metadata.ino()));
    which(file.metadata()) == which(fs::metadata(path))
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The process that runs the cluster of a data folder, if one does.
pub fn process(data_dir: &Path) -> anyhow::Result<Option<Pid>> {
    let path = file(data_dir);
    let cannot = || format!("cannot find out from {} who runs the cluster", path.display());
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(cannot),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error).with_context(cannot),
        Err(TryLockError::WouldBlock) => named(&path).map(Some).with_context(cannot),
    }
}

/// The process that is written down, which may just be about to write that.
fn named(path: &Path) -> Option<Pid> {
    let since = Instant::now();
    loop {
        let named = fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).and_then(Pid::from_raw);
        if named.is_some() || since.elapsed() > A_MOMENT {
            return named;
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn file(data_dir: &Path) -> PathBuf {
    data_dir.join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_process_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        assert_eq!(process(&data).expect("nobody"), None);
        let first = Running::begin(&data).expect("the first one");
        let own = Pid::from_raw(std::process::id().cast_signed());
        assert_eq!(process(&data).expect("it is known"), own);
        let refused = Running::begin(&data).err().expect("it is taken").to_string();
        assert!(refused.contains("hint: stop it with: ferry down"), "{refused}");
        drop(first);
        assert_eq!(process(&data).expect("nobody any more"), None);
        drop(Running::begin(&data).expect("the next one"));
    }

    /// A file that its owner removed is not the one that the next process finds, whoever has it open.
    #[test]
    fn a_file_that_was_removed_is_nobodys() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = file(folder.path());
        let old = File::create(&path).expect("a file");
        assert!(is_at(&old, &path));
        fs::remove_file(&path).expect("removed");
        assert!(!is_at(&old, &path));
        let _new = File::create(&path).expect("a file");
        assert!(!is_at(&old, &path));
    }
}
