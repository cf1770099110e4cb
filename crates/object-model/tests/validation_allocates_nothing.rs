//! Validation of a custom object that is right takes no memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use object_model::field::Path;
use object_model::schema::custom::{self, Options};
use object_model::schema::validate::{validate, validate_update};
use object_model::schema::{Schema, Shape, Struct, Type, Types};
use serde_json::{Value, json};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is left to the system's allocator; counting touches only a thread-local cell.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn object_meta() -> Schema {
    let mut types = Types::default();
    let root = types.add(Type::new(Shape::Struct(Struct {
        name: "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta".into(),
        fields: [].into(),
        atomic: false,
        preserve_unknown: false,
        embedded: false,
    })));
    Schema::new(Arc::new(types), root)
}

fn schema() -> Schema {
    let rule = json!({"type": "object", "required": ["host", "port"], "properties": {
        "host": {"type": "string", "maxLength": 253, "pattern": "^[a-z0-9.-]+$"},
        "port": {"x-kubernetes-int-or-string": true},
        "weight": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 100},
        "since": {"type": "string", "format": "date-time"},
        "mode": {"type": "string", "enum": ["fast", "slow"]},
        "labels": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}},
    }, "oneOf": [{"required": ["weight"]}, {"required": ["mode"]}]});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["rules"], "properties": {
        "rules": {
            "type": "array", "maxItems": 64, "items": rule,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["host"],
        },
        "addresses": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "format": "ipv4"}},
    }}}});
    let meta = object_meta();
    let parsed = custom::parse(&schema, meta.root(), &Path::Root, Options { status: true });
    parsed.unwrap_or_else(|errors| panic!("{errors}"))
}

fn object() -> Value {
    let rule = |n: usize| {
        let mut rule = json!({"host": format!("h{n}.example.org"), "port": 80, "labels": {"a": "b", "c": "d"}});
        rule["since"] = "2024-01-02T03:04:05Z".into();
        if n.is_multiple_of(2) {
            rule["weight"] = 50.into()
        } else {
            rule["mode"] = "slow".into()
        }
        rule
    };
    json!({"apiVersion": "example.org/v1", "kind": "Route", "metadata": {"name": "r"},
        "spec": {"rules": (0..12).map(rule).collect::<Vec<_>>(), "addresses": ["10.0.0.1", "10.0.0.2"]}})
}

#[test]
fn validation_allocates_nothing_while_nothing_is_wrong() {
    let (schema, object) = (schema(), object());
    let mut old = object.clone();
    old["spec"]["addresses"] = json!([]);
    // The first time compiles patterns.
    assert!(validate(&schema, &object).is_empty());
    let before = ALLOCATIONS.get();
    assert!(validate(&schema, &object).is_empty());
    assert!(validate_update(&schema, &object, &old).is_empty());
    assert_eq!(ALLOCATIONS.get() - before, 0);
    let start = Instant::now();
    let rounds = 2000;
    for _ in 0..rounds {
        assert!(validate(&schema, &object).is_empty());
    }
    eprintln!("{} bytes validated in {:?}", object.to_string().len(), start.elapsed() / rounds);
}
