//! The group of a volume's files: `fsGroup`.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt, lchown},
    path::Path,
};

/// New files get the group of their folder.
pub(super) const SET_GROUP: u32 = 0o2000;
const READ: u32 = 0o440;
const ENTER: u32 = 0o110;

/// Gives everything below a folder to a group, which may read it.
pub(super) fn give_to_group(path: &Path, group: u32) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            give_to_group(&entry?.path(), group)?;
        }
    }
    lchown(path, None, Some(group))?;
    // A link has no mode of its own.
    if metadata.is_symlink() {
        return Ok(());
    }
    let more = if metadata.is_dir() { READ | ENTER | SET_GROUP } else { READ };
    fs::set_permissions(path, fs::Permissions::from_mode(metadata.mode() & 0o7777 | more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_can_read_what_it_is_given() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root gives files to groups");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "x").expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).expect("a mode");
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).expect("a link");
        let before = fs::metadata("/etc/passwd").expect("a file").gid();
        give_to_group(folder.path(), 4242).expect("it is given");
        let of = |name: &str| fs::symlink_metadata(folder.path().join(name)).expect("it is there");
        assert_eq!((of("file").gid(), of("file").mode() & 0o7777), (4242, 0o440));
        assert_eq!((of("").gid(), of("").mode() & SET_GROUP), (4242, SET_GROUP));
        assert_eq!(of("link").gid(), 4242);
        assert_eq!(fs::metadata("/etc/passwd").expect("a file").gid(), before);
    }
}
