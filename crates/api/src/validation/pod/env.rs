//! Environment variables and where their values come from.

use object_model::names;

use crate::validation::{Field, paths};

const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
pub const FILE_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Fields of a pod that have a name here, allowed in this place or not.
const POD_FIELDS: &[&str] = &["spec.restartPolicy", "spec.schedulerName", "status.phase"];
const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const HUGE_PAGES: [&str; 2] = ["limits.hugepages-", "requests.hugepages-"];
const UNITS: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

type Rule = fn(&Field);

pub fn env(variables: &Field) {
    for variable in variables.each() {
        let name = variable.at("name");
        if name.required() {
            name.invalid_for(names::relaxed_env_var_name(name.text()));
        }
        value_from(&variable);
    }
}

fn value_from(variable: &Field) {
    let source = variable.at("valueFrom");
    if !source.is_set() {
        return;
    }
    let kinds: [(&str, Rule); 5] = [
        ("fieldRef", |field| field_ref(field, ENV_FIELDS)),
        ("resourceFieldRef", |field| resource_field_ref(field, false)),
        ("configMapKeyRef", key_ref),
        ("secretKeyRef", key_ref),
        ("fileKeyRef", file_key_ref),
    ];
    let mut count = 0;
    for (name, rule) in kinds {
        let field = source.at(name);
        if field.is_set() {
            count += 1;
            rule(&field);
        }
    }
    if count == 0 {
        source.invalid_value(
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        );
    } else if !variable.at("value").is_empty() {
        source.invalid_value("", "may not be specified when `value` is not empty");
    } else if count > 1 {
        source.invalid_value("", "may not have more than one field specified at a time");
    }
}

/// A field of the pod, of those that make sense in this place.
pub fn field_ref(selector: &Field, allowed: &[&str]) {
    let (version, path) = (selector.at("apiVersion"), selector.at("fieldPath"));
    if !version.required() || !path.required() {
        return;
    }
    let text = path.text();
    if !version.is("v1") {
        return path.invalid(format!("error converting fieldPath: unsupported pod version: {}", version.text()));
    }
    if let Some((map, key)) = subscript(text) {
        let name = match map {
            "metadata.annotations" => key.to_lowercase(),
            "metadata.labels" => key.to_owned(),
            _ => {
                return path
                    .invalid(format!("error converting fieldPath: field label does not support subscript: {text}"));
            }
        };
        for message in names::qualified_name(&name) {
            selector.invalid_value(name.as_str(), message);
        }
        return;
    }
    let name = if text == "spec.host" { "spec.nodeName" } else { text };
    if ![ENV_FIELDS, FILE_FIELDS, POD_FIELDS].iter().any(|known| known.contains(&name)) {
        path.invalid(format!("error converting fieldPath: field label not supported: {text}"));
    } else if !allowed.contains(&name) {
        path.with(&serde_json::Value::from(name)).not_supported(allowed);
    }
}

/// `metadata.labels['key']` is a map and a key of it.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, key) = path.strip_suffix("']")?.split_once("['")?;
    (!map.is_empty() && !key.is_empty()).then_some((map, key))
}

pub fn resource_field_ref(selector: &Field, in_volume: bool) {
    let resource = selector.at("resource");
    let name = resource.text();
    let huge_pages = HUGE_PAGES.iter().any(|prefix| name.starts_with(prefix));
    if in_volume && selector.at("containerName").is_empty() {
        selector.at("containerName").missing("");
    } else if resource.required() && !RESOURCE_FIELDS.contains(&name) && !huge_pages {
        resource.not_supported(RESOURCE_FIELDS);
    }
    let divisor = selector.at("divisor");
    if divisor.quantity().is_zero() {
        return;
    }
    let (units, of) = match name.split_once('.').map(|(_, resource)| resource) {
        Some("cpu") => (&["1m", "1"][..], "the cpu resource"),
        Some("memory") => (UNITS, "the memory resource"),
        Some("ephemeral-storage") => (UNITS, "the local ephemeral storage resource"),
        _ if huge_pages => (UNITS, "the hugepages resource"),
        _ => return,
    };
    if !units.contains(&divisor.quantity().to_string().as_str()) {
        let list = if units.len() == 2 { "1m and 1".to_owned() } else { UNITS.join(", ") };
        divisor.invalid_value(name, format!("only divisor's values {list} are supported with {of}"));
    }
}

fn key_ref(selector: &Field) {
    selector.at("name").dns_subdomain();
    selector.at("key").required_config_key();
}

fn file_key_ref(selector: &Field) {
    let key = selector.at("key");
    if key.required() {
        key.invalid_for(names::relaxed_env_var_name(key.text()));
    }
    selector.at("volumeName").required_dns_label();
    if selector.at("path").required() {
        paths::no_backsteps(&selector.at("path"));
    }
}

pub fn env_from(sources: &Field) {
    for source in sources.each() {
        let prefix = source.at("prefix");
        if !prefix.is_empty() {
            prefix.invalid_for(names::relaxed_env_var_name(prefix.text()));
        }
        let mut count = 0;
        for kind in ["configMapRef", "secretRef"] {
            let reference = source.at(kind);
            if reference.is_set() {
                count += 1;
                let name = reference.at("name");
                if name.required() {
                    name.invalid_for(names::name_is_dns_subdomain(name.text(), true));
                }
            }
        }
        if count == 0 {
            sources.invalid_value("", "must specify one of: `configMapRef` or `secretRef`");
        } else if count > 1 {
            sources.invalid_value("", "may not have more than one field specified at a time");
        }
    }
}
