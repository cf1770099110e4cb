//! URIs as a server receives them: absolute, or a path from the root.

use std::net::Ipv6Addr;

/// What Go's `url.ParseRequestURI` accepts.
pub fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let Some((scheme, rest)) = split_scheme(text) else { return false };
    let rest = rest.split_once('?').map_or(rest, |(before, _)| before);
    if !rest.starts_with('/') {
        // Opaque, as in `mailto:someone`.
        return scheme;
    }
    match rest.strip_prefix("//") {
        Some(after) if scheme => {
            let end = after.find('/').unwrap_or(after.len());
            is_authority(&after[..end]) && escapes_are_right(&after[end..])
        }
        _ => escapes_are_right(rest),
    }
}

/// Is there a scheme, and what follows it? `None` where a colon comes first.
fn split_scheme(text: &str) -> Option<(bool, &str)> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at > 0 => return Some((true, &text[at + 1..])),
            ':' => return None,
            _ => break,
        }
    }
    Some((false, text))
}

fn is_authority(text: &str) -> bool {
    let (user, host) = text.rsplit_once('@').map_or(("", text), |(user, host)| (user, host));
    let user_right = user.chars().all(|c| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c));
    user_right && escapes_are_right(user) && is_host(host)
}

/// A name or an address in brackets, and perhaps a port.
fn is_host(text: &str) -> bool {
    let is_port =
        |port: &str| port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    if let Some(inside) = text.strip_prefix('[') {
        let Some((address, port)) = inside.rsplit_once(']') else { return false };
        let (address, zone) = address.split_once("%25").unwrap_or((address, ""));
        return is_port(port) && address.parse::<Ipv6Addr>().is_ok() && escapes_are_right(zone);
    }
    let (name, port) = text.find(':').map_or((text, ""), |at| text.split_at(at));
    let allowed = |b: u8| b >= 0x80 || b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=]<>\"%".contains(&b);
    // Only bytes beyond ASCII are escaped in a name, and the percent sign itself.
    let escapable = |part: &str| {
        part.starts_with("25") || part.starts_with(|c: char| matches!(c, '8'..='9' | 'a'..='f' | 'A'..='F'))
    };
    is_port(port) && name.bytes().all(allowed) && escapes_are_right(name) && name.split('%').skip(1).all(escapable)
}

/// Is every percent sign followed by two hexadecimal digits?
fn escapes_are_right(text: &str) -> bool {
    text.split('%').skip(1).all(|part| part.len() >= 2 && part.bytes().take(2).all(|b| b.is_ascii_hexdigit()))
}
