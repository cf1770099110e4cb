//! A part of a volume, mounted by itself. Whoever writes into the volume may put links in the way, at any moment; nothing
//! outside of the volume is ever mounted or made.
//!
//! The kernel looks up the path without leaving the volume, and what it found is mounted by its handle. Containers get
//! that mount, not the path.

use std::{
    fs, io,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::{Component, Path},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, fchmod, mkdirat, openat, openat2, statat},
    io::Errno,
    mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree},
};

use super::folder::mounts_below;

const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Whether a path can be one in a volume; why not, otherwise.
pub(super) fn check(path: &str) -> Result<(), String> {
    if path.starts_with('/') {
        return Err(format!("error SubPath `{path}` must not be an absolute path"));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(format!("unable to provision SubPath `{path}`: must not contain '..'"));
    }
    Ok(())
}

/// Finds the path in the volume, and makes folders where there is nothing.
pub(super) fn find_or_make(volume: &Path, path: &str) -> io::Result<OwnedFd> {
    let root = openat(CWD, volume, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    match openat2(&root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), INSIDE) {
        Err(Errno::NOENT) => make(&root, path, Mode::from_raw_mode(fs::metadata(volume)?.mode())),
        found => Ok(found?),
    }
}

/// Folders have the mode of the volume's.
fn make(root: &OwnedFd, path: &str, mode: Mode) -> io::Result<OwnedFd> {
    let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut current = openat2(root, ".", folder, Mode::empty(), INSIDE)?;
    let mut so_far = std::path::PathBuf::new();
    for part in Path::new(path).components() {
        let Component::Normal(part) = part else { continue };
        so_far.push(part);
        current = match openat2(root, &so_far, folder, Mode::empty(), INSIDE) {
            Err(Errno::NOENT) => {
                match mkdirat(&current, part, mode) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                let made = openat(&current, part, folder | OFlags::NOFOLLOW, Mode::empty())?;
                fchmod(&made, mode)?;
                made
            }
            found => found?,
        };
    }
    Ok(current)
}

/// Mounts what was found at `target`, in the place of what is mounted there.
pub(super) fn mount(found: &OwnedFd, target: &Path) -> io::Result<()> {
    if mounts_below(target)?.iter().any(|mount| mount == target) {
        rustix::mount::unmount(target, UnmountFlags::DETACH)?;
    }
    let kind = FileType::from_raw_mode(statat(found, c"", AtFlags::EMPTY_PATH)?.st_mode);
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    match (fs::symlink_metadata(target), kind == FileType::Directory) {
        (Ok(metadata), is_folder) if metadata.is_dir() == is_folder => {}
        (Ok(metadata), is_folder) => {
            if metadata.is_dir() {
                fs::remove_dir(target)?
            } else {
                fs::remove_file(target)?
            }
            make_target(target, is_folder)?;
        }
        (Err(_), is_folder) => make_target(target, is_folder)?,
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(found, c"", flags | OpenTreeFlags::AT_RECURSIVE)?;
    Ok(move_mount(&tree, c"", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

fn make_target(target: &Path, is_folder: bool) -> io::Result<()> {
    if is_folder { fs::create_dir(target) } else { fs::File::create(target).map(drop) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn paths_that_lead_out_are_refused() {
        assert_eq!(check("/etc"), Err("error SubPath `/etc` must not be an absolute path".into()));
        assert_eq!(check("a/../b"), Err("unable to provision SubPath `a/../b`: must not contain '..'".into()));
        assert_eq!(check("a..b/c"), Ok(()));
    }

    #[test]
    fn links_do_not_lead_out() {
        let (volume, outside) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        symlink(outside.path(), volume.path().join("absolute")).expect("a link");
        symlink("../..", volume.path().join("up")).expect("a link");
        symlink(
            format!("../{}", outside.path().file_name().expect("a name").to_string_lossy()),
            volume.path().join("beside"),
        )
        .expect("a link");
        for path in ["absolute", "absolute/new", "up", "up/etc", "beside/new"] {
            find_or_make(volume.path(), path).expect_err(path);
        }
        assert_eq!(fs::read_dir(outside.path()).expect("a folder").count(), 0);
        fs::create_dir(volume.path().join("real")).expect("a folder");
        symlink("real", volume.path().join("inner")).expect("a link");
        find_or_make(volume.path(), "inner/new").expect("it stays inside");
        assert!(volume.path().join("real/new").is_dir());
    }

    #[test]
    fn what_is_missing_is_made_with_the_volumes_mode() {
        let volume = tempfile::tempdir().expect("a folder");
        fs::set_permissions(volume.path(), fs::Permissions::from_mode(0o777)).expect("a mode");
        find_or_make(volume.path(), "a/b").expect("it is made");
        let mode =
            |path: &str| fs::metadata(volume.path().join(path)).expect("it is there").permissions().mode() & 0o7777;
        assert_eq!((mode("a"), mode("a/b")), (0o777, 0o777));
        fs::write(volume.path().join("file"), "x").expect("a file");
        find_or_make(volume.path(), "file").expect("it is there");
        find_or_make(volume.path(), "file/below").expect_err("a file has nothing below");
    }
}
