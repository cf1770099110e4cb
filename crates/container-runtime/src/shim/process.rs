//! Starting a process in a container: the one place that forks.
//!
//! The shim has one thread, so the new process is an exact copy that may run any code. It sets itself up — cgroup, namespaces,
//! root, terminal, user, capabilities, filter — and executes the command. What goes wrong comes back over a socket that
//! execution closes.

use std::{
    ffi::CString,
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};

use super::{
    protocol,
    rootfs::{self, chdir, step},
    spec::{ContainerSpec, ProcessSpec},
    user::{self, User},
};
use crate::{
    cgroups::Group,
    security::{capabilities, seccomp},
};

/// keyctl(2)
const KEYCTL_JOIN_SESSION_KEYRING: i32 = 1;

/// Where a process is to run.
pub(super) enum Place<'a> {
    New(&'a ContainerSpec),
    /// Beside the first process of a container, given by its number and its pidfd.
    Beside {
        pid: i32,
        init: BorrowedFd<'a>,
        group: &'a Group,
    },
}

/// Which pid namespace a process is to be in.
pub(super) enum Pids<'a> {
    New,
    Host,
    /// That of the process with this pidfd.
    Of(BorrowedFd<'a>),
}

/// The ends that the process gets; /dev/null where there is none.
#[derive(Default)]
pub(super) struct Stdio {
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
}

pub(super) struct Child {
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
    /// Gives [`News`] and ends when the command has been executed, or never will be.
    pub(super) channel: OwnedFd,
}

/// What a process tells the shim before it becomes the command.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum News {
    /// With the terminal's descriptor.
    Terminal,
    Failed(String),
}

pub(super) fn spawn(place: &Place<'_>, process: &ProcessSpec, stdio: Stdio, pids: &Pids<'_>) -> io::Result<Child> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let mut flags = 0;
    if matches!(place, Place::New(_)) {
        flags |= libc::CLONE_NEWNS;
    }
    if matches!(pids, Pids::New) {
        flags |= libc::CLONE_NEWPID;
    }
    let own = match pids {
        Pids::Of(process) => {
            let own = fs::File::open("/proc/self/ns/pid")?;
            step("entering the pid namespace", set_namespaces(process.as_fd(), libc::CLONE_NEWPID))?;
            Some(own)
        }
        _ => None,
    };
    let cloned = clone(flags);
    if let (Some(own), Ok(Some(_)) | Err(_)) = (own, &cloned) {
        // Otherwise the next container would be a child of this one's namespace.
        step("leaving the pid namespace", set_namespaces(own.as_fd(), libc::CLONE_NEWPID))?;
    }
    match step("starting a process", cloned)? {
        Some((pid, pidfd)) => Ok(Child { pid, pidfd, channel: ours }),
        None => {
            drop(ours);
            become_command(place, process, stdio, &theirs)
        }
    }
}

/// Forks. The new process gets `None`.
pub(super) fn clone(flags: i32) -> io::Result<Option<(i32, OwnedFd)>> {
    let mut pidfd: i32 = -1;
    // SAFETY: all zero is a valid value of this plain structure.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = (flags | libc::CLONE_PIDFD) as u64;
    arguments.pidfd = &raw mut pidfd as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: without a stack and without CLONE_VM this is a fork, and this process has one thread.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>()) };
    match pid {
        ..0 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        // SAFETY: the call has just made this descriptor.
        pid => Ok(Some((pid as i32, unsafe { OwnedFd::from_raw_fd(pidfd) }))),
    }
}

