//! The formats that Kubernetes knows, and what each accepts.
//!
//! Formats it does not know are ignored, as are formats that do not fit the type they stand beside. Dashes in a format's
//! name do not count. The checks are those of Go's standard library where Kubernetes uses it, leniency included.

mod mail;
mod network;
mod time;
mod uri;

use super::super::JsonType;

/// A known format under the name that the schema gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    name: Box<str>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    BsonObjectId,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid(Uuid),
    Isbn,
    Isbn10,
    Isbn13,
    CreditCard,
    Ssn,
    HexColor,
    RgbColor,
    Byte,
    Password,
    Date,
    Duration,
    DateTime,
    ShortName,
    LongName,
    Int32,
    Int64,
    Float,
    Double,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Uuid {
    Any,
    V3,
    V4,
    V5,
}

impl Format {
    /// The format of that name, if it means something beside that type (`None`: no type, or several).
    pub fn parse(name: &str, json_type: Option<&JsonType>) -> Option<Self> {
        let kind = match json_type {
            None | Some(JsonType::String) => text_kind(&name.replace('-', ""))?,
            Some(JsonType::Integer) => match name {
                "int32" => Kind::Int32,
                "int64" => Kind::Int64,
                _ => return None,
            },
            Some(JsonType::Number) => match name {
                "float" => Kind::Float,
                "double" => Kind::Double,
                _ => return None,
            },
            Some(_) => return None,
        };
        Some(Self { name: name.into(), kind })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Does it say something of text (and not of numbers)?
    pub fn is_text(&self) -> bool {
        !matches!(self.kind, Kind::Int32 | Kind::Int64 | Kind::Float | Kind::Double)
    }

    /// Can an integer be held?
    pub fn holds_integer(&self, value: i64) -> bool {
        self.kind != Kind::Int32 || i32::try_from(value).is_ok()
    }

    /// Can a number be held?
    pub fn holds_number(&self, value: f64) -> bool {
        self.kind != Kind::Float || (value as f32).is_finite()
    }

    /// Is it text of this format?
    pub fn accepts(&self, text: &str) -> bool {
        match self.kind {
            Kind::BsonObjectId => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
            Kind::Uri => uri::is_request_uri(text),
            Kind::Email => mail::is_address(text),
            Kind::Hostname => network::is_hostname(text),
            Kind::Ipv4 => network::is_ipv4(text),
            Kind::Ipv6 => network::is_ipv6(text),
            Kind::Cidr => network::is_cidr(text),
            Kind::Mac => network::is_mac(text),
            Kind::Uuid(version) => is_uuid(text, version),
            Kind::Isbn => is_isbn10(text) || is_isbn13(text),
            Kind::Isbn10 => is_isbn10(text),
            Kind::Isbn13 => is_isbn13(text),
            Kind::CreditCard => is_credit_card(text),
            Kind::Ssn => is_ssn(text),
            Kind::HexColor => is_hex_color(text),
            Kind::RgbColor => is_rgb_color(text),
            Kind::Byte => is_base64(text),
            Kind::Date => time::is_date(text),
            Kind::Duration => time::is_duration(text),
            Kind::DateTime => time::is_date_time(text),
            Kind::ShortName => text.len() <= 63 && is_short_name(text),
            Kind::LongName => text.len() <= 253 && text.split('.').all(is_short_name),
            Kind::Password | Kind::Int32 | Kind::Int64 | Kind::Float | Kind::Double => true,
        }
    }
}

fn text_kind(name: &str) -> Option<Kind> {
    Some(match name {
        "bsonobjectid" => Kind::BsonObjectId,
        "uri" => Kind::Uri,
        "email" => Kind::Email,
        "hostname" => Kind::Hostname,
        "ipv4" => Kind::Ipv4,
        "ipv6" => Kind::Ipv6,
        "cidr" => Kind::Cidr,
        "mac" => Kind::Mac,
        "uuid" => Kind::Uuid(Uuid::Any),
        "uuid3" => Kind::Uuid(Uuid::V3),
        "uuid4" => Kind::Uuid(Uuid::V4),
        "uuid5" => Kind::Uuid(Uuid::V5),
        "isbn" => Kind::Isbn,
        "isbn10" => Kind::Isbn10,
        "isbn13" => Kind::Isbn13,
        "creditcard" => Kind::CreditCard,
        "ssn" => Kind::Ssn,
        "hexcolor" => Kind::HexColor,
        "rgbcolor" => Kind::RgbColor,
        "byte" => Kind::Byte,
        "password" => Kind::Password,
        "date" => Kind::Date,
        "duration" => Kind::Duration,
        "datetime" => Kind::DateTime,
        "k8sshortname" => Kind::ShortName,
        "k8slongname" => Kind::LongName,
        _ => return None,
    })
}

/// Lower case letters, digits and inner dashes.
fn is_short_name(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

/// Hexadecimal digits, with or without the dashes between the groups.
fn is_uuid(text: &str, version: Uuid) -> bool {
    let mut rest = text.as_bytes();
    for (group, length) in [8usize, 4, 4, 4, 12].into_iter().enumerate() {
        if group > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        let Some((digits, after)) = rest.split_at_checked(length) else { return false };
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        let right = match (group, version) {
            (2, Uuid::V3) => digits[0] == b'3',
            (2, Uuid::V4) => digits[0] == b'4',
            (2, Uuid::V5) => digits[0] == b'5',
            (3, Uuid::V4 | Uuid::V5) => matches!(digits[0], b'8' | b'9' | b'a' | b'b' | b'A' | b'B'),
            _ => true,
        };
        if !right {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

/// Without white space and dashes.
fn compact(text: &str) -> Vec<u8> {
    text.bytes().filter(|b| !matches!(b, b'\t' | b'\n' | 12 | b'\r' | b' ' | b'-')).collect()
}

fn digit(b: u8) -> Option<u32> {
    (b as char).to_digit(10)
}

fn is_isbn10(text: &str) -> bool {
    let text = compact(text);
    let Some((last, first)) = text.split_last() else { return false };
    let last = if *last == b'X' { Some(10) } else { digit(*last) };
    let digits: Option<Vec<u32>> = first.iter().map(|b| digit(*b)).chain([last]).collect();
    digits.is_some_and(|d| d.len() == 10 && d.iter().zip(1..).map(|(d, weight)| d * weight).sum::<u32>() % 11 == 0)
}

fn is_isbn13(text: &str) -> bool {
    let digits: Option<Vec<u32>> = compact(text).into_iter().map(digit).collect();
    digits.is_some_and(|d| {
        d.len() == 13 && d.iter().enumerate().map(|(i, d)| if i % 2 == 0 { *d } else { 3 * d }).sum::<u32>() % 10 == 0
    })
}

/// A number of a known issuer with a right check digit; anything but digits is skipped.
fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u32> = text.bytes().filter_map(digit).collect();
    let prefix = |n: usize| digits.iter().take(n).fold(0, |sum, d| sum * 10 + d);
    let known = match digits.len() {
        13 => prefix(1) == 4,
        14 => matches!(prefix(3), 300..=305) || matches!(prefix(2), 36 | 38),
        15 => matches!(prefix(2), 34 | 37) || matches!(prefix(4), 2131 | 1800),
        16 => prefix(1) == 4 || matches!(prefix(2), 51..=55 | 35) || prefix(4) == 6011 || prefix(2) == 65,
        _ => false,
    };
    let check: u32 =
        digits.iter().rev().enumerate().map(|(i, d)| if i % 2 == 0 { *d } else { d * 2 / 10 + d * 2 % 10 }).sum();
    known && check.is_multiple_of(10)
}

/// Eleven characters: three, two and four digits with a dash or a space between.
fn is_ssn(text: &str) -> bool {
    let b = text.as_bytes();
    b.len() == 11
        && b.iter().enumerate().all(|(i, b)| match i {
            3 | 6 => matches!(b, b'-' | b' '),
            _ => b.is_ascii_digit(),
        })
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_rgb_color(text: &str) -> bool {
    let Some(inside) = text.strip_prefix("rgb(").and_then(|t| t.strip_suffix(')')) else { return false };
    let space = |c: char| matches!(c, '\t' | '\n' | '\x0c' | '\r' | ' ');
    let parts: Vec<&str> = inside.split(',').map(|part| part.trim_matches(space)).collect();
    parts.len() == 3
        && parts.iter().all(|part| {
            part.bytes().all(|b| b.is_ascii_digit())
                && (part.len() == 1 || !part.starts_with('0'))
                && part.parse::<u8>().is_ok()
        })
}

/// The standard alphabet with padding, not empty.
fn is_base64(text: &str) -> bool {
    let b = text.as_bytes();
    let data = b.strip_suffix(b"==").or_else(|| b.strip_suffix(b"=")).unwrap_or(b);
    !b.is_empty()
        && b.len().is_multiple_of(4)
        && data.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

#[cfg(test)]
mod tests;
