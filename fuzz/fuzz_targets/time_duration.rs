#![no_main]
//! Text as a moment and as a duration: no panic, and the written form is the same.

use libfuzzer_sys::fuzz_target;
use object_model::time::{Duration, Time};

fuzz_target!(|text: &str| {
    if let Ok(time) = Time::parse(text) {
        // Offsets can lead out of the four digits that a year has.
        if let Ok(again) = Time::parse(&time.to_string()) {
            assert_eq!(again, time.to_seconds());
        }
    }
    let _ = Time::parse_micro(text);
    if let Ok(duration) = Duration::parse(text) {
        assert_eq!(Duration::parse(&duration.to_string()), Ok(duration));
    }
});
