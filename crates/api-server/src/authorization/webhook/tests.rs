use object_model::selector::{FieldSelector, LabelSelector};

use super::*;
use crate::authorization::Selectors;

#[test]
fn a_question_is_asked_in_full() {
    let user = User {
        name: "eve".into(),
        uid: "1".into(),
        groups: vec!["devs".into()],
        extra: vec![("scopes".into(), vec!["all".into()])],
    };
    let selectors = Selectors {
        fields: FieldSelector::parse("spec.nodeName=a").expect("a selector").terms().to_vec(),
        labels: LabelSelector::parse("x notin (y),z,n>5").expect("a selector").requirements().to_vec(),
        ..Selectors::default()
    };
    let attributes = Attributes {
        version: "v1",
        namespace: "n",
        name: "p".into(),
        selectors,
        ..Attributes::of_resource(&user, "list", "apps", "deployments")
    };
    let asked = json!({
        "user": "eve", "uid": "1", "groups": ["devs"], "extra": {"scopes": ["all"]},
        "resourceAttributes": {
            "verb": "list", "group": "apps", "version": "v1", "resource": "deployments", "namespace": "n", "name": "p",
            "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["a"]}]},
            "labelSelector": {"requirements": [
                {"key": "x", "operator": "NotIn", "values": ["y"]}, {"key": "z", "operator": "Exists"},
            ]},
        },
    });
    assert_eq!(spec(&attributes, Version::V1), asked);
    let path = Attributes { is_resource: false, path: "/x", ..Attributes::of_resource(&user, "get", "", "") };
    let asked = spec(&path, Version::V1Beta1);
    assert_eq!((&asked["nonResourceAttributes"]["path"], &asked["group"]), (&json!("/x"), &json!(["devs"])));
}
