//! Unpacking a layer into a folder, as overlayfs wants it.
//!
//! Every entry is made relative to its parent folder, which is opened with the layer's folder as the root: links and `..` in an
//! archive cannot lead out of it. What a layer deletes (`.wh.name`) becomes overlayfs' mark for it, a character device 0:0; a folder
//! that hides what is below it (`.wh..wh..opq`) gets overlayfs' attribute.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path, PathBuf},
};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags};
use tar::EntryType;

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Unpacks into a new folder. `lower` are the folders of the layers below, the topmost first.
pub(super) fn unpack(archive: &mut dyn Read, folder: &Path, lower: &[PathBuf]) -> io::Result<()> {
    fs::create_dir(folder)?;
    let root = File::open(folder)?;
    let layer = Layer { root: root.into(), lower };
    let mut archive = tar::Archive::new(archive);
    // Making something in a folder changes the folder's time, so these come last.
    let mut folder_times = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let described = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        layer.make(&mut entry, &path, &mut folder_times).map_err(described)?;
    }
    for (path, times) in folder_times {
        let folder = layer.open(&path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        rustix::fs::futimens(&folder, &times)?;
    }
    Ok(())
}

struct Layer<'a> {
    root: OwnedFd,
    lower: &'a [PathBuf],
}

impl Layer<'_> {
    fn open(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Ok(rustix::fs::openat2(&self.root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)?)
    }

    /// The folder that an entry is to be made in; archives may leave folders out.
    fn parent(&self, path: &Path) -> io::Result<OwnedFd> {
        let folder = path.parent().unwrap_or(Path::new(""));
        match self.open(folder, OFlags::PATH | OFlags::DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let above = self.parent(folder)?;
                if let Some(name) = folder.file_name() {
                    match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o755)) {
                        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                self.open(folder, OFlags::PATH | OFlags::DIRECTORY)
            }
            result => result,
        }
    }

    fn make(
        &self,
        entry: &mut tar::Entry<'_, impl Read>,
        path: &Path,
        folder_times: &mut Vec<(PathBuf, Timestamps)>,
    ) -> io::Result<()> {
        let path: PathBuf =
            path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir)).collect();
        let Some(name) = path.file_name() else {
            // The root itself.
            return set_attributes(entry, self.root.as_fd(), OsStr::new("."));
        };
        let parent = self.parent(&path)?;
        if name.as_bytes() == OPAQUE {
            let folder = self.open(path.parent().unwrap_or(Path::new("")), OFlags::RDONLY | OFlags::DIRECTORY)?;
            return Ok(rustix::fs::fsetxattr(&folder, c"trusted.overlay.opaque", b"y", XattrFlags::empty())?);
        }
        if let Some(deleted) = name.as_bytes().strip_prefix(WHITEOUT) {
            let deleted = OsStr::from_bytes(deleted);
            clear(&parent, deleted)?;
            return Ok(rustix::fs::mknodat(&parent, deleted, FileType::CharacterDevice, Mode::empty(), 0)?);
        }
        let header = entry.header().clone();
        let mode = Mode::from_raw_mode(header.mode()? & 0o7777);
        if header.entry_type() != EntryType::Directory {
            clear(&parent, name)?;
        }
        match header.entry_type() {
            EntryType::Directory => match rustix::fs::mkdirat(&parent, name, mode) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => folder_times.push((path.clone(), times(&header)?)),
                Err(error) => return Err(error.into()),
            },
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let mut file = File::from(rustix::fs::openat(&parent, name, flags, mode)?);
                io::copy(entry, &mut file)?;
            }
            EntryType::Symlink => {
                let target = entry.link_name()?.ok_or_else(|| io::Error::other("a link to nothing"))?;
                rustix::fs::symlinkat(target.as_ref(), &parent, name)?;
            }
            EntryType::Link => {
                let target = entry.link_name()?.ok_or_else(|| io::Error::other("a link to nothing"))?;
                // The attributes are those of the file it is.
                return self.link(&target, &parent, name);
            }
            kind @ (EntryType::Char | EntryType::Block | EntryType::Fifo) => {
                let file_type = match kind {
                    EntryType::Char => FileType::CharacterDevice,
                    EntryType::Block => FileType::BlockDevice,
                    _ => FileType::Fifo,
                };
                let number = |part: io::Result<Option<u32>>| part.map(Option::unwrap_or_default);
                let device = rustix::fs::makedev(number(header.device_major())?, number(header.device_minor())?);
                rustix::fs::mknodat(&parent, name, file_type, mode, device)?;
            }
            // Headers about other entries, and what no file system has.
            _ => return Ok(()),
        }
        set_attributes(entry, parent.as_fd(), name)
    }

    /// A second name for a file of this layer, or, as a copy, for one of a layer below.
    fn link(&self, target: &Path, parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
        let target: PathBuf = target.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        let target_name = target.file_name().ok_or_else(|| io::Error::other("a link to a folder"))?;
        let folder = self.parent(&target)?;
        match rustix::fs::linkat(&folder, target_name, parent, name, AtFlags::empty()) {
            Err(rustix::io::Errno::NOENT) => {}
            result => return Ok(result?),
        }
        let below = self.lower.iter().find_map(|layer| {
            let root = File::open(layer).ok()?;
            rustix::fs::openat2(root, &target, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)
                .ok()
        });
        let below = File::from(below.ok_or_else(|| io::Error::other("a link to a file that does not exist"))?);
        let status = rustix::fs::fstat(&below)?;
        let mode = Mode::from_raw_mode(status.st_mode & 0o7777);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut copy = File::from(rustix::fs::openat(parent, name, flags, mode)?);
        io::copy(&mut &below, &mut copy)?;
        rustix::fs::fchown(&copy, Some(Uid::from_raw(status.st_uid)), Some(Gid::from_raw(status.st_gid)))?;
        Ok(rustix::fs::fchmod(&copy, mode)?)
    }
}

