//! Warnings go back as `Warning` headers.

use hyper::{
    HeaderMap,
    header::{HeaderValue, WARNING},
};

use crate::context::Warnings;

pub fn tell(warnings: &Warnings, headers: &mut HeaderMap) {
    for warning in warnings.take() {
        let text = warning.replace('\\', r"\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{text}\"").as_bytes()) {
            headers.append(WARNING, value);
        }
    }
}
