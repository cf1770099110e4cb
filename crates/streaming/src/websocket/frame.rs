//! Frames of RFC 6455: decoded as they come in, encoded as they go out.
//!
//! Messages are handed out in the pieces in which they arrive, so that one of any length needs no memory.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::Error;
use crate::wire::READ_BYTES;

pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

const CONTINUATION: u8 = 0;
const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;
const CONTROL_BYTES: u64 = 125;

/// A control frame, or a piece of a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// `first` and `last` say where in its message the piece is.
    Piece {
        bytes: Bytes,
        first: bool,
        last: bool,
    },
    Ping(Bytes),
    Pong,
    Close,
}

/// Which side's frames are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Client,
    Server,
}

/// Makes events of what comes in.
pub struct Decoder {
    from: From,
    /// The frame that is coming in.
    current: Option<Current>,
    /// A message has begun and is not over.
    in_message: bool,
    /// The next piece is the first of its message.
    at_start: bool,
}

struct Current {
    kind: u8,
    last: bool,
    missing: u64,
    mask: [u8; 4],
    /// How far into the mask the next byte is.
    turn: usize,
}

impl Decoder {
    pub fn new(from: From) -> Self {
        Self { from, current: None, in_message: false, at_start: true }
    }

    /// The next event in the buffer, if it is there.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Event>, Error> {
        if self.current.is_none() {
            let Some(head) = self.head(buffer)? else { return Ok(None) };
            self.current = Some(head);
        }
        let Some(current) = &mut self.current else { return Ok(None) };
        let control = current.kind >= CLOSE;
        let here = current.missing.min(buffer.len() as u64).min(READ_BYTES as u64);
        if here < current.missing && (control || here == 0) {
            return Ok(None);
        }
        let mut bytes = buffer.split_to(here as usize);
        current.unmask(&mut bytes);
        current.missing -= here;
        let bytes = bytes.freeze();
        let (kind, complete, last) = (current.kind, current.missing == 0, current.last);
        if complete {
            self.current = None;
        }
        Ok(Some(match kind {
            CLOSE => Event::Close,
            PING => Event::Ping(bytes),
            PONG => Event::Pong,
            _ => {
                let last = last && complete;
                let first = std::mem::replace(&mut self.at_start, last);
                if last {
                    self.in_message = false;
                }
                Event::Piece { bytes, first, last }
            }
        }))
    }

    fn head(&mut self, buffer: &mut BytesMut) -> Result<Option<Current>, Error> {
        let Some(&[first, second]) = buffer.first_chunk::<2>() else { return Ok(None) };
        let (kind, last, masked) = (first & 0x0f, first & FIN != 0, second & MASKED != 0);
        if first & 0x70 != 0 || !matches!(kind, CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG) {
            return Err(Error::Reserved);
        }
        if masked != (self.from == From::Client) {
            return Err(Error::Mask);
        }
        let length_bytes = match second & !MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask_bytes = if masked { 4 } else { 0 };
        if buffer.len() < 2 + length_bytes + mask_bytes {
            return Ok(None);
        }
        buffer.advance(2);
        let missing = match length_bytes {
            0 => u64::from(second & !MASKED),
            bytes => buffer.get_uint(bytes),
        };
        if missing > i64::MAX as u64 {
            return Err(Error::Length);
        }
        let mut mask = [0; 4];
        if masked {
            buffer.copy_to_slice(&mut mask);
        }
        if kind >= CLOSE {
            if !last || missing > CONTROL_BYTES {
                return Err(Error::Control);
            }
        } else if (kind == CONTINUATION) != self.in_message {
            return Err(Error::Order);
        } else {
            self.in_message = true;
        }
        Ok(Some(Current { kind, last, missing, mask, turn: 0 }))
    }
}

impl Current {
    fn unmask(&mut self, bytes: &mut [u8]) {
        if self.mask == [0; 4] {
            return;
        }
        for byte in bytes {
            *byte ^= self.mask[self.turn % 4];
            self.turn += 1;
        }
    }
}

