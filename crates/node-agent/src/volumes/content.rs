//! The files of a volume that is made from objects, and how they change: all at once, or not at all.
//!
//! The files are in a folder with a name of its own, `..data` is a link to it, and what containers see are links through
//! `..data`. A change writes a new folder and moves the link; whoever reads sees the old files or the new ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::{DirBuilderExt, PermissionsExt, chown, lchown, symlink},
    path::{Component, Path},
};

use k8s_openapi::jiff::Timestamp;

use super::ownership;

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct File {
    pub(super) data: Vec<u8>,
    pub(super) mode: u32,
    pub(super) owner: Option<u32>,
}

/// Files by their paths in the volume.
pub(super) type Content = BTreeMap<String, File>;

/// Makes the folder have this content.
pub(super) fn write(folder: &Path, content: &Content, group: Option<u32>) -> io::Result<()> {
    let tops = content.keys().map(|path| top(path)).collect::<io::Result<BTreeSet<&str>>>()?;
    let current = match fs::read_link(folder.join(DATA)) {
        Ok(target) if has(&folder.join(&target), content)? => target,
        Ok(_) => write_new(folder, content, group)?.into(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => write_new(folder, content, group)?.into(),
        Err(error) => return Err(error),
    };
    for name in &tops {
        let link = folder.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA).join(name), &link)?;
            lchown(&link, None, group)?;
        }
    }
    remove_old(folder, &tops, &current)
}

/// Writes a new folder and moves the link to it.
fn write_new(folder: &Path, content: &Content, group: Option<u32>) -> io::Result<String> {
    let name = Timestamp::now().strftime("..%Y_%m_%d_%H_%M_%S.%9f").to_string();
    let new = folder.join(&name);
    fs::DirBuilder::new().mode(0o755).create(&new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    for (path, file) in content {
        let path = new.join(path);
        if let Some(parent) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
        }
        fs::write(&path, &file.data)?;
        chown(&path, file.owner, None)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
    }
    if let Some(group) = group {
        ownership::give_to_group(&new, group)?;
    }
    let link = folder.join(NEW_DATA);
    match fs::remove_file(&link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => symlink(&name, &link)?,
    }
    lchown(&link, None, group)?;
    fs::rename(&link, folder.join(DATA))?;
    Ok(name)
}

/// The name under which a path is seen in the volume. Paths that lead out, or to our own names, are refused.
fn top(path: &str) -> io::Result<&str> {
    let refused = || io::Error::other(format!("invalid path {path:?}"));
    let inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    let first = path.split('/').next().filter(|first| !first.is_empty() && !first.starts_with(".."));
    first.filter(|_| inside && !path.is_empty()).ok_or_else(refused)
}

/// Whether a folder has exactly these files.
fn has(folder: &Path, content: &Content) -> io::Result<bool> {
    for (path, file) in content {
        match fs::read(folder.join(path)) {
            Ok(data) if data == file.data => {}
            Ok(_) => return Ok(false),
            Err(_) => return Ok(false),
        }
    }
    Ok(count_files(folder)? == content.len())
}

fn count_files(folder: &Path) -> io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        count += if entry.file_type()?.is_dir() { count_files(&entry.path())? } else { 1 };
    }
    Ok(count)
}

/// Removes links to files that are no longer there, and folders that `..data` no longer leads to.
fn remove_old(folder: &Path, tops: &BTreeSet<&str>, current: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        let name = name.to_string_lossy();
        if name == DATA || name == current.to_string_lossy() {
            continue;
        }
        if kind.is_dir() && name.starts_with("..") {
            fs::remove_dir_all(entry.path())?;
        } else if kind.is_symlink() && !tops.contains(&*name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(files: &[(&str, &str)]) -> Content {
        let file = |data: &str| File { data: data.into(), mode: 0o640, owner: None };
        files.iter().map(|(path, data)| ((*path).to_owned(), file(data))).collect()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn content_changes_as_a_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).ok();
        let write = |files: &[(&str, &str)]| write(folder.path(), &content(files), None).expect("it is written");
        write(&[("a", "1"), ("dir/b", "2"), ("dir/c", "3")]);
        assert_eq!((read("a"), read("dir/b"), read("dir/c")), (Some("1".into()), Some("2".into()), Some("3".into())));
        let mode = fs::metadata(folder.path().join("a")).expect("a file").permissions().mode() & 0o777;
        assert_eq!(mode, 0o640);
        let first = fs::read_link(folder.path().join(DATA)).expect("a link");
        write(&[("a", "1"), ("dir/b", "2"), ("dir/c", "3")]);
        assert_eq!(fs::read_link(folder.path().join(DATA)).expect("a link"), first, "nothing has changed");
        fs::create_dir(folder.path().join("mountpoint")).expect("a folder of somebody else");
        write(&[("dir/b", "4"), ("new", "5")]);
        assert_eq!((read("a"), read("dir/b"), read("new")), (None, Some("4".into()), Some("5".into())));
        assert_eq!(read("dir/c"), None);
        let second = fs::read_link(folder.path().join(DATA)).expect("a link").to_string_lossy().into_owned();
        assert_eq!(names(folder.path()), [second.as_str(), DATA, "dir", "mountpoint", "new"]);
    }

    #[test]
    fn what_an_interruption_left_is_cleared_away() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("..2020_01_01")).expect("an old folder");
        symlink("..2020_01_01", folder.path().join(NEW_DATA)).expect("an old link");
        write(folder.path(), &content(&[("a", "1")]), None).expect("it is written");
        let data = fs::read_link(folder.path().join(DATA)).expect("a link").to_string_lossy().into_owned();
        assert_eq!(names(folder.path()), [data.as_str(), DATA, "a"]);
    }

    #[test]
    fn paths_stay_in_the_volume() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in ["../a", "/a", "..a", "a/../../b", "", "./a"] {
            write(folder.path(), &content(&[(path, "1")]), None).expect_err(path);
        }
        write(folder.path(), &content(&[("a..", "1"), (".hidden", "2")]), None).expect("they are fine");
    }

    proptest::proptest! {
        #[test]
        fn the_last_content_is_what_is_there(steps in proptest::collection::vec(
            proptest::collection::btree_map("[ab](/[cd])?", "[xy]{0,3}", 0..4), 1..5)) {
            let folder = tempfile::tempdir().expect("a folder");
            for step in steps {
                let files: Vec<(&str, &str)> = step.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
                // A name cannot be a file and a folder at once.
                if files.iter().any(|(path, _)| files.iter().any(|(other, _)| other.starts_with(&format!("{path}/")))) {
                    continue;
                }
                write(folder.path(), &content(&files), None).expect("it is written");
                for (path, data) in &files {
                    proptest::prop_assert_eq!(fs::read_to_string(folder.path().join(path)).expect("a file"), *data);
                }
                let tops: BTreeSet<&str> = files.iter().map(|(path, _)| top(path).expect("a name")).collect();
                let seen = names(folder.path()).into_iter().filter(|name| !name.starts_with("..")).collect::<Vec<_>>();
                proptest::prop_assert_eq!(seen, tops.into_iter().collect::<Vec<_>>());
            }
        }
    }
}
