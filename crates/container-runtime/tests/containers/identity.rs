//! What a process in a container is, sees and may do.

use std::os::unix::fs::MetadataExt;

use container_runtime::services::*;

use crate::fixture::{Fixture, Guard, container, output, start};

fn field<'a>(status: &'a [String], name: &str) -> &'a str {
    let line = status.iter().find_map(|line| line.strip_prefix(&format!("stdout F {name}:")));
    line.unwrap_or("?").trim()
}

pub async fn process(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let pod = runtime.run_pod_sandbox(fixture.pod("p")).await.expect("the sandbox runs");
    let status = ["cat", "/proc/self/status"];
    let (_, plain) = output(&fixture, &runtime, &pod, container("plain", &status)).await;
    assert_eq!((field(&plain, "Uid"), field(&plain, "Pid")), ("0\t0\t0\t0", "1"));
    assert_eq!(field(&plain, "CapBnd"), "00000000a80425fb", "the default capabilities");
    assert_eq!((field(&plain, "Seccomp"), field(&plain, "NoNewPrivs")), ("2", "0"));
    assert_eq!((field(&plain, "SigBlk"), field(&plain, "SigIgn")), ("0000000000000000", "0000000000000000"));

    let mut config = container("limited", &status);
    let security = &mut config.linux.security_context;
    security.run_as_user = Some(1234);
    security.run_as_group = Some(99);
    security.supplemental_groups = vec![7, 8];
    security.no_new_privs = true;
    security.capabilities.drop_capabilities = vec!["ALL".into()];
    security.capabilities.add_capabilities = vec!["NET_BIND_SERVICE".into()];
    let (_, limited) = output(&fixture, &runtime, &pod, config).await;
    assert_eq!((field(&limited, "Uid"), field(&limited, "Gid")), ("1234\t1234\t1234\t1234", "99\t99\t99\t99"));
    assert_eq!(field(&limited, "Groups"), "7 8 99");
    assert_eq!((field(&limited, "CapBnd"), field(&limited, "CapEff")), ("0000000000000400", "0000000000000000"));
    assert_eq!((field(&limited, "Seccomp"), field(&limited, "NoNewPrivs")), ("2", "1"));

    let mut config = container("unknown", &status);
    config.linux.security_context.run_as_username = "stranger".into();
    let id = runtime.create_container(&pod, config).await.expect("it is created");
    let error = runtime.start_container(&id).await.expect_err("nobody has that name");
    assert!(error.to_string().contains("unable to find user stranger"), "{error}");

    let mut config = container("place", &["host"]);
    config.working_dir = "/made/for/me".into();
    config.linux.security_context.readonly_rootfs = true;
    let (_, place) = output(&fixture, &runtime, &pod, config).await;
    assert_eq!(place, ["stdout F p", "stdout F /made/for/me"]);
    let mut config = container("env", &["env", "A"]);
    config.envs = vec![KeyValue { key: "A".into(), value: "b=c d".into() }];
    assert_eq!(output(&fixture, &runtime, &pod, config).await.1, ["stdout F b=c d"]);

    let score = ["cat", "/proc/self/oom_score_adj"];
    assert_eq!(output(&fixture, &runtime, &pod, container("score", &score)).await.1, ["stdout F 0"]);
    let mut config = container("more", &score);
    config.linux.resources.oom_score_adj = 500;
    assert_eq!(output(&fixture, &runtime, &pod, config).await.1, ["stdout F 500"]);

    // A newer libc does without calls that do not exist, and not without those that are forbidden.
    for call in ["435", "5000"] {
        let (_, lines) = output(&fixture, &runtime, &pod, container(&format!("call{call}"), &["call", call])).await;
        assert_eq!(lines, ["stdout F errno 38"], "{call}");
    }

    // Without the filter it is the missing capability that forbids it; both say so.
    assert_eq!(output(&fixture, &runtime, &pod, container("mount", &["mount"])).await.1, ["stdout F errno 1"]);
    let mut config = container("admin", &["mount"]);
    config.linux.security_context.capabilities.add_capabilities = vec!["SYS_ADMIN".into()];
    assert_eq!(output(&fixture, &runtime, &pod, config).await.1, ["stdout F errno 0"]);
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");

    // Environments have secrets, and images have programs that run with their owner's rights.
    for name in ["containers", "sandboxes", "snapshots", "content", "images"] {
        let folder = fixture.root.join(name);
        assert_eq!(std::fs::metadata(&folder).expect("a folder").mode() & 0o777, 0o700, "{name}");
    }
}

