#![no_main]
//! Text as a quantity: no panic, no delay, and the written form is the same amount.

use libfuzzer_sys::fuzz_target;
use object_model::quantity::{Quantity, canonical};

fuzz_target!(|text: &str| {
    if let Ok(quantity) = Quantity::parse(text) {
        assert_eq!(Quantity::parse(&quantity.to_string()), Ok(quantity));
        let written = canonical(text).expect("it was read before");
        assert_eq!(Quantity::parse(&written), Ok(quantity));
        assert_eq!(canonical(&written).as_deref(), Ok(&*written));
        let _ = (quantity.value(), quantity.milli_value(), quantity.as_f64());
    }
});
