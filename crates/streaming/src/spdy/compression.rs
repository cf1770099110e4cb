//! Header blocks: zlib with a dictionary that both sides know, one stream of it per direction and connection.
//!
//! What we send has few and short headers, so it is stored, which every decompressor reads. What we read is bounded.

use bytes::{BufMut, BytesMut};
use miniz_oxide::inflate::{
    TINFLStatus,
    core::{DecompressorOxide, decompress, inflate_flags::TINFL_FLAG_HAS_MORE_INPUT},
};

use super::Error;

/// The largest header block, unpacked.
pub const HEADER_BYTES: usize = 64 << 10;
/// The window of deflate, which must be a power of two for the decompressor.
const WINDOW_BYTES: usize = 32 << 10;

/// Words of the dictionary that are written with their length before them.
const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
    accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
    content-length content-location content-md5 content-range content-type date etag expect expires from host if-match \
    if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
    proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status";
const WORDS_TOO: [&str; 8] = ["200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin"];
/// The rest of the dictionary, as it is.
const TEXT: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
    203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden\
    404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug \
    Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch\
    charset=utf-8charset=iso-8859-1,utf-,*,enq=0.";
/// The checksum by which zlib names the dictionary.
const DICTIONARY_ID: u32 = 0xe3c6_a7c2;

/// The dictionary of SPDY/3.
fn dictionary() -> Vec<u8> {
    let mut all = Vec::with_capacity(1423);
    for word in WORDS.split(' ').chain(WORDS_TOO) {
        all.put_u32(word.len() as u32);
        all.put_slice(word.as_bytes());
    }
    all.put_slice(TEXT.as_bytes());
    all
}

pub struct Inflater {
    state: Box<DecompressorOxide>,
    window: Box<[u8]>,
    /// Where in the window the next byte goes.
    at: usize,
    begun: bool,
}

impl Inflater {
    pub fn new() -> Self {
        Self { state: Box::default(), window: vec![0; WINDOW_BYTES].into(), at: 0, begun: false }
    }

    /// Unpacks the next block.
    pub fn inflate(&mut self, mut packed: &[u8]) -> Result<Vec<u8>, Error> {
        if !self.begun {
            packed = self.begin(packed)?;
        }
        let mut all = Vec::new();
        loop {
            let (status, read, written) =
                decompress(&mut self.state, packed, &mut self.window, self.at, TINFL_FLAG_HAS_MORE_INPUT);
            packed = packed.get(read..).ok_or(Error::Compression)?;
            let unpacked = self.window.get(self.at..self.at + written).ok_or(Error::Compression)?;
            if all.len() + unpacked.len() > HEADER_BYTES {
                return Err(Error::TooLarge);
            }
            all.extend_from_slice(unpacked);
            self.at = (self.at + written) % WINDOW_BYTES;
            match status {
                TINFLStatus::NeedsMoreInput if packed.is_empty() => return Ok(all),
                TINFLStatus::HasMoreOutput => {}
                _ => return Err(Error::Compression),
            }
        }
    }

    /// Reads the head of the zlib stream. The dictionary is what the window holds before the first byte.
    fn begin<'a>(&mut self, packed: &'a [u8]) -> Result<&'a [u8], Error> {
        let (head, mut rest) = packed.split_first_chunk::<2>().ok_or(Error::Compression)?;
        let deflate = head[0] & 0x0f == 8;
        if !deflate || u16::from_be_bytes(*head) % 31 != 0 {
            return Err(Error::Compression);
        }
        if head[1] & 0x20 != 0 {
            let (id, after) = rest.split_first_chunk::<4>().ok_or(Error::Compression)?;
            if u32::from_be_bytes(*id) != DICTIONARY_ID {
                return Err(Error::Compression);
            }
            let dictionary = dictionary();
            self.window[..dictionary.len()].copy_from_slice(&dictionary);
            self.at = dictionary.len();
            rest = after;
        }
        self.begun = true;
        Ok(rest)
    }
}

/// Writes blocks that need no unpacking.
#[derive(Default)]
pub struct Deflater {
    begun: bool,
}

impl Deflater {
    pub fn deflate(&mut self, block: &[u8], out: &mut BytesMut) {
        if !std::mem::replace(&mut self.begun, true) {
            out.put_u16(0x78bb);
            out.put_u32(DICTIONARY_ID);
        }
        // An empty piece at the end: readers hand out nothing of what comes before it until then.
        for piece in block.chunks(u16::MAX.into()).chain([&[][..]]) {
            let length = piece.len() as u16;
            out.put_u8(0);
            out.put_u16_le(length);
            out.put_u16_le(!length);
            out.put_slice(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_the_one_of_the_protocol() {
        let (mut a, mut b) = (1u32, 0u32);
        for byte in dictionary() {
            a = (a + u32::from(byte)) % 65521;
            b = (b + a) % 65521;
        }
        assert_eq!((dictionary().len(), b << 16 | a), (1423, DICTIONARY_ID));
    }

    #[test]
    fn what_we_write_can_be_read() {
        let (mut deflater, mut inflater) = (Deflater::default(), Inflater::new());
        for block in [&b"one"[..], &[7; 40_000], b"", &[9; 60_000]] {
            let mut packed = BytesMut::new();
            deflater.deflate(block, &mut packed);
            assert_eq!(inflater.inflate(&packed).unwrap(), block);
        }
    }

    /// Two blocks of one connection, packed by zlib itself with the dictionary.
    #[test]
    fn what_others_write_with_the_dictionary() {
        let first = "78f9e3c6a7c202e50e703a2b294a4dcc851625c0149b920f2e88d10b192e84eb00000000ffff";
        let second = "c2aa9315a8132c052cd08b400630591800000000ffff";
        let mut inflater = Inflater::new();
        let block = inflater.inflate(&bytes_of(first)).unwrap();
        assert_eq!(block, b"\0\0\0\x02\0\0\0\x0astreamtype\0\0\0\x06stdout\0\0\0\x0ccontent-type\0\0\0\x0atext/plain");
        let block = inflater.inflate(&bytes_of(second)).unwrap();
        assert_eq!(block, b"\0\0\0\x02\0\0\0\x0astreamtype\0\0\0\x05stdin\0\0\0\x04port\0\0\0\x0280");
    }

    #[test]
    fn a_block_that_unpacks_to_too_much_is_refused() {
        let mut packer = flate2::Compress::new(flate2::Compression::best(), true);
        let mut packed = Vec::with_capacity(64 << 10);
        let bomb = vec![0; 32 << 20];
        packer.compress_vec(&bomb, &mut packed, flate2::FlushCompress::Sync).unwrap();
        assert_eq!(Inflater::new().inflate(&packed), Err(Error::TooLarge));
        assert_eq!(Inflater::new().inflate(&[1, 2, 3]), Err(Error::Compression));
        assert_eq!(Inflater::new().inflate(&[0x78, 0xbb, 1, 2, 3, 4]), Err(Error::Compression));
    }

    fn bytes_of(hex: &str) -> Vec<u8> {
        hex.as_bytes().chunks(2).map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
    }
}
