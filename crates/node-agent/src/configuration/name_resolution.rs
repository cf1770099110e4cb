//! Where a pod asks for names: its policy, and what it adds itself.

use std::{fs, net::IpAddr, path::Path};

use container_runtime::services::DnsConfig;
use k8s_openapi::api::core::v1::Pod;

use crate::Settings;

const MOST_SERVERS: usize = 3;
const MOST_SEARCHES: usize = 32;
const LONGEST_SEARCH: usize = 253;
const LONGEST_LINE: usize = 2048;

/// The pod's resolver.
pub(super) fn dns(settings: &Settings, pod: &Pod) -> DnsConfig {
    let policy = pod.spec.as_ref().and_then(|spec| spec.dns_policy.as_deref()).unwrap_or("ClusterFirst");
    let on_host = pod.spec.as_ref().is_some_and(|spec| spec.host_network.unwrap_or(false));
    let in_cluster = policy == "ClusterFirstWithHostNet" || policy == "ClusterFirst" && !on_host;
    let mut config = match policy {
        "None" => DnsConfig::default(),
        _ if in_cluster && !settings.cluster_dns.is_empty() => within_cluster(settings, pod, node_resolver()),
        _ => node_resolver(),
    };
    if let Some(own) = pod.spec.as_ref().and_then(|spec| spec.dns_config.as_ref()) {
        config.servers.extend(own.nameservers.clone().unwrap_or_default());
        config.searches.extend(own.searches.clone().unwrap_or_default());
        for option in own.options.iter().flatten() {
            let Some(name) = option.name.as_deref() else { continue };
            let value = option.value.as_deref().filter(|value| !value.is_empty());
            set_option(&mut config.options, &value.map_or(name.to_owned(), |value| format!("{name}:{value}")));
        }
    }
    within_limits(config)
}

fn within_cluster(settings: &Settings, pod: &Pod, node: DnsConfig) -> DnsConfig {
    let (domain, namespace) = (&settings.cluster_domain, pod.metadata.namespace.as_deref().unwrap_or_default());
    let mut searches = match domain.is_empty() {
        true => Vec::new(),
        false => vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()],
    };
    searches.extend(node.searches);
    let servers = settings.cluster_dns.iter().map(IpAddr::to_string).collect();
    DnsConfig { servers, searches, options: vec!["ndots:5".into()] }
}

/// The node's own. Where the node asks a resolver on its loopback, which pods cannot reach, it is that resolver's servers.
fn node_resolver() -> DnsConfig {
    let read = |path: &str| fs::read_to_string(Path::new(path)).map(|text| parse(&text)).ok();
    let own = read("/etc/resolv.conf").unwrap_or_default();
    let is_loopback = |server: &String| server.parse::<IpAddr>().is_ok_and(|server| server.is_loopback());
    if own.servers.iter().all(is_loopback)
        && let Some(behind) = read("/run/systemd/resolve/resolv.conf").filter(|behind| !behind.servers.is_empty())
    {
        return behind;
    }
    own
}

fn parse(text: &str) -> DnsConfig {
    let mut config = DnsConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => config.servers.extend(words.next().map(str::to_owned)),
            // The last one counts.
            Some("search") => {
                config.searches = words
                    .filter(|domain| *domain != ".")
                    .map(|domain| domain.strip_suffix('.').unwrap_or(domain).to_owned())
                    .collect();
            }
            Some("options") => words.for_each(|option| set_option(&mut config.options, option)),
            _ => {}
        }
    }
    config
}

/// Later options take the place of earlier ones of the same name.
fn set_option(options: &mut Vec<String>, option: &str) {
    let name = |option: &str| option.split(':').next().unwrap_or_default().to_owned();
    match options.iter_mut().find(|known| name(known) == name(option)) {
        Some(known) => *known = option.to_owned(),
        None => options.push(option.to_owned()),
    }
}

/// What resolvers can hold; the rest is left out, from the end.
fn within_limits(mut config: DnsConfig) -> DnsConfig {
    for list in [&mut config.servers, &mut config.searches] {
        let mut seen = std::collections::BTreeSet::new();
        list.retain(|entry| seen.insert(entry.clone()));
    }
    config.servers.truncate(MOST_SERVERS);
    config.searches.truncate(MOST_SEARCHES);
    config.searches.retain(|search| search.len() <= LONGEST_SEARCH);
    while config.searches.join(" ").len() > LONGEST_LINE {
        config.searches.pop();
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_resolver_is_read_as_its_libraries_read_it() {
        let text = "# nameserver 9.9.9.9\nnameserver 1.1.1.1\nnameserver\nsearch old\nsearch a.example. . b.example\n\
                    options ndots:1 rotate\noptions ndots:2\n";
        let config = parse(text);
        assert_eq!(config.servers, ["1.1.1.1"]);
        assert_eq!(config.searches, ["a.example", "b.example"]);
        assert_eq!(config.options, ["ndots:2", "rotate"]);
    }

    #[test]
    fn what_is_too_much_is_left_out() {
        let config = DnsConfig {
            servers: ["1.1.1.1", "1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"].map(String::from).into(),
            searches: (0..40).map(|i| format!("s{i}.{}", "x".repeat(60))).chain(["y".repeat(254)]).collect(),
            options: Vec::new(),
        };
        let config = within_limits(config);
        assert_eq!(config.servers, ["1.1.1.1", "2.2.2.2", "3.3.3.3"]);
        assert!(config.searches.join(" ").len() <= LONGEST_LINE && config.searches.len() > 28);
    }
}
