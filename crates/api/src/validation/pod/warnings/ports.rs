//! Ports of a pod that are the same, or could be meant to be.

use std::collections::HashMap;

use serde_json::Value;

use super::{items, text};
use crate::warnings::Warnings;

/// A port of a container and where it stands.
struct Port<'v> {
    path: String,
    host_port: i64,
    host_ip: &'v str,
}

/// Ports with the same number and protocol, and which of them meet another on the host.
///
/// Every port that is found is warned of, so that looking ends when the warnings are full; those that need no warning are
/// not looked at, as there may be tens of thousands.
#[derive(Default)]
struct Same<'v> {
    all: Vec<Port<'v>>,
    without_host_port: Vec<usize>,
    by_host_port: HashMap<i64, Vec<usize>>,
    by_host_address: HashMap<(i64, &'v str), Vec<usize>>,
}

impl<'v> Same<'v> {
    fn add(&mut self, port: Port<'v>) {
        let at = self.all.len();
        match port.host_port {
            0 => self.without_host_port.push(at),
            host_port => {
                self.by_host_port.entry(host_port).or_default().push(at);
                self.by_host_address.entry((host_port, port.host_ip)).or_default().push(at);
            }
        }
        self.all.push(port);
    }

    /// Those that a port is to be warned of, in order.
    fn met_by(&self, port: &Port<'v>) -> Vec<&Port<'v>> {
        let at_address = |ip| self.by_host_address.get(&(port.host_port, ip)).map(Vec::as_slice).unwrap_or_default();
        let at_port = || self.by_host_port.get(&port.host_port).map(Vec::as_slice).unwrap_or_default();
        let mut found = match (port.host_port, port.host_ip) {
            (0, _) => return self.all.iter().collect(),
            (_, "") => [&self.without_host_port, at_port()].concat(),
            (_, ip) => [&self.without_host_port, at_address(ip), at_address("")].concat(),
        };
        found.sort_unstable();
        found.into_iter().filter_map(|at| self.all.get(at)).collect()
    }
}

/// Warns of ports that meet others, then of those with the name of another.
pub fn meeting(containers: &[(String, &Value)], all: &mut Warnings) {
    let mut same: HashMap<(i64, &str), Same> = HashMap::new();
    for (path, port) in ports(containers) {
        if all.is_full() {
            return;
        }
        let (number, protocol) = (port["containerPort"].as_i64().unwrap_or_default(), text(&port["protocol"]));
        let (host_port, host_ip) = (port["hostPort"].as_i64().unwrap_or_default(), text(&port["hostIP"]));
        if !host_ip.is_empty() && host_port == 0 {
            let name = text(&port["name"]);
            all.push(format!(
                "{path}: hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} \
                 Protocol:{protocol} HostIP:{host_ip}}}"
            ));
        }
        let this = Port { path, host_port, host_ip };
        let others = same.entry((number, protocol)).or_default();
        for other in others.met_by(&this) {
            if all.is_full() {
                return;
            }
            let how = match (this.host_port == other.host_port, this.host_ip == other.host_ip) {
                (true, true) => "duplicate",
                _ if this.host_port == 0 || other.host_port == 0 => "overlapping",
                _ => "dangerously ambiguous",
            };
            all.push(format!("{}: {how} port definition with {}", this.path, other.path));
        }
        others.add(this);
    }
    let mut by_name: HashMap<&str, String> = HashMap::new();
    for (path, port) in ports(containers).filter(|(_, port)| !text(&port["name"]).is_empty()) {
        let name = text(&port["name"]);
        match by_name.get(name) {
            Some(other) => all.push(format!(
                "{path}: duplicate port name {name:?} with {other}, services and probes that select ports by name will \
                 use {other}"
            )),
            None => {
                by_name.insert(name, path);
            }
        }
    }
}

fn ports<'v>(containers: &[(String, &'v Value)]) -> impl Iterator<Item = (String, &'v Value)> {
    containers.iter().flat_map(|(path, container)| {
        items(&container["ports"]).map(move |(i, port)| (format!("{path}.ports[{i}]"), port))
    })
}
