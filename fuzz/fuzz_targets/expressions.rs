#![no_main]
//! Text as an expression: it compiles or is refused, and what compiles ends within its budget.

use std::sync::LazyLock;

use expressions::{Activation, Budget, Environment, Library, Type, Value};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value as Json, json};

static ENVIRONMENT: LazyLock<Environment> =
    LazyLock::new(|| Environment::kubernetes().with_library(Library::Bindings).with_variable("object", Type::Dyn));
static OBJECT: LazyLock<Json> = LazyLock::new(|| json!({"spec": {"replicas": 3, "names": ["a", "b"], "empty": null}}));

fuzz_target!(|text: &str| {
    match ENVIRONMENT.compile(text) {
        Ok(program) => {
            let activation = Activation::new().with("object", Value::json(&OBJECT));
            let _ = program.evaluate(&activation, &mut Budget::default()).map(|value| value.to_json());
        }
        Err(errors) => assert!(errors.to_string().starts_with("ERROR: ")),
    }
});
