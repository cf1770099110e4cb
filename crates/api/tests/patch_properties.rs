//! The laws of patches, over random schemas and over every built-in kind.

#[path = "patch/maker.rs"]
mod maker;

use maker::Maker;
use object_model::patch::strategic::{self, StrategicError};
use object_model::patch::{DiffError, merge_patch};
use object_model::schema::{Ref, Shape};
use object_model::value::Object;
use proptest::prelude::*;
use serde_json::Value;

/// Kubernetes cannot merge below maps and raw values, where no struct says how: `None` when it comes to that.
fn within_limits(result: Result<Object, StrategicError>) -> Result<Option<Object>, TestCaseError> {
    match result {
        Err(StrategicError::NotAStruct("map") | StrategicError::UnknownField { .. }) => Ok(None),
        result => result.map(Some).map_err(|e| TestCaseError::fail(e.to_string())),
    }
}

/// Checks all laws for three objects. `Ok(false)` when they differ where no strategic merge patch can reach.
fn laws_hold(schema: Ref<'_>, [a, b, c]: [&Object; 3]) -> Result<bool, TestCaseError> {
    let patch = merge_patch::diff(a, b);
    let mut merged = a.clone();
    merge_patch::apply(&mut merged, &patch);
    prop_assert_eq!(&merged, b, "merge patch {}", show(&patch));
    merge_patch::apply(&mut merged, &patch);
    prop_assert_eq!(&merged, b, "merge patch twice {}", show(&patch));

    let Some(patch) = within_limits(strategic::diff(schema, a, b))? else { return Ok(false) };
    let patched = strategic::apply(schema, a.clone(), &patch).map_err(|e| TestCaseError::fail(e.to_string()))?;
    prop_assert_eq!(&patched, b, "strategic merge patch {}", show(&patch));
    let Some(again) = within_limits(strategic::apply(schema, patched, &patch))? else { return Ok(false) };
    prop_assert_eq!(&again, b, "strategic merge patch twice {}", show(&patch));

    let three_way = strategic::three_way(schema, a, b, c, true, &[]).map_err(|e| match e {
        DiffError::Strategic(e) => e,
        other => panic!("{other}"),
    });
    let Some(patch) = within_limits(three_way)? else { return Ok(false) };
    let Some(result) = within_limits(strategic::apply(schema, c.clone(), &patch))? else { return Ok(false) };
    prop_assert!(says(schema, &result, b), "{}\nis not said by {}\npatch {}", show(b), show(&result), show(&patch));
    for (name, value) in c.iter().filter(|(n, _)| !a.contains_key(*n) && !b.contains_key(*n)) {
        prop_assert_eq!(result.get(name), Some(value), "{} was touched by {}", name, show(&patch));
    }
    prop_assert!(!a.keys().any(|n| !b.contains_key(n) && result.contains_key(n)), "not removed: {}", show(&patch));
    Ok(true)
}

/// Does an object have all that another one says? Of lists only plain ones are compared.
fn says(schema: Ref<'_>, object: &Object, wanted: &Object) -> bool {
    let Shape::Struct(s) = schema.shape() else { return true };
    wanted.iter().all(|(name, wanted)| match (object.get(name), wanted, s.field(name)) {
        (Some(Value::Object(o)), Value::Object(w), Some(field)) => says(schema.to(field.r#type), o, w),
        (Some(Value::Array(_)), Value::Array(_), Some(field)) if field.patch.merge => true,
        (found, wanted, _) => found == Some(wanted),
    })
}

fn show(object: &Object) -> String {
    serde_json::to_string(object).unwrap_or_default()
}

/// Three objects with much in common.
fn check(schema: Ref<'_>, maker: &mut Maker) -> Result<bool, TestCaseError> {
    let a = maker.object(schema, 0);
    let (b, c) = (maker.changed(schema, &a, 0), maker.changed(schema, &a, 0));
    laws_hold(schema, [&a, &b, &c])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn laws_hold_for_random_schemas(seed: u64) {
        let mut maker = Maker::new(seed);
        let schema = maker.schema();
        prop_assert!(check(schema.root(), &mut maker)?, "every difference can be patched");
    }
}

#[test]
fn laws_hold_for_all_built_in_kinds() {
    let (mut checked, mut limits) = (0, 0);
    for (i, kind) in api::schemas::kinds().iter().enumerate() {
        let schema =
            api::schemas::schema_of(&kind.group, &kind.version, &kind.kind).expect("listed kinds have schemas");
        for seed in 0..12 {
            match check(schema.root(), &mut Maker::new((i as u64) << 20 | seed)) {
                Ok(true) => checked += 1,
                Ok(false) => limits += 1,
                Err(problem) => panic!("{} {}, seed {seed}: {problem}", kind.version, kind.kind),
            }
        }
    }
    assert!(checked > 2000 && limits < checked / 10, "{checked} checked, {limits} beyond the limits of the format");
}
