#![no_main]
//! A Pod and a patch, apart by a zero byte, as strategic merge patch and as the two sides of a diff: no panic.

use libfuzzer_sys::fuzz_target;
use object_model::codec::json;
use object_model::patch::strategic;

fuzz_target!(|bytes: &[u8]| {
    let schema = api::schemas::schema_of("", "v1", "Pod").expect("a built-in kind");
    let Some(at) = bytes.iter().position(|b| *b == 0) else { return };
    let (Ok(document), Ok(patch)) = (json::read(&bytes[..at]), json::read(&bytes[at + 1..])) else { return };
    if let (Some(document), Some(patch)) = (document.as_object(), patch.as_object()) {
        let _ = strategic::apply(schema.root(), document.clone(), patch);
        let _ = strategic::diff(schema.root(), document, patch);
    }
});
