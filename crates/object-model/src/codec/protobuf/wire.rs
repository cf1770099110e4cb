//! Tags, varints and lengths.

use super::DecodeError;

/// How the bytes after a tag are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
    StartGroup = 3,
    EndGroup = 4,
    Fixed32 = 5,
}

impl WireType {
    fn of(tag: u64) -> Option<Self> {
        Some(match tag & 7 {
            0 => Self::Varint,
            1 => Self::Fixed64,
            2 => Self::Bytes,
            3 => Self::StartGroup,
            4 => Self::EndGroup,
            5 => Self::Fixed32,
            _ => return None,
        })
    }
}

pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn put_tag(out: &mut Vec<u8>, number: u32, wire_type: WireType) {
    put_varint(out, u64::from(number) << 3 | wire_type as u64);
}

/// Appends a field that is bytes, a text, or a message that is encoded already: so lists and watch events are made of
/// objects' messages without encoding these again.
pub fn append_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, WireType::Bytes);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a field that is a number or a boolean.
pub fn append_varint(out: &mut Vec<u8>, number: u32, value: u64) {
    put_tag(out, number, WireType::Varint);
    put_varint(out, value);
}

/// Appends a field that is a floating point number.
pub fn append_double(out: &mut Vec<u8>, number: u32, value: f64) {
    put_tag(out, number, WireType::Fixed64);
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

/// Appends a field that is a message, whose length is known only when it is written. Most are short: one byte is kept
/// free for the length, and the message moves up when that is not enough.
pub fn put_message<E>(
    out: &mut Vec<u8>,
    number: u32,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    put_tag(out, number, WireType::Bytes);
    out.push(0);
    let start = out.len();
    write(out)?;
    let length = out.len() - start;
    if length < 0x80 {
        out[start - 1] = length as u8;
        return Ok(());
    }
    let mut prefix = Vec::with_capacity(10);
    put_varint(&mut prefix, length as u64);
    let more = prefix.len() - 1;
    out.resize(out.len() + more, 0);
    out.copy_within(start..start + length, start + more);
    out[start - 1..start + more].copy_from_slice(&prefix);
    Ok(())
}

/// The fields of one message.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The number and wire type of the next field, if there is one.
    pub fn tag(&mut self) -> Result<Option<(u32, WireType)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let illegal = || DecodeError::Tag { number: tag >> 3, wire_type: (tag & 7) as u8 };
        let wire_type = WireType::of(tag).ok_or_else(illegal)?;
        // numbers have 29 bits
        let number = u32::try_from(tag >> 3).ok().filter(|n| *n > 0 && *n < 1 << 29).ok_or_else(illegal)?;
        Ok(Some((number, wire_type)))
    }

    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Overflow)
    }

    pub fn fixed64(&mut self) -> Result<u64, DecodeError> {
        let (bytes, rest) = self.rest.split_first_chunk::<8>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.varint()?;
        let length = usize::try_from(length).map_err(|_| DecodeError::Truncated)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Passes over a field that nobody knows. Groups hold fields until their end.
    pub fn skip(&mut self, wire_type: WireType) -> Result<(), DecodeError> {
        let mut open = 0usize;
        let mut next = wire_type;
        loop {
            match next {
                WireType::Varint => drop(self.varint()?),
                WireType::Fixed64 => drop(self.fixed64()?),
                WireType::Bytes => drop(self.bytes()?),
                WireType::Fixed32 => self.rest = self.rest.get(4..).ok_or(DecodeError::Truncated)?,
                WireType::StartGroup => open += 1,
                WireType::EndGroup => open = open.checked_sub(1).ok_or(DecodeError::Group)?,
            }
            if open == 0 {
                return Ok(());
            }
            next = self.tag()?.ok_or(DecodeError::Truncated)?.1;
        }
    }
}
