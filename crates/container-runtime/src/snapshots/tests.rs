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
        if let Some((major, minor)) = text.split_once(':') {
            header.set_device_major(major.parse().expect("a number")).expect("a device");
            header.set_device_minor(minor.parse().expect("a number")).expect("a device");
            header.set_size(0);
        }
        header.set_cksum();
        let body = if header.size().is_ok_and(|size| size > 0) { text.as_bytes() } else { b"" };
        archive.append(&header, body).expect("an entry");
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

use tar::EntryType::{Char, Directory, Fifo, Link, Regular, Symlink};

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

#[test]
fn no_link_is_followed_to_be_changed() {
    let outside = tempfile::NamedTempFile::new().expect("a file");
    let before = outside.as_file().metadata().expect("a file").mode();
    let target = outside.path().to_str().expect("text");
    let (_folder, root, result) = unpacked(&[("f", Symlink, target), ("f/", Directory, "")], &[]);
    result.expect("it unpacks");
    assert!(fs::symlink_metadata(root.join("f")).expect("the folder").is_dir(), "it takes the place of the link");
    assert_eq!(outside.as_file().metadata().expect("a file").mode(), before);
}

#[test]
fn no_device_is_opened() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let (_lower, below, result) = unpacked(&[("endless", Char, "1:5"), ("l", Symlink, "/etc/passwd")], &[]);
    result.expect("it unpacks");
    let (_folder, root, result) = unpacked(&[("copy", Link, "endless"), ("m", Link, "l")], &[below]);
    result.expect("it unpacks");
    assert_eq!(fs::symlink_metadata(root.join("copy")).expect("the device").rdev(), rustix::fs::makedev(1, 5));
    assert_eq!(fs::read_link(root.join("m")).expect("the link"), Path::new("/etc/passwd"));
}

/// With attributes of its own, for each entry.
fn with_attributes(names: &[&str]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, kind) in [("pipe", Fifo), ("folder/", Directory)] {
        let attributes = names.iter().map(|name| (format!("SCHILY.xattr.{name}"), b"y".as_slice()));
        let attributes: Vec<(String, &[u8])> = attributes.collect();
        archive
            .append_pax_extensions(attributes.iter().map(|(name, value)| (name.as_str(), *value)))
            .expect("a header");
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_size(0);
        header.set_uid(rustix::process::geteuid().as_raw().into());
        header.set_gid(rustix::process::getegid().as_raw().into());
        header.set_mtime(0);
        header.set_path(path).expect("a path");
        header.set_cksum();
        archive.append(&header, io::empty()).expect("an entry");
    }
    archive.into_inner().expect("an archive")
}

#[test]
fn attributes_are_the_images_but_for_those_of_overlayfs() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = folder.path().join("fs");
    let archive = with_attributes(&["user.a", "trusted.overlay.redirect", "user.overlay.opaque"]);
    // Whoever opened the pipe would wait for ever.
    unpack::unpack(&mut archive.as_slice(), &target, &[]).expect("it unpacks");
    let mut names = [0; 256];
    let length = rustix::fs::listxattr(target.join("folder"), &mut names[..]).expect("a list");
    let names = String::from_utf8_lossy(&names[..length]).into_owned();
    assert!(!names.contains("overlay"), "{names}");
    assert!(names.contains("user.a") || names.is_empty(), "{names}");
}

#[test]
fn a_deletion_is_of_what_is_below() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let entries = [
        (".wh.before", Regular, ""),
        ("before/", Directory, ""),
        ("before/x", Regular, "x"),
        ("after/", Directory, ""),
        ("after/x", Regular, "x"),
        (".wh.after", Regular, ""),
        ("file", Regular, "new"),
        (".wh.file", Regular, ""),
    ];
    let (_folder, root, result) = unpacked(&entries, &[]);
    result.expect("it unpacks");
    for folder in ["before", "after"] {
        let mut value = [0; 1];
        rustix::fs::getxattr(root.join(folder), c"trusted.overlay.opaque", &mut value[..]).expect("the attribute");
        assert_eq!((&value, fs::read_to_string(root.join(folder).join("x")).ok().as_deref()), (b"y", Some("x")));
    }
    assert_eq!(fs::read_to_string(root.join("file")).expect("the file"), "new");
    for nothing in [".wh...", ".wh..", ".wh."] {
        assert!(unpacked(&[(nothing, Regular, "")], &[]).2.is_err(), "{nothing}");
    }
}

#[test]
fn folders_that_an_archive_leaves_out_are_as_below() {
    let (_lower, below, result) = unpacked(&[("a/", Directory, ""), ("a/b/", Directory, "")], &[]);
    result.expect("it unpacks");
    let (_folder, root, result) = unpacked(&[("a/b/c/d", Regular, "d")], &[below]);
    result.expect("it unpacks");
    let mode = |path: &str| fs::metadata(root.join(path)).expect("a folder").mode() & 0o7777;
    assert_eq!(["a", "a/b", "a/b/c"].map(mode), [0o4750, 0o4750, 0o755]);
}

#[test]
fn a_file_takes_the_place_of_a_folder() {
    let entries = [("d/", Directory, ""), ("d/e/f", Regular, "f"), ("d", Regular, "now a file")];
    let (_folder, root, result) = unpacked(&entries, &[]);
    result.expect("it unpacks");
    assert_eq!(fs::read_to_string(root.join("d")).expect("the file"), "now a file");
}
