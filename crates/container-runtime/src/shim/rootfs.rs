//! A container's view of the file system, built by its first process inside of its own mount namespace.
//!
//! The order is what makes it safe. Sources of mounts are opened while the node's tree is still there and still receives and sends
//! mounts, so that propagation works; then the overlay becomes the root and the node's tree is let go of; and only then
//! are the mounts put in place, by paths that can no longer lead to the node, whatever links the image contains.

use std::{
    ffi::CString,
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::{FileTypeExt, MetadataExt, symlink},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2},
    mount::{
        MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_change,
        mount_remount, move_mount, open_tree, unmount,
    },
};

use super::spec::{ContainerSpec, DeviceNode, Overlay};
use crate::{
    cgroups::Layout,
    services::{Mount, MountPropagation},
};

/// Adds to an error what was being done.
pub(super) fn step<T, E: Into<io::Error>>(what: impl AsRef<str>, result: Result<T, E>) -> io::Result<T> {
    result.map_err(|error| {
        let error = error.into();
        io::Error::new(error.kind(), format!("{}: {error}", what.as_ref()))
    })
}

/// Only for the shim, which has one thread: the working directory belongs to the whole process.
pub(super) fn chdir(folder: impl rustix::path::Arg) -> io::Result<()> {
    Ok(rustix::process::chdir(folder)?)
}

const HARDENED: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// Makes the container's file system the root of this process, whose mount namespace is new.
pub(super) fn enter(spec: &ContainerSpec) -> io::Result<()> {
    let is_image = |mount: &Mount| !mount.image.is_empty();
    let binds = spec.mounts.iter().map(|mount| match is_image(mount) {
        true => Ok(None),
        false => Bind::open(mount).map(Some),
    });
    let mut binds = binds.collect::<io::Result<Vec<_>>>()?;
    let mut nodes = default_nodes();
    for device in &spec.devices {
        nodes.push(Node::like(device)?);
    }
    if spec.privileged {
        add_every_node(Path::new("/dev"), &mut nodes);
    }
    step("cutting mount propagation", mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC))?;
    for (bind, mount) in binds.iter_mut().zip(&spec.mounts).filter(|(_, mount)| is_image(mount)) {
        *bind = Some(Bind::of_image(spec, mount)?);
    }
    let rootfs = &spec.rootfs;
    mount_overlay(rootfs, options(rootfs), MountFlags::empty())?;
    step("entering the overlay", chdir(&rootfs.target))?;
    step("changing the root", rustix::process::pivot_root(".", "."))?;
    step("letting go of the node's root", unmount(".", UnmountFlags::DETACH))?;
    step("entering the root", chdir("/"))?;

    mount_kernel(spec)?;
    for node in nodes {
        node.make()?;
    }
    // While it is certain what is there: a volume may come to be on /dev.
    let null = step("opening /dev/null", open_path("/dev/null"))?;
    for bind in binds.into_iter().flatten() {
        bind.attach()?;
    }
    for path in &spec.readonly_paths {
        make_readonly(path)?;
    }
    for path in &spec.masked_paths {
        mask(path, &null)?;
    }
    make_working_directory(&spec.process.cwd)?;
    if spec.readonly_rootfs {
        step("making the root read-only", mount_remount("/", MountFlags::BIND | MountFlags::RDONLY, c""))?;
    }
    Ok(())
}

/// Images and pods may name a working directory that nobody has made.
pub(super) fn make_working_directory(path: &str) -> io::Result<()> {
    if path.is_empty() || Path::new(path).exists() {
        return Ok(());
    }
    step(format!("making the working directory {path}"), fs::create_dir_all(path))
}

/// Mounts layers on the container's mount point. The working directory is the base of the folders then.
fn mount_overlay(rootfs: &Overlay, options: String, flags: MountFlags) -> io::Result<()> {
    step("entering the folder of snapshots", chdir(&rootfs.base))?;
    let options = CString::new(options).map_err(io::Error::from)?;
    step("mounting the overlay", mount(c"overlay", rootfs.target.as_str(), c"overlay", flags, options.as_c_str()))
}

