//! Security contexts of pods and containers.

use std::collections::HashSet;

use object_model::names;

use super::Options;
use crate::validation::{Field, paths};

const SYSCTL: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

pub fn pod_security_context(spec: &Field, options: &Options) {
    let context = spec.at("securityContext");
    for id in ["fsGroup", "runAsUser", "runAsGroup"] {
        context.at(id).id_if_set();
    }
    for group in context.at("supplementalGroups").each() {
        group.id_if_set();
    }
    if spec.at("shareProcessNamespace").is_true() && spec.at("hostPID").is_true() {
        context
            .at("shareProcessNamespace")
            .invalid_value(true, "ShareProcessNamespace and HostPID cannot both be enabled");
    }
    sysctls(&context.at("sysctls"), spec, options);
    context.at("fsGroupChangePolicy").one_of_if_set(&["Always", "OnRootMismatch"]);
    seccomp_profile(&context.at("seccompProfile"));
    windows_options(&context.at("windowsOptions"));
    app_armor_profile(&context.at("appArmorProfile"));
    context.at("supplementalGroupsPolicy").one_of_if_set(&["Merge", "Strict"]);
    let policies: &[&str] =
        if options.any_selinux_change_policy { &["MountOption", "Recursive"] } else { &["Recursive"] };
    context.at("seLinuxChangePolicy").one_of_if_set(policies);
}

pub fn security_context(context: &Field, host_users: bool) {
    context.at("runAsUser").id_if_set();
    context.at("runAsGroup").id_if_set();
    let mount = context.at("procMount");
    mount.one_of_if_set(&["Default", "Unmasked"]);
    if host_users && mount.is("Unmasked") {
        mount.invalid("`hostUsers` must be false to use `Unmasked`");
    }
    seccomp_profile(&context.at("seccompProfile"));
    if context.at("allowPrivilegeEscalation").flag() == Some(false) {
        if context.at("privileged").is_true() {
            context.invalid_as(
                "SecurityContext",
                "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            );
        }
        for _ in context.at("capabilities").at("add").texts().filter(|c| *c == "CAP_SYS_ADMIN") {
            context.invalid_as(
                "SecurityContext",
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            );
        }
    }
    windows_options(&context.at("windowsOptions"));
    app_armor_profile(&context.at("appArmorProfile"));
}

fn seccomp_profile(profile: &Field) {
    if !profile.is_set() {
        return;
    }
    let (kind, local) = (profile.at("type"), profile.at("localhostProfile"));
    if kind.is_empty() {
        kind.missing("type is required when seccompProfile is set");
    } else {
        kind.one_of(&["Localhost", "RuntimeDefault", "Unconfined"]);
    }
    match (kind.is("Localhost"), local.is_set()) {
        (true, false) => local.missing("must be set when seccomp type is Localhost"),
        (true, true) => paths::local_descending(&local),
        (false, true) => local.invalid_value(profile.value().clone(), "can only be set when seccomp type is Localhost"),
        (false, false) => {}
    }
}

pub fn app_armor_profile(profile: &Field) {
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    if !profile.is_set() {
        return;
    }
    let (kind, local) = (profile.at("type"), profile.at("localhostProfile"));
    match kind.text() {
        "Localhost" if !local.is_set() => local.missing(NEEDED),
        "Localhost" => {
            let trimmed = local.text().trim();
            if trimmed != local.text() {
                local.invalid("must not be padded with whitespace");
            } else if trimmed.is_empty() {
                local.missing(NEEDED);
            }
            if local.text().len() > 4095 {
                local.too_long(4095);
            }
        }
        "RuntimeDefault" | "Unconfined" if local.is_set() => {
            local.invalid("can only be set when AppArmor type is Localhost")
        }
        "RuntimeDefault" | "Unconfined" => {}
        "" => kind.missing("type is required when appArmorProfile is set"),
        _ => kind.not_supported(&["Localhost", "RuntimeDefault", "Unconfined"]),
    }
}

fn sysctls(sysctls: &Field, spec: &Field, options: &Options) {
    let mut seen = HashSet::new();
    for sysctl in sysctls.each() {
        let name = sysctl.at("name");
        if name.required() {
            if !is_sysctl(name.text()) {
                name.invalid(format!("must have at most 253 characters and match regex {SYSCTL}"));
            } else if seen.contains(&name.text()) {
                name.duplicate();
            }
        }
        if let Some(detail) = host_sysctl(name.text(), spec).filter(|_| !options.host_sysctls) {
            name.invalid(detail);
        }
        seen.insert(name.text());
    }
}

fn is_sysctl(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() <= 253
        && name.split(['.', '/']).all(|part| match part.as_bytes() {
            [] => false,
            bytes => {
                letter(bytes[0])
                    && letter(bytes[bytes.len() - 1])
                    && bytes.iter().all(|b| letter(*b) || b"-_".contains(b))
            }
        })
}

/// A setting of a namespace that the pod shares with its node is none of the pod's business.
pub fn host_sysctl(name: &str, spec: &Field) -> Option<&'static str> {
    // The first separator decides how the name is written.
    let dotted = match name.find(['.', '/']) {
        Some(i) if name.as_bytes()[i] == b'/' => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_owned(),
    };
    let ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|prefix| dotted.starts_with(prefix))
        || dotted == "kernel.sem";
    if dotted.starts_with("net.") && spec.at("hostNetwork").is_true() {
        return Some("may not be specified when 'hostNetwork' is true");
    }
    (ipc && spec.at("hostIPC").is_true()).then_some("may not be specified when 'hostIPC' is true")
}

