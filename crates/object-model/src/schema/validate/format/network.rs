//! Names and addresses of hosts.

use std::net::Ipv6Addr;
use std::sync::LazyLock;

use regex::Regex;

use crate::names::address::{Cidr, parse_ip};

/// Letters and symbols of any script in labels, letters only in the last one of several.
static HOSTNAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let (edge, inner) = (r"[a-zA-Z0-9\p{S}\p{L}]", r"[a-zA-Z0-9\-\p{S}\p{L}]");
    let single = format!(r"{edge}(?:-?{edge}{{0,62}})?");
    let several = format!(r"(?:{edge}(?:{inner}{{0,61}}{edge})?\.)+[a-zA-Z\p{{L}}]{{2,63}}");
    Regex::new(&format!("^(?:{single}|{several})$")).ok()
});

pub fn is_hostname(text: &str) -> bool {
    text.len() <= 255
        && text.split('.').all(|label| label.len() <= 63)
        && HOSTNAME.as_ref().is_some_and(|regex| regex.is_match(text))
}

/// With dots in it: also an IPv6 address that ends in four numbers. Leading zeros are tolerated.
pub fn is_ipv4(text: &str) -> bool {
    text.contains('.') && parse_ip(text).is_some()
}

pub fn is_ipv6(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok()
}

pub fn is_cidr(text: &str) -> bool {
    Cidr::parse(text).is_some()
}

/// 6, 8 or 20 bytes: pairs of digits between colons or dashes, or groups of four between dots.
pub fn is_mac(text: &str) -> bool {
    let groups = |separator: char, digits: usize, lengths: [usize; 3]| {
        lengths.contains(&text.split(separator).count())
            && text.split(separator).all(|g| g.len() == digits && g.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    groups(':', 2, [6, 8, 20]) || groups('-', 2, [6, 8, 20]) || groups('.', 4, [3, 4, 10])
}