fn options(rootfs: &Overlay) -> String {
    format!("lowerdir={},upperdir={},workdir={}", rootfs.lower.join(":"), rootfs.upper, rootfs.work)
}

/// /proc, /sys, /dev and the cgroups.
fn mount_kernel(spec: &ContainerSpec) -> io::Result<()> {
    for folder in ["/proc", "/sys", "/dev"] {
        // A link would put the kernel's files where paths below are not looked for.
        match fs::symlink_metadata(folder) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(io::Error::other(format!("{folder} of the image is not a folder"))),
            Err(_) => step(format!("making {folder}"), fs::create_dir(folder))?,
        }
    }
    step("mounting /proc", mount(c"proc", c"/proc", c"proc", HARDENED, None))?;
    let sys_flags = if spec.privileged { HARDENED } else { HARDENED | MountFlags::RDONLY };
    step("mounting /sys", mount(c"sysfs", c"/sys", c"sysfs", sys_flags, None))?;
    mount_groups(spec)?;
    let flags = MountFlags::NOSUID | MountFlags::STRICTATIME;
    step("mounting /dev", mount(c"tmpfs", c"/dev", c"tmpfs", flags, c"mode=755,size=65536k"))?;
    for folder in ["/dev/pts", "/dev/mqueue", "/dev/shm"] {
        step(format!("making {folder}"), fs::create_dir(folder))?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let options = c"newinstance,ptmxmode=0666,mode=0620,gid=5";
    step("mounting /dev/pts", mount(c"devpts", c"/dev/pts", c"devpts", flags, options))?;
    step("mounting /dev/mqueue", mount(c"mqueue", c"/dev/mqueue", c"mqueue", HARDENED, None))?;
    for (link, target) in [
        ("/dev/ptmx", "pts/ptmx"),
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
        ("/dev/core", "/proc/kcore"),
    ] {
        step(format!("making {link}"), symlink(target, link))?;
    }
    Ok(())
}

/// The container sees its own group as the root, since it has a cgroup namespace.
fn mount_groups(spec: &ContainerSpec) -> io::Result<()> {
    let flags = if spec.privileged { HARDENED } else { HARDENED | MountFlags::RDONLY };
    let root = "/sys/fs/cgroup";
    match spec.group.layout() {
        Layout::V2(_) => step("mounting the cgroups", mount(c"cgroup2", root, c"cgroup2", flags, None)),
        Layout::V1(hierarchies) => {
            step("mounting a folder of cgroups", mount(c"tmpfs", root, c"tmpfs", HARDENED, c"mode=755"))?;
            for hierarchy in hierarchies {
                let names = hierarchy.controllers.join(",");
                let folder = Path::new(root).join(names.trim_start_matches("name="));
                step(format!("making {}", folder.display()), fs::create_dir(&folder))?;
                let options = CString::new(names.as_str()).map_err(io::Error::from)?;
                let result = mount(c"cgroup", &folder, c"cgroup", flags, options.as_c_str());
                step(format!("mounting the cgroups of {names}"), result)?;
                // Programs look for each controller by its name.
                for controller in hierarchy.controllers.iter().filter(|controller| **controller != names) {
                    let link = Path::new(root).join(controller);
                    step(format!("making {}", link.display()), symlink(&names, link))?;
                }
            }
            if spec.privileged {
                return Ok(());
            }
            step("making the cgroups read-only", mount_remount(root, HARDENED | MountFlags::RDONLY, c"mode=755"))
        }
    }
}

/// A mount of the node's or an image's, cloned and not yet anywhere.
struct Bind<'a> {
    mount: &'a Mount,
    tree: OwnedFd,
    is_folder: bool,
    attributes: u64,
}

/// `struct mount_attr` of mount_setattr(2).
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

const MOUNT_ATTR_RDONLY: u64 = 1;
const MOUNT_ATTR_NOSUID: u64 = 2;
const MOUNT_ATTR_NODEV: u64 = 4;
const MOUNT_ATTR_NOEXEC: u64 = 8;

