//! Just enough DER to write a certificate.

/// An element with its tag and length before its content.
pub fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut out = vec![tag];
    match length {
        0..0x80 => out.push(length as u8),
        _ => {
            let bytes: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
            out.push(0x80 | bytes.len() as u8);
            out.extend(bytes);
        }
    }
    out.extend_from_slice(content);
    out
}

pub fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    element(0x30, &parts.concat())
}

/// A positive number from its bytes, without a leading zero unless it needs one.
pub fn integer(bytes: &[u8]) -> Vec<u8> {
    let digits: Vec<u8> = bytes.iter().copied().skip_while(|byte| *byte == 0).collect();
    let high = digits.first().is_none_or(|byte| byte & 0x80 != 0);
    element(0x02, &[if high { &[0][..] } else { &[] }, &digits].concat())
}

pub fn oid(numbers: &[u64]) -> Vec<u8> {
    let (first, rest) = match numbers {
        [a, b, rest @ ..] => (a * 40 + b, rest),
        _ => (0, &[][..]),
    };
    let mut out = Vec::new();
    for number in std::iter::once(&first).chain(rest) {
        let mut groups = vec![(number & 0x7f) as u8];
        let mut left = number >> 7;
        while left > 0 {
            groups.push(0x80 | (left & 0x7f) as u8);
            left >>= 7;
        }
        groups.reverse();
        out.extend(groups);
    }
    element(0x06, &out)
}

pub fn octets(content: &[u8]) -> Vec<u8> {
    element(0x04, content)
}

/// A string of bits whose last byte has this many that do not count.
pub fn bits(unused: u8, content: &[u8]) -> Vec<u8> {
    element(0x03, &[&[unused], content].concat())
}

pub const TRUE: &[u8] = &[0x01, 0x01, 0xff];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_standard_says() {
        assert_eq!(oid(&[1, 2, 840, 10045, 4, 3, 2]), [6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]);
        assert_eq!(integer(&[0, 0, 0x80]), [2, 2, 0, 0x80]);
        assert_eq!(integer(&[0, 0x7f]), [2, 1, 0x7f]);
        assert_eq!(element(4, &[0; 200])[..3], [4, 0x81, 200]);
        assert_eq!(element(4, &[0; 300])[..4], [4, 0x82, 1, 44]);
    }
}
