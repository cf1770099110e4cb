#![no_main]
//! Bytes as the message of a built-in kind, which the first byte chooses, and as an envelope: no panic, and what is
//! read is written and read again as the same.

use libfuzzer_sys::fuzz_target;
use object_model::codec::protobuf;
use object_model::identity::GroupVersion;

fuzz_target!(|bytes: &[u8]| {
    let of_kind = |api_version: &str, kind: &str| {
        let gv = GroupVersion::parse(api_version).ok()?;
        api::schemas::schema_of(&gv.group, &gv.version, kind)
    };
    let _ = protobuf::read(bytes, of_kind);

    let Some((choice, message)) = bytes.split_first() else { return };
    let kinds = ["Pod", "Service", "Node", "Secret", "Event", "ConfigMap", "PersistentVolume", "ResourceQuota"];
    let kind = kinds[usize::from(*choice) % kinds.len()];
    let schema = api::schemas::schema_of("", "v1", kind).expect("a built-in kind");
    if let Ok(value) = protobuf::decode(schema.root(), message) {
        let mut written = Vec::new();
        protobuf::encode(schema.root(), &value, &mut written).expect("what was read can be written");
        assert_eq!(protobuf::decode(schema.root(), &written).expect("our own message is readable"), value);
    }
});