pub async fn privileged(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let mut pod = fixture.pod("p");
    pod.linux.security_context.privileged = true;
    let pod = runtime.run_pod_sandbox(pod).await.expect("the sandbox runs");
    let privileged = |name: &str, words: &[&str]| {
        let mut config = container(name, words);
        config.linux.security_context.privileged = true;
        // As a node agent does, which hides them from everybody.
        config.linux.security_context.readonly_paths = vec!["/proc/sys".into()];
        config.linux.security_context.masked_paths = vec!["/proc/keys".into()];
        config
    };
    let (_, status) = output(&fixture, &runtime, &pod, privileged("a", &["cat", "/proc/self/status"])).await;
    let own = std::fs::read_to_string("/proc/self/status").expect("a status");
    let held = own.lines().find_map(|line| line.strip_prefix("CapBnd:")).expect("a line").trim();
    assert_eq!((field(&status, "CapEff"), field(&status, "Seccomp")), (held, "0"));
    let (code, _) =
        output(&fixture, &runtime, &pod, privileged("b", &["write", "/proc/sys/net/ipv4/ip_forward", "1"])).await;
    assert_eq!(code, 0, "/proc/sys can be written");
    let (code, _) =
        output(&fixture, &runtime, &pod, container("c", &["write", "/proc/sys/net/ipv4/ip_forward", "1"])).await;
    assert_eq!(code, 1, "by others it cannot");
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
}

pub async fn mounts(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let pod = runtime.run_pod_sandbox(fixture.pod("p")).await.expect("the sandbox runs");
    let volume = fixture.root.join("volume");
    std::fs::create_dir(&volume).expect("a folder");
    std::fs::write(volume.join("file"), "from the node").expect("a file");
    let mount = |container_path: &str, host_path: &std::path::Path, readonly| Mount {
        container_path: container_path.into(),
        host_path: host_path.to_string_lossy().into_owned(),
        readonly,
        ..Default::default()
    };
    let with = |name: &str, words: &[&str]| ContainerConfig {
        mounts: vec![
            mount("/v", &volume, false),
            mount("/r", &volume, true),
            mount("/etc/one", &volume.join("file"), true),
        ],
        ..container(name, words)
    };
    let (_, lines) = output(&fixture, &runtime, &pod, with("a", &["cat", "/etc/one"])).await;
    assert_eq!(lines, ["stdout P from the node"]);
    let (code, _) = output(&fixture, &runtime, &pod, with("b", &["write", "/v/new", "from the container"])).await;
    assert_eq!(code, 0);
    assert_eq!(std::fs::read_to_string(volume.join("new")).expect("the file"), "from the container");
    let (_, lines) = output(&fixture, &runtime, &pod, with("c", &["write", "/r/new", "x"])).await;
    assert_eq!(lines, ["stdout F errno 30"]);

    // What the node mounts later is seen where that was asked for, and only there.
    let shared = fixture.root.join("shared");
    std::fs::create_dir_all(shared.join("later")).expect("a folder");
    use rustix::mount::{
        MountFlags, MountPropagationFlags, UnmountFlags, mount as mount_on, mount_bind, mount_change, unmount,
    };
    mount_bind(&shared, &shared).expect("a mount");
    mount_change(&shared, MountPropagationFlags::SHARED).expect("a shared mount");
    let mut seeing = container("seeing", &["sleep"]);
    let follow = Mount { propagation: MountPropagation::HostToContainer, ..mount("/follow", &shared, false) };
    seeing.mounts = vec![follow, mount("/apart", &shared, false)];
    let seeing = start(&runtime, &pod, seeing).await;
    mount_on(c"tmpfs", shared.join("later"), c"tmpfs", MountFlags::empty(), None).expect("a mount");
    std::fs::write(shared.join("later/file"), "later").expect("a file");
    let cat = |path: &str| vec!["tool".to_owned(), "cat".to_owned(), path.to_owned()];
    let followed = runtime.exec_sync(&seeing, cat("/follow/later/file"), 60).await.expect("it runs");
    let apart = runtime.exec_sync(&seeing, cat("/apart/later/file"), 60).await.expect("it runs");
    for path in [shared.join("later"), shared.clone()] {
        unmount(&path, UnmountFlags::DETACH).expect("it is unmounted");
    }
    assert_eq!((followed.stdout.as_slice(), apart.exit_code), (&b"later"[..], 1));

    let mut config = container("d", &["write", "/file", "x"]);
    config.linux.security_context.readonly_rootfs = true;
    assert_eq!(output(&fixture, &runtime, &pod, config).await.1, ["stdout F errno 30"]);
    let (_, hidden) = output(&fixture, &runtime, &pod, container("e", &["cat", "/proc/keys"])).await;
    assert_eq!(hidden, Vec::<String>::new(), "masked");

    // Containers of a pod share its memory files, and the first one's go with the pod.
    let (code, _) = output(&fixture, &runtime, &pod, container("f", &["write", "/dev/shm/x", "shared"])).await;
    assert_eq!(code, 0);
    let (_, shared) = output(&fixture, &runtime, &pod, container("g", &["cat", "/dev/shm/x"])).await;
    assert_eq!(shared, ["stdout P shared"]);
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
    assert_eq!(Guard::left(&fixture.root, &fixture.cgroup), Vec::<String>::new());
    assert!(volume.join("file").exists(), "volumes are not the runtime's");
}

