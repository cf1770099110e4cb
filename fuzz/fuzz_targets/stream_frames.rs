//! Frames of SPDY and of WebSockets, in any pieces: nothing panics, and what is kept does not grow.

#![no_main]

use libfuzzer_sys::fuzz_target;
use streaming::{spdy, websocket};

fuzz_target!(|input: (&[u8], u8)| {
    let (bytes, size) = input;
    let pieces = || bytes.chunks(usize::from(size).max(1));
    let (mut decoder, mut buffer) = (spdy::frame::Decoder::default(), bytes::BytesMut::new());
    'spdy: for piece in pieces() {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.next(&mut buffer) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => break 'spdy,
            }
        }
    }
    for from in [websocket::frame::From::Client, websocket::frame::From::Server] {
        let (mut decoder, mut buffer) = (websocket::frame::Decoder::new(from), bytes::BytesMut::new());
        'websocket: for piece in pieces() {
            buffer.extend_from_slice(piece);
            loop {
                match decoder.next(&mut buffer) {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => break 'websocket,
                }
            }
            assert!(buffer.len() < 512, "a frame is handed on as it comes");
        }
    }
});
