//! Whom a container runs as, and what it may do: the pod's security context with the container's laid over it.

use std::{fs, path::Path};

use container_runtime::services::{Capability, Image, LinuxContainerSecurityContext, SecurityProfile};
use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext, SeccompProfile, SecurityContext};

use super::{
    ConfigError, named,
    sandbox::{is_privileged, namespaces},
};

/// What a container must not see of the node.
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// What it must not change.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

pub(super) fn security_context(
    root: &Path,
    pod: &Pod,
    container: &Container,
    image: &Image,
) -> Result<LinuxContainerSecurityContext, ConfigError> {
    let spec = pod.spec.clone().unwrap_or_default();
    let of_pod = spec.security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let run_as_user = own.run_as_user.or(of_pod.run_as_user);
    if own.run_as_non_root.or(of_pod.run_as_non_root).unwrap_or(false) {
        check_not_root(run_as_user, image)
            .map_err(|why| ConfigError(format!("{why} (pod: {:?}, container: {})", named(pod), container.name)))?;
    }
    refuse_app_armor(&of_pod, &own)?;
    let (seccomp, seccomp_localhost_ref) =
        seccomp(root, own.seccomp_profile.as_ref().or(of_pod.seccomp_profile.as_ref()))?;
    let unmasked = own.proc_mount.as_deref() == Some("Unmasked");
    let paths = |all: &[&str]| if unmasked { Vec::new() } else { all.iter().map(|path| (*path).to_owned()).collect() };
    let capabilities = own.capabilities.clone().unwrap_or_default();
    Ok(LinuxContainerSecurityContext {
        capabilities: Capability {
            add_capabilities: capabilities.add.unwrap_or_default(),
            drop_capabilities: capabilities.drop.unwrap_or_default(),
            add_ambient_capabilities: Vec::new(),
        },
        privileged: is_privileged(container),
        namespace_options: namespaces(&spec),
        run_as_user: run_as_user.or(image.uid),
        run_as_group: own.run_as_group.or(of_pod.run_as_group),
        run_as_username: if run_as_user.is_none() && image.uid.is_none() {
            image.username.clone()
        } else {
            String::new()
        },
        readonly_rootfs: own.read_only_root_filesystem.unwrap_or(false),
        supplemental_groups: of_pod
            .fs_group
            .into_iter()
            .chain(of_pod.supplemental_groups.into_iter().flatten())
            .collect(),
        supplemental_groups_strict: of_pod.supplemental_groups_policy.as_deref() == Some("Strict"),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: if unmasked { Vec::new() } else { [paths(&MASKED), thermal_paths()].concat() },
        readonly_paths: paths(&READ_ONLY),
        seccomp,
        seccomp_localhost_ref,
    })
}

fn check_not_root(run_as_user: Option<i64>, image: &Image) -> Result<(), String> {
    match (run_as_user, image.uid, image.username.as_str()) {
        (Some(0), ..) => Err("container's runAsUser breaks non-root policy".into()),
        (Some(_), ..) => Ok(()),
        (None, Some(0), _) | (None, None, "") => Err("container has runAsNonRoot and image will run as root".into()),
        (None, Some(uid), _) if i32::try_from(uid).is_ok_and(|uid| uid > 0) => Ok(()),
        (None, Some(uid), _) => Err(format!(
            "container has runAsNonRoot and image has an invalid user id ({uid}). (Must be 1-({})): must be between 0 and {}, \
             inclusive",
            i32::MAX,
            i32::MAX
        )),
        (None, None, name) => Err(format!(
            "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root"
        )),
    }
}

/// Profiles of the node are in `seccomp` below the agent's folder.
fn seccomp(root: &Path, profile: Option<&SeccompProfile>) -> Result<(SecurityProfile, String), ConfigError> {
    match profile.map(|profile| (profile.type_.as_str(), profile.localhost_profile.as_deref())) {
        Some(("RuntimeDefault", _)) => Ok((SecurityProfile::RuntimeDefault, String::new())),
        Some(("Localhost", Some(file))) if !file.is_empty() => {
            let path = root.join("seccomp").join(file);
            Ok((SecurityProfile::Localhost, path.to_string_lossy().into_owned()))
        }
        Some(("Localhost", _)) => {
            Err(ConfigError("localhostProfile must be set if seccompProfile type is Localhost.".into()))
        }
        _ => Ok((SecurityProfile::Unconfined, String::new())),
    }
}

/// The runtime applies no profiles of AppArmor. Its default is one that a node without AppArmor does not have either; a
/// profile that somebody names is one that somebody relies on.
fn refuse_app_armor(of_pod: &PodSecurityContext, own: &SecurityContext) -> Result<(), ConfigError> {
    match own.app_armor_profile.as_ref().or(of_pod.app_armor_profile.as_ref()) {
        Some(profile) if profile.type_ == "Localhost" => {
            Err(ConfigError("Cannot enforce AppArmor: AppArmor is not enabled on the host".into()))
        }
        _ => Ok(()),
    }
}

/// How often each processor was throttled tells of others' work.
fn thermal_paths() -> Vec<String> {
    let entries = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let mut paths: Vec<String> = entries
        .filter(|entry| {
            let number = entry.file_name().to_str().and_then(|name| name.strip_prefix("cpu")?.parse::<u32>().ok());
            number.is_some() && entry.path().join("thermal_throttle").exists()
        })
        .map(|entry| entry.path().join("thermal_throttle").to_string_lossy().into_owned())
        .collect();
    paths.sort();
    paths
}
