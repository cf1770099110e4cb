use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

use super::*;

fn layer(entries: &[(&str, tar::EntryType, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, kind, text) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o4750);
        header.set_uid(rustix::process::geteuid().as_raw().into());
        header.set_gid(rustix::process::getegid().as_raw().into());
        header.set_mtime(1_000_000);
        let is_link = kind.is_symlink() || kind.is_hard_link();
        header.set_size(if is_link { 0 } else { text.len() as u64 });
        // Paths with `..` are what an attacker writes; the builder would refuse them.
        let name = header.as_gnu_mut().expect("a header");
        name.name[..path.len()].copy_from_slice(path.as_bytes());
        if is_link {
            name.linkname[..text.len()].copy_from_slice(text.as_bytes());
        }
        header.set_cksum();
        archive.append(&header, if is_link { b"".as_slice() } else { text.as_bytes() }).expect("an entry");
    }
    archive.into_inner().expect("an archive")
}

fn unpacked(
    entries: &[(&str, tar::EntryType, &str)],
    lower: &[PathBuf],
) -> (tempfile::TempDir, PathBuf, io::Result<()>) {
    let folder = tempfile::tempdir().expect("a folder");
    let target = folder.path().join("fs");
    let result = unpack::unpack(&mut layer(entries).as_slice(), &target, lower);
    (folder, target, result)
}

use tar::EntryType::{Directory, Link, Regular, Symlink};

#[test]
fn files_keep_modes_times_and_contents() {
    let (_folder, root, result) = unpacked(&[("a/b/c", Regular, "text"), ("d/", Directory, "")], &[]);
    result.expect("it unpacks");
    let metadata = fs::metadata(root.join("a/b/c")).expect("the file");
    assert_eq!((metadata.mode() & 0o7777, metadata.mtime()), (0o4750, 1_000_000));
    assert_eq!(fs::metadata(root.join("d")).expect("the folder").mtime(), 1_000_000);
}

#[test]
fn nothing_leaves_the_folder() {
    let outside = tempfile::tempdir().expect("a folder");
    let path = outside.path().to_str().expect("text");
    let (folder, root, result) = unpacked(
        &[
            ("link", Symlink, path),
            ("link/escaped", Regular, "1"),
            ("../../escaped", Regular, "2"),
            ("up", Symlink, "../.."),
            ("up/escaped2", Regular, "3"),
        ],
        &[],
    );
    // Whether an entry is refused or lands inside, nothing may be outside.
    let _ = result;
    assert_eq!(fs::read_dir(outside.path()).expect("the folder").count(), 0);
    let names: Vec<_> = fs::read_dir(folder.path()).expect("the folder").flatten().map(|e| e.file_name()).collect();
    assert_eq!(names, ["fs"]);
    assert!(root.exists());
}

#[test]
fn links_reach_the_layers_below_as_copies() {
    let (_lower, below, result) = unpacked(&[("bin/tool", Regular, "tool")], &[]);
    result.expect("it unpacks");
    let (_folder, root, result) =
        unpacked(&[("bin/alias", Link, "bin/tool"), ("x", Regular, "x"), ("y", Link, "x")], &[below]);
    result.expect("it unpacks");
    assert_eq!(fs::read_to_string(root.join("bin/alias")).expect("the copy"), "tool");
    assert_eq!(fs::metadata(root.join("x")).expect("a file").nlink(), 2);
}

#[test]
fn deletions_become_overlayfs_marks() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let (_folder, root, result) =
        unpacked(&[("a/.wh.gone", Regular, ""), ("b/.wh..wh..opq", Regular, ""), ("b/new", Regular, "n")], &[]);
    result.expect("it unpacks");
    let mark = fs::symlink_metadata(root.join("a/gone")).expect("the mark");
    assert!(mark.file_type().is_char_device() && mark.rdev() == 0);
    let mut value = [0; 1];
    rustix::fs::getxattr(root.join("b"), c"trusted.overlay.opaque", &mut value[..]).expect("the attribute");
    assert_eq!(&value, b"y");
}

#[test]
fn a_later_entry_takes_the_place_of_an_earlier_one() {
    let outside = tempfile::NamedTempFile::new().expect("a file");
    let (_folder, root, result) =
        unpacked(&[("f", Symlink, outside.path().to_str().expect("text")), ("f", Regular, "new")], &[]);
    result.expect("it unpacks");
    assert_eq!(fs::read_to_string(root.join("f")).expect("the file"), "new");
    assert_eq!(fs::read_to_string(outside.path()).expect("the file"), "", "a link is not followed");
    symlink("x", root.join("g")).expect("the folder is a folder");
}
