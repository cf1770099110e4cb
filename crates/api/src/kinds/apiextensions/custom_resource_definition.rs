//! CustomResourceDefinition: a kind, its names, versions and schemas.
//!
//! Kubernetes judges a definition in an inner form, in which what all versions have in common stands once, above them;
//! its messages name the places there. [`inner`] makes that form.

use std::collections::HashSet;

use object_model::names;
use object_model::schema::custom;
use serde_json::{Map, Value, json};

use super::{GROUP, definition_spec};
use crate::defaults::Defaults;
use crate::kinds::{Context, Create, Strategy, Update, prepare};
use crate::validation::{Field, meta, same, webhooks};

const APPROVAL: &str = "api-approved.kubernetes.io";

pub static STRATEGY: Strategy = Strategy {
    unconditional_update: false,
    defaults,
    create: Create {
        warnings: |definition| warnings(definition, &Value::Null),
        ..Create::new(prepare_create, validate)
    },
    update: Update { warnings, ..Update::of_spec(prepare_update, validate_update) },
    subresources: &[(
        "status",
        Update::of_status(|definition, old| {
            meta::meta_update(&definition.at("metadata"), &old["metadata"]);
            definition_spec::names(&definition.at("status").at("acceptedNames"));
        }),
    )],
    ..Strategy::cluster(GROUP, "CustomResourceDefinition")
};

fn defaults(definition: &mut Value) {
    if let Some(spec) = definition.child("spec") {
        if let Some(names) = spec.child("names") {
            let kind = names["kind"].as_str().unwrap_or_default().to_owned();
            names.default_to("singular", kind.to_lowercase());
            if !kind.is_empty() {
                names.default_to("listKind", format!("{kind}List"));
            }
            if kind.is_empty() {
                names.remove("singular");
            }
        }
        spec.default_if_absent("conversion", json!({"strategy": "None"}));
        let webhook = spec.child("conversion").and_then(|conversion| conversion.child("webhook"));
        let config = webhook.and_then(|webhook| webhook.child("clientConfig"));
        if let Some(service) = config.and_then(|config| config.child("service")) {
            service.default_if_absent("port", 443);
        }
    }
    let storage = storage_version(definition).cloned();
    if let Some(status) = definition.child("status")
        && status["storedVersions"].as_array().is_none_or(Vec::is_empty)
    {
        status["storedVersions"] = storage.map_or(Value::Null, |version| json!([version]));
    }
}

fn storage_version(definition: &Value) -> Option<&Value> {
    let versions = definition["spec"]["versions"].as_array();
    versions.into_iter().flatten().find(|version| version["storage"] == true).map(|version| &version["name"])
}

fn prepare_create(definition: &mut Value, _: &Context) {
    let stored = storage_version(definition).map(|version| json!([version]));
    let status = json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored});
    prepare::put(definition, &["status"], Some(&status));
    prepare::first_generation(definition);
}

