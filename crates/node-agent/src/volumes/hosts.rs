//! The pod's /etc/hosts.

use std::{fs, io, net::IpAddr, os::unix::fs::PermissionsExt, path::Path};

use k8s_openapi::api::core::v1::{HostAlias, PodSpec};

use crate::configuration::hostname::Hostname;

/// Writes the file in its place: containers have it mounted. A pod on the node's network has the node's, with more.
pub(super) fn write(path: &Path, spec: &PodSpec, name: &Hostname, pod_ips: &[IpAddr]) -> io::Result<()> {
    let aliases = spec.host_aliases.as_deref().unwrap_or_default();
    let text = if spec.host_network.unwrap_or(false) {
        let of_node = fs::read_to_string("/etc/hosts")?;
        format!("# Kubernetes-managed hosts file (host network).\n{of_node}{}", entries(aliases))
    } else {
        content(name, pod_ips, aliases)
    };
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

fn content(name: &Hostname, pod_ips: &[IpAddr], aliases: &[HostAlias]) -> String {
    let mut text = "# Kubernetes-managed hosts file.\n\
        127.0.0.1\tlocalhost\n\
        ::1\tlocalhost ip6-localhost ip6-loopback\n\
        fe00::0\tip6-localnet\n\
        fe00::0\tip6-mcastprefix\n\
        fe00::1\tip6-allnodes\n\
        fe00::2\tip6-allrouters\n"
        .to_owned();
    for ip in pod_ips {
        text += &match name.domain.as_str() {
            "" => format!("{ip}\t{}\n", name.name),
            domain => format!("{ip}\t{0}.{domain}\t{0}\n", name.name),
        };
    }
    text + &entries(aliases)
}

fn entries(aliases: &[HostAlias]) -> String {
    if aliases.is_empty() {
        return String::new();
    }
    let line =
        |alias: &HostAlias| format!("{}\t{}\n", alias.ip, alias.hostnames.as_deref().unwrap_or_default().join("\t"));
    format!("\n# Entries added by HostAliases.\n{}", aliases.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_knows_itself_and_its_aliases() {
        let name = Hostname { name: "web-0".into(), domain: "web.ns.svc.cluster.local".into() };
        let aliases = [HostAlias { ip: "1.2.3.4".into(), hostnames: Some(vec!["a".into(), "b.c".into()]) }];
        let text = content(&name, &["10.0.0.5".parse().expect("an address")], &aliases);
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"), "{text}");
        let end =
            "10.0.0.5\tweb-0.web.ns.svc.cluster.local\tweb-0\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb.c\n";
        assert!(text.ends_with(end), "{text}");
        let alone = content(
            &Hostname { name: "p".into(), domain: String::new() },
            &["fd00::1".parse().expect("an address")],
            &[],
        );
        assert!(alone.ends_with("fe00::2\tip6-allrouters\nfd00::1\tp\n"), "{alone}");
    }
}
