//! Splitting a stream into documents, line by line, as kubectl does before it reads any of them.

use super::BadYaml;

/// The documents of a stream. Lines that start with `---` separate them; only a comment may follow on such a line.
pub fn documents(bytes: &[u8]) -> impl Iterator<Item = Result<&[u8], BadYaml>> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        loop {
            let bytes = rest.take()?;
            match first_separator(bytes) {
                None => return Some(Ok(bytes)).filter(|_| !bytes.is_empty()),
                Some((start, end)) => {
                    let after = bytes[start + 3..end].trim_ascii();
                    if !after.is_empty() && !after.starts_with(b"#") {
                        return Some(Err(BadYaml::Separator(String::from_utf8_lossy(after).into_owned())));
                    }
                    rest = Some(&bytes[end..]);
                    if start > 0 {
                        return Some(Ok(&bytes[..start]));
                    }
                }
            }
        }
    })
}

/// Where the first line with `---` starts and where the next line does.
fn first_separator(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut start = 0;
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        if line.starts_with(b"---") {
            return Some((start, start + line.len()));
        }
        start += line.len();
    }
    None
}
