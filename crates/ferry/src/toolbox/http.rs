//! As much of HTTP/1.1 as a small server and a small client need.

use std::io::{self, BufRead, Read, Write};

/// Lines before the body are not longer than this altogether.
const LARGEST_HEAD: u64 = 64 << 10;

/// What comes before the body.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// The request line, or the status line.
    pub first: String,
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// Nothing if the connection ends before it begins.
    pub fn read(source: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut lines = source.take(LARGEST_HEAD);
        let mut next = || {
            let mut line = String::new();
            lines.read_line(&mut line)?;
            match line.strip_suffix('\n') {
                Some(line) => Ok(Some(line.trim_end_matches('\r').to_owned())),
                None if line.is_empty() => Ok(None),
                None => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            }
        };
        let Some(first) = next()? else { return Ok(None) };
        let mut head = Self { first, fields: Vec::new() };
        loop {
            match next()? {
                Some(line) if line.is_empty() => return Ok(Some(head)),
                Some(line) => match line.split_once(':') {
                    Some((name, value)) => head.fields.push((name.to_owned(), value.trim().to_owned())),
                    None => return Err(bad(&line)),
                },
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Whether a field with a list of words has one of them.
    pub fn says(&self, name: &str, word: &str) -> bool {
        self.field(name).is_some_and(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
    }

    /// Passes the body on; what has no length given ends with the connection.
    pub fn copy_body(&self, source: &mut impl BufRead, target: &mut impl Write) -> io::Result<u64> {
        if self.says("transfer-encoding", "chunked") {
            return copy_chunks(source, target);
        }
        let Some(length) = self.field("content-length") else { return io::copy(source, target) };
        let length: u64 = length.parse().map_err(|_| bad(length))?;
        let copied = io::copy(&mut source.take(length), target)?;
        if copied == length { Ok(copied) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

fn copy_chunks(source: &mut impl BufRead, target: &mut impl Write) -> io::Result<u64> {
    let mut all = 0;
    loop {
        let mut line = String::new();
        source.take(LARGEST_HEAD).read_line(&mut line)?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).map_err(|_| bad(&line))?;
        let copied = io::copy(&mut source.take(size), target)?;
        if copied != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        all += size;
        // After the last chunk there may be more fields, which nobody asked for.
        let mut end = String::new();
        source.take(LARGEST_HEAD).read_line(&mut end)?;
        if size == 0 {
            return Ok(all);
        }
    }
}

fn bad(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{:?} is not HTTP", line.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_bodies() {
        let mut text: &[u8] =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n";
        let head = Head::read(&mut text).expect("it is HTTP").expect("there is one");
        assert_eq!(head.first, "HTTP/1.1 200 OK");
        let mut body = Vec::new();
        assert_eq!(head.copy_body(&mut text, &mut body).ok(), Some(6));
        assert_eq!(body, b"hello!");
        let mut text: &[u8] = b"GET / HTTP/1.1\nContent-Length: 9\n\nshort";
        let head = Head::read(&mut text).expect("it is HTTP").expect("there is one");
        assert!(head.copy_body(&mut text, &mut Vec::new()).is_err());
        assert_eq!(Head::read(&mut &b""[..]).expect("an end"), None);
        assert!(Head::read(&mut &b"GET / HTTP/1.1\r\nx"[..]).is_err());
    }
}
