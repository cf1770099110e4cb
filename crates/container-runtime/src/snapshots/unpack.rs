//! Unpacking a layer into a folder, as overlayfs wants it.
//!
//! Every entry is made relative to its parent folder, which is opened with the layer's folder as the root: links and `..` in an
//! archive cannot lead out of it. Nothing that an archive has made is followed or opened, unless it is a file or a folder: a link
//! would lead to the node, and a device would be the node's. What a layer deletes (`.wh.name`) becomes overlayfs' mark for it, a
//! character device 0:0; a folder that hides what is below it (`.wh..wh..opq`) gets overlayfs' attribute.

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

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid, XattrFlags};
use tar::EntryType;

use crate::removal::remove_at;

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Unpacks into a new folder. `lower` are the folders of the layers below, the topmost first.
pub(super) fn unpack(archive: &mut dyn Read, folder: &Path, lower: &[PathBuf]) -> io::Result<()> {
    fs::create_dir(folder)?;
    let root = File::open(folder)?;
    // As it is where the archive does not say; whatever this process's mask is.
    rustix::fs::fchmod(&root, Mode::from_raw_mode(0o755))?;
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
        // Another entry may have taken its place.
        if let Ok(folder) = layer.open(&path, OFlags::RDONLY | OFlags::DIRECTORY) {
            rustix::fs::futimens(&folder, &times)?;
        }
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

    /// The folder that an entry is to be made in. Archives may leave folders out: these are as the layers below have them.
    fn parent(&self, path: &Path) -> io::Result<OwnedFd> {
        let folder = path.parent().unwrap_or(Path::new(""));
        match self.open(folder, OFlags::PATH | OFlags::DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let name = folder.file_name().ok_or(error)?;
                let above = self.parent(folder)?;
                if make_folder(&above, name)? {
                    let below = self.below(folder)?.map(|(_, status)| status);
                    let below = below.filter(|status| kind(status) == FileType::Directory);
                    let (uid, gid, mode) =
                        below.map_or((0, 0, 0o755), |status| (status.st_uid, status.st_gid, status.st_mode & 0o7777));
                    set_owner_and_mode(above.as_fd(), name, uid, gid, Some(mode))?;
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
            return hide_below(&self.open(path.parent().unwrap_or(Path::new("")), OFlags::RDONLY | OFlags::DIRECTORY)?);
        }
        if let Some(deleted) = name.as_bytes().strip_prefix(WHITEOUT) {
            return delete(&parent, OsStr::from_bytes(deleted));
        }
        let header = entry.header().clone();
        let mode = Mode::from_raw_mode(header.mode()? & 0o7777);
        if header.entry_type() != EntryType::Directory {
            // A later entry takes the place of an earlier one.
            remove_at(parent.as_fd(), name)?;
        }
        match header.entry_type() {
            EntryType::Directory => {
                make_folder(&parent, name)?;
                folder_times.push((path.clone(), times(&header)?));
            }
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
            EntryType::Fifo => rustix::fs::mknodat(&parent, name, FileType::Fifo, mode, 0)?,
            kind @ (EntryType::Char | EntryType::Block) => {
                let is_char = kind == EntryType::Char;
                let file_type = if is_char { FileType::CharacterDevice } else { FileType::BlockDevice };
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
        let folder = self.open(target.parent().unwrap_or(Path::new("")), OFlags::PATH | OFlags::DIRECTORY);
        let linked =
            folder.and_then(|folder| Ok(rustix::fs::linkat(&folder, target_name, parent, name, AtFlags::empty())?));
        match linked {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
        let (root, status) =
            self.below(&target)?.ok_or_else(|| io::Error::other("a link to a file that does not exist"))?;
        let mode = Mode::from_raw_mode(status.st_mode & 0o7777);
        match kind(&status) {
            // Nothing else is opened here: a device would be one of the node's.
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let below = rustix::fs::openat2(root, &target, flags, Mode::empty(), ResolveFlags::IN_ROOT)?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let mut copy = File::from(rustix::fs::openat(parent, name, flags, mode)?);
                io::copy(&mut File::from(below), &mut copy)?;
            }
            FileType::Directory => return Err(io::Error::other("a link to a folder")),
            FileType::Symlink => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let link = rustix::fs::openat2(root, &target, flags, Mode::empty(), ResolveFlags::IN_ROOT)?;
                rustix::fs::symlinkat(rustix::fs::readlinkat(link, c"", Vec::new())?, parent, name)?;
                return set_owner_and_mode(parent.as_fd(), name, status.st_uid, status.st_gid, None);
            }
            other => rustix::fs::mknodat(parent, name, other, mode, status.st_rdev)?,
        }
        set_owner_and_mode(parent.as_fd(), name, status.st_uid, status.st_gid, Some(status.st_mode & 0o7777))
    }

    /// What a path is in the layers below, and the folder of the layer that says so. A link at its end is a link.
    fn below(&self, path: &Path) -> io::Result<Option<(File, Stat)>> {
        for layer in self.lower {
            let root = File::open(layer)?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                Ok(found) => {
                    let status = rustix::fs::fstat(found)?;
                    return Ok(Some((root, status)).filter(|_| !is_mark(&status)));
                }
                Err(rustix::io::Errno::NOENT) => {}
                // Something above it was deleted or replaced.
                Err(rustix::io::Errno::NOTDIR) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}

fn kind(status: &Stat) -> FileType {
    FileType::from_raw_mode(status.st_mode)
}

/// overlayfs' mark for what is deleted.
fn is_mark(status: &Stat) -> bool {
    kind(status) == FileType::CharacterDevice && status.st_rdev == 0
}

fn hide_below(folder: &OwnedFd) -> io::Result<()> {
    Ok(rustix::fs::fsetxattr(folder, c"trusted.overlay.opaque", b"y", XattrFlags::empty())?)
}

/// What a layer deletes is below it. What it has itself under that name stays, wherever in the archive it comes.
fn delete(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    if matches!(name.as_bytes(), b"" | b"." | b"..") {
        return Err(io::Error::other("a deletion of nothing"));
    }
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(rustix::io::Errno::NOENT) => {
            Ok(rustix::fs::mknodat(parent, name, FileType::CharacterDevice, Mode::empty(), 0)?)
        }
        Ok(status) if kind(&status) == FileType::Directory => hide_below(&open_folder(parent, name)?),
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn open_folder(parent: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

/// Makes a folder in the place of anything else, and tells whether it is new. One that the layer has deleted before has nothing of
/// those below.
fn make_folder(parent: &OwnedFd, name: &OsStr) -> io::Result<bool> {
    let make = || rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755));
    match make() {
        Err(rustix::io::Errno::EXIST) => {}
        result => return Ok(result.map(|()| true)?),
    }
    let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if kind(&found) == FileType::Directory {
        return Ok(false);
    }
    rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
    make()?;
    if is_mark(&found) {
        hide_below(&open_folder(parent, name)?)?;
    }
    Ok(true)
}

/// The owner first, since a change of it clears setuid. A link has no mode: one must not be given for it, because it would be set
/// on what the link leads to, on the node.
fn set_owner_and_mode(
    parent: std::os::fd::BorrowedFd<'_>,
    name: &OsStr,
    uid: u32,
    gid: u32,
    mode: Option<u32>,
) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    match mode {
        Some(mode) => Ok(rustix::fs::chmodat(parent, name, Mode::from_raw_mode(mode), AtFlags::empty())?),
        None => Ok(()),
    }
}

fn times(header: &tar::Header) -> io::Result<Timestamps> {
    let time = Timespec { tv_sec: i64::try_from(header.mtime()?).unwrap_or(0), tv_nsec: 0 };
    Ok(Timestamps { last_access: time, last_modification: time })
}

/// Owner, mode, attributes and time, as the entry has them.
fn set_attributes(
    entry: &mut tar::Entry<'_, impl Read>,
    parent: std::os::fd::BorrowedFd<'_>,
    name: &OsStr,
) -> io::Result<()> {
    let header = entry.header().clone();
    let id =
        |number: u64| u32::try_from(number).map_err(|_| io::Error::other(format!("{number} is not a user or group")));
    let mode = match header.entry_type() {
        EntryType::Symlink => None,
        _ => Some(header.mode()? & 0o7777),
    };
    set_owner_and_mode(parent, name, id(header.uid()?)?, id(header.gid()?)?, mode)?;
    // Others must not be opened: a device is one of the node's, and a pipe waits for a writer.
    let has_content = matches!(
        header.entry_type(),
        EntryType::Directory | EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse
    );
    let attributes = if has_content { attributes(entry)? } else { Vec::new() };
    if !attributes.is_empty() {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(parent, name, flags, Mode::empty())?;
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

/// Extended attributes. Those by which overlayfs knows its layers are not the image's to set.
fn attributes(entry: &mut tar::Entry<'_, impl Read>) -> io::Result<Vec<(String, Vec<u8>)>> {
    let is_ours = |name: &str| ["trusted.overlay.", "user.overlay."].iter().any(|ours| name.starts_with(ours));
    let extensions = entry.pax_extensions()?.into_iter().flatten().flatten();
    let named = extensions.filter_map(|extension| {
        let name = extension.key().ok()?.strip_prefix("SCHILY.xattr.").filter(|name| !is_ours(name))?;
        Some((name.to_owned(), extension.value_bytes().to_vec()))
    });
    Ok(named.collect())
}
