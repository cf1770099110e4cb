//! Who wants a look after which change. What is done then is tested with a server, in `crates/testing`.

use std::sync::Arc;

use kube::api::ApiResource;

use super::{graph::*, *};

fn resource() -> Arc<Discovered> {
    let capabilities = kube::discovery::ApiCapabilities {
        scope: kube::discovery::Scope::Namespaced,
        subresources: Vec::new(),
        operations: Vec::new(),
    };
    let pod = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
    Arc::new(Discovered::new((pod, capabilities)))
}

fn node(resource: &Arc<Discovered>, name: &str, owners: &[(&str, bool)]) -> Node {
    let owners = owners.iter().map(|(owner, blocks)| OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: (*owner).into(),
        uid: (*owner).into(),
        block_owner_deletion: Some(*blocks),
        controller: None,
    });
    let meta = ObjectMeta {
        name: Some(name.into()),
        namespace: Some("default".into()),
        uid: Some(name.into()),
        owner_references: Some(owners.collect()),
        ..ObjectMeta::default()
    };
    Node::new(resource, &meta)
}

#[test]
fn one_with_an_unknown_owner_wants_a_look_and_one_with_a_known_owner_does_not() {
    let (resource, mut graph) = (resource(), Graph::default());
    assert_eq!(graph.applied(node(&resource, "child", &[("parent", false)])), ["child"]);
    assert!(graph.applied(node(&resource, "parent", &[])).is_empty());
    assert!(graph.applied(node(&resource, "child", &[("parent", false)])).is_empty(), "nothing has changed");
    assert!(graph.applied(node(&resource, "other", &[("parent", false)])).is_empty());
    let mut look = graph.deleted("parent");
    look.sort();
    assert_eq!(look, ["child", "other"]);
}

#[test]
fn an_owner_that_waits_hears_of_every_dependent_that_no_longer_blocks() {
    let (resource, mut graph) = (resource(), Graph::default());
    graph.applied(node(&resource, "parent", &[]));
    for child in ["a", "b", "c"] {
        graph.applied(node(&resource, child, &[("parent", true)]));
    }
    let waiting = Node { being_deleted: true, waits_for_dependents: true, ..node(&resource, "parent", &[]) };
    let mut look = graph.applied(waiting);
    look.sort();
    assert_eq!(look, ["a", "b", "c", "parent"]);
    assert_eq!(graph.deleted("a"), ["parent"]);
    assert!(graph.applied(node(&resource, "b", &[("parent", false)])).contains(&"parent".to_owned()));
    assert!(graph.applied(node(&resource, "c", &[])).contains(&"parent".to_owned()));
    let left: Vec<_> = graph.dependents("parent").iter().map(|node| node.uid.clone()).collect();
    assert_eq!(left, ["b"]);
}

#[test]
fn an_owner_elsewhere_is_no_owner() {
    let (resource, mut graph) = (resource(), Graph::default());
    let mut parent = node(&resource, "parent", &[]);
    parent.key.namespace = "elsewhere".into();
    graph.applied(parent);
    let child = node(&resource, "child", &[("parent", false)]);
    assert!(graph.is_elsewhere(&child.owners[0], &child) && !graph.is_solid(&child.owners[0], &child));
    assert_eq!(graph.applied(child), ["child"]);
    graph.forget(&resource);
    assert!(graph.get("parent").is_none() && graph.dependents("parent").is_empty());
}
