#![no_main]
//! JSON as a set of fields: no panic, and the written set reads as the same.

use libfuzzer_sys::fuzz_target;
use object_model::apply::{decode_fields, encode_fields, fields_text};
use object_model::codec::json;

fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = json::read(bytes) else { return };
    if let Ok(set) = decode_fields(&value) {
        assert_eq!(decode_fields(&encode_fields(&set)).as_ref(), Ok(&set));
        let _ = fields_text(&set);
    }
});
