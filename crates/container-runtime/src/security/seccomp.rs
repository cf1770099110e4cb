//! The filter of system calls named `RuntimeDefault`: an ordinary program runs, and what reaches into the node does not.
//!
//! Calls that a capability guards are in the list when the container has the capability. A filter of the `seccompiler` crate
//! has one answer for the calls in its list and one for the others, so a second filter answers some with "no such call": `clone3`, upon
//! which libc falls back to `clone`, whose flags a filter can see; and calls that are newer than the list, which a newer libc
//! tries and does without. The kernel takes the strictest answer, and of two that are equally strict that of the filter loaded last.

use std::{collections::BTreeMap, io};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use super::{
    capabilities::bit,
    profile::{AT_LEAST, EQUAL, LOAD, NUMBER_AT, RETURN, instruction},
};

/// Programs to load one after the other; each instruction as a number.
pub type Programs = Vec<Vec<u64>>;

/// A call: `SYS_` and its name, and its number here.
type Call = (&'static str, libc::c_long);

/// Makes a list of calls.
macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

/// What any program may call.
const ALLOWED: &[Call] = calls! {
    SYS_accept SYS_accept4 SYS_adjtimex SYS_bind SYS_brk SYS_capget SYS_capset SYS_chdir
    SYS_clock_adjtime SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep SYS_close SYS_close_range SYS_connect
    SYS_copy_file_range SYS_dup SYS_dup3 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2
    SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_faccessat SYS_faccessat2 SYS_fadvise64 SYS_fallocate SYS_fanotify_mark SYS_fchdir
    SYS_fchmod SYS_fchmodat SYS_fchmodat2 SYS_fchown SYS_fchownat SYS_fcntl SYS_fdatasync SYS_fgetxattr SYS_flistxattr SYS_flock
    SYS_fremovexattr SYS_fsetxattr SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex
    SYS_futex_waitv SYS_getcpu SYS_getcwd SYS_getdents64 SYS_getegid SYS_geteuid SYS_getgid SYS_getgroups
    SYS_getitimer SYS_getpeername SYS_getpgid SYS_getpid SYS_getppid SYS_getpriority SYS_getrandom SYS_getresgid SYS_getresuid
    SYS_getrlimit SYS_get_robust_list SYS_getrusage SYS_getsid SYS_getsockname SYS_getsockopt SYS_gettid SYS_gettimeofday
    SYS_getuid SYS_getxattr SYS_inotify_add_watch SYS_inotify_init1 SYS_inotify_rm_watch SYS_io_cancel SYS_ioctl
    SYS_io_destroy SYS_io_getevents SYS_ioprio_get SYS_ioprio_set SYS_io_setup SYS_io_submit SYS_kill
    SYS_landlock_add_rule SYS_landlock_create_ruleset SYS_landlock_restrict_self SYS_lgetxattr SYS_linkat SYS_listen
    SYS_listxattr SYS_llistxattr SYS_lremovexattr SYS_lseek SYS_lsetxattr SYS_madvise SYS_membarrier SYS_memfd_create
    SYS_memfd_secret SYS_mincore SYS_mkdirat SYS_mknodat SYS_mlock SYS_mlock2 SYS_mlockall SYS_mmap SYS_mprotect
    SYS_mq_getsetattr SYS_mq_notify SYS_mq_open SYS_mq_timedreceive SYS_mq_timedsend SYS_mq_unlink SYS_mremap SYS_msgctl SYS_msgget
    SYS_msgrcv SYS_msgsnd SYS_msync SYS_munlock SYS_munlockall SYS_munmap SYS_name_to_handle_at SYS_nanosleep SYS_newfstatat
    SYS_openat SYS_openat2 SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2 SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect
    SYS_ppoll SYS_prctl SYS_pread64 SYS_preadv SYS_preadv2 SYS_prlimit64 SYS_process_mrelease SYS_pselect6 SYS_pwrite64
    SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead SYS_readlinkat SYS_readv SYS_recvfrom SYS_recvmmsg SYS_recvmsg
    SYS_remap_file_pages SYS_removexattr SYS_renameat SYS_renameat2 SYS_restart_syscall SYS_rseq SYS_rt_sigaction
    SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigqueueinfo SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait
    SYS_rt_tgsigqueueinfo SYS_sched_getaffinity SYS_sched_getattr SYS_sched_getparam SYS_sched_get_priority_max
    SYS_sched_get_priority_min SYS_sched_getscheduler SYS_sched_rr_get_interval SYS_sched_setaffinity SYS_sched_setattr
    SYS_sched_setparam SYS_sched_setscheduler SYS_sched_yield SYS_seccomp SYS_semctl SYS_semget SYS_semop SYS_semtimedop
    SYS_sendfile SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_setfsgid SYS_setfsuid SYS_setgid SYS_setgroups SYS_setitimer SYS_setpgid
    SYS_setpriority SYS_setregid SYS_setresgid SYS_setresuid SYS_setreuid SYS_setrlimit SYS_set_robust_list SYS_setsid
    SYS_setsockopt SYS_set_tid_address SYS_setuid SYS_setxattr SYS_shmat SYS_shmctl SYS_shmdt SYS_shmget SYS_shutdown
    SYS_sigaltstack SYS_signalfd4 SYS_socketpair SYS_splice SYS_statfs SYS_statx SYS_symlinkat SYS_sync
    SYS_sync_file_range SYS_syncfs SYS_sysinfo SYS_tee SYS_tgkill SYS_timer_create SYS_timer_delete SYS_timer_getoverrun
    SYS_timer_gettime SYS_timer_settime SYS_timerfd_create SYS_timerfd_gettime SYS_timerfd_settime SYS_times SYS_tkill
    SYS_truncate SYS_umask SYS_uname SYS_unlinkat SYS_utimensat SYS_vmsplice SYS_wait4 SYS_waitid SYS_write SYS_writev
    SYS_process_vm_readv SYS_process_vm_writev SYS_ptrace SYS_clone3
};

/// Older forms that only this processor still has.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[Call] = calls! {
    SYS_access SYS_alarm SYS_arch_prctl SYS_chmod SYS_chown SYS_creat SYS_dup2 SYS_epoll_create SYS_epoll_ctl_old
    SYS_epoll_wait SYS_epoll_wait_old SYS_eventfd SYS_fork SYS_futimesat SYS_getdents SYS_getpgrp SYS_inotify_init SYS_lchown
    SYS_link SYS_lstat SYS_mkdir SYS_mknod SYS_modify_ldt SYS_open SYS_pause SYS_pipe SYS_poll SYS_readlink SYS_rename
    SYS_rmdir SYS_select SYS_signalfd SYS_stat SYS_symlink SYS_time SYS_unlink SYS_utime SYS_utimes SYS_vfork
};
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[Call] = &[];

