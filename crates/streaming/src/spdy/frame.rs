//! Frames: decoded as they come in, encoded as they go out.
//!
//! Data is handed out in the pieces in which it arrives, so a frame of any length needs no memory; control frames have a
//! limit.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{
    Error, Headers,
    compression::{Deflater, HEADER_BYTES, Inflater},
};
use crate::wire::READ_BYTES;

/// Why a stream is reset.
pub const REFUSED: u32 = 3;
pub const CANCEL: u32 = 5;

const HEAD_BYTES: usize = 8;
const CONTROL: u32 = 0x8000_0000;
const VERSION: u32 = 3;
const FIN: u8 = 1;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GO_AWAY: u16 = 7;
const HEADERS: u16 = 8;

/// A frame, or a piece of a data frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    Open {
        stream: u32,
        headers: Headers,
        last: bool,
    },
    /// The other side has accepted a stream, or told more about it, which nobody needs.
    About {
        stream: u32,
        last: bool,
    },
    Data {
        stream: u32,
        bytes: Bytes,
        last: bool,
    },
    Reset {
        stream: u32,
    },
    Ping(u32),
    GoAway,
    /// Settings, windows and whatever else there may be.
    Other,
}

/// Makes frames of what comes in.
pub struct Decoder {
    inflater: Inflater,
    /// The data frame that is coming in: its stream, how much is missing, and whether it is the last.
    data: Option<(u32, usize, bool)>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { inflater: Inflater::new(), data: None }
    }
}

impl Decoder {
    /// The next frame in the buffer, if it is there.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, Error> {
        if self.data.is_some() {
            return Ok(self.piece(buffer));
        }
        let Some(head) = buffer.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let (word, tail) = ((&head[..4]).get_u32(), (&head[4..]).get_u32());
        let (flags, length) = ((tail >> 24) as u8, (tail & 0x00ff_ffff) as usize);
        if word & CONTROL == 0 {
            buffer.advance(HEAD_BYTES);
            self.data = Some((word, length, flags & FIN != 0));
            return Ok(self.piece(buffer));
        }
        if (word & !CONTROL) >> 16 != VERSION {
            return Err(Error::Version);
        }
        let kind = word as u16;
        if length > HEADER_BYTES {
            return Err(Error::Length(kind));
        }
        if buffer.len() < HEAD_BYTES + length {
            return Ok(None);
        }
        buffer.advance(HEAD_BYTES);
        let body = buffer.split_to(length);
        self.control(kind, flags & FIN != 0, &body).map(Some)
    }

    fn piece(&mut self, buffer: &mut BytesMut) -> Option<Frame> {
        let (stream, missing, last) = self.data.take()?;
        let bytes = buffer.split_to(missing.min(buffer.len()).min(READ_BYTES)).freeze();
        let missing = missing - bytes.len();
        if missing > 0 {
            self.data = Some((stream, missing, last));
            return (!bytes.is_empty()).then_some(Frame::Data { stream, bytes, last: false });
        }
        Some(Frame::Data { stream, bytes, last })
    }

    fn control(&mut self, kind: u16, last: bool, mut body: &[u8]) -> Result<Frame, Error> {
        let mut number = |least: usize| {
            let enough = body.len() >= least.max(4);
            if enough { Ok(body.get_u32()) } else { Err(Error::Length(kind)) }
        };
        match kind {
            SYN_STREAM => {
                let stream = number(10)? & !CONTROL;
                // The stream it belongs to, its priority and slot: nobody uses them.
                body.advance(6);
                let block = self.inflater.inflate(body)?;
                Ok(Frame::Open { stream, headers: headers(&block)?, last })
            }
            SYN_REPLY | HEADERS => {
                let stream = number(4)? & !CONTROL;
                // Every block goes through the decompressor, or it loses its thread.
                self.inflater.inflate(body)?;
                Ok(Frame::About { stream, last })
            }
            RST_STREAM => Ok(Frame::Reset { stream: number(8)? & !CONTROL }),
            PING => Ok(Frame::Ping(number(4)?)),
            GO_AWAY => Ok(Frame::GoAway),
            _ => Ok(Frame::Other),
        }
    }
}

