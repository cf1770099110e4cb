//! IP addresses and CIDR values, in the strict forms of new fields and the sloppy ones that old fields accept.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::field::{Errors, Path};
use crate::go_text::quote;

/// Reads an address as Kubernetes always has: leading zeros in IPv4 octets are ignored, and an IPv4 address mapped
/// into IPv6 is the IPv4 address.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') { parse_v6(text).map(unmapped) } else { parse_v4(text).map(IpAddr::V4) }
}

fn unmapped(address: Ipv6Addr) -> IpAddr {
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}

fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        *octet = digits(parts.next()?, 255)? as u8;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

/// Digits with any zeros in front.
fn digits(text: &str, max: u32) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let significant = text.trim_start_matches('0');
    let number = if significant.is_empty() { 0 } else { significant.parse().ok()? };
    (number <= max).then_some(number)
}

fn parse_v6(text: &str) -> Option<Ipv6Addr> {
    // Zeros in front are all that the standard library would refuse.
    let group = |group: &str| match group.trim_start_matches('0') {
        "" if !group.is_empty() => Some("0".to_owned()),
        _ if group.contains('.') => parse_v4(group).map(|v4| v4.to_string()),
        significant => Some(significant.to_owned()),
    };
    let groups: Option<Vec<String>> = text.split(':').map(group).collect();
    groups?.join(":").parse().ok()
}

/// A network: the address as given, and the length of the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    pub address: IpAddr,
    pub prefix: u8,
}

impl Cidr {
    /// Reads `10.0.0.0/8` with the tolerance of [`parse_ip`].
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        if let Some(v4) = parse_v4(address) {
            return Some(Self { address: IpAddr::V4(v4), prefix: digits(length, 32)? as u8 });
        }
        let v6 = parse_v6(address)?;
        let prefix = digits(length, 128)? as u8;
        Some(match v6.to_ipv4_mapped() {
            // A mapped address keeps its length within IPv4, where that makes sense.
            Some(v4) if prefix >= 96 => Self { address: IpAddr::V4(v4), prefix: prefix - 96 },
            _ => Self { address: IpAddr::V6(v6), prefix },
        })
    }

    /// The address with all bits beyond the prefix cleared.
    pub fn network(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V4((u32::from(v4) & mask).into())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V6((u128::from(v6) & mask).into())
            }
        }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && Cidr { address, prefix: self.prefix }.network() == self.network()
    }

    fn canonical(&self) -> String {
        format!("{}/{}", self.network(), self.prefix)
    }
}

/// An address as fields of today want it: canonical.
pub fn ip(path: &Path<'_>, value: &str, errors: &mut Errors) {
    let before = errors.len();
    let parsed = checked_ip(path, value, true, errors);
    if let Some(parsed) = parsed.filter(|_| errors.len() == before)
        && parsed.to_string() != value
    {
        errors.invalid(path, value, format!("must be in canonical form ({})", quote(&parsed.to_string())));
    }
}

/// An address of a field from before strict rules. What the old object had (`old`) may stay.
pub fn legacy_ip(path: &Path<'_>, value: &str, strict: bool, old: &[&str], errors: &mut Errors) {
    if !old.contains(&value) {
        checked_ip(path, value, strict, errors);
    }
}

fn checked_ip(path: &Path<'_>, value: &str, strict: bool, errors: &mut Errors) -> Option<IpAddr> {
    let Some(parsed) = parse_ip(value) else {
        errors.invalid(path, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
        return None;
    };
    if strict {
        match value.parse::<IpAddr>() {
            Err(_) => errors.invalid(path, value, "must not have leading 0s"),
            Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => {
                errors.invalid(path, value, "must not be an IPv4-mapped IPv6 address");
            }
            Ok(_) => {}
        }
    }
    Some(parsed)
}

/// A network as fields of today want it: canonical, no bits beyond the prefix.
pub fn cidr(path: &Path<'_>, value: &str, errors: &mut Errors) {
    let before = errors.len();
    let parsed = checked_cidr(path, value, true, errors);
    if let Some(parsed) = parsed.filter(|_| errors.len() == before)
        && parsed.canonical() != value
    {
        errors.invalid(path, value, format!("must be in canonical form ({})", quote(&parsed.canonical())));
    }
}

/// A network of a field from before strict rules. What the old object had (`old`) may stay.
pub fn legacy_cidr(path: &Path<'_>, value: &str, strict: bool, old: &[&str], errors: &mut Errors) {
    if !old.contains(&value) {
        checked_cidr(path, value, strict, errors);
    }
}

fn checked_cidr(path: &Path<'_>, value: &str, strict: bool, errors: &mut Errors) -> Option<Cidr> {
    let Some(parsed) = Cidr::parse(value) else {
        errors.invalid(path, value, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
        return None;
    };
    if strict {
        if !has_strict_form(value) {
            errors.invalid(path, value, "must not have leading 0s in IP or prefix length");
        } else if is_mapped(value) {
            errors.invalid(path, value, "must not have an IPv4-mapped IPv6 address");
        } else if parsed.network() != parsed.address {
            errors.invalid(path, value, "must not have bits set beyond the prefix length");
        }
    }
    Some(parsed)
}

fn has_strict_form(cidr: &str) -> bool {
    cidr.split_once('/').is_some_and(|(address, length)| {
        address.parse::<IpAddr>().is_ok() && (length == "0" || !length.starts_with('0'))
    })
}

fn is_mapped(cidr: &str) -> bool {
    let address = cidr.split('/').next().unwrap_or_default();
    address.parse::<Ipv6Addr>().is_ok_and(|v6| v6.to_ipv4_mapped().is_some())
}

/// An address of an interface with the length of its network: `192.168.1.5/24`.
pub fn interface_address(path: &Path<'_>, value: &str, errors: &mut Errors) {
    let Some(parsed) = Cidr::parse(value) else {
        let message = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return errors.invalid(path, value, message);
    };
    let canonical = format!("{}/{}", unmapped_ip(parsed.address), parsed.prefix);
    if value != canonical {
        errors.invalid(path, value, format!("must be in canonical form ({})", quote(&canonical)));
    }
}

fn unmapped_ip(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => unmapped(v6),
        v4 => v4,
    }
}

/// What to say about an accepted address in a form that should not be used.
pub fn ip_warnings(path: &Path<'_>, value: &str) -> Option<String> {
    let sloppy = parse_ip(value)?;
    match value.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => None,
        Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_none() => (v6.to_string() != value).then(|| {
            let (value, good) = (quote(value), quote(&v6.to_string()));
            format!("{path}: IPv6 address {value} should be in RFC 5952 canonical format ({good})")
        }),
        _ => {
            let (value, good) = (quote(value), quote(&sloppy.to_string()));
            Some(format!("{path}: non-standard IP address {value} is invalid: use {good}"))
        }
    }
}