fn set_namespaces(target: BorrowedFd<'_>, kinds: i32) -> io::Result<()> {
    // SAFETY: the call takes a descriptor and flags.
    let result = unsafe { libc::setns(target.as_raw_fd(), kinds) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn become_command(place: &Place<'_>, process: &ProcessSpec, stdio: Stdio, channel: &OwnedFd) -> ! {
    let error = match prepare_and_execute(place, process, stdio, channel) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    let _ = protocol::send(channel, &News::Failed(error.to_string()), &[]);
    // SAFETY: ends this process without running anything that belongs to the shim.
    unsafe { libc::_exit(127) }
}

fn prepare_and_execute(
    place: &Place<'_>,
    process: &ProcessSpec,
    stdio: Stdio,
    channel: &OwnedFd,
) -> io::Result<std::convert::Infallible> {
    reset_signals();
    // SAFETY: no memory is involved.
    unsafe { libc::setsid() };
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    // Always, since the shim's own is not for others.
    match fs::write("/proc/self/oom_score_adj", process.oom_score_adj.to_string()) {
        // Lowering needs a privilege that the node may not have to give: then it stays as it is.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        result => step("setting oom_score_adj", result)?,
    }
    // Keys of the session are the container's own, as its processes are; a kernel without keys has none to share.
    // SAFETY: no name asks for a new session; no memory is involved.
    unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<u8>()) };
    let null = step("opening /dev/null", fs::OpenOptions::new().read(true).write(true).open("/dev/null"))?;
    match place {
        Place::New(spec) => {
            step("joining the cgroup", spec.group.join())?;
            // SAFETY: the call takes flags only.
            step("making a cgroup namespace", os_result(unsafe { libc::unshare(libc::CLONE_NEWCGROUP) }))?;
            rootfs::enter(spec)?;
        }
        Place::Beside { pid, init, group } => {
            step("joining the cgroup", group.join_beside(*pid))?;
            let kinds = libc::CLONE_NEWNS | libc::CLONE_NEWCGROUP;
            step("entering the container", set_namespaces(init.as_fd(), kinds))?;
            rootfs::make_working_directory(&process.cwd)?;
        }
    }
    let user = user::resolve(&process.user)?;
    let stdio = if process.tty { terminal(&user, channel, matches!(place, Place::New(_)))? } else { stdio };
    for (end, number) in [(stdio.stdin, 0), (stdio.stdout, 1), (stdio.stderr, 2)] {
        set_stdio(end.as_ref(), null.as_fd(), number, &user)?;
    }
    let cwd = if process.cwd.is_empty() { "/" } else { &process.cwd };
    take_identity(process, &user, cwd)?;
    execute(process, &user)
}

/// A program expects signals as a shell leaves them: the shim blocks some, and Rust ignores SIGPIPE.
fn reset_signals() {
    // All zero is the default action, without flags and mask, and large enough for the kernel's structure everywhere.
    let default = [0u64; 8];
    // SAFETY: the set is initialised before it is used; handlers are only reset. The system call itself is used because libc keeps
    // two signals to itself, which may come here ignored.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        for signal in 1..=64 {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null_mut::<u64>(), 8);
        }
    }
}

/// A terminal of the container's own /dev/pts; its other side goes to the shim.
fn terminal(user: &User, channel: &OwnedFd, is_init: bool) -> io::Result<Stdio> {
    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = step("opening a terminal", openpt(flags))?;
    step("unlocking the terminal", unlockpt(&master))?;
    let slave = step("opening the terminal", ioctl_tiocgptpeer(&master, flags))?;
    step("giving the terminal away", rustix::fs::fchown(&slave, Some(uid(user.uid)), None))?;
    if is_init {
        let name = step("naming the terminal", ptsname(&master, Vec::new()))?;
        // A volume may be on /dev, with links in it.
        let mut make = fs::OpenOptions::new();
        make.write(true).create(true).truncate(false).custom_flags(libc::O_NOFOLLOW);
        step("making /dev/console", make.open("/dev/console"))?;
        step("mounting /dev/console", rustix::mount::mount_bind(name.as_c_str(), c"/dev/console"))?;
    }
    step("handing the terminal over", protocol::send(channel, &News::Terminal, &[master.as_fd()]))?;
    step("taking the terminal", rustix::process::ioctl_tiocsctty(&slave))?;
    Ok(Stdio { stdin: Some(slave.try_clone()?), stdout: Some(slave.try_clone()?), stderr: Some(slave) })
}

fn set_stdio(end: Option<&OwnedFd>, null: BorrowedFd<'_>, number: i32, user: &User) -> io::Result<()> {
    let source = end.map_or(null, |end| end.as_fd());
    if end.is_some() {
        // So that the user can open /dev/stdout and its like again. Not everything can be owned, a socket for one.
        let _ = rustix::fs::fchown(source, Some(uid(user.uid)), None);
    }
    // SAFETY: replaces a standard descriptor, which nothing in this process refers to.
    step("setting up the standard streams", os_result(unsafe { libc::dup2(source.as_raw_fd(), number) }))
}

fn uid(number: u32) -> rustix::fs::Uid {
    rustix::fs::Uid::from_raw(number)
}

