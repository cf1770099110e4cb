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

/// Is this path in a version of a group that we serve?
fn is_served(served: &Served, path: &str) -> bool {
    match path.split('/').collect::<Vec<_>>().as_slice() {
        ["", "api", version, _, ..] => served.version("", version).is_some(),
        ["", "apis", group, version, _, ..] => served.version(group, version).is_some(),
        _ => false,
    }
}

/// Is this path in a version that is neither alpha nor beta?
fn is_stable(path: &str) -> bool {
    let version =
        |word: &str| word.strip_prefix('v').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    match path.split('/').collect::<Vec<_>>().as_slice() {
        ["", "api", name, _, ..] | ["", "apis", _, name, _, ..] => version(name),
        _ => false,
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
    let ours = all(&served, &Descriptions::read());
    let (mut seen, mut wrong) = (0, Vec::new());
    for (path, _) in entries(&published["paths"]).filter(|(path, _)| is_stable(path)) {
        if !is_served(&served, path) {
            wrong.push(format!("{path}: its version is not served"));
        }
    }
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
    let ours = all(&served(), &Descriptions::read());
    let mut wrong = Vec::new();
    for (name, got) in entries(&ours["definitions"]) {
        let want = &published["definitions"][name];
        if want.is_null() {
            wrong.push(format!("{name} is not published"));
            continue;
        }
        for fact in ["type", "format", "x-kubernetes-map-type", "description"] {
            if want[fact] != got[fact] && !is_description(fact, name) {
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
                !is_description(fact, name) && **want != "granular" && !of_bytes
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

/// What lists mean is said in our own words, what events of a watch are in those of k8s-openapi.
fn is_description(fact: &str, definition: &str) -> bool {
    fact == "description" && (definition.ends_with("List") || definition.ends_with(".WatchEvent"))
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
    let asked = [path, query, accept, known].map(str::to_owned);
    let [path, query, accept, known] = asked;
    let mut answer = openapi.answer(&Asked { path, query, accept, known, gzip: false }, served).expect("an answer");
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
    let nowhere = Asked { path: "/openapi/v3/apis/no.such/v1".into(), ..Asked::default() };
    assert!(openapi.answer(&nowhere, &served).is_none());
    assert_eq!(get(&openapi, &served, "/openapi/v3/api/v1", "", "text/html", "").0, 406);
    assert_eq!(get(&openapi, &served, "/openapi/v2", "", "text/html", "").0, 406);
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

#[test]
fn documents_stay_while_their_version_does() {
    let (openapi, before) = (OpenApi::default(), served());
    let kept = openapi.versions(&before);
    let mut groups = before.groups.clone();
    let (gone, emptied) = (groups.pop().expect("a group"), groups.last_mut().expect("another"));
    emptied.versions[0].resources.pop_first();
    let changed = format!("apis/{}/{}", emptied.name, emptied.versions[0].name);
    let after = openapi.versions(&Catalogue::new(groups).served());
    assert!(kept.keys().any(|path| path.contains(&*gone.name)) && !after.keys().any(|path| path.contains(&*gone.name)));
    for (path, document) in after.iter() {
        let same = document.gzip.as_ptr() == kept[path].gzip.as_ptr();
        assert_eq!(same, *path != changed, "{path}");
    }
}

/// Protobuf says the same as JSON: read back by the numbers of gnostic's messages, for a few fields of each kind.
#[test]
fn protobuf_documents_have_the_definitions() {
    let (openapi, served) = (OpenApi::default(), served());
    for (path, media) in [
        ("/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"),
        ("/openapi/v3/apis/apps/v1", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"),
    ] {
        let accept = format!("{media},application/json;q=0.5");
        let asked = Asked { path: path.into(), accept, ..Asked::default() };
        let mut answer = openapi.answer(&asked, &served).expect("an answer");
        assert_eq!(answer.headers()[header::CONTENT_TYPE], media.replace('@', ".").as_str());
        let Body::Full(document) = answer.body_mut() else { panic!("no document") };
        let number = if path.ends_with("v2") { 9 } else { 5 };
        let mut definitions = field(document, number);
        if number == 5 {
            definitions = field(definitions, 1);
        }
        let deployment =
            fields(definitions, 1).into_iter().find(|named| field(named, 1) == b"io.k8s.api.apps.v1.Deployment");
        let mut schema = field(deployment.expect("a definition"), 2);
        if number == 5 {
            schema = field(schema, 1);
        }
        let description = field(schema, if number == 9 { 4 } else { 34 });
        assert_eq!(description, b"Deployment enables declarative updates for Pods and ReplicaSets.");
        let extension = field(field(field(schema, if number == 9 { 31 } else { 36 }), 2), 2);
        assert_eq!(extension, b"- group: apps\n  kind: Deployment\n  version: v1\n");
    }
}

/// Fields of a message that are bytes.
fn fields(mut message: &[u8], wanted: u64) -> Vec<&[u8]> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = bytes.split_first().expect("a byte");
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        if tag & 7 == 0 {
            varint(&mut message);
            continue;
        }
        assert_eq!(tag & 7, 2, "only bytes and numbers are expected");
        let length = varint(&mut message) as usize;
        let (bytes, rest) = message.split_at(length);
        message = rest;
        if tag >> 3 == wanted {
            found.push(bytes);
        }
    }
    found
}

fn field(message: &[u8], wanted: u64) -> &[u8] {
    fields(message, wanted).first().unwrap_or_else(|| panic!("no field {wanted}"))
}
