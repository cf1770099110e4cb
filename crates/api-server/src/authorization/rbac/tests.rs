use std::collections::BTreeMap;

use object_model::value::Fields;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{authentication::service_accounts, authorization::Verdict};

const CLUSTER_ROLES: usize = 0;
const ROLES: usize = 1;
const CLUSTER_BINDINGS: usize = 2;
const BINDINGS: usize = 3;

fn user(name: &str, groups: &[&str]) -> User {
    User { name: name.into(), groups: groups.iter().map(|g| (*g).into()).collect(), ..User::default() }
}

fn role(name: &str, rules: Value) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, kind: &str, role: &str, subjects: Value) -> Value {
    json!({"metadata": {"name": name}, "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role}, "subjects": subjects})
}

fn small() -> Index {
    let mut index = Index::default();
    let reader = json!([{"verbs": ["get"], "apiGroups": ["", "apps"], "resources": ["pods", "*/scale"]}]);
    let named = json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"]}]);
    let urls = json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/metrics/*"]}]);
    index.apply_object(CLUSTER_ROLES, "reader", Some(&role("reader", reader)));
    index.apply_object(CLUSTER_ROLES, "urls", Some(&role("urls", urls)));
    index.apply_object(ROLES, "a/named", Some(&role("named", named)));
    let group = json!([{"kind": "Group", "name": "devs"}]);
    index.apply_object(
        CLUSTER_BINDINGS,
        "all-read",
        Some(&binding("all-read", "ClusterRole", "reader", group.clone())),
    );
    index.apply_object(CLUSTER_BINDINGS, "urls", Some(&binding("urls", "ClusterRole", "urls", group)));
    let account = json!([{"kind": "ServiceAccount", "name": "robot"}]);
    index.apply_object(BINDINGS, "a/own", Some(&binding("own", "Role", "named", account)));
    let lost = json!([{"kind": "User", "name": "lost"}]);
    index.apply_object(CLUSTER_BINDINGS, "gone", Some(&binding("gone", "ClusterRole", "none", lost.clone())));
    index.apply_object(BINDINGS, "a/gone", Some(&binding("gone", "Role", "none", lost)));
    index
}

#[test]
fn reasons_are_those_of_kubernetes() {
    let index = small();
    let dev = user("eve", &["devs"]);
    let scale = Attributes { subresource: "scale", ..Attributes::of_resource(&dev, "get", "apps", "deployments") };
    assert_eq!(
        judge(&index, &scale).reason(),
        r#"RBAC: allowed by ClusterRoleBinding "all-read" of ClusterRole "reader" to Group "devs""#
    );
    let robot = user("system:serviceaccount:a:robot", &[]);
    let secret =
        Attributes { namespace: "a", name: "mine".into(), ..Attributes::of_resource(&robot, "delete", "", "secrets") };
    assert_eq!(
        judge(&index, &secret).reason(),
        r#"RBAC: allowed by RoleBinding "own/a" of Role "named" to ServiceAccount "robot/a""#
    );
    for other in [
        Attributes { name: "other".into(), ..secret.clone() },
        Attributes { namespace: "b", ..secret.clone() },
        Attributes { group: "apps", ..secret.clone() },
    ] {
        assert_eq!(judge(&index, &other), Decision::no_opinion());
    }
    let lost = user("lost", &[]);
    let question = Attributes { namespace: "a", ..Attributes::of_resource(&lost, "get", "", "pods") };
    assert_eq!(
        judge(&index, &question).reason(),
        r#"RBAC: [clusterrole.rbac.authorization.k8s.io "none" not found, role.rbac.authorization.k8s.io "none" not found]"#
    );
}

#[test]
fn paths() {
    let (index, dev) = (small(), user("eve", &["devs"]));
    for (path, allowed) in
        [("/healthz", true), ("/healthz/x", false), ("/metrics/", true), ("/metrics/slis", true), ("/metrics", false)]
    {
        let attributes = Attributes { is_resource: false, path, ..Attributes::of_resource(&dev, "get", "", "") };
        assert_eq!(judge(&index, &attributes).is_allowed(), allowed, "{path}");
    }
}

#[test]
fn what_is_unbound_is_forgotten() {
    let mut index = small();
    index.apply_object(BINDINGS, "a/own", None);
    index.apply_object(BINDINGS, "a/gone", None);
    let robot = user("system:serviceaccount:a:robot", &[]);
    assert_eq!(index.grants_of(&robot, "a").count(), 0);
    let other = json!([{"kind": "User", "name": "ann"}]);
    index.apply_object(CLUSTER_BINDINGS, "all-read", Some(&binding("all-read", "ClusterRole", "reader", other)));
    let dev = user("eve", &["devs"]);
    assert!(!judge(&index, &Attributes::of_resource(&dev, "get", "", "pods")).is_allowed());
    let ann = user("ann", &[]);
    assert!(judge(&index, &Attributes::of_resource(&ann, "get", "", "pods")).is_allowed());
}

#[test]
fn what_is_missing_is_told_once() {
    let rules = |value: Value| Rule::of_role(&role("r", value));
    let owned = rules(json!([
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "*/status"]},
        {"verbs": ["get"], "nonResourceURLs": ["/metrics/*"]},
    ]));
    let wanted = rules(json!([
        {"verbs": ["get", "list", "watch", "delete"], "apiGroups": [""], "resources": ["pods", "nodes/status"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]},
        {"verbs": ["get"], "nonResourceURLs": ["/metrics/slis", "/version"]},
    ]));
    let mut missing: Vec<String> = rule::missing(&owned, &wanted).iter().map(ToString::to_string).collect();
    missing.sort();
    assert_eq!(
        missing,
        [
            r#"{APIGroups:[""], Resources:["nodes/status"], Verbs:["watch" "delete"]}"#,
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["watch" "delete"]}"#,
            r#"{NonResourceURLs:["/version"], Verbs:["get"]}"#,
        ]
    );
    assert!(rule::missing(&Rule::everything(), &wanted).is_empty());
    // A right on one object is none on all of them.
    let one = rules(json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}]));
    assert_eq!(rule::missing(&one, &owned[..1]).len(), 2);
}

