//! The folder of a volume: on disk, or a mount of its own in memory.
//!
//! A folder is there with its mode and group or not at all, whenever the agent is interrupted: on disk it is renamed into
//! place, in memory it is mounted with both. Its path below the pod's folder is the record of a mount; whatever is mounted
//! there is found again by it.

use std::{
    ffi::CString,
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use rustix::mount::{MountFlags, UnmountFlags};

use super::ownership;

/// What a volume's folder is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Medium {
    Disk,
    Memory { size: Option<u64> },
}

const OPEN_TO_ALL: u32 = 0o777;

/// Makes the folder, if it is not there.
pub(super) fn make(path: &Path, medium: Medium, group: Option<u32>) -> io::Result<()> {
    match medium {
        Medium::Disk if path.exists() => Ok(()),
        Medium::Disk => make_on_disk(path, group),
        Medium::Memory { .. } if is_mount_point(path) => Ok(()),
        Medium::Memory { size } => {
            fs::create_dir_all(path)?;
            mount_memory(path, size, group)
        }
    }
}

fn make_on_disk(path: &Path, group: Option<u32>) -> io::Result<()> {
    // No volume has a dot in its name.
    let unfinished = path.with_extension("new");
    fs::create_dir_all(&unfinished)?;
    let mode = if group.is_some() { OPEN_TO_ALL | ownership::SET_GROUP } else { OPEN_TO_ALL };
    chown(&unfinished, None, group)?;
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(mode))?;
    fs::rename(&unfinished, path)
}

fn mount_memory(path: &Path, size: Option<u64>, group: Option<u32>) -> io::Result<()> {
    let mut options = Vec::new();
    options.extend(size.map(|size| format!("size={size}")));
    options.extend(group.map(|group| format!("gid={group},mode=3777")));
    let mount = |options: &[String]| {
        let options = CString::new(options.join(",")).map_err(io::Error::from)?;
        let result = rustix::mount::mount(c"tmpfs", path, c"tmpfs", MountFlags::empty(), options.as_c_str());
        result.map_err(io::Error::from)
    };
    let never_on_disk: Vec<String> = options.iter().cloned().chain(["noswap".to_owned()]).collect();
    match mount(&never_on_disk) {
        // Kernels before 6.4 do not know the option.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => mount(&options),
        result => result,
    }
}

/// Whether something is mounted on a folder.
pub(super) fn is_mount_point(path: &Path) -> bool {
    let device = |path: &Path| fs::symlink_metadata(path).map(|metadata| metadata.dev());
    match (device(path), path.parent().map(device)) {
        (Ok(own), Some(Ok(parent))) => own != parent,
        _ => false,
    }
}

/// Unmounts everything below a folder, the deepest first.
pub(super) fn unmount_below(folder: &Path) -> io::Result<()> {
    for mount in mounts_below(folder)?.into_iter().rev() {
        rustix::mount::unmount(&mount, UnmountFlags::DETACH)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot unmount {}: {error}", mount.display())))?;
    }
    Ok(())
}

/// In the order in which they were mounted.
pub(super) fn mounts_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(mount_points(&table).filter(|mount| mount.starts_with(folder)).collect())
}

fn mount_points(table: &str) -> impl Iterator<Item = PathBuf> {
    table.lines().filter_map(|line| line.split(' ').nth(4)).map(|path| PathBuf::from(unescaped(path)))
}

/// The kernel writes spaces and the like as three octal digits.
fn unescaped(text: &str) -> String {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_spaces() {
        let table =
            "36 35 98:0 /mnt1 /a\\040b rw,noatime master:1 - ext3 /dev/root rw\n37 35 0:1 / /proc rw - proc p rw\n";
        assert_eq!(mount_points(table).collect::<Vec<_>>(), [PathBuf::from("/a b"), PathBuf::from("/proc")]);
    }
}
