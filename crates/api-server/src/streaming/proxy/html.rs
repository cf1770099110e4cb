//! Links in a page.
//!
//! Only the values of attributes that are links change; every other byte stays. What is not well formed is left alone.

use bytes::{BufMut, Bytes, BytesMut};

/// The attributes that are links, by element.
const LINKS: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];
/// Elements whose content is text, whatever it looks like.
const RAW: [&str; 9] = ["iframe", "noembed", "noframes", "plaintext", "script", "style", "textarea", "title", "xmp"];

/// The page with its links changed.
pub fn rewrite(page: &[u8], change: impl Fn(&str) -> String) -> Bytes {
    let mut out = BytesMut::with_capacity(page.len() + 1024);
    let mut rest = page;
    while let Some(at) = rest.iter().position(|b| *b == b'<') {
        let (text, tag) = rest.split_at(at);
        out.put_slice(text);
        rest = match tag {
            [b'<', b'!', b'-', b'-', ..] => copy_through(tag, b"-->", &mut out),
            [b'<', letter, ..] if letter.is_ascii_alphabetic() => start_tag(tag, &change, &mut out),
            _ => {
                out.put_u8(b'<');
                &tag[1..]
            }
        };
    }
    out.put_slice(rest);
    out.freeze()
}

/// Copies up to and with `end`, or everything.
fn copy_through<'a>(from: &'a [u8], end: &[u8], out: &mut BytesMut) -> &'a [u8] {
    let until = find(from, end).map_or(from.len(), |at| at + end.len());
    let (copied, rest) = from.split_at(until);
    out.put_slice(copied);
    rest
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w.eq_ignore_ascii_case(what))
}

fn start_tag<'a>(tag: &'a [u8], change: &impl Fn(&str) -> String, out: &mut BytesMut) -> &'a [u8] {
    let end =
        1 + tag[1..].iter().position(|b| b.is_ascii_whitespace() || matches!(b, b'>' | b'/')).unwrap_or(tag.len() - 1);
    let name = String::from_utf8_lossy(&tag[1..end]).to_ascii_lowercase();
    let links =
        LINKS.iter().find(|(element, _)| *element == name).map(|(_, attributes)| *attributes).unwrap_or_default();
    out.put_slice(&tag[..end]);
    let mut rest = &tag[end..];
    loop {
        let blank = rest.iter().position(|b| !b.is_ascii_whitespace() && *b != b'/').unwrap_or(rest.len());
        out.put_slice(&rest[..blank]);
        rest = &rest[blank..];
        match rest.first() {
            None => return rest,
            Some(b'>') => break,
            Some(_) => rest = attribute(rest, links, change, out),
        }
    }
    out.put_u8(b'>');
    rest = &rest[1..];
    if RAW.contains(&&*name) {
        let end = format!("</{name}");
        let until = find(rest, end.as_bytes()).unwrap_or(rest.len());
        out.put_slice(&rest[..until]);
        rest = &rest[until..];
    }
    rest
}

fn attribute<'a>(text: &'a [u8], links: &[&str], change: &impl Fn(&str) -> String, out: &mut BytesMut) -> &'a [u8] {
    // A name may begin with an equals sign, strange as that is.
    let is_end = |b: &u8| b.is_ascii_whitespace() || matches!(b, b'=' | b'>' | b'/');
    let end = 1 + text[1..].iter().position(is_end).unwrap_or(text.len() - 1);
    let name = String::from_utf8_lossy(&text[..end]).to_ascii_lowercase();
    let equals = end + text[end..].iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(text.len() - end);
    if text.get(equals) != Some(&b'=') {
        out.put_slice(&text[..end]);
        return &text[end..];
    }
    let begin = equals + 1;
    let begin = begin + text[begin..].iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(text.len() - begin);
    out.put_slice(&text[..begin]);
    let rest = &text[begin..];
    let (quote, value, after) = match rest.first() {
        Some(quote @ (b'"' | b'\'')) => match rest[1..].iter().position(|b| b == quote) {
            Some(end) => (&rest[..1], &rest[1..=end], &rest[end + 1..]),
            None => {
                out.put_slice(rest);
                return &[];
            }
        },
        _ => {
            let end = rest.iter().position(|b| b.is_ascii_whitespace() || *b == b'>').unwrap_or(rest.len());
            (&rest[..0], &rest[..end], &rest[end..])
        }
    };
    out.put_slice(quote);
    match std::str::from_utf8(value) {
        Ok(link) if links.contains(&&*name) => out.put_slice(change(link).as_bytes()),
        _ => out.put_slice(value),
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(page: &str) -> String {
        let out =
            rewrite(page.as_bytes(), |link| if link.starts_with('/') { format!("/p{link}") } else { link.into() });
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn links_change_and_nothing_else() {
        for (page, want) in [
            ("<a href=\"/x\">/y</a>", "<a href=\"/p/x\">/y</a>"),
            ("<A\n class=/c HREF = '/x' >", "<A\n class=/c HREF = '/p/x' >"),
            ("<img src=/x/ alt>", "<img src=/p/x/ alt>"),
            ("<link href='/x'/><p title=\"/x\">", "<link href='/p/x'/><p title=\"/x\">"),
            ("<!-- <a href='/x'> --><a href='/y'>", "<!-- <a href='/x'> --><a href='/p/y'>"),
            (
                "<script src='/s'>if (a<b) '<a href=\"/x\">'</script>",
                "<script src='/p/s'>if (a<b) '<a href=\"/x\">'</script>",
            ),
            ("a < b <a href=rel>", "a < b <a href=rel>"),
        ] {
            assert_eq!(rewritten(page), want);
        }
    }

    #[test]
    fn broken_pages_stay_as_they_are() {
        for page in [
            "<",
            "<a",
            "<a href",
            "<a href=",
            "<a href='/x",
            "<!--",
            "<script>",
            "<a =",
            "</a href='/x'",
            "\u{1F600}<ü",
        ] {
            assert_eq!(rewritten(page), page);
        }
    }
}
