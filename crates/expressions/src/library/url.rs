//! URLs: absolute ones and paths from the root, as Go reads them.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_model::go_text::quote;
use object_model::schema::validate::Format;

use super::standard::text_key;
use crate::declarations::{Row, row};
use crate::evaluate::{Evaluated, Meter, failed, no_such_overload};
use crate::value::{LibraryValue, Map, Value};

/// A URL in its parts.
#[derive(Debug, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    /// With the port.
    host: String,
    path: String,
    query: String,
}

pub(crate) const ROWS: &[Row] = &[
    row("url", &["(string) URL"], |_, args| match args {
        [Value::String(text)] => match Url::parse(text) {
            Ok(url) => Ok(Value::Library(LibraryValue::Url(Arc::new(url)))),
            Err(why) => failed(format!("URL parse error during conversion from string: {why}")),
        },
        _ => no_such_overload(),
    }),
    row("isURL", &["(string) bool"], |_, args| match args {
        [Value::String(text)] => Ok(Value::Bool(Url::parse(text).is_ok())),
        _ => no_such_overload(),
    }),
    row("getScheme", &["URL.() string"], |_, args| part(args, |url| url.scheme.clone())),
    row("getHost", &["URL.() string"], |_, args| part(args, |url| url.host.clone())),
    row("getHostname", &["URL.() string"], |_, args| part(args, |url| url.host_and_port().0)),
    row("getPort", &["URL.() string"], |_, args| part(args, |url| url.host_and_port().1)),
    row("getEscapedPath", &["URL.() string"], |_, args| part(args, |url| escape_path(&url.path))),
    row("getQuery", &["URL.() map(string, list(string))"], query),
];

/// Is this what a request can be sent to? The words are Go's.
pub(crate) fn check_uri(text: &str) -> Result<(), String> {
    let fits = Format::parse("uri", None).is_some_and(|format| format.accepts(text));
    match text {
        _ if fits => Ok(()),
        "" => Err("parse \"\": empty url".to_owned()),
        _ => Err(format!("parse {}: invalid URI for request", quote(text))),
    }
}

impl Url {
    fn parse(text: &str) -> Result<Self, String> {
        check_uri(text)?;
        let (scheme, rest) = match text.split_once(':') {
            Some((scheme, rest)) if !text.starts_with('/') => (scheme.to_ascii_lowercase(), rest),
            _ => (String::new(), text),
        };
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = match rest.strip_prefix("//") {
            Some(after) if !scheme.is_empty() => {
                let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
                (authority.rsplit_once('@').map_or(authority, |(_, host)| host), path)
            }
            _ if rest.starts_with('/') => ("", rest),
            // Opaque, as in `mailto:someone`.
            _ => ("", ""),
        };
        Ok(Self { scheme, host: host.to_owned(), path: path.to_owned(), query: query.to_owned() })
    }

    fn host_and_port(&self) -> (String, String) {
        let (host, port) = match self.host.rfind(':') {
            Some(at) if !self.host[at..].contains(']') => (&self.host[..at], &self.host[at + 1..]),
            _ => (self.host.as_str(), ""),
        };
        (host.trim_start_matches('[').trim_end_matches(']').to_owned(), port.to_owned())
    }
}

fn part<'v>(args: &[Value<'v>], of: impl Fn(&Url) -> String) -> Evaluated<'v> {
    match args {
        [Value::Library(LibraryValue::Url(url))] => Ok(Value::text(of(url))),
        _ => no_such_overload(),
    }
}

fn query<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    let [Value::Library(LibraryValue::Url(url))] = args else { return no_such_overload() };
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let (Some(name), Some(value)) = (unescape(name), unescape(value)) {
            values.entry(name).or_default().push(value);
        }
    }
    let entry = |(name, values): (String, Vec<String>)| {
        let (key, shown) = text_key(&name);
        (key, (shown, Value::texts(values)))
    };
    Ok(Value::Map(Map::Built(Arc::new(values.into_iter().map(entry).collect()))))
}

/// A part of a query as meant; none if an escape is broken.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                (digit(rest.next())? * 16 + digit(rest.next())?) as u8
            }
            byte => byte,
        });
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// What may not stand in a path is escaped; escapes stay.
fn escape_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        let stays = byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*%[]".contains(&byte);
        if stays {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
