//! Our documents against the swagger that Kubernetes publishes: nothing of what we serve may be missing in them.

use std::path::PathBuf;

use async_trait::async_trait;
use storage::{At, Error, KeyValue, Outcome, Page, Range, Revision, Store, Transaction, Watch};

use super::*;
use crate::{builtin, catalogue::Catalogue, watch_cache::WatchCache};

/// The catalogue needs a store, the documents do not.
struct Unused;

#[async_trait]
impl Store for Unused {
    async fn current_revision(&self) -> Result<Revision, Error> {
        unreachable!("documents are made without the store")
    }
    async fn get(&self, _: &str, _: Option<Revision>) -> Result<At<Option<KeyValue>>, Error> {
        unreachable!("documents are made without the store")
    }
    async fn range(&self, _: Range) -> Result<At<Page>, Error> {
        unreachable!("documents are made without the store")
    }
    async fn commit(&self, _: Transaction) -> Result<Outcome, Error> {
        unreachable!("documents are made without the store")
    }
    async fn watch(&self, _: &str, _: Revision) -> Result<Watch, Error> {
        unreachable!("documents are made without the store")
    }
    async fn request_progress(&self) -> Result<(), Error> {
        unreachable!("documents are made without the store")
    }
    async fn compact(&self, _: Revision) -> Result<(), Error> {
        unreachable!("documents are made without the store")
    }
}

fn served() -> Arc<Served> {
    Catalogue::new(builtin::groups(&WatchCache::new(Arc::new(Unused)))).served()
}

fn published() -> Option<Value> {
    let relative = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/kubernetes");
    let folder = std::env::var_os("FERRY_FACTS").map_or_else(|| PathBuf::from(relative), PathBuf::from);
    let Ok(text) = std::fs::read(folder.join("swagger-v1.36.4.json")) else {
        eprintln!("skipped: no facts of Kubernetes in {} (set FERRY_FACTS)", folder.display());
        return None;
    };
    Some(serde_json::from_slice(&text).expect("the swagger is JSON"))
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// Is this path about something that we serve?
fn is_served(served: &Served, path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| *part != "watch").collect();
    let (group, version, rest) = match parts.as_slice() {
        ["", "api", version, rest @ ..] => ("", *version, rest),
        ["", "apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return false,
    };
    let plural = match rest {
        ["namespaces", "{namespace}", plural, ..] | [plural, ..] => *plural,
        _ => return false,
    };
    if plural.is_empty() {
        served.version(group, version).is_some()
    } else {
        served.find(group, version, plural).is_some()
    }
}

/// What an operation takes as its body.
fn body<'a>(document: &'a Value, path: &'a Value, operation: &'a Value) -> Option<&'a Value> {
    let lists = [&operation["parameters"], &path["parameters"]];
    let all = lists.into_iter().filter_map(Value::as_array).flatten();
    let resolved = all.map(|parameter| match parameter["$ref"].as_str() {
        Some(name) => document.pointer(name.trim_start_matches('#')).unwrap_or(parameter),
        None => parameter,
    });
    resolved.into_iter().find(|parameter| parameter["in"] == "body").map(|parameter| &parameter["schema"])
}

