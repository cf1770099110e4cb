//! Laws that hold for all sets, objects and histories.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;

fn element() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]".prop_map(|name| format!("f:{name}")),
        (0..4i64).prop_map(|n| format!("i:{n}")),
        (0..3i64, "[ab]").prop_map(|(n, s)| format!(r#"k:{{"n":{n},"s":"{s}"}}"#)),
        "[a<\"]".prop_map(|s| Element::value(json!(s)).encoded()),
    ]
}

fn fields() -> impl Strategy<Value = Value> {
    let leaf = Just(json!({}));
    leaf.prop_recursive(4, 24, 4, |below| {
        (any::<bool>(), btree_map(element(), below, 0..4)).prop_map(|(member, below)| {
            let mut map: serde_json::Map<String, Value> = below.into_iter().collect();
            if member {
                map.insert(".".into(), json!({}));
            }
            Value::Object(map)
        })
    })
}

fn sets() -> impl Strategy<Value = Set> {
    fields().prop_map(|mut fields| {
        fields.as_object_mut().unwrap().remove(".");
        set(fields)
    })
}

/// Numbers where floats no longer tell whole numbers apart, written as either, and some between them.
fn numbers() -> impl Strategy<Value = Value> {
    let bases = [0, 1 << 53, -(1 << 53), i128::from(i64::MIN), 1 << 63, i128::from(u64::MAX)];
    (proptest::sample::select(bases.to_vec()), -3..4i128, 0..3).prop_map(|(base, step, form)| {
        let near = base + step;
        match form {
            0 => i64::try_from(near).map(Value::from).or_else(|_| u64::try_from(near).map(Value::from)),
            1 => Ok(json!(near as f64)),
            _ => Ok(json!(step as f64 / 2.0)),
        }
        .unwrap_or_else(|_| json!(near as f64))
    })
}