/// A later entry takes the place of an earlier one.
fn clear(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(rustix::io::Errno::ISDIR) => Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?),
        Err(error) => Err(error.into()),
    }
}

fn times(header: &tar::Header) -> io::Result<Timestamps> {
    let time = Timespec { tv_sec: i64::try_from(header.mtime()?).unwrap_or(0), tv_nsec: 0 };
    Ok(Timestamps { last_access: time, last_modification: time })
}

/// Owner, then mode, since a change of owner clears setuid, then attributes and time.
fn set_attributes(
    entry: &mut tar::Entry<'_, impl Read>,
    parent: std::os::fd::BorrowedFd<'_>,
    name: &OsStr,
) -> io::Result<()> {
    let header = entry.header().clone();
    let id =
        |number: u64| u32::try_from(number).map_err(|_| io::Error::other(format!("{number} is not a user or group")));
    let (uid, gid) = (Uid::from_raw(id(header.uid()?)?), Gid::from_raw(id(header.gid()?)?));
    rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    let is_link = header.entry_type() == EntryType::Symlink;
    if !is_link {
        rustix::fs::chmodat(parent, name, Mode::from_raw_mode(header.mode()? & 0o7777), AtFlags::empty())?;
    }
    let attributes: Vec<(String, Vec<u8>)> = entry
        .pax_extensions()?
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|extension| {
            let name = extension.key().ok()?.strip_prefix("SCHILY.xattr.")?;
            Some((name.to_owned(), extension.value_bytes().to_vec()))
        })
        .collect();
    if !attributes.is_empty() && !is_link {
        let file =
            rustix::fs::openat(parent, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        for (name, value) in attributes {
            match rustix::fs::fsetxattr(&file, name, &value, XattrFlags::empty()) {
                // The file system has no such attributes; the file is of use without them.
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(rustix::fs::utimensat(parent, name, &times(&header)?, AtFlags::SYMLINK_NOFOLLOW)?)
}