fn headers(mut block: &[u8]) -> Result<Headers, Error> {
    fn number(block: &mut &[u8]) -> Result<usize, Error> {
        if block.len() < 4 { Err(Error::Headers) } else { Ok(block.get_u32() as usize) }
    }
    fn text(block: &mut &[u8]) -> Result<String, Error> {
        let length = number(block)?;
        let (text, rest) = block.split_at_checked(length).ok_or(Error::Headers)?;
        *block = rest;
        String::from_utf8(text.to_vec()).map_err(|_| Error::Headers)
    }
    let count = number(&mut block)?;
    let mut all = Headers::new();
    // Each needs eight bytes at least, so a large count ends with the block.
    for _ in 0..count {
        all.push((text(&mut block)?.to_ascii_lowercase(), text(&mut block)?));
    }
    Ok(all)
}

fn control(kind: u16, last: bool, body: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEAD_BYTES + body.len());
    frame.put_u32(CONTROL | VERSION << 16 | u32::from(kind));
    frame.put_u32(u32::from(u8::from(last)) << 24 | body.len() as u32);
    frame.put_slice(body);
    frame.freeze()
}

/// Opens a stream.
pub(super) fn open(stream: u32, headers: &[(&str, &str)], deflater: &mut Deflater) -> Bytes {
    let mut block = BytesMut::new();
    block.put_u32(headers.len() as u32);
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        block.put_u32(text.len() as u32);
        block.put_slice(text.as_bytes());
    }
    let mut body = BytesMut::new();
    body.put_u32(stream);
    body.put_bytes(0, 6);
    deflater.deflate(&block, &mut body);
    control(SYN_STREAM, false, &body)
}

/// Accepts a stream.
pub(super) fn reply(stream: u32, deflater: &mut Deflater) -> Bytes {
    let mut body = BytesMut::new();
    body.put_u32(stream);
    deflater.deflate(&[0; 4], &mut body);
    control(SYN_REPLY, false, &body)
}

pub(crate) fn reset(stream: u32, why: u32) -> Bytes {
    let mut body = BytesMut::new();
    body.put_u32(stream);
    body.put_u32(why);
    control(RST_STREAM, false, &body)
}

pub(super) fn ping(id: u32) -> Bytes {
    control(PING, false, &id.to_be_bytes())
}

/// Says that no more streams are wanted.
pub(super) fn go_away() -> Bytes {
    control(GO_AWAY, false, &[0; 8])
}

/// Data must be shorter than 16 MiB.
pub(crate) fn data(stream: u32, bytes: &[u8], last: bool) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEAD_BYTES + bytes.len());
    frame.put_u32(stream & !CONTROL);
    frame.put_u32(u32::from(u8::from(last)) << 24 | bytes.len() as u32);
    frame.put_slice(bytes);
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_in_any_pieces() {
        let mut deflater = Deflater::default();
        let mut wire = BytesMut::new();
        wire.extend(open(1, &[("StreamType", "stdin")], &mut deflater));
        wire.extend(reply(1, &mut deflater));
        wire.extend(data(1, b"hello", true));
        wire.extend(ping(7));
        wire.extend(reset(3, CANCEL));
        wire.extend(go_away());
        let mut decoder = Decoder::default();
        let (mut buffer, mut frames, mut text) = (BytesMut::new(), Vec::new(), Vec::new());
        for byte in wire {
            buffer.put_u8(byte);
            while let Some(frame) = decoder.next(&mut buffer).unwrap() {
                match frame {
                    Frame::Data { bytes, last, .. } => {
                        text.extend_from_slice(&bytes);
                        assert_eq!(last, text.len() == 5);
                    }
                    frame => frames.push(frame),
                }
            }
        }
        let headers = vec![("streamtype".to_owned(), "stdin".to_owned())];
        let wanted = [
            Frame::Open { stream: 1, headers, last: false },
            Frame::About { stream: 1, last: false },
            Frame::Ping(7),
            Frame::Reset { stream: 3 },
            Frame::GoAway,
        ];
        assert_eq!(text, b"hello");
        assert_eq!(frames, wanted);
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let refused = |bytes: &[u8]| Decoder::default().next(&mut BytesMut::from(bytes)).unwrap_err();
        assert_eq!(refused(&[0x80, 2, 0, 1, 0, 0, 0, 0]), Error::Version);
        assert_eq!(refused(&[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff]), Error::Length(1));
        assert_eq!(refused(&[0x80, 3, 0, 1, 0, 0, 0, 3, 0, 0, 0]), Error::Length(1));
        assert_eq!(refused(&[0x80, 3, 0, 6, 0, 0, 0, 1, 0]), Error::Length(6));
        assert_eq!(headers(&[0xff; 4]), Err(Error::Headers));
        assert_eq!(headers(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 1]), Err(Error::Headers));
    }
}