/// A whole message or control frame. A client masks it.
pub fn encode(kind: u8, parts: &[&[u8]], mask: Option<[u8; 4]>) -> Bytes {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut frame = BytesMut::with_capacity(length + 14);
    frame.put_u8(FIN | kind);
    let masked = if mask.is_some() { MASKED } else { 0 };
    match length {
        0..126 => frame.put_u8(masked | length as u8),
        126..=0xffff => {
            frame.put_u8(masked | 126);
            frame.put_u16(length as u16);
        }
        _ => {
            frame.put_u8(masked | 127);
            frame.put_u64(length as u64);
        }
    }
    if let Some(mask) = mask {
        frame.put_slice(&mask);
    }
    let begin = frame.len();
    for part in parts {
        frame.put_slice(part);
    }
    if let Some(mask) = mask {
        for (byte, mask) in frame.iter_mut().skip(begin).zip(mask.iter().cycle()) {
            *byte ^= mask;
        }
    }
    frame.freeze()
}

/// What ends a connection in order.
pub fn close() -> Bytes {
    encode(CLOSE, &[&1000u16.to_be_bytes()], None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(bytes: &'static [u8], first: bool, last: bool) -> Event {
        Event::Piece { bytes: Bytes::from_static(bytes), first, last }
    }

    #[test]
    fn frames_come_back() {
        let mut buffer = BytesMut::new();
        buffer.extend(encode(BINARY, &[b"ab", b"c"], Some([1, 2, 3, 4])));
        buffer.extend(encode(PING, &[b"x"], Some([9; 4])));
        buffer.extend(encode(TEXT, &[], Some([9; 4])));
        buffer.extend(encode(CLOSE, &[], Some([0; 4])));
        let mut decoder = Decoder::new(From::Client);
        let mut next = || decoder.next(&mut buffer).unwrap();
        assert_eq!(next(), Some(piece(b"abc", true, true)));
        assert_eq!(next(), Some(Event::Ping(Bytes::from_static(b"x"))));
        assert_eq!(next(), Some(piece(b"", true, true)));
        assert_eq!(next(), Some(Event::Close));
        assert_eq!(next(), None);
    }

    #[test]
    fn messages_of_any_length_come_in_pieces() {
        let whole: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        let frame = encode(BINARY, &[&whole], Some([5, 6, 7, 8]));
        let mut decoder = Decoder::new(From::Client);
        let (mut buffer, mut got, mut ends) = (BytesMut::new(), Vec::new(), 0);
        for part in frame.chunks(777) {
            buffer.extend_from_slice(part);
            while let Some(Event::Piece { bytes, first, last }) = decoder.next(&mut buffer).unwrap() {
                assert_eq!(first, got.is_empty());
                got.extend_from_slice(&bytes);
                ends += usize::from(last);
            }
            assert!(buffer.len() < 20);
        }
        assert_eq!((got == whole, ends), (true, 1));
    }

    #[test]
    fn fragments_make_one_message_and_control_frames_come_between() {
        let mut buffer = BytesMut::from(&[0x02, 1, b'a', 0x89, 0, 0x80, 1, b'b'][..]);
        let mut decoder = Decoder::new(From::Server);
        let mut next = || decoder.next(&mut buffer).unwrap();
        assert_eq!(next(), Some(piece(b"a", true, false)));
        assert_eq!(next(), Some(Event::Ping(Bytes::new())));
        assert_eq!(next(), Some(piece(b"b", false, true)));
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let refused = |from, bytes: &[u8]| Decoder::new(from).next(&mut BytesMut::from(bytes)).unwrap_err();
        assert_eq!(refused(From::Client, &[0x82, 1, b'a']), Error::Mask);
        assert_eq!(refused(From::Server, &[0x82, 0x81, 0, 0, 0, 0, b'a']), Error::Mask);
        assert_eq!(refused(From::Server, &[0xc2, 0]), Error::Reserved);
        assert_eq!(refused(From::Server, &[0x83, 0]), Error::Reserved);
        assert_eq!(refused(From::Server, &[0x89, 126, 0, 126]), Error::Control);
        assert_eq!(refused(From::Server, &[0x09, 0]), Error::Control);
        assert_eq!(refused(From::Server, &[0x80, 0]), Error::Order);
        assert_eq!(refused(From::Server, &[0x82, 127, 255, 0, 0, 0, 0, 0, 0, 0]), Error::Length);
    }
}
