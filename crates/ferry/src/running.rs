//! Which process runs the cluster of a data folder: a file names it, and the process holds it locked for as long as it
//! lives. A lock ends with its process, however that ends, so a file that nobody has locked names nobody.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use rustix::process::Pid;

/// Names this process for as long as it runs.
pub struct Running {
    path: PathBuf,
    _locked: File,
}

impl Running {
    /// A data folder has one cluster at a time.
    pub fn begin(data_dir: &Path) -> anyhow::Result<Self> {
        let path = file(data_dir);
        let cannot = || format!("cannot write {}", path.display());
        let mut locked = File::options().create(true).truncate(false).write(true).open(&path).with_context(cannot)?;
        match locked.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "a cluster is running in {folder} already\n\
                 hint: stop it with: ferry down --data-dir {folder}; or name another folder with --data-dir",
                folder = data_dir.display()
            ),
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        locked
            .set_len(0)
            .and_then(|()| locked.write_all(std::process::id().to_string().as_bytes()))
            .with_context(cannot)?;
        Ok(Self { path, _locked: locked })
    }
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
        Err(TryLockError::WouldBlock) => {
            let text = fs::read_to_string(&path).with_context(cannot)?;
            text.trim().parse().ok().and_then(Pid::from_raw).map(Some).with_context(cannot)
        }
    }
}

fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("ferry.pid")
}