fn os_result(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// User, groups, capabilities and the filter of system calls. A filter can be loaded by a privileged process or by one that
/// has given up gaining privileges; so its place depends on which this is.
fn take_identity(process: &ProcessSpec, user: &User, cwd: &str) -> io::Result<()> {
    let load = || match &process.seccomp {
        Some(programs) => step("loading the filter of system calls", seccomp::load(programs)),
        None => Ok(()),
    };
    let wanted = process.capabilities;
    step("limiting capabilities", capabilities::limit_bounding(wanted.bounding))?;
    // SAFETY: the calls read a list that lives, or numbers.
    unsafe {
        step("setting groups", os_result(libc::setgroups(user.groups.len(), user.groups.as_ptr())))?;
        step("setting the group", os_result(libc::setresgid(user.gid, user.gid, user.gid)))?;
        libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0);
        step("setting the user", os_result(libc::setresuid(user.uid, user.uid, user.uid)))?;
    }
    if !process.no_new_privs {
        // The change of user has taken the effective ones away.
        let kept = capabilities::permitted()?;
        step("keeping capabilities", capabilities::set(kept, 0))?;
        load()?;
    }
    step("setting capabilities", capabilities::set(wanted.bounding, wanted.ambient))?;
    step("setting ambient capabilities", capabilities::raise_ambient(wanted.ambient))?;
    // As the user, who may not be allowed to enter it.
    step(format!("entering the working directory {cwd}"), chdir(cwd))?;
    if process.no_new_privs {
        // SAFETY: the call takes numbers only.
        let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        step("giving up new privileges", os_result(result))?;
        load()?;
    }
    Ok(())
}

fn execute(process: &ProcessSpec, user: &User) -> io::Result<std::convert::Infallible> {
    let mut env = process.env.clone();
    if !env.iter().any(|entry| entry.starts_with("HOME=")) {
        env.push(format!("HOME={}", user.home));
    }
    let command = process.args.first().ok_or_else(|| io::Error::other("no command specified"))?;
    let path = find(command, &env)?;
    let strings = |texts: &[String]| {
        texts.iter().map(|text| CString::new(text.as_str()).map_err(io::Error::from)).collect::<io::Result<Vec<_>>>()
    };
    let pointers =
        |strings: &[CString]| strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>();
    let (arguments, environment) = (strings(&process.args)?, strings(&env)?);
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both lists end with a null pointer and point to strings that live here.
    unsafe { libc::execve(path.as_ptr(), pointers(&arguments).as_ptr(), pointers(&environment).as_ptr()) };
    step(format!("exec {command:?}"), Err(io::Error::last_os_error()))
}

/// As a shell finds a command.
fn find(command: &str, env: &[String]) -> io::Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    if command.contains('/') {
        return Ok(command.into());
    }
    let paths = env.iter().rev().find_map(|entry| entry.strip_prefix("PATH=")).unwrap_or_default();
    let is_executable = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(paths).map(|folder| folder.join(command)).find(is_executable).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("exec: {command:?}: executable file not found in $PATH"))
    })
}

/// The idle process that holds a pod's shared pid namespace, as its process number 1, with nothing in its file system.
pub(super) fn hold_pid_namespace(folder: &Path) -> io::Result<(i32, OwnedFd)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    match clone(libc::CLONE_NEWNS | libc::CLONE_NEWPID)? {
        None => {
            drop(ours);
            if let Err(error) = hold(folder) {
                let _ = protocol::send(&theirs, &News::Failed(error.to_string()), &[]);
                // SAFETY: ends this process without running anything that belongs to the shim.
                unsafe { libc::_exit(1) }
            }
            // SAFETY: nothing in this process uses a descriptor from here on; whoever waits for one of them to end need not.
            unsafe { libc::close_range(0, u32::MAX, 0) };
            loop {
                // SAFETY: waits for signals.
                unsafe { libc::pause() };
            }
        }
        Some(held) => {
            drop(theirs);
            let mut ready = [rustix::event::PollFd::new(&ours, rustix::event::PollFlags::IN)];
            rustix::io::retry_on_intr(|| rustix::event::poll(&mut ready, None))?;
            match protocol::receive::<News>(&ours)? {
                Some((News::Failed(message), _)) => Err(io::Error::other(message)),
                _ => Ok(held),
            }
        }
    }
}

fn hold(folder: &Path) -> io::Result<()> {
    use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
    reset_signals();
    // SAFETY: plain calls with numbers: children that come to this process are reaped by the kernel, and it ends with the shim.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
    }
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount(
        c"tmpfs",
        folder,
        c"tmpfs",
        MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV,
        c"size=4k,mode=555",
    )?;
    chdir(folder)?;
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")?;
    Ok(())
}
