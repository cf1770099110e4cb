//! The transcoder, against every built-in kind as Kubernetes writes it in JSON and in protobuf, against the structs of
//! `k8s-pb`, and against itself on random values of random types.

mod random;

use api::schemas::{definition, schema_of};
use object_model::codec::canonical::canonicalise;
use object_model::codec::{json, protobuf};
use object_model::schema::Schema;
use serde_json::Value;

/// `apps.v1.Deployment`; a watch event does not say in itself what it is.
fn schema_of_file(name: &str) -> Option<Schema> {
    let (version, kind) = name.rsplit_once('.')?;
    let (group, version) = version.rsplit_once('.')?;
    schema_of(if group == "core" { "" } else { group }, version, kind)
}

/// Where two values differ, for messages that can be read.
fn difference(a: &Value, b: &Value, path: &str) -> String {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let keys = x.keys().chain(y.keys().filter(|k| !x.contains_key(*k)));
            keys.map(|key| match (x.get(key), y.get(key)) {
                (Some(a), Some(b)) => difference(a, b, &format!("{path}.{key}")),
                (a, b) => format!("{path}.{key}: {a:?} {b:?}; "),
            })
            .collect()
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            x.iter().zip(y).map(|(a, b)| difference(a, b, &format!("{path}[]"))).collect()
        }
        _ if a == b => String::new(),
        _ => format!("{path}: {a} {b}; "),
    }
}

#[test]
fn every_kind_transcodes_both_ways() {
    let Some(folder) = testing::facts("wire-v1.36.4") else { return };
    let (mut seen, mut failures) = (0, Vec::new());
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        seen += 1;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = json::read(&std::fs::read(&path).expect("JSON")).expect("JSON");
        let wire = std::fs::read(path.with_extension("pb")).expect("protobuf");
        let envelope = protobuf::unwrap(&wire).expect("an envelope");
        let Some(schema) = schema_of_file(&name) else {
            failures.push(format!("{name}: no schema"));
            continue;
        };
        let mut canonical = text.clone();
        match canonicalise(&schema, &mut canonical) {
            Ok(unknown) if unknown.is_empty() && canonical == text => {}
            other => failures.push(format!("{name}: not canonical: {other:?} {}", difference(&text, &canonical, ""))),
        }
        match protobuf::read(&wire, |_, _| Some(schema.clone())) {
            Ok(value) if value == text => {}
            Ok(value) => failures.push(format!("{name}: decoded {}", difference(&text, &value, ""))),
            Err(error) => failures.push(format!("{name}: {error}")),
        }
        let mut message = Vec::new();
        let encoded = protobuf::encode(schema.root(), &text, &mut message);
        match encoded.map(|()| protobuf::wrap(envelope.api_version, envelope.kind, &message)) {
            Ok(bytes) if bytes == wire => {}
            Ok(bytes) => {
                let at = bytes.iter().zip(&wire).position(|(a, b)| a != b);
                let at = at.unwrap_or_else(|| bytes.len().min(wire.len()));
                let near =
                    |b: &[u8]| String::from_utf8_lossy(&b[at.saturating_sub(40)..b.len().min(at + 60)]).into_owned();
                failures.push(format!("{name}: encoded\n  want {:?}\n  got  {:?}", near(&wire), near(&bytes)));
            }
            Err(error) => failures.push(format!("{name}: {error}")),
        }
        if text.get("kind").is_some() && protobuf::to_vec(&schema, &text).ok().as_ref() != Some(&wire) {
            failures.push(format!("{name}: the envelope differs"));
        }
    }
    assert!(seen >= 185, "only {seen} kinds");
    assert!(failures.is_empty(), "{}:\n{}", failures.len(), failures.join("\n"));
}

/// Kinds in `k8s-pb`, which is generated from Kubernetes' own protocol files by others.
macro_rules! oracle {
    ($($name:literal: $message:ty,)*) => {
        [$(($name, through::<$message> as fn(&[u8]) -> Result<Vec<u8>, prost::DecodeError>),)*]
    };
}

fn through<M: prost::Message + Default>(bytes: &[u8]) -> Result<Vec<u8>, prost::DecodeError> {
    Ok(M::decode(bytes)?.encode_to_vec())
}

