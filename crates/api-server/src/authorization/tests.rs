use serde_json::json;

use super::*;
use crate::request_info::RequestInfo;

fn user(name: &str, groups: &[&str]) -> User {
    User { name: name.into(), groups: groups.iter().map(|g| (*g).into()).collect(), ..User::default() }
}

struct Says(Decision);

#[async_trait]
impl Authorizer for Says {
    async fn decide(&self, _: &Attributes<'_>) -> Decision {
        self.0.clone()
    }

    fn rules(&self, _: &User, _: &str) -> Rules {
        Rules::default()
    }
}

async fn all(decisions: Vec<Decision>) -> (Decision, Result<(), Status>) {
    let judges = decisions.into_iter().map(|d| Box::new(Says(d)) as Box<dyn Authorizer>).collect();
    let (authorization, user) = (Authorization::new(judges), user("eve", &[]));
    let attributes = Attributes { namespace: "n", ..Attributes::of_resource(&user, "list", "apps", "deployments") };
    let decision = authorization.decide(&attributes).await;
    let answer = decision.permit(&attributes);
    (decision, answer)
}

#[tokio::test]
async fn the_first_opinion_counts() {
    let (decision, _) = all(vec![Decision::no_opinion_because("a"), Decision::allow("b"), Decision::deny("c")]).await;
    assert_eq!(decision, Decision::allow("b"));
    let (decision, answer) = all(vec![Decision::deny("c"), Decision::allow("b")]).await;
    assert_eq!(decision, Decision::deny("c"));
    assert_eq!(decision.annotations(), [(AUDIT_DECISION, "forbid"), (AUDIT_REASON, "c")]);
    let refused = answer.expect_err("refused");
    assert_eq!(
        refused.message,
        r#"deployments.apps is forbidden: User "eve" cannot list resource "deployments" in API group "apps" in the namespace "n": c"#
    );
}

#[tokio::test]
async fn without_an_opinion_everybody_is_heard() {
    let failed = Decision { error: Some("out of reach".into()), ..Decision::default() };
    let (decision, _) = all(vec![Decision::no_opinion_because("a"), Decision::no_opinion_because("b")]).await;
    assert_eq!(decision.reason(), "a\nb");
    let (decision, answer) = all(vec![failed.clone(), failed, Decision::no_opinion()]).await;
    assert_eq!(decision.error.as_deref(), Some("out of reach"));
    assert_eq!(decision.annotations(), [(AUDIT_REASON, "internal error")]);
    assert_eq!(answer.expect_err("refused").code, 500);
}

#[test]
fn a_request_is_about_what_it_selects() {
    let user = user("eve", &[]);
    for (target, name, fields, labels) in [
        ("/api/v1/pods?fieldSelector=spec.nodeName%3Da", "", 1, 0),
        ("/api/v1/namespaces/n/pods?fieldSelector=metadata.name%3Dp&labelSelector=a,b%3Dc", "p", 1, 2),
        ("/api/v1/namespaces/n/pods?fieldSelector=metadata.name!%3Dp", "", 1, 0),
        ("/api/v1/namespaces/n/pods?fieldSelector=metadata.name%3Da%2Fb", "", 1, 0),
        ("/api/v1/namespaces/n/pods/p?fieldSelector=metadata.name%3Dq", "p", 0, 0),
        ("/api/v1/namespaces/n/pods?labelSelector=%3D%3D", "", 0, 0),
    ] {
        let (path, query) = target.split_once('?').expect("a query");
        let info = RequestInfo::read(&hyper::Method::GET, path, query);
        let attributes = Attributes::of_request(&user, &info, query);
        let found = (&*attributes.name, attributes.selectors.fields.len(), attributes.selectors.labels.len());
        assert_eq!(found, (name, fields, labels), "{target}");
        assert_eq!(attributes.selectors.bad_labels, target.contains("labelSelector=%3D"), "{target}");
    }
}

#[test]
fn a_review_is_about_what_it_says() {
    let user = user("eve", &[]);
    let spec = json!({"resourceAttributes": {
        "verb": "get", "group": "apps", "resource": "deployments", "subresource": "scale", "namespace": "n", "name": "d",
        "fieldSelector": {"requirements": [
            {"key": "spec.nodeName", "operator": "In", "values": ["a"]},
            {"key": "spec.nodeName", "operator": "Exists"},
        ]},
        "labelSelector": {"rawSelector": "a in ("},
    }});
    let attributes = Attributes::of_review(&user, &spec);
    assert_eq!(attributes.combined_resource(), "deployments/scale");
    assert_eq!((attributes.version, attributes.namespace, &*attributes.name), ("*", "n", "d"));
    assert!(attributes.selects_field("spec.nodeName", "a"));
    assert_eq!(
        attributes.selectors.problems(),
        [
            "spec.resourceAttributes.fieldSelector partially ignored due to parse error",
            "spec.resourceAttributes.labelSelector ignored due to parse error",
        ]
    );
    let spec = json!({"nonResourceAttributes": {"verb": "get", "path": "/x"}});
    let attributes = Attributes::of_review(&user, &spec);
    assert_eq!((attributes.is_resource, attributes.verb, attributes.path), (false, "get", "/x"));
}