/// A version that is stored in is remembered until nothing is stored in it any more.
fn prepare_update(definition: &mut Value, old: &Value, context: &Context) {
    prepare::spec_only(definition, old, context);
    let Some(storage) = storage_version(definition).cloned() else { return };
    let mut stored = definition["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
    if !stored.contains(&storage) {
        stored.push(storage);
        prepare::put(definition, &["status", "storedVersions"], Some(&Value::Array(stored)));
    }
}

fn warnings(definition: &Value, old: &Value) -> Vec<String> {
    let formats = |definition: &Value| -> Vec<String> {
        let spec = inner(&definition["spec"]);
        let each = spec["versions"].as_array().into_iter().flatten().map(|version| &version["schema"]);
        let schemas = std::iter::once(&spec["validation"]).chain(each).map(|schema| &schema["openAPIV3Schema"]);
        schemas.filter(|schema| !schema.is_null()).flat_map(custom::unknown_formats).collect()
    };
    let known: HashSet<String> = formats(old).into_iter().collect();
    let new = formats(definition).into_iter().filter(|format| !known.contains(format));
    new.map(|format| format!("unrecognized format {format:?}")).collect()
}

fn validate(definition: &Field) {
    let (metadata, spec) = (definition.at("metadata"), definition.at("spec"));
    meta::object_meta(&metadata, false, names::name_is_dns_subdomain);
    let parts = spec.at("names");
    let required = format!("{}.{}", parts.at("plural").text(), spec.at("group").text());
    for name in [metadata.at("generateName"), metadata.at("name")] {
        if !name.is_empty() && !name.is(&required) {
            name.invalid("must be spec.names.plural+\".\"+spec.group");
        }
    }
    in_inner_form(definition, |spec| definition_spec::spec(spec, &Value::Null, false));
    status_and_approval(definition, &Value::Null);
}

fn validate_update(definition: &Field, old: &Value) {
    meta::meta_update(&definition.at("metadata"), &old["metadata"]);
    let conditions = old["status"]["conditions"].as_array();
    let established = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
    in_inner_form(definition, |spec| definition_spec::spec(spec, &old["spec"], established));
    let spec = definition.at("spec");
    let keep = |owner: &Field, name: &str, old: &Value| owner.at(name).with_text().immutable(&old[name]);
    if established {
        keep(&spec, "scope", &old["spec"]);
        keep(&spec.at("names"), "kind", &old["spec"]["names"]);
    }
    keep(&spec, "group", &old["spec"]);
    keep(&spec.at("names"), "plural", &old["spec"]["names"]);
    status_and_approval(definition, old);
}

/// Judges the specification in its inner form, and tells the problems here.
fn in_inner_form(definition: &Field, judge: impl Fn(&Field)) {
    let inner = json!({"spec": inner(&definition.value()["spec"])});
    Field::check(&inner, |root| judge(&root.at("spec"))).into_iter().for_each(|problem| definition.push(problem));
}

/// What all versions have in common goes up, and a webhook's parts lose their wrapping.
fn inner(spec: &Value) -> Value {
    let mut spec = spec.as_object().cloned().unwrap_or_default();
    if let Some(versions) = spec.get_mut("versions").and_then(Value::as_array_mut) {
        for column in versions.iter_mut().flat_map(|version| version.each("additionalPrinterColumns")) {
            if let Some(path) = column.as_object_mut().and_then(|column| column.remove("jsonPath")) {
                column["JSONPath"] = path;
            }
        }
        let mut common = Map::new();
        for (name, above) in [
            ("schema", "validation"),
            ("subresources", "subresources"),
            ("additionalPrinterColumns", "additionalPrinterColumns"),
            ("selectableFields", "selectableFields"),
        ] {
            let Some(first) = versions.first().map(|version| version[name].clone()) else { break };
            if versions.iter().all(|version| same(&version[name], &first)) {
                versions.iter_mut().for_each(|version| version.remove(name));
                common.insert(above.to_owned(), first);
            }
        }
        spec.extend(common);
    }
    if let Some(conversion) = spec.get_mut("conversion").filter(|conversion| conversion.is_object()) {
        let webhook = conversion["webhook"].take();
        conversion["webhookClientConfig"] = webhook["clientConfig"].clone();
        conversion["conversionReviewVersions"] = webhook["conversionReviewVersions"].clone();
    }
    Value::Object(spec)
}

fn status_and_approval(definition: &Field, old: &Value) {
    let status = definition.at("status");
    definition_spec::names(&status.at("acceptedNames"));
    stored_versions(&status.at("storedVersions"), &definition.value()["spec"]["versions"]);
    approval(definition, old);
    let preserve = definition.at("spec").at("preserveUnknownFields").is_true();
    if preserve && old["spec"]["preserveUnknownFields"] != true {
        definition.at("spec").at("preserveUnknownFields").invalid(
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        );
    }
}

fn stored_versions(stored: &Field, versions: &Value) {
    if stored.is_empty() {
        return stored.invalid("must have at least one stored version");
    }
    let mut left: Vec<&str> = stored.texts().collect();
    for version in versions.as_array().into_iter().flatten() {
        let name = version["name"].as_str().unwrap_or_default();
        // A version that is there twice is stored in but once.
        if version["storage"] == true && !left.contains(&name) {
            stored.invalid(format!("must have the storage version {name}"));
        }
        left.retain(|stored| *stored != name);
    }
    for version in stored.each().filter(|version| left.contains(&version.text())) {
        let name = version.text();
        version.invalid(format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
             until a storage migration ensures no data remains persisted in {name} and removes {name} from \
             status.storedVersions"
        ));
    }
}

#[derive(PartialEq)]
enum Approval {
    Missing,
    Bypassed,
    Given,
    Invalid,
}

/// Groups of the Kubernetes community need the community's approval.
fn approval(definition: &Field, old: &Value) {
    let spec = definition.at("spec");
    let group = spec.at("group").text();
    let protected = ["k8s.io", "kubernetes.io"];
    if !protected.iter().any(|own| group == *own || group.ends_with(&format!(".{own}"))) {
        return;
    }
    let metadata = definition.at("metadata");
    let annotations = metadata.at("annotations");
    let annotation = annotations.key(APPROVAL);
    let state = approval_of(annotation.text());
    let before = &old["metadata"]["annotations"][APPROVAL];
    if !old.is_null() && approval_of(before.as_str().unwrap_or_default()) == state {
        return;
    }
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    match state {
        Approval::Missing => {
            annotation.missing(format!("protected groups must have approval annotation {APPROVAL:?}, {see}"))
        }
        Approval::Invalid => annotation.invalid(format!(
            "protected groups must have approval annotation {APPROVAL:?} with either a URL or a reason starting with \
             \"unapproved\", {see}"
        )),
        Approval::Bypassed | Approval::Given => {}
    }
}

fn approval_of(annotation: &str) -> Approval {
    match annotation {
        "" => Approval::Missing,
        reason if reason.starts_with("unapproved") => Approval::Bypassed,
        url if webhooks::is_absolute_url(url) => Approval::Given,
        _ => Approval::Invalid,
    }
}
