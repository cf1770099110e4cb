#![no_main]
//! JSON of any shape in the canonical form of a Pod: no panic, and doing it twice changes nothing.

use libfuzzer_sys::fuzz_target;
use object_model::codec::{canonical, json};

fuzz_target!(|bytes: &[u8]| {
    let schema = api::schemas::schema_of("", "v1", "Pod").expect("a built-in kind");
    let Ok(mut value) = json::read(bytes) else { return };
    if canonical::canonicalise(&schema, &mut value).is_ok() {
        let once = value.clone();
        canonical::canonicalise(&schema, &mut value).expect("the canonical form is good");
        assert_eq!(value, once);
    }
});