/// Calls that libc does not name yet, which have these numbers everywhere.
const ALLOWED_BY_NUMBER: &[Call] = &[
    ("SYS_cachestat", 451),
    ("SYS_map_shadow_stack", 453),
    ("SYS_futex_wake", 454),
    ("SYS_futex_wait", 455),
    ("SYS_futex_requeue", 456),
    ("SYS_statmount", 457),
    ("SYS_listmount", 458),
    ("SYS_mseal", 462),
    ("SYS_setxattrat", 463),
    ("SYS_getxattrat", 464),
    ("SYS_listxattrat", 465),
    ("SYS_removexattrat", 466),
];

/// The first number of a call that this list does not know, on every machine.
const FIRST_UNKNOWN: u32 = 467;

/// Calls that belong to a capability.
const GUARDED: &[(&str, &[Call])] = &[
    ("DAC_READ_SEARCH", calls! { SYS_open_by_handle_at }),
    (
        "SYS_ADMIN",
        calls! {
            SYS_bpf SYS_clone SYS_fanotify_init SYS_fsconfig SYS_fsmount SYS_fsopen SYS_fspick SYS_lookup_dcookie
            SYS_mount SYS_mount_setattr SYS_move_mount SYS_open_tree SYS_perf_event_open SYS_quotactl SYS_quotactl_fd
            SYS_setdomainname SYS_sethostname SYS_setns SYS_syslog SYS_umount2 SYS_unshare
        },
    ),
    ("SYS_BOOT", calls! { SYS_reboot }),
    ("SYS_CHROOT", calls! { SYS_chroot }),
    ("SYS_MODULE", calls! { SYS_delete_module SYS_init_module SYS_finit_module }),
    ("SYS_PACCT", calls! { SYS_acct }),
    ("SYS_PTRACE", calls! { SYS_kcmp SYS_pidfd_getfd SYS_process_madvise }),
    ("SYS_TIME", calls! { SYS_settimeofday SYS_clock_settime }),
    ("SYS_TTY_CONFIG", calls! { SYS_vhangup }),
    ("SYS_NICE", calls! { SYS_get_mempolicy SYS_mbind SYS_set_mempolicy SYS_set_mempolicy_home_node }),
    ("SYSLOG", calls! { SYS_syslog }),
    ("BPF", calls! { SYS_bpf }),
    ("PERFMON", calls! { SYS_perf_event_open }),
];

/// What no ordinary program needs; profiles may name it all the same.
const OTHERS: &[Call] = calls! {
    SYS_add_key SYS_clone SYS_io_uring_enter SYS_io_uring_register SYS_io_uring_setup SYS_kexec_file_load SYS_kexec_load SYS_keyctl
    SYS_migrate_pages SYS_move_pages SYS_nfsservctl SYS_personality SYS_pivot_root SYS_request_key SYS_socket SYS_swapoff SYS_swapon
    SYS_userfaultfd
};