pub async fn namespaces(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let mut config = fixture.pod("shared");
    config.linux.security_context.namespace_options.pid = NamespaceMode::Pod;
    config.linux.sysctls.insert("net.ipv4.ip_unprivileged_port_start".into(), "80".into());
    let pod = runtime.run_pod_sandbox(config).await.expect("the sandbox runs");
    let mut events = runtime.events();
    let shared = |name: &str, words: &[&str]| {
        let mut config = container(name, words);
        config.linux.security_context.namespace_options.pid = NamespaceMode::Pod;
        config.linux.security_context.capabilities.add_capabilities = vec!["SYS_PTRACE".into()];
        config
    };
    let first = start(&runtime, &pod, shared("first", &["sleep"])).await;
    let (_, status) = output(&fixture, &runtime, &pod, shared("second", &["cat", "/proc/1/status"])).await;
    assert_eq!(field(&status, "Name"), "ferry-shim", "an idle process holds the namespace");
    let (code, lines) = output(&fixture, &runtime, &pod, shared("third", &["cat", "/proc/1/root/etc/passwd"])).await;
    assert_eq!((code, lines), (1, vec!["stdout F errno 2".to_owned()]), "and has nothing");
    let sysctl = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    assert_eq!(output(&fixture, &runtime, &pod, shared("fourth", &["cat", sysctl])).await.1, ["stdout F 80"]);

    let mut target = container("target", &["cat", "/proc/1/cmdline"]);
    target.linux.security_context.namespace_options.pid = NamespaceMode::Target;
    target.linux.security_context.namespace_options.target_id = first.clone();
    assert_eq!(output(&fixture, &runtime, &pod, target).await.0, 0);

    // The end of one container does not end the others, though they are in one pid namespace.
    runtime.stop_container(&first, 0).await.expect("it stops");
    assert_eq!(crate::fixture::exited(&runtime, &mut events, &first).await.exit_code, 137);
    assert_eq!(output(&fixture, &runtime, &pod, shared("fifth", &["print", "x"])).await.0, 0);
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");

    let mut config = fixture.pod("reaching");
    config.linux.sysctls.insert("kernel.core_pattern".into(), "|/bin/tool".into());
    let error = runtime.run_pod_sandbox(config).await.expect_err("that is the node's");
    assert!(error.to_string().contains("kernel.core_pattern"), "{error}");

    let mut config = fixture.pod("node");
    config.linux.security_context.namespace_options.network = NamespaceMode::Node;
    config.hostname = String::new();
    let pod = runtime.run_pod_sandbox(config).await.expect("the sandbox runs");
    let (_, own) = output(&fixture, &runtime, &pod, container("host", &["host"])).await;
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!(own.first(), Some(&format!("stdout F {name}")));
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
    assert_eq!(Guard::left(&fixture.root, &fixture.cgroup), Vec::<String>::new());
}

pub async fn profiles(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let pod = runtime.run_pod_sandbox(fixture.pod("p")).await.expect("the sandbox runs");
    let file = fixture.root.join("profile.json");
    let text = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mount"], "action": "SCMP_ACT_ERRNO", "errnoRet": 99}]}"#;
    std::fs::write(&file, text).expect("it is written");
    let with = |name: &str, file: &std::path::Path| {
        let mut config = container(name, &["mount"]);
        config.linux.security_context.seccomp = SecurityProfile::Localhost;
        config.linux.security_context.seccomp_localhost_ref = file.to_string_lossy().into_owned();
        config
    };
    let (_, lines) = output(&fixture, &runtime, &pod, with("profile", &file)).await;
    assert_eq!(lines, ["stdout F errno 99"]);
    let missing = runtime.create_container(&pod, with("missing", &fixture.root.join("no.json"))).await;
    assert!(matches!(&missing, Err(ServiceError::InvalidArgument(text)) if text.contains("no.json")), "{missing:?}");
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
}
