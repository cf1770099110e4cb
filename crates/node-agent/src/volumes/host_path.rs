//! A path of the node. What it must be is checked, or made, before the pod starts.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt},
    path::Path,
};

use super::VolumeError;

/// Checks the path, or makes it where its type says so. Without a type, a folder is made where there is nothing.
pub(super) fn set_up(path: &Path, kind: &str) -> Result<(), VolumeError> {
    if path.components().any(|part| part == std::path::Component::ParentDir) {
        return Err(VolumeError(format!("invalid HostPath `{}`: must not contain '..'", path.display())));
    }
    let found = match fs::metadata(path) {
        Ok(metadata) => Some(metadata.file_type()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(VolumeError(format!("cannot look at {}: {error}", path.display()))),
    };
    let Some(found) = found else {
        return match kind {
            "" | "DirectoryOrCreate" => made(path, fs::DirBuilder::new().recursive(true).mode(0o755).create(path)),
            "FileOrCreate" => {
                made(path, OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(path).map(drop))
            }
            _ => refused(path, kind),
        };
    };
    let fits = match kind {
        "" => true,
        "Directory" | "DirectoryOrCreate" => found.is_dir(),
        "File" | "FileOrCreate" => found.is_file(),
        "Socket" => found.is_socket(),
        "CharDevice" => found.is_char_device(),
        "BlockDevice" => found.is_block_device(),
        _ => false,
    };
    if fits { Ok(()) } else { refused(path, kind) }
}

fn made(path: &Path, result: io::Result<()>) -> Result<(), VolumeError> {
    result.map_err(|error| VolumeError(format!("cannot make {}: {error}", path.display())))
}

fn refused(path: &Path, kind: &str) -> Result<(), VolumeError> {
    let what = match kind {
        "Directory" | "DirectoryOrCreate" => "directory",
        "File" | "FileOrCreate" => "file",
        "Socket" => "socket file",
        "CharDevice" => "character device",
        "BlockDevice" => "block device",
        _ => return Err(VolumeError(format!("{kind} is an invalid volume type"))),
    };
    Err(VolumeError(format!("hostPath type check failed: {} is not a {what}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_what_its_type_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "x").expect("a file");
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("a socket");
        for (path, good, bad) in [
            (folder.path().to_owned(), "Directory", "File"),
            (at("file"), "File", "Directory"),
            (at("socket"), "Socket", "File"),
            ("/dev/null".into(), "CharDevice", "BlockDevice"),
            (at("file"), "FileOrCreate", "DirectoryOrCreate"),
            (at("file"), "", "Socket"),
        ] {
            set_up(&path, good).expect("it fits");
            let message = set_up(&path, bad).expect_err("it does not fit").to_string();
            assert!(message.starts_with("hostPath type check failed: "), "{message}");
        }
        set_up(&at("none"), "Paper").expect_err("there is no such type");
        set_up(&at("../none"), "").expect_err("paths do not go up");
    }

    #[test]
    fn what_is_missing_is_made_where_it_may_be() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        set_up(&at("a/b"), "DirectoryOrCreate").expect("it is made");
        set_up(&at("c"), "").expect("it is made");
        set_up(&at("d"), "FileOrCreate").expect("it is made");
        assert!(at("a/b").is_dir() && at("c").is_dir() && at("d").is_file());
        let message = set_up(&at("none"), "Directory").expect_err("it is missing").to_string();
        assert_eq!(message, format!("hostPath type check failed: {} is not a directory", at("none").display()));
    }
}
