#![no_main]
//! Text as a label selector: no panic, and the written form means the same.

use libfuzzer_sys::fuzz_target;
use object_model::selector::LabelSelector;

fuzz_target!(|text: &str| {
    if let Ok(selector) = LabelSelector::parse(text) {
        let again = LabelSelector::parse(&selector.to_string()).expect("our own selector is readable");
        assert_eq!(again.to_string(), selector.to_string());
        let labels = |key: &str| (key.len() % 2 == 0).then_some("x");
        assert_eq!(again.matches(labels), selector.matches(labels));
    }
});