fn windows_options(options: &Field) {
    let name = options.at("gmsaCredentialSpecName");
    if name.is_set() {
        name.invalid_for(names::dns_subdomain(name.text()));
    }
    let spec = options.at("gmsaCredentialSpec");
    if spec.is_set() && spec.is_empty() {
        spec.invalid("gmsaCredentialSpec cannot be an empty string");
    } else if spec.text().len() > 64 * 1024 {
        spec.invalid("gmsaCredentialSpec size must be under 64 KiB");
    }
    if options.at("runAsUserName").is_set() {
        windows_user(&options.at("runAsUserName"));
    }
}

/// `DOMAIN\user` or `user`.
fn windows_user(name: &Field) {
    let text = name.text();
    if text.is_empty() {
        return name.invalid("runAsUserName cannot be an empty string");
    }
    if text.chars().any(char::is_control) {
        return name.invalid("runAsUserName cannot contain control characters");
    }
    if text.matches('\\').count() > 1 {
        return name.invalid("runAsUserName cannot contain more than one backslash");
    }
    let (domain, user) = match text.split_once('\\') {
        Some((domain, user)) => (Some(domain), user),
        None => (None, text),
    };
    if let Some(domain) = domain {
        if domain.len() >= 256 {
            name.invalid("runAsUserName's Domain length must be under 256 characters");
        }
        if !is_netbios_name(domain) && !is_dns_domain(domain) {
            name.invalid("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
        }
    }
    if user.is_empty() {
        name.invalid("runAsUserName's User cannot be empty");
    } else if user.len() > 104 {
        name.invalid("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|c| c == '.' || c == ' ') {
        name.invalid("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.chars().any(|c| r#""/\:;|=,+*?<>@[]"#.contains(c)) {
        name.invalid(r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#);
    }
}

fn is_netbios_name(domain: &str) -> bool {
    let forbidden = r#"\/:*?"<>|"#;
    let length = domain.chars().count();
    (1..=15).contains(&length) && !domain.starts_with('.') && !domain.chars().any(|c| forbidden.contains(c))
}

fn is_dns_domain(domain: &str) -> bool {
    domain.split('.').all(|label| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}
