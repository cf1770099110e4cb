#![no_main]
//! Bytes as YAML: no panic, and what is read is JSON that YAML reads as the same.

use libfuzzer_sys::fuzz_target;
use object_model::codec::{json, yaml};

fuzz_target!(|bytes: &[u8]| {
    let _ = yaml::read_all(bytes);
    if let Ok((value, _)) = yaml::read_strict(bytes) {
        let text = json::to_vec(&value);
        let again = json::read(&text).expect("our own JSON is readable");
        assert_eq!(json::to_vec(&again), text);
    }
});