/// All objects as they are, asked one after the other.
#[derive(Default)]
struct Naive(BTreeMap<(usize, String), Value>);

impl Naive {
    fn allows(&self, attributes: &Attributes<'_>) -> bool {
        self.0.iter().any(|((resource, key), binding)| {
            let namespace = match *resource {
                CLUSTER_BINDINGS => "",
                BINDINGS => key.split('/').next().unwrap_or_default(),
                _ => return false,
            };
            (namespace.is_empty() || namespace == attributes.namespace)
                && binding["subjects"].as_array().into_iter().flatten().any(|s| self.is(s, attributes.user, namespace))
                && self
                    .rules(binding, namespace)
                    .iter()
                    .any(|rule| rule.allows(attributes, &attributes.combined_resource()))
        })
    }

    fn is(&self, subject: &Value, user: &User, namespace: &str) -> bool {
        let name = subject.text("name");
        match subject.text("kind") {
            "User" => user.name == name,
            "Group" => user.groups.iter().any(|g| g == name),
            _ => {
                let own = subject["namespace"].as_str().unwrap_or(namespace);
                !own.is_empty() && user.name == format!("system:serviceaccount:{own}:{name}")
            }
        }
    }

    fn rules(&self, binding: &Value, namespace: &str) -> Vec<Rule> {
        let name = binding.text_at(&["roleRef", "name"]);
        let key = match binding.text_at(&["roleRef", "kind"]) {
            "ClusterRole" => (CLUSTER_ROLES, name.to_owned()),
            _ => (ROLES, format!("{namespace}/{name}")),
        };
        self.0.get(&key).map(Rule::of_role).unwrap_or_default()
    }
}

fn one_of(choices: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    proptest::sample::select(choices)
}

fn some_of(choices: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(choices, 0..=2)
}

const NAMES: &[&str] = &["a", "b", "c"];
const VERBS: &[&str] = &["get", "list", "*"];
const GROUPS: &[&str] = &["", "apps", "*"];
const THINGS: &[&str] = &["pods", "pods/scale", "*/scale", "*", "secrets"];

prop_compose! {
    fn any_rule()(verbs in some_of(VERBS), groups in some_of(GROUPS), resources in some_of(THINGS), names in some_of(NAMES),
                  urls in some_of(&["/a", "/a/*", "*"])) -> Value {
        json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names, "nonResourceURLs": urls})
    }
}

prop_compose! {
    fn any_subject()(kind in one_of(&["User", "Group", "ServiceAccount"]), name in one_of(NAMES),
                     namespace in proptest::option::of(one_of(NAMES))) -> Value {
        match namespace {
            Some(namespace) => json!({"kind": kind, "name": name, "namespace": namespace}),
            None => json!({"kind": kind, "name": name}),
        }
    }
}

prop_compose! {
    /// A role or binding that comes, changes or goes.
    fn any_change()(resource in 0..4usize, namespace in one_of(NAMES), name in one_of(NAMES), there in any::<bool>(),
                    rules in proptest::collection::vec(any_rule(), 0..3), kind in one_of(&["ClusterRole", "Role"]),
                    role_name in one_of(NAMES), subjects in proptest::collection::vec(any_subject(), 0..4))
                    -> (usize, String, Option<Value>) {
        let key = if resource % 2 == 0 { name.to_owned() } else { format!("{namespace}/{name}") };
        let object = if resource < 2 { role(name, json!(rules)) } else { binding(name, kind, role_name, json!(subjects)) };
        (resource, key, there.then_some(object))
    }
}

prop_compose! {
    fn any_user()(account in any::<bool>(), namespace in one_of(NAMES), name in one_of(NAMES), groups in some_of(NAMES)) -> User {
        user(&if account { service_accounts::user_name(namespace, name) } else { name.to_owned() }, &groups)
    }
}

proptest! {
    #[test]
    fn the_index_answers_as_the_objects_do(
        changes in proptest::collection::vec(any_change(), 0..40),
        user in any_user(),
        is_resource in any::<bool>(),
        words in (one_of(&["get", "list", "watch"]), one_of(&["", "apps", "x"]), one_of(&["pods", "secrets"]), one_of(&["", "scale", "log"])),
        place in (one_of(&["", "a", "b"]), one_of(&["", "a", "b"]), one_of(&["/a", "/a/b", "/c"])),
    ) {
        let (mut index, mut naive) = (Index::default(), Naive::default());
        for (resource, key, object) in changes {
            index.apply_object(resource, &key, object.as_ref());
            match object {
                Some(object) => naive.0.insert((resource, key), object),
                None => naive.0.remove(&(resource, key)),
            };
        }
        let ((verb, group, resource, subresource), (namespace, name, path)) = (words, place);
        let attributes = Attributes {
            is_resource, path, subresource, namespace, name: name.into(),
            ..Attributes::of_resource(&user, verb, group, resource)
        };
        prop_assert_eq!(judge(&index, &attributes).verdict == Verdict::Allow, naive.allows(&attributes));
    }
}
