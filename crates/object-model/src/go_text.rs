//! Text as Go prints it. Kubernetes' messages are made with Go's `fmt`, and clients compare them.

use std::fmt::Write as _;

/// A text in double quotes, as `%q` prints it.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        quote_char(c, &mut out);
    }
    out.push('"');
    out
}

fn quote_char(c: char, out: &mut String) {
    let simple = match c {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{b}' => "\\v",
        c if is_print(c) => return out.push(c),
        _ => "",
    };
    out.push_str(simple);
    if simple.is_empty() {
        let code = c as u32;
        let _ = match code {
            0..0x20 | 0x7f => write!(out, "\\x{code:02x}"),
            0x80..=0xffff => write!(out, "\\u{code:04x}"),
            _ => write!(out, "\\U{code:08x}"),
        };
    }
}

/// Letters, marks, numbers, punctuation, symbols and the ASCII space: what Go calls printable.
pub fn is_print(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // The standard library escapes exactly the same characters, but a mark only where it has no letter to stand on.
    let mut text = String::from("a");
    text.push(c);
    text.escape_debug().count() == 2
}

/// A list of texts, as `%#v` prints it.
pub fn string_slice(items: &[&str]) -> String {
    let quoted: Vec<String> = items.iter().map(|item| quote(item)).collect();
    format!("[]string{{{}}}", quoted.join(", "))
}

/// A float as `%v` prints it: the shortest digits that read back, with an exponent below 1e-4 and from 1e6 on.
pub fn float(value: f64) -> String {
    if is_plain(value, 1e-4, 1e6) { value.to_string() } else { with_exponent(&format!("{value:e}"), 2) }
}

/// The same for a float of 32 bits, which needs fewer digits.
pub fn float32(value: f32) -> String {
    if is_plain(value.into(), 1e-4, 1e6) { value.to_string() } else { with_exponent(&format!("{value:e}"), 2) }
}

/// A float as Go's JSON encoder prints it: an exponent only below 1e-6 and from 1e21 on, and `e-9` where `%v` says
/// `e-09`.
pub fn json_float(value: f64) -> String {
    if is_plain(value, 1e-6, 1e21) { value.to_string() } else { with_exponent(&format!("{value:e}"), 1) }
}

fn is_plain(value: f64, small: f64, big: f64) -> bool {
    let size = value.abs();
    size == 0.0 || (size >= small && size < big)
}

/// From `1e-9` to `1e-09`, and from `1e9` to `1e+09`.
fn with_exponent(text: &str, width: usize) -> String {
    match text.split_once('e') {
        Some((digits, exponent)) => match exponent.strip_prefix('-') {
            Some(exponent) => format!("{digits}e-{exponent:0>width$}"),
            None => format!("{digits}e+{exponent:0>2}"),
        },
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting() {
        assert_eq!(
            quote("a\"\\\n\u{1}\u{7f}é\u{301}\u{200b}\u{e000}\u{10ffff}"),
            "\"a\\\"\\\\\\n\\x01\\x7fé\u{301}\\u200b\\ue000\\U0010ffff\""
        );
        assert_eq!(quote("\u{301}x"), "\"\u{301}x\"");
        assert_eq!(string_slice(&["a", "b"]), "[]string{\"a\", \"b\"}");
    }

    #[test]
    fn floats() {
        for (value, plain, json) in [
            (0.0, "0", "0"),
            (1.5, "1.5", "1.5"),
            (123456.0, "123456", "123456"),
            (1e6, "1e+06", "1000000"),
            (123456789.0, "1.23456789e+08", "123456789"),
            (1e20, "1e+20", "100000000000000000000"),
            (1e21, "1e+21", "1e+21"),
            (1.5e300, "1.5e+300", "1.5e+300"),
            (1e-5, "1e-05", "0.00001"),
            (1.5e-7, "1.5e-07", "1.5e-7"),
            (1e-10, "1e-10", "1e-10"),
            (-2.5, "-2.5", "-2.5"),
        ] {
            assert_eq!(float(value), plain);
            assert_eq!(json_float(value), json);
        }
    }
}