impl<'a> Bind<'a> {
    fn open(mount: &'a Mount) -> io::Result<Self> {
        let source = Path::new(&mount.host_path);
        let is_folder = step(format!("mounting {}", source.display()), fs::metadata(source))?.is_dir();
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let tree = step(format!("cloning the mount of {}", source.display()), open_tree(CWD, source, flags))?;
        let attributes = if mount.readonly { MOUNT_ATTR_RDONLY } else { 0 };
        Ok(Self { mount, tree, is_folder, attributes })
    }

    /// An image's files. They are put together where the container's own will be, and taken from there; this must be done in the
    /// container's mount namespace, when nothing of it is seen on the node any more.
    fn of_image(spec: &ContainerSpec, mount: &'a Mount) -> io::Result<Self> {
        let what = format!("mounting the image {}", mount.image);
        let layers = spec.image_layers.get(&mount.image).ok_or_else(|| io::Error::other("its layers are not known"));
        let options = format!("lowerdir={}", step(&what, layers)?.join(":"));
        step(&what, mount_overlay(&spec.rootfs, options, MountFlags::RDONLY))?;
        let found = (|| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let root = openat(CWD, spec.rootfs.target.as_str(), flags, Mode::empty())?;
            let path = if mount.image_sub_path.is_empty() { "." } else { mount.image_sub_path.as_str() };
            let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            let found = openat2(&root, path, flags, Mode::empty(), inside)?;
            let kind = FileType::from_raw_mode(fstat(&found)?.st_mode);
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let tree = open_tree(&found, c"", flags | OpenTreeFlags::AT_EMPTY_PATH)?;
            Ok::<_, rustix::io::Errno>((tree, kind == FileType::Directory))
        })();
        let (tree, is_folder) = step(format!("{what}: {:?}", mount.image_sub_path), found)?;
        step(&what, unmount(spec.rootfs.target.as_str(), UnmountFlags::DETACH))?;
        let attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
        Ok(Self { mount, tree, is_folder, attributes })
    }

    fn attach(self) -> io::Result<()> {
        let target = Path::new(&self.mount.container_path);
        let what = format!("mounting {}{} on {}", self.mount.host_path, self.mount.image, target.display());
        if !target.exists() {
            make_mount_point(target, self.is_folder)?;
        }
        let propagation = match self.mount.propagation {
            MountPropagation::Private => libc::MS_PRIVATE,
            MountPropagation::HostToContainer => libc::MS_SLAVE,
            MountPropagation::Bidirectional => libc::MS_SHARED,
        };
        step(&what, set_attributes(&self.tree, 0, propagation, true))?;
        if self.attributes != 0 {
            step(&what, set_attributes(&self.tree, self.attributes, 0, self.mount.recursive_read_only))?;
        }
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
        step(&what, move_mount(&self.tree, c"", CWD, target, flags))
    }
}

fn set_attributes(tree: impl AsFd, set: u64, propagation: u64, recursive: bool) -> io::Result<()> {
    let attributes = MountAttributes { set, clear: 0, propagation, user_namespace: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the attributes are laid out as the call reads them, and the path is an empty string.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn make_mount_point(target: &Path, is_folder: bool) -> io::Result<()> {
    let what = || format!("making the mount point {}", target.display());
    let target = end_of(target);
    if is_folder {
        return step(what(), fs::create_dir_all(target));
    }
    if let Some(parent) = target.parent() {
        step(what(), fs::create_dir_all(parent))?;
    }
    step(what(), File::create(target)).map(drop)
}

/// Where a path leads: images have links to what is not there yet, such as from /etc/resolv.conf.
fn end_of(path: &Path) -> PathBuf {
    const MOST_LINKS: usize = 40;
    let mut end = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(next) = fs::read_link(&end) else { break };
        end = end.parent().unwrap_or(Path::new("/")).join(next);
    }
    end
}

fn make_readonly(path: &str) -> io::Result<()> {
    match rustix::mount::mount_bind_recursive(path, path) {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        result => {
            step(format!("binding {path}"), result)?;
            let flags = MountFlags::BIND | MountFlags::RDONLY | HARDENED;
            step(format!("making {path} read-only"), mount_remount(path, flags, c""))
        }
    }
}

fn open_path(path: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Puts an empty folder on a folder, and the device that is empty on anything else.
fn mask(path: &str, null: &OwnedFd) -> io::Result<()> {
    let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
    let result = if metadata.is_dir() {
        mount(c"tmpfs", path, c"tmpfs", MountFlags::RDONLY, None)
    } else {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        open_tree(null, c"", flags).and_then(|clone| {
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
            move_mount(&clone, c"", CWD, path, flags)
        })
    };
    step(format!("hiding {path}"), result)
}

/// A device to make in /dev.
struct Node {
    path: PathBuf,
    kind: FileType,
    device: u64,
    mode: u32,
    owner: (u32, u32),
}

fn default_nodes() -> Vec<Node> {
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)]
        .map(|(name, major, minor)| Node {
            path: Path::new("/dev").join(name),
            kind: FileType::CharacterDevice,
            device: rustix::fs::makedev(major, minor),
            mode: 0o666,
            owner: (0, 0),
        })
        .into()
}