#[cfg(target_arch = "x86_64")]
const OTHERS_HERE: &[Call] = calls! {
    SYS_ioperm SYS_iopl SYS_sysfs SYS_uselib SYS_ustat SYS__sysctl
};
#[cfg(not(target_arch = "x86_64"))]
const OTHERS_HERE: &[Call] = &[];

/// The number of a call by its name, if this machine has it.
pub(super) fn number(name: &str) -> Option<u32> {
    let plain = [ALLOWED, ALLOWED_HERE, ALLOWED_BY_NUMBER, OTHERS, OTHERS_HERE].into_iter();
    let all = plain.chain(GUARDED.iter().map(|(_, calls)| *calls)).flatten();
    let found = all.into_iter().find(|(known, _)| known.strip_prefix("SYS_") == Some(name));
    found.and_then(|(_, number)| u32::try_from(*number).ok())
}

/// The flags of `clone` that make namespaces.
const NAMESPACE_FLAGS: u64 = 0x7e02_0000;

/// The domain of sockets to the hypervisor, which no network namespace holds back.
const AF_VSOCK: u64 = 40;

/// `RuntimeDefault` for a container with these capabilities.
pub fn runtime_default(capabilities: u64) -> Result<Programs, String> {
    let has = |name: &str| bit(name).is_some_and(|bit| capabilities & bit != 0);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for (_, call) in ALLOWED.iter().chain(ALLOWED_HERE).chain(ALLOWED_BY_NUMBER) {
        rules.insert(*call, Vec::new());
    }
    for (_, calls) in GUARDED.iter().filter(|(name, _)| has(name)) {
        for (_, call) in *calls {
            rules.insert(*call, Vec::new());
        }
    }
    let argument = |index, op, value| {
        SeccompCondition::new(index, SeccompCmpArgLen::Qword, op, value)
            .and_then(|condition| SeccompRule::new(vec![condition]))
            .map_err(|error| error.to_string())
    };
    if !has("SYS_ADMIN") {
        rules.insert(libc::SYS_clone, vec![argument(0, SeccompCmpOp::MaskedEq(NAMESPACE_FLAGS), 0)?]);
    }
    rules.insert(libc::SYS_socket, vec![argument(0, SeccompCmpOp::Ne, AF_VSOCK)?]);
    // Linux, Linux with 16-bit uids, BSD's; and asking which it is.
    let personalities = [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff];
    let personalities: Result<Vec<_>, _> =
        personalities.map(|p| argument(0, SeccompCmpOp::Eq, p)).into_iter().collect();
    rules.insert(libc::SYS_personality, personalities?);

    Ok(vec![compile(rules)?, missing(!has("SYS_ADMIN"))])
}

/// Answers what is to seem not to exist.
fn missing(with_clone3: bool) -> Vec<u64> {
    let no_such_call = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let clone3 = if with_clone3 { libc::SYS_clone3 as u32 } else { FIRST_UNKNOWN };
    vec![
        instruction(LOAD, 0, 0, NUMBER_AT),
        instruction(EQUAL, 1, 0, clone3),
        instruction(AT_LEAST, 0, 1, FIRST_UNKNOWN),
        instruction(RETURN, 0, 0, no_such_call),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

fn compile(rules: BTreeMap<i64, Vec<SeccompRule>>) -> Result<Vec<u64>, String> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let (otherwise, listed) = (SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow);
    let filter = SeccompFilter::new(rules, otherwise, listed, architecture).map_err(|error| error.to_string())?;
    let program = BpfProgram::try_from(filter).map_err(|error| error.to_string())?;
    Ok(program
        .iter()
        .map(|i| u64::from(i.code) << 48 | u64::from(i.jt) << 40 | u64::from(i.jf) << 32 | u64::from(i.k))
        .collect())
}

/// Loads the programs into this thread, for good. Needs no_new_privs or CAP_SYS_ADMIN.
pub fn load(programs: &Programs) -> io::Result<()> {
    // The last call must not be one that an earlier program forbids: `seccomp` is in the list.
    for program in programs {
        let mut code: Vec<libc::sock_filter> = program
            .iter()
            .map(|word| libc::sock_filter {
                code: (word >> 48) as u16,
                jt: (word >> 40) as u8,
                jf: (word >> 32) as u8,
                k: *word as u32,
            })
            .collect();
        let length = u16::try_from(code.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let program = libc::sock_fprog { len: length, filter: code.as_mut_ptr() };
        // SAFETY: the kernel copies the program during the call.
        let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_fits_the_kernel_and_depends_on_capabilities() {
        let plain = runtime_default(0).expect("it compiles");
        assert!(plain.iter().all(|program| program.len() <= 4096), "the kernel's limit of instructions");
        let admin = runtime_default(bit("SYS_ADMIN").expect("known")).expect("it compiles");
        assert!(admin[0].len() > plain[0].len());
    }
}
