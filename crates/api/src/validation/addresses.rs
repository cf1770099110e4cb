//! IP addresses and CIDR blocks.
//!
//! Kubernetes reads addresses leniently (leading zeros are decimal) and then says what is wrong with them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Field;

/// Reads an address as Kubernetes does: leading zeros are allowed, an IPv4 address written as IPv6 is IPv4.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    let address = if text.contains(':') { IpAddr::V6(parse_v6(text)?) } else { IpAddr::V4(parse_v4(text)?) };
    Some(match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        v4 => v4,
    })
}

fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let digits = part.trim_start_matches('0');
        *octet = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

fn parse_v6(text: &str) -> Option<Ipv6Addr> {
    match text.rsplit_once(':') {
        Some((head, tail)) if tail.contains('.') => format!("{head}:{}", parse_v4(tail)?).parse().ok(),
        _ => text.parse().ok(),
    }
}

/// A block: the address as written, the address of the network, and the length of the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    pub address: IpAddr,
    pub network: IpAddr,
    pub prefix: u8,
}

impl Cidr {
    /// Is the other a part of this block, and not all of it?
    pub fn has_part(&self, other: &Cidr) -> bool {
        self.prefix < other.prefix
            && self.network.is_ipv4() == other.network.is_ipv4()
            && masked(other.network, self.prefix) == self.network
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

pub fn parse_cidr(text: &str) -> Option<Cidr> {
    let (address_text, length) = text.split_once('/')?;
    if length.is_empty() || length.len() > 3 || !length.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let length: u8 = length.parse().ok()?;
    let written_v6 = address_text.contains(':');
    let address = parse_ip(address_text)?;
    let bits = if written_v6 { 128 } else { 32 };
    if length > bits {
        return None;
    }
    // An IPv4 address written as IPv6 keeps its IPv6 prefix length.
    let prefix = if written_v6 && address.is_ipv4() { length.saturating_sub(96) } else { length };
    Some(Cidr { address, network: masked(address, prefix), prefix })
}

fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
        }
    }
}

/// Are these (at least two) addresses of both families?
pub fn is_dual_stack<'a>(addresses: impl Iterator<Item = &'a str>) -> Option<bool> {
    let (mut v4, mut v6) = (false, false);
    for address in addresses {
        let parsed = parse_cidr(address).map(|cidr| cidr.address).or_else(|| parse_ip(address))?;
        if parsed.is_ipv4() { v4 = true } else { v6 = true }
    }
    Some(v4 && v6)
}

fn leading_zeros(text: &str) -> bool {
    text.contains('.') && text.rsplit(':').next().unwrap_or(text).split('.').any(|p| p.len() > 1 && p.starts_with('0'))
}

fn written_as_v6(text: &str) -> bool {
    text.contains(':')
}

/// An address in a field that once took looser ones; those the old object had may stay.
pub fn legacy_ip(field: &Field, kept: &[&str]) {
    if !kept.contains(&field.text()) {
        ip_strictly(field);
    }
}

fn ip_strictly(field: &Field) -> Option<IpAddr> {
    let text = field.text();
    let Some(ip) = parse_ip(text) else {
        field.invalid_value(text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
        return None;
    };
    let before = field.problem_count();
    if leading_zeros(text) {
        field.invalid("must not have leading 0s");
    } else if written_as_v6(text) && ip.is_ipv4() {
        field.invalid("must not be an IPv4-mapped IPv6 address");
    }
    (field.problem_count() == before).then_some(ip)
}

/// An address in canonical form.
pub fn canonical_ip(field: &Field) {
    if let Some(ip) = ip_strictly(field)
        && ip.to_string() != field.text()
    {
        field.invalid(format!("must be in canonical form (\"{ip}\")"));
    }
}

/// A block in a field that once took looser ones.
pub fn legacy_cidr(field: &Field, kept: &[&str]) {
    if !kept.contains(&field.text()) {
        cidr_strictly(field);
    }
}

fn cidr_strictly(field: &Field) -> Option<Cidr> {
    let text = field.text();
    let Some(cidr) = parse_cidr(text) else {
        field.invalid_value(text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
        return None;
    };
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let before = field.problem_count();
    if leading_zeros(address) || (length.len() > 1 && length.starts_with('0')) {
        field.invalid("must not have leading 0s in IP or prefix length");
    } else if written_as_v6(address) && cidr.address.is_ipv4() {
        field.invalid("must not have an IPv4-mapped IPv6 address");
    } else if cidr.address != cidr.network {
        field.invalid("must not have bits set beyond the prefix length");
    }
    (field.problem_count() == before).then_some(cidr)
}

/// A block in canonical form.
pub fn canonical_cidr(field: &Field) {
    if let Some(cidr) = cidr_strictly(field)
        && cidr.to_string() != field.text()
    {
        field.invalid(format!("must be in canonical form (\"{cidr}\")"));
    }
}

/// An address that traffic can be sent to: not unspecified, loopback or link-local.
pub fn endpoint_ip(field: &Field) {
    let text = field.text();
    let Some(ip) = parse_ip(text) else { return field.invalid_value(text, "must be a valid IP address") };
    let (link_local, link_local_multicast) = match ip {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0 == 0xfe80, v6.segments()[0] & 0xff0f == 0xff02),
    };
    if ip.is_unspecified() {
        field.invalid(format!("may not be unspecified ({text})"));
    }
    if ip.is_loopback() {
        field.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if link_local {
        field.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if link_local_multicast {
        field.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

/// What is tolerated about an address but should be written otherwise.
pub fn ip_warning(path: impl std::fmt::Display, text: &str) -> Option<String> {
    let ip = parse_ip(text)?;
    if leading_zeros(text) || (written_as_v6(text) && ip.is_ipv4()) {
        return Some(format!("{path}: non-standard IP address {text:?} is invalid: use \"{ip}\""));
    }
    (ip.is_ipv6() && ip.to_string() != text)
        .then(|| format!("{path}: IPv6 address {text:?} should be in RFC 5952 canonical format (\"{ip}\")"))
}

/// The same for a block.
pub fn cidr_warnings(path: impl std::fmt::Display, text: &str) -> Vec<String> {
    let Some(cidr) = parse_cidr(text) else { return Vec::new() };
    let mut warnings = Vec::new();
    if cidr.address != cidr.network {
        let bits = if cidr.address.is_ipv4() { 32 } else { 128 };
        warnings.push(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be \"{cidr}\" or \"{}/{bits}\"?)",
            cidr.address
        ));
    }
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let mapped = written_as_v6(address) && cidr.address.is_ipv4();
    if leading_zeros(address) || (length.len() > 1 && length.starts_with('0')) || mapped {
        warnings.push(format!("{path}: non-standard CIDR value {text:?} is invalid: use \"{cidr}\""));
    } else if warnings.is_empty() && cidr.address.is_ipv6() && cidr.to_string() != text {
        warnings.push(format!("{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format (\"{cidr}\")"));
    }
    warnings
}
