#![no_main]
//! A schema and an object, apart by a zero byte, as a custom resource: no panic in building, cleaning, defaulting and
//! validating.

use libfuzzer_sys::fuzz_target;
use object_model::codec::json;
use object_model::field::Path;
use object_model::schema::{custom, prune, validate};

fuzz_target!(|bytes: &[u8]| {
    let metadata = api::schemas::definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").expect("a known type");
    let at = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let Ok(schema) = json::read(&bytes[..at]) else { return };
    let _ = custom::unknown_formats(&schema);
    let checked = custom::parse(&schema, metadata.root(), &Path::root(), custom::Options { status: true });
    let built = checked.or_else(|_| custom::load(&schema, metadata.root()));
    let (Ok(schema), Some(object)) = (built, bytes.get(at + 1..)) else { return };
    let Ok(mut object) = json::read(object) else { return };
    prune::prune(&schema, &mut object);
    let _ = validate::validate(&schema, &object);
});
