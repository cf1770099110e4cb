#![no_main]
//! A document and a patch, apart by a zero byte, as JSON patch and merge patch: no panic.

use libfuzzer_sys::fuzz_target;
use object_model::codec::json;
use object_model::patch::{JsonPatch, merge_patch};

fuzz_target!(|bytes: &[u8]| {
    let Some(at) = bytes.iter().position(|b| *b == 0) else { return };
    let (Ok(document), Ok(patch)) = (json::read(&bytes[..at]), json::read(&bytes[at + 1..])) else { return };
    if let Ok(patch) = JsonPatch::parse(patch.clone()) {
        let _ = patch.apply(document.clone());
    }
    if let (Some(before), Some(after)) = (document.as_object(), patch.as_object()) {
        let mut patched = before.clone();
        merge_patch::apply(&mut patched, after);
        let difference = merge_patch::diff(before, &patched);
        let mut again = before.clone();
        merge_patch::apply(&mut again, &difference);
        let _ = again;
    }
});
