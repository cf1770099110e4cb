//! JSON as Kubernetes reads and writes it.

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use crate::go_text;

/// Compact JSON, with floats and unsafe characters written as Go writes them.
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> String {
    // What is written is UTF-8 throughout, and writing to memory only fails where a map key is not text.
    String::from_utf8(to_vec(value)).unwrap_or_default()
}

/// The same as bytes.
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write(&mut out, value).map(|()| out).unwrap_or_default()
}

/// The same, appended to a writer.
pub fn write<T: Serialize + ?Sized>(out: &mut impl io::Write, value: &T) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(out, GoFormatter)).map_err(io::Error::from)
}

struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(go_text::json_float(value).as_bytes())
    }

    /// Go escapes `<`, `>`, `&` and the two line separators, so that JSON can stand inside HTML and JavaScript.
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let (clean, tail) = rest.split_at(at);
            writer.write_all(clean.as_bytes())?;
            let mut chars = tail.chars();
            if let Some(c) = chars.next() {
                write!(writer, "\\u{:04x}", c as u32)?;
            }
            rest = chars.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}
