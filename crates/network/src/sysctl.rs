//! Settings of the kernel that several parts of Ferry need, and that go back to what they were when nobody needs them.
//!
//! Who wants which setting, and what it was before, is written under `/run/ferry` for each network namespace, before it is
//! changed. A machine that starts anew has its settings back by itself, so what an earlier boot wrote does not count.
//! Owners are files or folders: one that is gone wants nothing any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::{Error, RUNTIME, is_at, remove_if_empty};

#[derive(Default, Serialize, Deserialize)]
struct Wanted {
    before: String,
    by: BTreeSet<PathBuf>,
}

/// The file of this network namespace, locked.
struct Book {
    path: PathBuf,
    file: File,
    settings: BTreeMap<String, Wanted>,
}

/// Sets a setting under `/proc/sys`, such as `net/ipv4/ip_forward`, until `owner` releases it.
pub(crate) fn want(owner: &Path, name: &str, value: &str) -> Result<(), Error> {
    let mut book = Book::open()?;
    let now = read(name)?;
    let wanted = book.settings.entry(name.to_owned()).or_default();
    wanted.by.retain(|owner| owner.exists());
    if wanted.by.is_empty() {
        wanted.before.clone_from(&now);
    }
    if wanted.by.insert(owner.to_owned()) {
        book.save()?;
    }
    if now == value { Ok(()) } else { write(name, value) }
}

/// Takes back every wish of an owner; what nobody else wants becomes what it was.
pub(crate) fn release(owner: &Path) -> Result<(), Error> {
    let mut book = Book::open()?;
    for (name, wanted) in &mut book.settings {
        let was_wanted = wanted.by.remove(owner);
        wanted.by.retain(|owner| owner.exists());
        if was_wanted && wanted.by.is_empty() {
            write(name, &wanted.before)?;
        }
    }
    book.settings.retain(|_, wanted| !wanted.by.is_empty());
    if !book.settings.is_empty() {
        return book.save();
    }
    fs::remove_file(&book.path).map_err(failed(&book.path))?;
    book.path.parent().into_iter().for_each(remove_if_empty);
    Ok(())
}

impl Book {
    fn open() -> Result<Self, Error> {
        let boot = Path::new("/proc/sys/kernel/random/boot_id");
        let boot = fs::read_to_string(boot).map_err(failed(boot))?;
        let namespace = Path::new("/proc/thread-self/ns/net");
        let namespace = fs::metadata(namespace).map_err(failed(namespace))?.ino();
        let folder = Path::new(RUNTIME).join("sysctl");
        let path = folder.join(format!("{}-{namespace}", boot.trim()));
        loop {
            let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let mut file = match fs::create_dir_all(&folder).and_then(|()| open()) {
                // Another one has just removed the folder, because it was empty.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened.map_err(failed(&path))?,
            };
            flock(&file, FlockOperation::LockExclusive).map_err(|error| failed(&path)(error.into()))?;
            if !is_at(&file, &path) {
                // Whoever had the lock has removed the file.
                continue;
            }
            let mut text = String::new();
            file.read_to_string(&mut text).map_err(failed(&path))?;
            let settings = serde_json::from_str(&text).unwrap_or_default();
            return Ok(Self { path, file, settings });
        }
    }

    fn save(&mut self) -> Result<(), Error> {
        let text = serde_json::to_vec(&self.settings).unwrap_or_default();
        let mut write = || {
            self.file.seek(SeekFrom::Start(0))?;
            self.file.set_len(0)?;
            self.file.write_all(&text)
        };
        write().map_err(failed(&self.path))
    }
}

fn read(name: &str) -> Result<String, Error> {
    let path = Path::new("/proc/sys").join(name);
    fs::read_to_string(&path).map(|text| text.trim().to_owned()).map_err(failed(&path))
}

/// Sets a setting that vanishes with what it belongs to, such as a link.
pub(crate) fn write(name: &str, value: &str) -> Result<(), Error> {
    let path = Path::new("/proc/sys").join(name);
    fs::write(&path, value).map_err(failed(&path))
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error(format!("{}: {error}", path.display()))
}