impl Node {
    fn like(device: &DeviceNode) -> io::Result<Self> {
        let metadata = step(format!("looking at {}", device.host_path.display()), fs::metadata(&device.host_path))?;
        Self::from_metadata(device.container_path.clone(), &metadata)
            .ok_or_else(|| io::Error::other(format!("{} is not a device", device.host_path.display())))
    }

    fn from_metadata(path: PathBuf, metadata: &fs::Metadata) -> Option<Self> {
        let kind = match metadata.file_type() {
            kind if kind.is_char_device() => FileType::CharacterDevice,
            kind if kind.is_block_device() => FileType::BlockDevice,
            _ => return None,
        };
        let owner = (metadata.uid(), metadata.gid());
        Some(Self { path, kind, device: metadata.rdev(), mode: metadata.mode() & 0o7777, owner })
    }

    fn make(self) -> io::Result<()> {
        let what = || format!("making the device {}", self.path.display());
        if let Some(parent) = self.path.parent() {
            step(what(), fs::create_dir_all(parent))?;
        }
        match rustix::fs::mknodat(CWD, &self.path, self.kind, Mode::from_raw_mode(self.mode), self.device) {
            Err(rustix::io::Errno::EXIST) => return Ok(()),
            result => step(what(), result)?,
        }
        // mknod is subject to the umask.
        step(what(), rustix::fs::chmod(&self.path, Mode::from_raw_mode(self.mode)))?;
        step(what(), std::os::unix::fs::chown(&self.path, Some(self.owner.0), Some(self.owner.1)))
    }
}

fn add_every_node(folder: &Path, nodes: &mut Vec<Node>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        let path = entry.path();
        if metadata.is_dir() && !["pts", "shm", "mqueue", "fd"].iter().any(|name| entry.file_name() == *name) {
            add_every_node(&path, nodes);
        } else if path != Path::new("/dev/ptmx")
            && path != Path::new("/dev/console")
            && let Some(node) = Node::from_metadata(path, &metadata)
        {
            nodes.push(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Folders;

    #[test]
    fn as_many_layers_as_images_have_fit_into_one_page() {
        let folder = Folders::relative_container(&"0".repeat(64));
        let rootfs = Overlay {
            base: "/".into(),
            lower: vec![format!("{}/fs", "0".repeat(20)); 127],
            upper: format!("{folder}/upper"),
            work: format!("{folder}/work"),
            target: format!("{folder}/rootfs"),
        };
        assert!(options(&rootfs).len() < 4096);
    }

    #[test]
    fn links_to_what_is_not_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("link");
        symlink("over/there", &link).expect("a link");
        assert_eq!(end_of(&link), folder.path().join("over/there"));
        symlink("loop", folder.path().join("loop")).expect("a link");
        make_mount_point(&link, false).expect("it is made");
        assert!(fs::metadata(&link).expect("the file").is_file());
        assert!(make_mount_point(&folder.path().join("loop"), false).is_err());
    }
}
