//! Writing JSON.

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
        let bytes = fragment.as_bytes();
        // Nearly all text is plain. Looking at every byte without stopping is what the compiler can do many at a time.
        if !bytes.iter().fold(false, |found, b| found | is_unsafe(*b)) {
            return writer.write_all(bytes);
        }
        let mut written = 0;
        while let Some(found) = bytes[written..].iter().position(|b| is_unsafe(*b)) {
            let at = written + found;
            let escape: &[u8] = match &bytes[at..] {
                [b'<', ..] => b"\\u003c",
                [b'>', ..] => b"\\u003e",
                [b'&', ..] => b"\\u0026",
                [_, 0x80, 0xa8, ..] => b"\\u2028",
                [_, 0x80, 0xa9, ..] => b"\\u2029",
                _ => b"",
            };
            let length = if bytes[at] == 0xe2 { 3 } else { 1 };
            if escape.is_empty() {
                writer.write_all(&bytes[written..at + length])?;
            } else {
                writer.write_all(&bytes[written..at])?;
                writer.write_all(escape)?;
            }
            written = at + length;
        }
        writer.write_all(&bytes[written..])
    }
}

/// U+2028 and U+2029 are E2 80 A8 and E2 80 A9.
fn is_unsafe(byte: u8) -> bool {
    matches!(byte, b'<' | b'>' | b'&' | 0xe2)
}
