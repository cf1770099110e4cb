//! FlowSchema: which requests belong to which priority level.

use object_model::field::ErrorKind;
use object_model::names;

use super::{GROUP, STATUS, conditions, mandatory_schema};
use crate::defaults::Defaults;
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::{Field, go_form, meta, same};

const MAX_PRECEDENCE: i64 = 10_000;
const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
/// The kinds of subjects, the field each is told in, and its name there.
const SUBJECTS: [(&str, &str); 3] = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];

pub static STRATEGY: Strategy = Strategy {
    defaults: |schema| {
        if let Some(spec) = schema.child("spec") {
            spec.default_to("matchingPrecedence", 1000);
        }
    },
    create: Create::new(prepare::new_with_status, validate),
    update: Update::of_spec(prepare::spec_only, |schema, _| validate(schema)),
    subresources: &[STATUS],
    ..Strategy::cluster(GROUP, "FlowSchema")
};

fn validate(schema: &Field) {
    let metadata = schema.at("metadata");
    meta::builtin_meta(&metadata, false, names::name_is_dns_subdomain);
    let (spec, name) = (schema.at("spec"), metadata.at("name").text());
    precedence(&spec.at("matchingPrecedence"), name);
    let method = spec.at("distinguisherMethod");
    let method_type = method.at("type");
    if method.is_set() && !method_type.is_one_of(&["ByNamespace", "ByUser"]) {
        let shown = go_form::shown("DistinguisherMethod", method.value());
        let detail = format!("{shown}: supported values: \"ByNamespace\", \"ByUser\"");
        method_type.tell(ErrorKind::NotSupported, None, detail);
    }
    let level = spec.at("priorityLevelConfiguration");
    match level.at("name").is_empty() {
        true => level.at("name").missing("must reference a priority level"),
        false => level.at("name").dns_subdomain(),
    }
    spec.at("rules").each().for_each(|item| rule(&item));
    if mandatory_schema(name).is_some_and(|fixed| !same(spec.value(), &fixed)) {
        spec.invalid_as("FlowSchemaSpec", &format!("spec of '{name}' must equal the fixed value"));
    }
    conditions(schema);
}

fn precedence(precedence: &Field, schema: &str) {
    match precedence.number() {
        ..=0 => precedence.invalid_value(precedence.number(), "must be a positive value"),
        1 if schema != "exempt" => precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1"),
        1..=MAX_PRECEDENCE => {}
        _ => precedence.invalid(format!("must not be greater than {MAX_PRECEDENCE}")),
    }
}

fn rule(rule: &Field) {
    let (subjects, resources, urls) = (rule.at("subjects"), rule.at("resourceRules"), rule.at("nonResourceRules"));
    subjects.each().for_each(|item| subject(&item));
    if subjects.is_empty() {
        subjects.missing("subjects must contain at least one value");
    }
    if resources.is_empty() && urls.is_empty() {
        rule.missing("at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    resources.each().for_each(|item| resource_rule(&item));
    for rule in urls.each() {
        verbs(&rule.at("verbs"));
        let urls = rule.at("nonResourceURLs");
        if !all_or_some(&urls, "nonResourceURLs must contain at least one value", "non-resource URLs") {
            urls.each().for_each(|item| url_path(&item));
        }
    }
}

fn subject(subject: &Field) {
    let kind = subject.at("kind");
    let Some((_, own)) = SUBJECTS.iter().find(|(name, _)| kind.is(name)) else {
        return kind.not_supported(&["Group", "ServiceAccount", "User"]);
    };
    let described = subject.at(own);
    let name = described.at("name");
    if !described.is_set() {
        described.missing(format!("{own} is required when subject kind is '{}'", kind.text()));
    } else if name.required() && kind.is("ServiceAccount") && !name.is("*") {
        name.dns_subdomain();
    }
    if described.is_set() && kind.is("ServiceAccount") {
        match described.at("namespace").is_empty() {
            true => described.at("namespace").missing("must specify namespace for service account"),
            false => described.at("namespace").dns_label(),
        }
    }
    for (kind, other) in SUBJECTS.iter().filter(|(_, other)| other != own && subject.at(other).is_set()) {
        subject.at(other).forbidden(format!("{other} is forbidden when subject kind is not '{kind}'"));
    }
}

fn resource_rule(rule: &Field) {
    verbs(&rule.at("verbs"));
    all_or_some(&rule.at("apiGroups"), "resource rules must supply at least one api group", "api groups");
    all_or_some(&rule.at("resources"), "resource rules must supply at least one resource", "resources");
    let namespaces = rule.at("namespaces");
    let none = "resource rules that are not cluster scoped must supply at least one namespace";
    if namespaces.is_empty() && rule.at("clusterScope").is_true() {
        return;
    }
    if !all_or_some(&namespaces, none, "namespaces") {
        for namespace in namespaces.each() {
            for message in names::dns_label(namespace.text()) {
                namespace.invalid(format!("each member of this list must be '*' or a DNS-1123 label; {message}"));
            }
        }
    }
}

/// A list must have items, and none beside `*`. True if it is all there is to say about them.
fn all_or_some(list: &Field, none: &str, others: &str) -> bool {
    let all = list.texts().any(|item| item == "*");
    if list.is_empty() {
        list.missing(none);
    } else if all && list.len() > 1 {
        list.invalid(format!("if '*' is present, must not specify other {others}"));
    }
    all || list.is_empty()
}

fn verbs(verbs: &Field) {
    if !all_or_some(verbs, "verbs must contain at least one value", "verbs")
        && verbs.texts().any(|verb| !VERBS.contains(&verb))
    {
        verbs.not_supported(VERBS);
    }
}

fn url_path(url: &Field) {
    let path = url.text();
    let stars = path.matches('*').count();
    let problem = if path.is_empty() {
        "must not be empty"
    } else if path == "/" {
        return;
    } else if !path.starts_with('/') {
        "must start with slash"
    } else if path.contains(' ') {
        "must not contain white-space"
    } else if path.contains("//") {
        "must not contain double slash"
    } else if stars > 1 || (stars == 1 && !path.ends_with("/*")) {
        "wildcard can only do suffix matching"
    } else {
        return;
    };
    url.invalid(problem);
}
