//! Files of a volume, read on behalf of the pod that wrote them: whatever links it has, nothing outside is read.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use k8s_openapi::api::core::v1::Pod;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use super::paths;

/// A file of variables is small.
const LONGEST: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) enum ReadError {
    /// The pod has no such volume, or it is not one that its containers write.
    NoVolume,
    File(String),
}

/// A file of one of the pod's emptyDir volumes.
pub(crate) async fn read_file(root: &Path, pod: &Pod, volume: &str, path: &str) -> Result<String, ReadError> {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let found = volumes.any(|known| known.name == volume && known.empty_dir.is_some());
    let uid = pod.metadata.uid.as_deref().filter(|_| found).ok_or(ReadError::NoVolume)?;
    let (folder, path) = (paths::volume(root, uid, "empty-dir", volume), path.to_owned());
    let read = tokio::task::spawn_blocking(move || read_within(&folder, &path)).await;
    read.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(|error| ReadError::File(error.to_string()))
}

fn read_within(folder: &Path, path: &str) -> io::Result<String> {
    let folder = openat(CWD, folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // A pipe in the file's place must not keep the agent waiting.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(openat2(&folder, path, flags, Mode::empty(), resolve)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(io::Error::other("it is too long"));
    }
    Ok(text)
}
