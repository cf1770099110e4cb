//! IP addresses and networks, in the strict forms: no zeros in front, no zones, no IPv4 in IPv6.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use object_model::go_text::quote;

use crate::EvaluationError;
use crate::declarations::{Row, row};
use crate::evaluate::{Evaluated, failed, no_such_overload};
use crate::value::{LibraryValue, Value};

/// A network: the address as given, and the length of the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    pub address: IpAddr,
    pub prefix: u8,
}

pub(crate) const ROWS: &[Row] = &[
    row("ip", &["(string) IP"], |_, args| match args {
        [Value::String(text)] => match parse_ip(text) {
            Ok(address) => Ok(Value::Library(LibraryValue::Ip(address))),
            Err(why) => failed(why),
        },
        _ => no_such_overload(),
    }),
    row("ip", &["CIDR.() IP"], |_, args| cidr(args).map(|cidr| Value::Library(LibraryValue::Ip(cidr.address)))),
    row("isIP", &["(string) bool"], |_, args| match args {
        [Value::String(text)] => Ok(Value::Bool(parse_ip(text).is_ok())),
        _ => no_such_overload(),
    }),
    row("ip.isCanonical", &["(string) bool"], |_, args| match args {
        [Value::String(text)] => match parse_ip(text) {
            Ok(address) => Ok(Value::Bool(address.to_string() == **text)),
            Err(why) => failed(why),
        },
        _ => no_such_overload(),
    }),
    row("family", &["IP.() int"], |_, args| ip(args).map(|ip| Value::Int(if ip.is_ipv4() { 4 } else { 6 }))),
    row("isUnspecified", &["IP.() bool"], |_, args| holds(args, |ip| ip.is_unspecified())),
    row("isLoopback", &["IP.() bool"], |_, args| holds(args, |ip| ip.is_loopback())),
    row("isLinkLocalMulticast", &["IP.() bool"], |_, args| {
        holds(args, |ip| match ip {
            IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
            IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
        })
    }),
    row("isLinkLocalUnicast", &["IP.() bool"], |_, args| holds(args, is_link_local_unicast)),
    row("isGlobalUnicast", &["IP.() bool"], |_, args| {
        holds(args, |ip| {
            let is_broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
            let special = ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_broadcast;
            !special && !is_link_local_unicast(ip)
        })
    }),
    row("string", &["(IP) string", "(CIDR) string"], |_, args| match args {
        [value] => super::conversion::text_of(value).map_or_else(no_such_overload, |text| Ok(Value::text(text))),
        _ => no_such_overload(),
    }),
    row("cidr", &["(string) CIDR"], |_, args| match args {
        [Value::String(text)] => parsed_cidr(text).map(|cidr| Value::Library(LibraryValue::Cidr(cidr))),
        _ => no_such_overload(),
    }),
    row("isCIDR", &["(string) bool"], |_, args| match args {
        [Value::String(text)] => Ok(Value::Bool(parse_cidr(text).is_ok())),
        _ => no_such_overload(),
    }),
    row("containsIP", &["CIDR.(string) bool", "CIDR.(IP) bool"], |_, args| match args {
        [_, Value::Library(LibraryValue::Ip(address))] => Ok(Value::Bool(cidr(&args[..1])?.contains(*address))),
        [_, Value::String(text)] => match parse_ip(text) {
            Ok(address) => Ok(Value::Bool(cidr(&args[..1])?.contains(address))),
            Err(why) => failed(why),
        },
        _ => no_such_overload(),
    }),
    row("containsCIDR", &["CIDR.(string) bool", "CIDR.(CIDR) bool"], |_, args| {
        let other = match args {
            [_, Value::Library(LibraryValue::Cidr(other))] => *other,
            [_, Value::String(text)] => parsed_cidr(text)?,
            _ => return no_such_overload(),
        };
        let network = cidr(&args[..1])?;
        Ok(Value::Bool(network.prefix <= other.prefix && network.contains(other.address)))
    }),
    row("prefixLength", &["CIDR.() int"], |_, args| cidr(args).map(|cidr| Value::Int(cidr.prefix.into()))),
    row("masked", &["CIDR.() CIDR"], |_, args| {
        cidr(args).map(|cidr| {
            let address = cidr.network(cidr.address);
            Value::Library(LibraryValue::Cidr(Cidr { address, ..cidr }))
        })
    }),
];

impl Cidr {
    /// The address with everything behind the prefix cut off.
    fn network(&self, address: IpAddr) -> IpAddr {
        let keep = |bits: u32| u128::MAX.checked_shl(bits - u32::from(self.prefix)).unwrap_or(0);
        match address {
            IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() & keep(32) as u32).into()),
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & keep(128))),
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && self.network(self.address) == self.network(address)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

fn ip(args: &[Value<'_>]) -> Result<IpAddr, EvaluationError> {
    match args {
        [Value::Library(LibraryValue::Ip(address))] => Ok(*address),
        _ => no_such_overload(),
    }
}

fn cidr(args: &[Value<'_>]) -> Result<Cidr, EvaluationError> {
    match args {
        [Value::Library(LibraryValue::Cidr(cidr))] => Ok(*cidr),
        _ => no_such_overload(),
    }
}

fn holds<'v>(args: &[Value<'v>], of: fn(IpAddr) -> bool) -> Evaluated<'v> {
    ip(args).map(|ip| Value::Bool(of(ip)))
}

fn is_link_local_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let shown = quote(text);
    let (address, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
    let what = "parse error during conversion from string: ParseAddr";
    match address.parse::<IpAddr>() {
        Err(_) => Err(format!("IP Address {shown} {what}({shown}): unable to parse IP")),
        Ok(_) if zone.is_some() => Err(format!("IP address {shown} with zone value is not allowed")),
        Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {shown} is not allowed"))
        }
        Ok(address) => Ok(address),
    }
}

fn parsed_cidr(text: &str) -> Result<Cidr, EvaluationError> {
    let what = "network address parse error during conversion from string";
    parse_cidr(text).or_else(|why| failed(format!("{what}: {why}")))
}

fn parse_cidr(text: &str) -> Result<Cidr, String> {
    let what = "network address parse error during conversion from string: netip.ParsePrefix";
    let wrong = |why: &str| format!("{what}({}): {why}", quote(text));
    let (address, length) = text.rsplit_once('/').ok_or_else(|| wrong("no '/'"))?;
    let address: IpAddr = address.parse().map_err(|_| wrong("unable to parse IP"))?;
    if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)));
    }
    let most = if address.is_ipv4() { 32 } else { 128 };
    let plain = length.bytes().all(|b| b.is_ascii_digit()) && (length == "0" || !length.starts_with('0'));
    match length.parse::<u8>() {
        Ok(prefix) if plain && prefix <= most => Ok(Cidr { address, prefix }),
        Ok(_) if plain => Err(wrong("prefix length out of range")),
        _ => Err(wrong(&format!("bad bits after slash: {}", quote(length)))),
    }
}
