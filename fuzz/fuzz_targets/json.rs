#![no_main]
//! Bytes as JSON: no panic, and what is read is written and read again as the same.

use libfuzzer_sys::fuzz_target;
use object_model::codec::json;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((value, _)) = json::read_strict(bytes) {
        let text = json::to_vec(&value);
        let again = json::read(&text).expect("our own JSON is readable");
        // A whole float comes back as an integer, and negative zero as zero, but nothing changes after that.
        let settled = json::to_vec(&again);
        assert_eq!(json::to_vec(&json::read(&settled).expect("readable")), settled);
    }
});
