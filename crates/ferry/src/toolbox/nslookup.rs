//! `nslookup [-type=TYPE] NAME [SERVER]`: what the cluster's DNS says.

use std::{
    io::{Write, stdout},
    net::IpAddr,
};

use anyhow::{Context, ensure};
use hickory_proto::rr::RecordType;

use super::{
    Outcome,
    resolve::{self, Resolver},
};

pub fn run(arguments: &[String]) -> Outcome {
    let is_option = |word: &&String| word.starts_with('-');
    let kinds = arguments.iter().filter(is_option).map(|option| kind(option)).collect::<anyhow::Result<Vec<_>>>()?;
    let words: Vec<&String> = arguments.iter().filter(|word| !is_option(word)).collect();
    let (name, server) = match words.as_slice() {
        [name] => (name, None),
        [name, server] => (name, Some(server)),
        _ => anyhow::bail!("which name? nslookup [-type=TYPE] NAME [SERVER]"),
    };
    let mut resolver = Resolver::system();
    if let Some(server) = server {
        let addresses = resolve::addresses(server)?;
        resolver.servers = addresses.into_iter().map(|address| (address, 53).into()).collect();
    }
    let (name, kinds) = match name.parse::<IpAddr>() {
        Ok(address) => (reversed(address), vec![RecordType::PTR]),
        Err(_) if kinds.is_empty() => ((*name).clone(), vec![RecordType::A, RecordType::AAAA]),
        Err(_) => ((*name).clone(), kinds),
    };
    let mut lines = Vec::new();
    for kind in kinds {
        let (server, answer) = resolver.look_up(&name, kind)?;
        if lines.is_empty() {
            lines.push(format!("Server:  {}\nAddress: {server}\n", server.ip()));
        }
        lines.extend(answer.answers.iter().map(|record| {
            let name = record.name.to_ascii();
            let name = name.trim_end_matches('.');
            match record.data.ip_addr() {
                Some(address) => format!("Name:    {name}\nAddress: {address}"),
                None => format!("{name}  {} {}", record.record_type(), record.data),
            }
        }));
    }
    ensure!(lines.len() > 1, "{name}: no such name, or no such records");
    writeln!(stdout(), "{}", lines.join("\n"))?;
    Ok(0)
}

fn kind(option: &str) -> anyhow::Result<RecordType> {
    let (name, kind) = option.split_once('=').with_context(|| format!("there is no option {option}"))?;
    ensure!(["-type", "-query", "-q"].contains(&name), "there is no option {name}");
    kind.to_ascii_uppercase().parse().with_context(|| format!("{kind:?} is not a type of records"))
}

/// The name under which the name of an address is found.
fn reversed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa.")
        }
        IpAddr::V6(address) => {
            let digits: String = address.octets().iter().map(|byte| format!("{byte:02x}")).collect();
            digits.chars().rev().map(|digit| format!("{digit}.")).collect::<String>() + "ip6.arpa."
        }
    }
}
