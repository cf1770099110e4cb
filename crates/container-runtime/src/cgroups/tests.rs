use super::*;

const HYBRID: &str = "\
30 25 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
33 30 0:31 / /sys/fs/cgroup/cpu,cpuacct rw shared:15 - cgroup cgroup rw,cpu,cpuacct
34 30 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
35 30 0:32 / /elsewhere/memory rw - cgroup cgroup rw,memory
";

#[test]
fn a_hybrid_system_is_version_1_with_each_hierarchy_once() {
    let Some(Layout::V1(hierarchies)) = Layout::from_mountinfo(HYBRID) else { panic!("version 1") };
    let names: Vec<String> = hierarchies.iter().map(|h| h.controllers.join("+")).collect();
    assert_eq!(names, ["name=systemd", "cpu+cpuacct", "memory"]);
    let group = Layout::V1(hierarchies).group("kubepods/pod1/");
    assert_eq!(group.path(), "/kubepods/pod1");
    assert_eq!(group.child("c").folder("memory"), Some("/sys/fs/cgroup/memory/kubepods/pod1/c".into()));
}

#[test]
fn a_unified_system_is_version_2() {
    let mounts = "31 30 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    assert_eq!(Layout::from_mountinfo(mounts), Some(Layout::V2("/sys/fs/cgroup".into())));
    assert_eq!(Layout::from_mountinfo("1 2 0:1 / / rw - ext4 /dev/vda rw\n"), None);
}

#[test]
fn shares_become_weights() {
    assert_eq!([2, 1024, 262_144].map(v2::weight), [1, 100, 10_000]);
}

#[test]
fn rules_read_as_version_1_takes_them() {
    let texts: Vec<String> = DeviceRule::defaults().iter().map(ToString::to_string).collect();
    assert!(texts.contains(&"c *:* m".to_owned()) && texts.contains(&"c 1:3 rwm".to_owned()), "{texts:?}");
    assert_eq!(DeviceRule::everything()[0].to_string(), "a *:* rwm");
}

/// A group of version 2 for a test, where that is mounted, alone or beside version 1.
fn unified(name: &str) -> Option<(PathBuf, Group)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = mounts.lines().find_map(|line| line.contains(" - cgroup2 ").then(|| line.split(' ').nth(4)).flatten());
    let (Some(mount), true) = (mount, rustix::process::geteuid().is_root()) else {
        eprintln!("skipped: needs root and a mounted cgroup2");
        return None;
    };
    let group = Layout::V2(mount.into()).group(&format!("ferry-test-{name}-{}", std::process::id()));
    if let Err(error) = group.create() {
        eprintln!("skipped: {error}");
        return None;
    }
    Some((mount.into(), group))
}

/// What a container sees as the root of all groups has processes, and gives controllers to others all the same.
#[test]
fn version_2_makes_room_in_a_root_with_processes() {
    use std::os::unix::process::CommandExt;
    let Some((mount, group)) = unified("room") else { return };
    let root = mount.join(group.path().trim_start_matches('/'));
    let script = format!("echo 0 > {}/cgroup.procs && echo there && exec sleep 1000", root.display());
    let mut sleeper = std::process::Command::new("sh");
    let mut sleeper = sleeper.args(["-c", &script]).stdout(std::process::Stdio::piped()).spawn().expect("sh runs");
    let mut there = [0; 6];
    let output = sleeper.stdout.as_mut().expect("its output");
    io::Read::read_exact(output, &mut there).expect("it is there");
    let inner = Layout::V2(root.clone()).group("pods/one");
    let made = inner.create();
    let has = fs::read_to_string(root.join("cgroup.controllers")).expect("controllers");
    let gives = fs::read_to_string(root.join("cgroup.subtree_control")).expect("controllers");
    // A group that gives controllers takes no processes; who comes to join one there goes where it is.
    let beside = group.clone();
    let mut command = std::process::Command::new("cat");
    let pid = sleeper.id().cast_signed();
    // SAFETY: nothing else of this process is used between the fork and the execution.
    unsafe { command.arg("/proc/self/cgroup").pre_exec(move || beside.join_beside(pid)) };
    let joined = command.output();
    sleeper.kill().expect("it ends");
    sleeper.wait().expect("it has ended");
    group.destroy(Duration::from_secs(5)).expect("the groups go away");
    made.expect("the group is made");
    if has.trim().is_empty() {
        eprintln!("skipped: no controllers in version 2 here");
        return;
    }
    assert_ne!(gives.trim(), "", "of {has}");
    let joined = String::from_utf8_lossy(&joined.expect("cat runs").stdout).into_owned();
    assert!(joined.contains(&format!("{}/init\n", group.path())), "{joined}");
}

/// The kernel's own verifier judges the program, and a process in the group feels it. Version 2 is mounted beside version 1 on
/// hybrid systems, too.
#[test]
fn version_2_forbids_devices_in_the_kernel() {
    let Some((mount, group)) = unified("devices") else { return };
    let rules = [DeviceRule::new(DeviceKind::Char, Some(1), Some(3), "rwm")];
    let attached = group.set_devices(&rules);
    let script = format!(
        "echo 0 > {}{}/cgroup.procs && cat /dev/null && ! head -c1 /dev/zero 2>/dev/null",
        mount.display(),
        group.path()
    );
    let status = std::process::Command::new("sh").args(["-c", &script]).status();
    group.destroy(Duration::from_secs(5)).expect("the group goes away");
    attached.expect("the kernel takes the program");
    assert!(status.expect("sh runs").success(), "null is allowed and zero is not");
}