/// What to say about an accepted network in a form that should not be used.
pub fn cidr_warnings(path: &Path<'_>, value: &str) -> Vec<String> {
    let Some(parsed) = Cidr::parse(value) else { return Vec::new() };
    let (shown, good) = (quote(value), quote(&parsed.canonical()));
    let mut warnings = Vec::new();
    if parsed.network() != parsed.address {
        let bits = if parsed.address.is_ipv4() { 32 } else { 128 };
        let single = quote(&format!("{}/{bits}", parsed.address));
        warnings
            .push(format!("{path}: CIDR value {shown} is ambiguous in this context (should be {good} or {single}?)"));
    }
    if !has_strict_form(value) || is_mapped(value) {
        warnings.push(format!("{path}: non-standard CIDR value {shown} is invalid: use {good}"));
    }
    if warnings.is_empty() && parsed.address.is_ipv6() && parsed.canonical() != value {
        warnings.push(format!("{path}: IPv6 CIDR value {shown} should be in RFC 5952 canonical format ({good})"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(check: impl Fn(&Path<'_>, &mut Errors)) -> Vec<String> {
        let mut errors = Errors::new();
        check(&Path::root(), &mut errors);
        errors.iter().map(|e| e.detail.clone()).collect()
    }

    #[test]
    fn addresses() {
        let strict = |value: &str| problems(|path, errors| ip(path, value, errors));
        assert!(strict("10.0.0.1").is_empty());
        assert!(strict("2001:db8::1").is_empty());
        assert_eq!(strict("x"), ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]);
        assert_eq!(strict("10.0.0.256"), ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]);
        assert_eq!(strict("010.0.0.1"), ["must not have leading 0s"]);
        assert_eq!(strict("::ffff:1.2.3.4"), ["must not be an IPv4-mapped IPv6 address"]);
        assert_eq!(strict("2001:DB8:0::1"), ["must be in canonical form (\"2001:db8::1\")"]);
        let legacy = |value: &str, old: &[&str]| problems(|path, errors| legacy_ip(path, value, true, old, errors));
        assert!(legacy("2001:DB8:0::1", &[]).is_empty());
        assert!(legacy("010.0.0.1", &["010.0.0.1"]).is_empty());
        assert_eq!(legacy("010.0.0.1", &[]), ["must not have leading 0s"]);
        assert_eq!(parse_ip("010.002.000.1"), Some("10.2.0.1".parse().unwrap()));
        assert_eq!(parse_ip("::ffff:01.2.3.4"), Some("1.2.3.4".parse().unwrap()));
        assert_eq!(parse_ip("00001::000"), Some("1::".parse().unwrap()));
        assert_eq!(parse_ip("::1%eth0"), None);
    }

    #[test]
    fn networks() {
        let strict = |value: &str| problems(|path, errors| cidr(path, value, errors));
        assert!(strict("10.0.0.0/8").is_empty());
        assert!(strict("::/0").is_empty());
        assert_eq!(strict("10.0.0.0"), ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]);
        assert_eq!(strict("10.0.0.0/33"), ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]);
        assert_eq!(strict("10.0.0.0/08"), ["must not have leading 0s in IP or prefix length"]);
        assert_eq!(strict("::ffff:1.2.3.0/120"), ["must not have an IPv4-mapped IPv6 address"]);
        assert_eq!(strict("10.0.0.1/8"), ["must not have bits set beyond the prefix length"]);
        assert_eq!(strict("2001:DB8::/32"), ["must be in canonical form (\"2001:db8::/32\")"]);
        assert!(problems(|path, errors| interface_address(path, "10.0.0.1/8", errors)).is_empty());
        let net = Cidr::parse("10.1.0.0/16").unwrap();
        assert!(net.contains("10.1.2.3".parse().unwrap()) && !net.contains("10.2.0.0".parse().unwrap()));
    }

    #[test]
    fn warnings() {
        let root = Path::root();
        let path = root.child("ip");
        assert_eq!(ip_warnings(&path, "10.0.0.1"), None);
        assert_eq!(
            ip_warnings(&path, "010.0.0.1").unwrap(),
            "ip: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\""
        );
        assert_eq!(
            cidr_warnings(&path, "10.0.0.1/8"),
            [
                "ip: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.0.0.1/32\"?)"
            ]
        );
    }
}
