//! The policy of a fresh cluster, read from a table.

use object_model::value::Fields;
use serde_json::{Map, Value, json};

use super::{GROUP, Rule, aggregation};

const TABLE: &str = include_str!("policy.txt");
pub const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
const JOINS: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// All roles and bindings with the resource that each is of, roles first.
pub fn objects() -> Vec<(&'static str, Value)> {
    let mut roles: Vec<Object> = Vec::new();
    let mut bindings = Vec::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let (word, rest) = line.trim_start().split_once(' ').unwrap_or((line.trim(), ""));
        match (line.starts_with(' '), word, roles.last_mut()) {
            (false, "controller", _) => {
                let role = Object::new(&format!("system:controller:{rest}"));
                bindings.push(role.binding(&format!("account kube-system/{rest}")));
                roles.push(role);
            }
            (false, _, _) => roles.push(Object::role(rest)),
            (true, "bound", Some(role)) => bindings.push(role.binding(rest)),
            (true, verbs, Some(role)) => role.rules.push(rule(verbs, rest)),
            (true, _, None) => {}
        }
    }
    let mut objects: Vec<_> = roles.iter().map(Object::to_value).collect();
    fill(&mut objects);
    objects.extend(bindings);
    objects
}

/// What all nodes may do, before the node authorizer looks closer.
pub fn node_rules() -> Vec<Rule> {
    let objects = objects();
    let node = objects.iter().find(|(plural, role)| *plural == "clusterroles" && role.text_at(NAME) == "system:node");
    node.map(|(_, role)| Rule::of_role(role)).unwrap_or_default()
}

const NAME: &[&str] = &["metadata", "name"];

/// A role of the table.
#[derive(Default)]
struct Object {
    namespace: String,
    name: String,
    gathers: Option<String>,
    joins: Option<String>,
    rules: Vec<Rule>,
}

impl Object {
    /// `[NAMESPACE/]NAME`
    fn new(key: &str) -> Self {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        Self { namespace: namespace.to_owned(), name: name.to_owned(), ..Self::default() }
    }

    /// `KEY [gathers X] [joins X]`
    fn role(text: &str) -> Self {
        let mut words = text.split(' ');
        let mut role = Self::new(words.next().unwrap_or_default());
        while let (Some(word), Some(label)) = (words.next(), words.next()) {
            match word {
                "gathers" => role.gathers = Some(label.to_owned()),
                _ => role.joins = Some(label.to_owned()),
            }
        }
        role
    }

    fn kind(&self, of: &str) -> String {
        if self.namespace.is_empty() { format!("Cluster{of}") } else { of.to_owned() }
    }

    fn plurals(&self) -> (&'static str, &'static str) {
        if self.namespace.is_empty() { ("clusterroles", "clusterrolebindings") } else { ("roles", "rolebindings") }
    }

    fn metadata(&self, name: &str) -> Value {
        let mut metadata = json!({
            "name": name,
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {AUTOUPDATE: "true"},
        });
        if !self.namespace.is_empty() {
            metadata["namespace"] = json!(self.namespace);
        }
        metadata
    }

    fn to_value(&self) -> (&'static str, Value) {
        let mut role = json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": self.kind("Role"),
            "metadata": self.metadata(&self.name),
            "rules": self.rules,
        });
        if let Some(label) = &self.joins {
            role["metadata"]["labels"][format!("{JOINS}{label}")] = json!("true");
        }
        if let Some(label) = &self.gathers {
            let labels = Map::from_iter([(format!("{JOINS}{label}"), json!("true"))]);
            role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
        }
        (self.plurals().0, role)
    }

    /// `[NAME: ]SUBJECT, …`
    fn binding(&self, text: &str) -> (&'static str, Value) {
        let (name, subjects) = text.split_once(": ").unwrap_or((&self.name, text));
        let mut binding = json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": self.kind("RoleBinding"),
            "metadata": self.metadata(name),
            "roleRef": {"apiGroup": GROUP, "kind": self.kind("Role"), "name": self.name},
        });
        let subjects: Vec<Value> = subjects.split(", ").filter_map(subject).collect();
        if !subjects.is_empty() {
            binding["subjects"] = subjects.into();
        }
        (self.plurals().1, binding)
    }
}

fn subject(text: &str) -> Option<Value> {
    let (kind, name) = text.trim().split_once(' ')?;
    Some(match kind {
        "account" => {
            let (namespace, name) = name.split_once('/')?;
            json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
        }
        "user" => json!({"apiGroup": GROUP, "kind": "User", "name": name}),
        _ => json!({"apiGroup": GROUP, "kind": "Group", "name": name}),
    })
}

/// `GROUPS RESOURCE … [named OBJECT …]` or `url PATH …`
fn rule(verbs: &str, rest: &str) -> Rule {
    let split = |text: &str, by: char| text.split(by).map(Box::from).collect();
    let verbs = match verbs {
        "read" => split("get,list,watch", ','),
        "write" => split("create,delete,deletecollection,patch,update", ','),
        verbs => split(verbs, ','),
    };
    let (groups, resources) = rest.split_once(' ').unwrap_or((rest, ""));
    if groups == "url" {
        return Rule { verbs, non_resource_urls: split(resources, ' '), ..Rule::default() };
    }
    let (resources, names) = match resources.split_once(" named ") {
        Some((resources, names)) => (resources, split(names, ' ')),
        None => (resources, Vec::new()),
    };
    let api_groups = groups.split(',').map(|group| if group == "core" { "" } else { group }.into()).collect();
    Rule { verbs, api_groups, resources: split(resources, ' '), resource_names: names, ..Rule::default() }
}

/// Fills the roles that gather others, as their controller would, so that they are complete from the start.
fn fill(roles: &mut [(&'static str, Value)]) {
    loop {
        let index = aggregation::Gathered::of(roles.iter().filter(|(p, _)| *p == "clusterroles").map(|(_, role)| role));
        let due = index.due();
        if due.is_empty() {
            return;
        }
        for (_, role) in roles.iter_mut().filter(|(plural, _)| *plural == "clusterroles") {
            if let Some((_, rules)) = due.iter().find(|(name, _)| **name == *role.text_at(NAME)) {
                role["rules"] = json!(rules);
            }
        }
    }
}
