#![no_main]
//! Text as a field selector: no panic, and the written form means the same.

use libfuzzer_sys::fuzz_target;
use object_model::selector::FieldSelector;

fuzz_target!(|text: &str| {
    if let Ok(selector) = FieldSelector::parse(text) {
        let again = FieldSelector::parse(&selector.to_string()).expect("our own selector is readable");
        assert_eq!(again.terms().len(), selector.terms().len());
        let fields = |field: &str| if field.len() % 2 == 0 { "x" } else { "" };
        assert_eq!(again.matches(fields), selector.matches(fields));
    }
});
