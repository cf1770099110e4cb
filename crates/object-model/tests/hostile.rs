//! Inputs made to be dear: a few megabytes that would take minutes or all memory where work grows with the square of
//! what is sent. All are answered, and at once.

use std::time::Duration;

use object_model::apply;
use object_model::codec::json;
use object_model::field::{Errors, Path};
use object_model::meta::{Meta, validate};
use serde_json::{Map, Value, json};

/// Far more than any of these takes, and far less than the square.
const SOON: Duration = Duration::from_secs(5);

fn soon<T>(work: impl FnOnce() -> T) -> T {
    let start = testing::cpu_time();
    let outcome = work();
    let spent = testing::cpu_time() - start;
    assert!(spent < SOON, "took {spent:?}");
    outcome
}

/// A name of a megabyte.
fn long_name() -> String {
    "n".repeat(1 << 20)
}

#[test]
fn the_same_duplicate_again_and_again_below_a_long_name() {
    let again = r#""a":{"b":1,"b":1},"#.repeat(100_000);
    let text = format!(r#"{{"{}":{{{again}"c":1}}}}"#, long_name());
    let (value, strict) = soon(|| json::read_strict(text.as_bytes())).expect("JSON");
    assert_eq!(value[&long_name()], json!({"a": {"b": 1}, "c": 1}));
    assert!(!strict.is_empty());
}

#[test]
fn many_problems_below_a_long_name() {
    let name = long_name();
    let (root, mut errors) = (Path::root(), Errors::new());
    let path = root.key(&name);
    soon(|| (0..200_000).for_each(|index| errors.duplicate(&path.index(index), "x")));
    assert!(!errors.is_empty() && errors.to_string().len() < 8 << 20);
}

#[test]
fn many_different_problems() {
    let mut errors = Errors::new();
    (0..200_000).for_each(|index| errors.required(&Path::root().index(index), ""));
    assert!(soon(|| errors.to_string()).starts_with("[[0]: Required value, [1]: Required value, "));
}

#[test]
fn many_owners_that_all_control() {
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u", "controller": true});
    let object = json!({"metadata": {"ownerReferences": vec![owner; 30_000]}});
    let mut errors = Errors::new();
    soon(|| validate::update(Meta::of(&object), Meta::of(&object), &Path::root(), &mut errors));
    assert!(!errors.is_empty());
}

#[test]
fn a_manager_whose_name_cannot_be_printed() {
    let mut errors = Errors::new();
    soon(|| validate::field_manager(&"\u{1}".repeat(1 << 20), &Path::root(), &mut errors));
    assert!(!errors.is_empty());
}

/// Numbers as keys sort otherwise than their text.
#[test]
fn fields_in_another_order_than_their_text() {
    let fields: Map<String, Value> = (0..200_000).map(|port| (format!("k:{{\"port\":{port}}}"), json!({}))).collect();
    let set = soon(|| apply::decode_fields(&json!({"f:ports": fields}))).expect("fields");
    assert_eq!(set.len(), 200_000);
}

#[test]
fn many_managers_of_one_object() {
    let entry = |index: usize| {
        json!({
            "manager": format!("m{index}"), "operation": "Update", "apiVersion": "v1", "time": "2024-01-02T03:04:05Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {format!("f:k{index}"): {}}},
        })
    };
    let object = json!({"metadata": {"managedFields": (0..30_000).map(entry).collect::<Value>()}});
    let managed = soon(|| apply::managed_of(&object)).expect("managers");
    assert_eq!(managed.entries().len(), 30_000);
}
