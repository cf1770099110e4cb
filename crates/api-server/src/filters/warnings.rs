//! Warnings go back as `Warning` headers.

use hyper::{
    HeaderMap,
    header::{HeaderValue, WARNING},
};

use crate::context::Warnings;

/// How much all warnings of one answer may be, in bytes; the rest is cut.
const MAX_BYTES: usize = 4 << 10;

pub fn tell(warnings: &Warnings, headers: &mut HeaderMap) {
    let mut left = MAX_BYTES;
    for warning in warnings.take() {
        let mut text = String::with_capacity(warning.len() + 8);
        for c in warning.chars() {
            match c {
                '"' | '\\' => text.extend(['\\', c]),
                c if c.is_control() => text.push(' '),
                c => text.push(c),
            }
        }
        let header = format!("299 - \"{text}\"");
        if header.len() > left {
            return;
        }
        left -= header.len();
        if let Ok(value) = HeaderValue::from_bytes(header.as_bytes()) {
            headers.append(WARNING, value);
        }
    }
}
