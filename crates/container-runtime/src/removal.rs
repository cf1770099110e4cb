//! Removing folders that others have filled: images, and programs in containers.
//!
//! These may nest folders deeper than a path may be long, than a thread has stack and than a process has descriptors. So nothing
//! descends here: what is in the folders of the top level comes up to it, level by level, until there is nothing left.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, RenameFlags},
    io::Errno,
};

/// Removes a file, or a folder with all that is in it. What is not there is no error; links are not followed.
pub fn remove_all(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} has no name", path.display())));
    };
    match File::open(parent) {
        Ok(parent) => remove_at(parent.as_fd(), name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The same, of what is in a folder that is open.
pub(crate) fn remove_at(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    if removed(parent, name)? {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    let mut numbers = 0u64..;
    while !removed(parent, name)? {
        for_each(top.as_fd(), |name| {
            if removed(top.as_fd(), name)? {
                return Ok(());
            }
            let folder = rustix::fs::openat(&top, name, flags, Mode::empty())?;
            for_each(folder.as_fd(), |inner| {
                while !removed(folder.as_fd(), inner)? {
                    // Somebody else's folder may have the name already.
                    let up = format!("{}", numbers.next().unwrap_or_default());
                    match rustix::fs::renameat_with(&folder, inner, &top, up, RenameFlags::NOREPLACE) {
                        Err(Errno::EXIST) => {}
                        result => return Ok(result?),
                    }
                }
                Ok(())
            })
        })?;
    }
    Ok(())
}

/// Removes what is not a folder with something in it, and tells whether it is gone.
fn removed(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<bool> {
    for flags in [AtFlags::empty(), AtFlags::REMOVEDIR] {
        match rustix::fs::unlinkat(parent, name, flags) {
            Ok(()) | Err(Errno::NOENT) => return Ok(true),
            Err(Errno::ISDIR) => {}
            Err(Errno::NOTEMPTY) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

fn for_each(folder: BorrowedFd<'_>, mut work: impl FnMut(&OsStr) -> io::Result<()>) -> io::Result<()> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        match entry.file_name().to_bytes() {
            b"." | b".." => {}
            name => work(OsStr::from_bytes(name))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn everything_in_a_folder_goes_and_nothing_else() {
        let outside = tempfile::tempdir().expect("a folder");
        fs::write(outside.path().join("file"), "kept").expect("a file");
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("root");
        // Names such as those that are given on the way up.
        fs::create_dir_all(root.join("0/1/2/3")).expect("folders");
        fs::create_dir_all(root.join("1/0/1")).expect("folders");
        fs::write(root.join("0/1/file"), "gone").expect("a file");
        symlink(outside.path(), root.join("0/1/link")).expect("a link");
        remove_all(&root).expect("it is removed");
        remove_all(&root).expect("it is gone already");
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
        assert!(outside.path().join("file").exists());
    }

    #[test]
    fn no_depth_is_too_deep() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("root");
        fs::create_dir(&root).expect("a folder");
        let mut deepest = File::open(&root).expect("the folder");
        for _ in 0..1000 {
            rustix::fs::mkdirat(&deepest, c"a", Mode::from_raw_mode(0o755)).expect("a folder");
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            deepest = rustix::fs::openat(&deepest, c"a", flags, Mode::empty()).expect("it opens").into();
        }
        let small = std::thread::Builder::new().stack_size(64 << 10);
        let removing = small.spawn(move || remove_all(&root)).expect("a thread");
        removing.join().expect("it ends").expect("it is removed");
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
    }
}
