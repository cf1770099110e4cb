//! The process that stands for a pod: it holds the pod's namespaces, starts and reaps its processes, and writes their logs.
//!
//! It is our own executable, started again by the runtime under another name, and goes on when the runtime ends or is killed; the
//! next runtime finds it by its socket. It has one thread, which waits in one place ([`server`]); so it can fork and enter
//! namespaces, and needs little memory. It is in a cgroup of its own, apart from the pod's. Its descriptors close on execution,
//! and it cannot be looked into from the containers (it is not dumpable).

pub mod client;
mod container;
mod log;
mod memory;
mod process;
pub mod protocol;
mod rootfs;
mod server;
pub mod spec;
mod user;

use std::{
    ffi::OsStr,
    fs,
    io::{self, Write},
    os::fd::AsRawFd,
    path::Path,
};

use rustix::mount::{MountFlags, mount};

pub use log::rotated;
use rootfs::step;
use spec::SandboxSpec;

/// The name under which the executable is a shim.
pub const NAME: &str = "ferry-shim";

/// The file in a sandbox's folder that has its [`SandboxSpec`].
pub const SPEC: &str = "shim.json";

/// Becomes a shim, and never returns, if this process was started as one. Must be the first thing that `main` does: no thread, no
/// logger and no handler may exist.
pub fn dispatch() {
    let mut arguments = std::env::args_os();
    if arguments.next().as_deref() != Some(OsStr::new(NAME)) {
        return;
    }
    let code = match arguments.next() {
        Some(folder) => run(Path::new(&folder)),
        None => 2,
    };
    #[expect(clippy::disallowed_methods, reason = "a shim never becomes what main is, and has dropped everything")]
    std::process::exit(code)
}

fn run(folder: &Path) -> i32 {
    let server = match set_up(folder) {
        Ok(server) => server,
        Err(error) => {
            let _ = write!(io::stdout(), "{error}");
            return 1;
        }
    };
    // Tells the runtime that all is well: it waits for the end of this stream.
    let detached = fs::OpenOptions::new().write(true).open("/dev/null").and_then(|null| {
        // SAFETY: replaces the standard output, which nothing in this process refers to.
        let result = unsafe { libc::dup2(null.as_raw_fd(), 1) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    });
    match detached.and_then(|()| server.run()) {
        Ok(()) => 0,
        Err(error) => {
            complain(format_args!("{error}"));
            1
        }
    }
}

/// Tells of trouble in the shim's own log, as far as that is possible: the disk may be full, which must not end the pod.
fn complain(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{what}");
}

fn set_up(folder: &Path) -> io::Result<server::Server> {
    let text = step("reading the sandbox's file", fs::read(folder.join(SPEC)))?;
    let spec: SandboxSpec = step("reading the sandbox's file", serde_json::from_slice(&text))?;
    // SAFETY: calls with numbers only, in a process with one thread.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"ferry-shim".as_ptr());
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    }
    step("joining the shims' cgroup", spec.shim_group.join())?;
    // Rather any container than the shim; but not every node has the privilege to say so.
    let _ = fs::write("/proc/self/oom_score_adj", "-998");
    make_namespaces(&spec)?;
    if spec.own_ipc {
        let shm = folder.join("shm");
        step("making the folder of shared memory", fs::create_dir_all(&shm))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        step("mounting shared memory", mount(c"shm", &shm, c"tmpfs", flags, c"mode=1777,size=65536k"))?;
    }
    let holder = if spec.shared_pid {
        Some(step("holding the pid namespace", process::hold_pid_namespace(folder))?)
    } else {
        None
    };
    server::Server::bind(folder, holder)
}

fn make_namespaces(spec: &SandboxSpec) -> io::Result<()> {
    let mut kinds = 0;
    if spec.own_network {
        // A pod on the node's network has the node's name, too.
        kinds |= libc::CLONE_NEWNET | libc::CLONE_NEWUTS;
    }
    if spec.own_ipc {
        kinds |= libc::CLONE_NEWIPC;
    }
    // SAFETY: this process has one thread, and nothing yet that depends on what changes.
    let result = unsafe { libc::unshare(kinds) };
    if result != 0 {
        return step("making namespaces", Err(io::Error::last_os_error()));
    }
    if spec.own_network {
        step("bringing loopback up", loopback_up())?;
        if !spec.hostname.is_empty() {
            step("setting the host name", rustix::system::sethostname(spec.hostname.as_bytes()))?;
        }
    }
    for (name, value) in &spec.sysctls {
        if name.contains("..") || !is_own(name, spec) {
            return Err(io::Error::other(format!("the sysctl {name} is not the pod's own, but the node's")));
        }
        let file = Path::new("/proc/sys").join(name.replace('.', "/"));
        step(format!("setting {name}"), fs::write(file, value))?;
    }
    Ok(())
}

/// Whether a kernel setting belongs to a namespace that the pod has for itself.
fn is_own(name: &str, spec: &SandboxSpec) -> bool {
    const IPC: &[&str] = &["msgmax", "msgmnb", "msgmni", "sem", "shmall", "shmmax", "shmmni", "shm_rmid_forced"];
    match name.split_once('.') {
        Some(("net", _)) => spec.own_network,
        Some(("kernel", "domainname")) => spec.own_network,
        Some(("kernel", name)) => spec.own_ipc && IPC.contains(&name),
        Some(("fs", name)) => spec.own_ipc && name.starts_with("mqueue."),
        _ => false,
    }
}

fn loopback_up() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: all zero is a valid value; the name below is shorter than the field and ends with zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: the request is complete for this call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