/// What an independent implementation reads from our bytes and writes again is the same object.
#[test]
fn an_independent_implementation_agrees() {
    use k8s_pb::api;
    let kinds = oracle! {
        "io.k8s.api.core.v1.ConfigMap": api::core::v1::ConfigMap,
        "io.k8s.api.core.v1.Secret": api::core::v1::Secret,
        "io.k8s.api.core.v1.Event": api::core::v1::Event,
        "io.k8s.api.core.v1.Service": api::core::v1::Service,
        "io.k8s.api.core.v1.Endpoints": api::core::v1::Endpoints,
        "io.k8s.api.core.v1.ResourceQuota": api::core::v1::ResourceQuota,
        "io.k8s.api.core.v1.LimitRange": api::core::v1::LimitRange,
        "io.k8s.api.core.v1.ServiceAccount": api::core::v1::ServiceAccount,
        "io.k8s.api.core.v1.Namespace": api::core::v1::Namespace,
        "io.k8s.api.core.v1.PersistentVolume": api::core::v1::PersistentVolume,
        "io.k8s.api.apps.v1.ControllerRevision": api::apps::v1::ControllerRevision,
        "io.k8s.api.coordination.v1.Lease": api::coordination::v1::Lease,
        "io.k8s.api.networking.v1.Ingress": api::networking::v1::Ingress,
        "io.k8s.api.networking.v1.NetworkPolicy": api::networking::v1::NetworkPolicy,
        "io.k8s.api.rbac.v1.ClusterRole": api::rbac::v1::ClusterRole,
        "io.k8s.api.certificates.v1.CertificateSigningRequest": api::certificates::v1::CertificateSigningRequest,
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicy":
            api::admissionregistration::v1::ValidatingAdmissionPolicy,
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition":
            k8s_pb::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
        "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions":
            k8s_pb::apimachinery::pkg::apis::meta::v1::DeleteOptions,
    };
    for (name, through) in kinds {
        let schema = definition(name).expect(name);
        for seed in 0..60 {
            let value = random::canonical(&schema, seed);
            let mut bytes = Vec::new();
            protobuf::encode(schema.root(), &value, &mut bytes).expect(name);
            let again = through(&bytes).unwrap_or_else(|e| panic!("{name} {seed}: {e}\n{value}"));
            let back = protobuf::decode(schema.root(), &again).unwrap_or_else(|e| panic!("{name} {seed}: {e}"));
            assert_eq!(back, value, "{name} {seed}: {}", difference(&value, &back, ""));
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 20_000, failure_persistence: None, ..Default::default() })]

    /// Any value of any type that has a message goes to the wire and comes back.
    #[test]
    fn random_values_of_random_types_survive_the_wire(seed in proptest::prelude::any::<u64>()) {
        let schema = random::schema(seed);
        let value = random::canonical(&schema, seed);
        let mut bytes = Vec::new();
        protobuf::encode(schema.root(), &value, &mut bytes).expect("a canonical value has a message");
        let back = protobuf::decode(schema.root(), &bytes).expect("our own message can be read");
        proptest::prop_assert_eq!(&back, &value, "{}", difference(&value, &back, ""));
        let mut again = back.clone();
        canonicalise(&schema, &mut again).expect("a decoded value is canonical");
        proptest::prop_assert_eq!(again, back);
    }

    /// Damaged messages give errors or other values, never a panic or a value that cannot be written.
    #[test]
    fn damaged_messages_are_refused_or_read(seed in proptest::prelude::any::<u64>(), cut in 0usize..4000, flip in 0u8..=255) {
        let schema = random::schema(seed);
        let mut bytes = Vec::new();
        protobuf::encode(schema.root(), &random::canonical(&schema, seed), &mut bytes).expect("a message");
        if !bytes.is_empty() {
            let at = cut % bytes.len();
            bytes[at] ^= flip;
            bytes.truncate(at + 1 + usize::from(flip) * 4);
        }
        if let Ok(value) = protobuf::decode(schema.root(), &bytes) {
            let mut canonical = value.clone();
            canonicalise(&schema, &mut canonical).expect("a decoded value can be read");
            proptest::prop_assert_eq!(canonical, value);
        }
    }
}
