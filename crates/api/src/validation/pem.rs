//! PEM blocks, and whether there is something like DER in them.
//!
//! Nothing here checks signatures: that is for who trusts them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

/// A block of a PEM file.
pub struct Block<'a> {
    pub label: &'a str,
    pub has_headers: bool,
    pub der: Vec<u8>,
}

/// The blocks of a PEM file. What is between them, or is none, is passed over.
pub fn blocks(text: &str) -> impl Iterator<Item = Block<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let at = rest.find("-----BEGIN ")?;
            let begins_line = at == 0 || rest.as_bytes().get(at - 1) == Some(&b'\n');
            rest = &rest[at + "-----BEGIN ".len()..];
            let (label, body) = rest.split_once("-----")?;
            if !begins_line || label.contains('\n') {
                continue;
            }
            let Some((body, after)) = body.split_once(&format!("-----END {label}-----")) else { continue };
            let (headers, encoded) = match body.trim_start().split_once("\n\n") {
                Some((headers, encoded)) if headers.contains(':') => (headers, encoded),
                _ => ("", body),
            };
            let encoded: String = encoded.split_ascii_whitespace().collect();
            if let Ok(der) = BASE64.decode(encoded) {
                rest = after;
                return Some(Block { label, has_headers: !headers.is_empty(), der });
            }
        }
    })
}

/// Are there certificates in this PEM file, itself in base64?
pub fn has_certificates(base64: &str) -> bool {
    let text = String::from_utf8(BASE64.decode(base64).unwrap_or_default()).unwrap_or_default();
    blocks(&text).any(|block| block.label == "CERTIFICATE" && is_signed_sequence(&block.der))
}

/// Is this one DER sequence, of sequences and a signature at its end, as certificates and requests for them are?
pub fn is_signed_sequence(der: &[u8]) -> bool {
    let Some((0x30, body, [])) = element(der) else { return false };
    let Some((0x30, _, rest)) = element(body) else { return false };
    let Some((0x30, _, rest)) = element(rest) else { return false };
    matches!(element(rest), Some((0x03, _, [])))
}

/// The first element: its tag, its content, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}