#[test]
fn no_path_and_no_verb_is_missing() {
    let Some(published) = published() else { return };
    let served = served();
    let ours: Value = serde_json::from_slice(&all(&served)).expect("JSON");
    let (mut seen, mut wrong) = (0, Vec::new());
    for (path, item) in entries(&published["paths"]).filter(|(path, _)| is_served(&served, path)) {
        for (method, want) in entries(item).filter(|(method, _)| *method != "parameters") {
            seen += 1;
            let own_item = &ours["paths"][path];
            let got = &own_item[method];
            for field in ["operationId", "x-kubernetes-action", "x-kubernetes-group-version-kind", "tags"] {
                if got[field] != want[field] {
                    wrong.push(format!("{method} {path}: {field} {}, Kubernetes {}", got[field], want[field]));
                }
            }
            if got["responses"]["200"]["schema"] != want["responses"]["200"]["schema"] {
                wrong.push(format!("{method} {path}: answers {}", got["responses"]["200"]));
            }
            if body(&ours, own_item, got) != body(&published, item, want) {
                wrong.push(format!("{method} {path}: takes {:?}", body(&ours, own_item, got)));
            }
        }
    }
    assert!(seen > 300, "only {seen} operations compared");
    assert!(wrong.is_empty(), "{} of {seen}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn no_field_and_no_fact_of_it_is_missing() {
    let Some(published) = published() else { return };
    let ours: Value = serde_json::from_slice(&all(&served())).expect("JSON");
    let mut wrong = Vec::new();
    for (name, got) in entries(&ours["definitions"]) {
        let want = &published["definitions"][name];
        if want.is_null() {
            wrong.push(format!("{name} is not published"));
            continue;
        }
        for fact in ["type", "format", "x-kubernetes-map-type"] {
            if want[fact] != got[fact] {
                wrong.push(format!("{name}: {fact} {}, Kubernetes {}", got[fact], want[fact]));
            }
        }
        let required = |of: &Value| {
            let mut names: Vec<String> =
                of["required"].as_array().into_iter().flatten().map(Value::to_string).collect();
            names.sort();
            names
        };
        if required(want) != required(got) {
            wrong.push(format!("{name}: requires {:?}, Kubernetes {:?}", required(got), required(want)));
        }
        for (field, want) in entries(&want["properties"]) {
            let got = &got["properties"][field];
            // Bytes are a list in Go and a text in JSON, where being an atomic list means nothing.
            let is_text = want["type"] == "string";
            // A map is granular unless it says otherwise.
            let told = entries(want).filter(|(fact, want)| {
                let of_bytes = is_text && *fact == "x-kubernetes-list-type";
                *fact != "description" && **want != "granular" && !of_bytes
            });
            for (fact, want) in told {
                if without_descriptions(want) != without_facts_of_lists(&got[fact]) {
                    wrong.push(format!("{name}.{field}: {fact} {}, Kubernetes {want}", got[fact]));
                }
            }
        }
    }
    let seen = entries(&ours["definitions"]).count();
    assert!(seen > 300, "only {seen} definitions compared");
    assert!(wrong.is_empty(), "{} in {seen}:\n{}", wrong.len(), wrong.join("\n"));
}

fn without_descriptions(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(fields) = value.as_object_mut() {
        fields.remove("description");
    }
    value
}

/// Lists inside of lists and maps: Kubernetes does not say of them that they are atomic.
fn without_facts_of_lists(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(fields) = value.as_object_mut() {
        fields.remove("x-kubernetes-list-type");
    }
    value
}

fn get(
    openapi: &OpenApi,
    served: &Arc<Served>,
    path: &str,
    query: &str,
    accept: &str,
    known: &str,
) -> (u16, Value, String) {
    let mut answer = openapi.answer(path, query, accept, known, served).expect("an answer");
    let tag = answer.headers().get(header::ETAG).map_or("", |tag| tag.to_str().expect("text")).to_owned();
    let document = match answer.body_mut() {
        Body::Full(bytes) => serde_json::from_slice(bytes).expect("JSON"),
        _ => Value::Null,
    };
    (answer.status().as_u16(), document, tag)
}

#[test]
fn every_version_has_a_document_that_is_sent_once() {
    let (openapi, served) = (OpenApi::default(), served());
    let (_, index, tag) = get(&openapi, &served, "/openapi/v3", "", "application/json", "");
    assert_eq!(get(&openapi, &served, "/openapi/v3", "", "", &tag).0, 304);
    assert_eq!(entries(&index["paths"]).count(), versions(&served).count());
    for (path, entry) in entries(&index["paths"]) {
        let address = entry["serverRelativeURL"].as_str().expect("an address");
        let (address, query) = address.split_once('?').expect("a hash");
        assert_eq!(address, format!("/openapi/v3/{path}"));
        let (code, document, tag) = get(&openapi, &served, address, query, "*/*", "");
        assert_eq!((code, format!("hash={}", tag.trim_matches('"'))), (200, query.to_owned()));
        assert_eq!(get(&openapi, &served, address, query, "", &tag).0, 304);
        assert_eq!(get(&openapi, &served, address, "hash=OLD", "", "").0, 301);
        let text = document.to_string();
        for reference in text.split(r##""$ref":"#"##).skip(1) {
            let name = reference.split('"').next().unwrap_or_default();
            assert!(document.pointer(name).is_some_and(Value::is_object), "{path}: nothing at {name}");
        }
    }
    assert!(openapi.answer("/openapi/v3/apis/no.such/v1", "", "", "", &served).is_none());
    let protobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
    assert_eq!(get(&openapi, &served, "/openapi/v3", "", protobuf, "").0, 406);
}

/// From these kubectl knows that it may ask the server to validate.
#[test]
fn patches_take_field_validation() {
    let (openapi, served) = (OpenApi::default(), served());
    let (_, document, _) = get(&openapi, &served, "/openapi/v3/apis/apps/v1", "", "", "");
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    let names: Vec<&str> =
        patch["parameters"].as_array().expect("parameters").iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let kind = json!({"group": "apps", "version": "v1", "kind": "Deployment"});
    assert_eq!(patch["x-kubernetes-group-version-kind"], kind);
}