/// Any JSON at all.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z<\"\\\\\u{0}é]{0,3}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        element(),
        Just(".".to_owned()),
        "(apiVersion|kind|metadata|spec|items|labels|managedFields|name|free|selector|port|tags|fieldsV1|operation|fieldsType)",
        ".{0,3}",
    ];
    leaf.prop_recursive(6, 40, 5, move |below| {
        prop_oneof![
            vec(below.clone(), 0..4).prop_map(Value::from),
            btree_map(key.clone(), below, 0..5).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn maybe(strategy: impl Strategy<Value = Value>) -> impl Strategy<Value = Option<Value>> {
    proptest::option::weighted(0.5, strategy)
}

fn named(fields: Vec<(&str, Option<Value>)>) -> Value {
    fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn text() -> impl Strategy<Value = Value> {
    "[xy]".prop_map(Value::from)
}

fn texts() -> impl Strategy<Value = Value> {
    btree_map("[a-d]", text(), 1..4).prop_map(|map| Value::Object(map.into_iter().collect()))
}

fn tags() -> impl Strategy<Value = Value> {
    proptest::sample::subsequence(vec!["p", "q", "r"], 1..3).prop_shuffle().prop_map(Value::from)
}

fn item(name: &'static str) -> impl Strategy<Value = Value> {
    let ports = (any::<bool>(), any::<bool>()).prop_map(|(one, udp)| {
        let (tcp, udp) =
            ((one || !udp).then(|| json!({"port": 1})), udp.then(|| json!({"port": 1, "protocol": "UDP"})));
        Value::from_iter(udp.into_iter().chain(tcp))
    });
    (maybe(text()), maybe(tags()), maybe(ports), maybe(texts())).prop_map(move |(image, tags, ports, probe)| {
        let probe = probe.map(|_| json!({"path": "/"}));
        named(vec![("name", Some(name.into())), ("image", image), ("tags", tags), ("ports", ports), ("probe", probe)])
    })
}

fn items() -> impl Strategy<Value = Value> {
    let all = (item("a"), maybe(item("b")), maybe(item("c")), 0..3usize);
    all.prop_map(|(a, b, c, other)| {
        [Some(a).filter(|_| other > 0 || (b.is_none() && c.is_none())), b, c].into_iter().flatten().collect::<Vec<_>>()
    })
    .prop_shuffle()
    .prop_map(Value::from)
}

/// A valid object of the test kind. Lists and maps are not empty: stored objects drop empty ones, and then it is news
/// each time when a configuration has them, in Kubernetes too.
fn things() -> impl Strategy<Value = Value> {
    let metadata =
        (maybe(texts()), maybe(tags())).prop_map(|(labels, f)| named(vec![("labels", labels), ("finalizers", f)]));
    let free =
        btree_map("[ab]", prop_oneof![text(), texts()], 1..3).prop_map(|map| Value::Object(map.into_iter().collect()));
    let spec = (maybe(text()), maybe((0..3).prop_map(Value::from)), maybe(items()), maybe(texts()), maybe(free))
        .prop_map(|(text, count, items, selector, free)| {
            named(vec![("text", text), ("count", count), ("items", items), ("selector", selector), ("free", free)])
        });
    (metadata, spec).prop_map(|(metadata, spec)| object(metadata, spec))
}

#[derive(Clone, Debug)]
struct Step {
    who: &'static str,
    apply: bool,
    force: bool,
    what: Value,
}

fn steps(max: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (prop_oneof![Just("a"), Just("b"), Just("c")], any::<bool>(), any::<bool>(), things())
        .prop_map(|(who, apply, force, what)| Step { who, apply, force, what });
    vec(step, 1..max)
}

/// What a server stores: nulls and empty lists and maps are gone, as canonical objects of built-in kinds have none.
fn canonical(value: Value) -> Value {
    fn clean(value: Value, below: usize) -> Option<Value> {
        match value {
            Value::Null => None,
            Value::Object(map) => {
                let map: serde_json::Map<_, _> =
                    map.into_iter().filter_map(|(k, v)| Some((k, clean(v, below + 1)?))).collect();
                (below < 2 || !map.is_empty()).then_some(Value::Object(map))
            }
            Value::Array(list) if list.is_empty() => None,
            Value::Array(list) => Some(list.into_iter().filter_map(|v| clean(v, 0)).collect()),
            scalar => Some(scalar),
        }
    }
    let mut value = value;
    let managed = value["metadata"].as_object_mut().and_then(|m| m.remove("managedFields"));
    let mut value = clean(value, 0).unwrap_or_default();
    for always in ["spec", "status"] {
        if value[always].is_null() {
            value[always] = json!({});
        }
    }
    if let Some(managed) = managed {
        value["metadata"]["managedFields"] = managed;
    }
    value["metadata"]["uid"] = json!("u");
    value
}

fn play(live: Option<&Value>, step: &Step) -> Option<Value> {
    let manager = field_manager();
    let done = match step.apply {
        true => manager.on_apply(live, &step.what, step.who, step.force, NOW).ok()?.object,
        false => manager.on_update(live, canonical(step.what.clone()), step.who, NOW),
    };
    Some(canonical(done))
}

fn history(steps: &[Step]) -> Option<Value> {
    steps.iter().fold(None, |live, step| play(live.as_ref(), step).or(live))
}

/// Leaves of an object with their values, as far as managers can own them.
fn leaves(object: &Value) -> Set {
    field_set(&SCHEMA, object).leaves()
}

/// Where no schema says what is what, a value may turn into another sort and take what was in it along.
fn inside_free(path: &FieldPath) -> bool {
    path.0.get(1) == Some(&Element::field("free"))
}

/// Is the field in the set, or was it an empty map that has been filled since?
fn is_there(set: &Set, path: &FieldPath) -> bool {
    set.paths().iter().any(|longer| longer.0.starts_with(&path.0))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fields_round_trip(set in sets()) {
        prop_assert_eq!(&decode_fields(&encode_fields(&set)).unwrap(), &set);
        let text: Value = serde_json::from_str(&fields_text(&set)).unwrap();
        prop_assert_eq!(&decode_fields(&text).unwrap(), &set);
        let mut again = Set::new();
        set.paths().into_iter().rev().for_each(|path| again.insert(path.0));
        prop_assert_eq!(again, set);
    }

    #[test]
    fn set_algebra(a in sets(), b in sets(), c in sets()) {
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.intersection(&b.union(&c)), a.intersection(&b).union(&a.intersection(&c)));
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert_eq!(a.difference(&b).intersection(&b), Set::new());
        prop_assert_eq!(a.difference(&b), a.difference(&a.intersection(&b)));
        prop_assert_eq!(a.intersects(&b), !a.intersection(&b).is_empty());
        prop_assert_eq!(a.union(&b).len() + a.intersection(&b).len(), a.len() + b.len());
        let below = a.recursive_difference(&b);
        prop_assert_eq!(below.difference(&a.difference(&b)), Set::new());
        prop_assert!(a.leaves().difference(&a).is_empty());
        for path in a.paths() {
            prop_assert!(a.has(&path.0));
            prop_assert_eq!(a.difference(&b).has(&path.0), !b.has(&path.0));
            let covered = (1..=path.0.len()).any(|n| b.has(&path.0[..n]));
            prop_assert_eq!(below.has(&path.0), !covered);
        }
    }

    #[test]
    fn numbers_have_one_order(numbers in vec(numbers(), 3)) {
        let [a, b, c] = &numbers[..] else { unreachable!() };
        let [a, b, c] = [a, b, c].map(|number| Element::value(number.clone()));
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        if a <= b && b <= c {
            prop_assert!(a <= c, "{} <= {} <= {}", a, b, c);
            prop_assert_eq!(a == c, a == b && b == c);
        }
    }

    #[test]
    fn nothing_panics(a in anything(), b in anything(), fields in anything()) {
        let set = decode_fields(&fields).unwrap_or_default();
        let _ = (compare(&SCHEMA, &a, &b), merge(&SCHEMA, &a, &b), validate(&SCHEMA, &a, Duplicates::Refused));
        let _ = (remove_items(&SCHEMA, &a, &set), extract_items(&SCHEMA, &a, &set), with_named_fields(&SCHEMA, &set));
        let manager = field_manager();
        let _ = manager.on_update(Some(&a), b.clone(), "m", NOW);
        let mut wrapped = object(json!({"managedFields": fields}), a);
        let _ = manager.on_update(Some(&wrapped), object(json!({}), b.clone()), "m", NOW);
        let _ = manager.on_apply(Some(&wrapped), &object(json!({}), b.clone()), "m", true, NOW);
        wrapped["metadata"]["managedFields"] = json!([fields]);
        let _ = manager.on_update(Some(&wrapped), wrapped.clone(), "m", NOW);
        let mut applied = b;
        if applied.is_object() {
            applied["apiVersion"] = json!("test/v1");
            applied["kind"] = json!("Thing");
        }
        let _ = manager.on_apply(None, &applied, "kubectl", true, NOW);
        keep_times(&mut wrapped, &applied);
    }

    #[test]
    fn comparison_is_what_changed(a in things(), b in things()) {
        let same = compare(&SCHEMA, &a, &a).unwrap();
        prop_assert!(same.is_same());
        let there = compare(&SCHEMA, &a, &b).unwrap();
        let back = compare(&SCHEMA, &b, &a).unwrap();
        prop_assert_eq!(&there.added, &back.removed);
        prop_assert_eq!(&there.modified, &back.modified);
        // Every leaf of the new value either was there or was added.
        let before = field_set(&SCHEMA, &a);
        for path in field_set(&SCHEMA, &b).difference(&there.added).leaves().paths() {
            prop_assert!(is_there(&before, &path), "{} came from nowhere", path);
        }
    }

    #[test]
    fn merging_keeps_all_and_takes_all(live in things(), applied in things()) {
        let merged = merge(&SCHEMA, &live, &applied).unwrap();
        let all = field_set(&SCHEMA, &live).union(&field_set(&SCHEMA, &applied));
        let there = field_set(&SCHEMA, &merged);
        for path in all.leaves().paths().iter().filter(|path| !inside_free(path)) {
            prop_assert!(is_there(&there, path), "{} is missing", path);
        }
        prop_assert!(same(&merge(&SCHEMA, &merged, &applied).unwrap(), &merged));
        let found = compare(&SCHEMA, &merged, &merge(&SCHEMA, &applied, &merged).unwrap()).unwrap();
        prop_assert!(found.is_same());
    }

    #[test]
    fn applying_twice_is_applying_once(before in steps(5), who in "[abc]", what in things(), force in any::<bool>()) {
        let live = history(&before);
        let manager = field_manager();
        if let Ok(first) = manager.on_apply(live.as_ref(), &what, &who, force, NOW) {
            // Once stored, even without what the canonical form drops, the same configuration does nothing more.
            let stored = canonical(first.object);
            let second = manager.on_apply(Some(&stored), &what, &who, false, LATER).unwrap();
            let again = canonical(second.object.clone());
            prop_assert_eq!(
                canonical(json!({"metadata": {"labels": stored["metadata"]["labels"]}, "spec": stored["spec"]})),
                canonical(json!({"metadata": {"labels": again["metadata"]["labels"]}, "spec": again["spec"]}))
            );
            prop_assert_eq!(owned(&stored, &who, Operation::Apply), owned(&again, &who, Operation::Apply));
        }
    }

    #[test]
    fn appliers_of_disjoint_fields_commute(whole in things(), split in vec(any::<bool>(), 64)) {
        // Every leaf goes to one of two configurations, with the keys of the items it is in.
        let part = |mine: bool| {
            let mut fields = Set::of_fields(&[&["apiVersion"], &["kind"], &["metadata", "name"]]);
            for (path, to) in leaves(&whole).paths().into_iter().zip(split.iter().cycle()) {
                if *to == mine {
                    fields.insert(path.0);
                }
            }
            extract_items(&SCHEMA, &whole, &fields)
        };
        let run = |first: (&str, &Value), second: (&str, &Value)| {
            let one = field_manager().on_apply(None, first.1, first.0, false, NOW)?.object;
            field_manager().on_apply(Some(&canonical(one)), second.1, second.0, false, NOW)
        };
        let (a, b) = (part(true), part(false));
        let ab = canonical(run(("a", &a), ("b", &b)).unwrap().object);
        let ba = canonical(run(("b", &b), ("a", &a)).unwrap().object);
        for who in ["a", "b"] {
            prop_assert_eq!(owned(&ab, who, Operation::Apply), owned(&ba, who, Operation::Apply));
        }
        let whole = canonical(whole);
        for result in [ab, ba] {
            let result = field_manager().on_update(None, result, "x", NOW);
            let found = compare(&SCHEMA, &whole, &result).unwrap();
            prop_assert!(found.modified.is_empty() && found.removed.is_empty(), "{}, {}", found.modified, found.removed);
            prop_assert_eq!(found.added, Set::of_fields(&[&["metadata", "managedFields"]]));
        }
    }

    #[test]
    fn nothing_disappears_without_its_owners_word(before in steps(6), step in steps(2)) {
        let Some(live) = history(&before) else { return Ok(()) };
        let step = Step { apply: true, ..step[0].clone() };
        let Some(after) = play(Some(&live), &step) else { return Ok(()) };
        let managed = managed_of(&live).unwrap();
        let (mut mine, mut others) = (Set::new(), Set::new());
        for entry in managed.entries() {
            let own = entry.manager.name == step.who && entry.manager.operation == Operation::Apply;
            let target = if own { &mut mine } else { &mut others };
            *target = target.union(entry.fields());
        }
        let there = field_set(&SCHEMA, &after);
        // Only what the applier alone owned may go, with what is in it, or what an atomic parent it now sets swallowed.
        let applied = field_set(&SCHEMA, &step.what);
        for path in leaves(&live).paths().into_iter().filter(|path| !is_there(&there, path)) {
            let up = |ok: &dyn Fn(&[Element]) -> bool| (1..=path.0.len()).any(|n| ok(&path.0[..n]));
            let let_go = up(&|prefix| mine.has(prefix) && !others.has(prefix));
            let swallowed = up(&|prefix| prefix.len() < path.0.len() && applied.has(prefix));
            prop_assert!(
                let_go || swallowed || inside_free(&path),
                "{} went; mine {}; others {}", path, mine, others
            );
        }
    }

    #[test]
    fn owners_own_what_is_there(all in steps(8)) {
        let Some(object) = history(&all) else { return Ok(()) };
        let managed = managed_of(&object).unwrap();
        // Without filters every leaf of an object was set by somebody, and updaters own only what is there.
        let there = with_named_fields(&SCHEMA, &field_set(&SCHEMA, &object));
        for entry in managed.entries().iter().filter(|e| e.manager.operation == Operation::Update) {
            let lost = entry.fields().leaves().difference(&there);
            let empties = lost.paths().iter().all(|p| !leaves(&object).has(&p.0));
            prop_assert!(empties, "{} owns {} of {}", entry, lost, object);
        }
        let encoded = managed.clone().encode();
        prop_assert_eq!(encoded.as_ref(), object["metadata"].get("managedFields"));
    }
}
