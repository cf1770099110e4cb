//! The committed tables are what the generator makes of the published facts, and they can be read.

#[path = "../examples/generate-tables/resources.rs"]
mod resources;
#[path = "../examples/generate-tables/types.rs"]
mod types;

use api::schemas;
use object_model::schema::{ListKind, Omit, Scalar, Shape};

type Error = Box<dyn std::error::Error>;

#[test]
fn the_tables_are_what_the_generator_makes() -> Result<(), Error> {
    let Some(folder) = testing::facts("") else { return Ok(()) };
    // not assert_eq: the difference would be 200 KB of text
    assert!(types::generate(&folder)? == include_str!("../tables/types.txt"), "run generate-tables: types.txt differs");
    assert!(
        resources::generate(&folder)? == include_str!("../tables/resources.txt"),
        "run generate-tables: resources.txt differs"
    );
    Ok(())
}

#[test]
fn kinds_are_found_by_group_version_and_kind() {
    let pod = schemas::schema_of("", "v1", "Pod").expect("Pod");
    let Shape::Struct(s) = pod.root().shape() else { panic!("Pod is no struct") };
    assert_eq!(&*s.name, "io.k8s.api.core.v1.Pod");
    assert_eq!(
        s.fields.iter().map(|f| &*f.name).collect::<Vec<_>>(),
        ["apiVersion", "kind", "metadata", "spec", "status"]
    );
    assert!(schemas::schema_of("", "v1", "Nothing").is_none());
    assert!(schemas::schema_of("apps", "v1", "DeleteOptions").is_some());
    assert!(schemas::schema_of("meta.k8s.io", "v1", "Table").is_some());
    assert!(schemas::schema_of("meta.k8s.io", "v1beta1", "PartialObjectMetadata").is_some());
    assert!(schemas::definition("io.k8s.api.core.v1.PodSpec").is_some());
    assert!(schemas::kinds().len() > 300, "{}", schemas::kinds().len());
}

#[test]
fn fields_have_their_facts() {
    let pod = schemas::schema_of("", "v1", "Pod").expect("Pod");
    let spec = pod.root().child("spec").expect("spec");
    let Shape::Struct(s) = spec.shape() else { panic!() };
    let containers = s.field("containers").expect("containers");
    assert_eq!((containers.number, containers.omit, containers.required), (2, Omit::Never, true));
    assert!(containers.patch.merge && containers.patch.merge_key.as_deref() == Some("name"));
    let ports = spec.child("containers").and_then(|c| c.item()).and_then(|c| c.child("ports")).expect("ports");
    let Shape::List(list) = ports.shape() else { panic!() };
    assert_eq!(list.kind, ListKind::Map(["containerPort".into(), "protocol".into()].into()));
    let protocol = ports.item().and_then(|p| p.child("protocol")).expect("protocol");
    assert_eq!(protocol.shape(), &Shape::Scalar(Scalar::String));
    assert_eq!(protocol.node().default.as_deref(), Some(&serde_json::json!("TCP")));
    assert_eq!(protocol.facts().and_then(|f| f.go.as_deref()), Some("v1.Protocol"));

    let volume = spec.child("volumes").and_then(|v| v.item()).expect("volume");
    assert!(
        volume.child("configMap").is_some_and(|c| c.child("name").is_some()),
        "embedded fields are among the outer"
    );
    let claim = schemas::definition("io.k8s.api.core.v1.PersistentVolumeSpec").expect("spec");
    let reference = claim.root().child("claimRef").expect("claimRef");
    let atomic = |r: object_model::schema::Ref| matches!(r.shape(), Shape::Struct(s) if s.atomic);
    assert!(!atomic(reference), "claimRef is granular although its type is atomic");
    assert!(atomic(schemas::definition("io.k8s.api.core.v1.ObjectReference").expect("type").root()));
}

#[test]
fn resources_are_found() {
    use api::resources::{all, find, of_kind};
    let deployments = find("apps", "v1", "deployments").expect("deployments");
    assert_eq!(of_kind("apps", "v1", "Deployment"), Some(deployments));
    assert!(deployments.namespaced && deployments.short_names == ["deploy"] && deployments.categories == ["all"]);
    let scale = deployments.subresources.iter().find(|s| s.name == "scale").expect("scale");
    assert_eq!((scale.group, scale.version, scale.kind), ("autoscaling", "v1", "Scale"));
    for gv in all() {
        for resource in &gv.resources {
            assert!(schemas::schema_of(gv.group, gv.version, resource.kind).is_some(), "{resource:?}");
            for sub in &resource.subresources {
                assert!(schemas::schema_of(sub.group, sub.version, sub.kind).is_some(), "{sub:?}");
            }
        }
    }
}
