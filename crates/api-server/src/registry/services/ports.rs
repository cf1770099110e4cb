//! Node ports: which ones a Service gets.

use std::collections::{BTreeSet, HashMap};

use object_model::value::Fields;
use serde_json::Value;

use super::{FULL, choose};

const FIRST: i64 = 30000;
const LAST: i64 = 32767;
/// The lowest ports are left to those who name theirs.
const RESERVED: u128 = 86;

/// The ports that are taken, and those that one Service takes now.
pub struct Ports {
    used: BTreeSet<i64>,
    pub claimed: BTreeSet<i64>,
    dry_run: bool,
}

/// Why a Service cannot have the ports it wants.
#[derive(Debug, PartialEq, Eq)]
pub enum Wrong {
    Port {
        index: usize,
        port: i64,
        why: String,
    },
    /// No port is left.
    Full(String),
    Other(String),
}

impl Ports {
    pub fn new(used: BTreeSet<i64>, dry_run: bool) -> Self {
        Self { used, claimed: BTreeSet::new(), dry_run }
    }

    /// The ports of a new Service: those of one number (of several protocols) share one.
    pub fn for_new(&mut self, ports: &mut [Value], may_choose: bool) -> Result<(), Wrong> {
        let mut shared: HashMap<i64, i64> = HashMap::new();
        let mut asked: HashMap<i64, i64> = HashMap::new();
        for port in ports.iter().filter(|port| number(port, "nodePort") != 0) {
            asked.entry(number(port, "port")).or_insert(number(port, "nodePort"));
        }
        for (index, entry) in ports.iter_mut().enumerate() {
            let (port, given) = (number(entry, "port"), number(entry, "nodePort"));
            if given == 0 && !may_choose {
                continue;
            }
            let chosen = match shared.get(&port) {
                Some(shared) if given == 0 || given == *shared => *shared,
                Some(_) => self.named(index, given)?,
                None => {
                    let chosen = match asked.get(&port) {
                        Some(wanted) => self.named(index, *wanted)?,
                        None => self.any()?,
                    };
                    shared.insert(port, chosen);
                    chosen
                }
            };
            entry["nodePort"] = chosen.into();
        }
        Ok(())
    }

    /// The ports of a Service that had `before`.
    pub fn for_changed(&mut self, ports: &mut [Value], before: &[i64], may_choose: bool) -> Result<(), Wrong> {
        let mut seen = BTreeSet::new();
        for (index, port) in ports.iter_mut().enumerate() {
            let given = number(port, "nodePort");
            let chosen = match given {
                0 if !may_choose => continue,
                0 => self.any()?,
                given if before.contains(&given) || self.claimed.contains(&given) => given,
                given => self.named(index, given)?,
            };
            port["nodePort"] = chosen.into();
            let protocol = port.text("protocol");
            if !seen.insert((protocol.to_owned(), chosen)) {
                return Err(Wrong::Other(format!("duplicate nodePort: {{{protocol} {chosen}}}")));
            }
        }
        Ok(())
    }

    /// The port at which a node tells whether it has endpoints; 0 is any.
    pub fn for_health(&mut self, wanted: i64) -> Result<i64, Wrong> {
        if wanted == 0 {
            let chosen = self.next().ok_or(FULL);
            return chosen.map_err(|why| Wrong::Other(format!("failed to allocate a HealthCheck NodePort 0: {why}")));
        }
        let claimed = self.claim(wanted).map(|()| wanted);
        claimed
            .map_err(|why| Wrong::Other(format!("failed to allocate requested HealthCheck NodePort {wanted}: {why}")))
    }

    fn named(&mut self, index: usize, port: i64) -> Result<i64, Wrong> {
        self.claim(port).map(|()| port).map_err(|why| Wrong::Port { index, port, why })
    }

    fn any(&mut self) -> Result<i64, Wrong> {
        self.next().ok_or_else(|| Wrong::Full(format!("failed to allocate a nodePort: {FULL}")))
    }

    fn claim(&mut self, port: i64) -> Result<(), String> {
        // A dry run looks at what is taken only.
        if !self.dry_run && !(FIRST..=LAST).contains(&port) {
            return Err(format!("provided port is not in the valid range. The range of valid ports is {FIRST}-{LAST}"));
        }
        if self.used.contains(&port) || !self.claimed.insert(port) {
            return Err("provided port is already allocated".to_owned());
        }
        Ok(())
    }

    fn next(&mut self) -> Option<i64> {
        let is_free = |port: u128| !self.used.contains(&(port as i64)) && !self.claimed.contains(&(port as i64));
        let port = choose(FIRST as u128, LAST as u128, RESERVED, is_free)? as i64;
        self.claimed.insert(port);
        Some(port)
    }
}

/// The node ports of a Service.
pub fn numbers(spec: &Value) -> Vec<i64> {
    let ports = spec["ports"].as_array().into_iter().flatten();
    ports.map(|port| number(port, "nodePort")).filter(|port| *port != 0).collect()
}

fn number(port: &Value, name: &str) -> i64 {
    port.int(name).unwrap_or_default()
}
