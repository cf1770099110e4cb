//! Server-side apply against what kube-apiserver v1.36.4 answered: managed fields after creates, updates, patches and
//! applies, the objects that applies make, and refusals with their messages and causes.
//!
//! What an answer shows is what was stored: after the field manager had run, the server set more fields. Those are
//! taken out again before creates are checked ([`SET_LATER`]).

use std::collections::{BTreeMap, HashMap};

use object_model::apply::{ApplyError, FieldManager, Filter, Set, Versions, decode_fields, same};
use object_model::identity::GroupVersionKind;
use object_model::schema::Schema;
use object_model::value::Fields;
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T00:00:00Z";

/// Fields that admission, the strategy or an allocator sets, where the request does not have them.
const SET_LATER: &[(&str, &[&str])] = &[
    (
        "Pod",
        &[
            "spec.preemptionPolicy",
            "spec.priority",
            "spec.serviceAccount",
            "spec.serviceAccountName",
            "spec.tolerations",
            "spec.volumes.*=kube-api-access",
            "spec.containers.*.volumeMounts.*=kube-api-access",
            "spec.initContainers.*.volumeMounts.*=kube-api-access",
        ],
    ),
    (
        "Service",
        &["spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy", "spec.ports.*.nodePort"],
    ),
    ("Job", &["metadata.labels", "spec.selector", "spec.template.metadata.labels"]),
    ("PersistentVolume", &["metadata.finalizers"]),
    ("PersistentVolumeClaim", &["metadata.finalizers"]),
    ("Namespace", &["spec.finalizers"]),
    ("Node", &["spec.taints"]),
];

/// Updates after which the Service strategy cleared or allocated fields: the answer does not show what was tracked.
const HIDDEN: &[i64] = &[2150, 2201, 2219, 2297, 2298, 2300, 9738, 9798, 9816];

fn recordings() -> Option<impl Iterator<Item = Value>> {
    // Recordings hide what is allocated, and what looks like it.
    let shown = |line: String| {
        let line = line.replace("\"nodePort\": \"<allocated>\"", "\"nodePort\": 30080");
        line.replace("<service ip>/8", "10.0.0.0/8")
    };
    Some(testing::recordings()?.map(move |line| serde_json::from_str(&shown(line)).expect("a recording")))
}

#[derive(Default)]
struct Replay {
    stored: HashMap<String, Value>,
    checks: BTreeMap<&'static str, usize>,
    failures: Vec<String>,
}

#[test]
fn histories_end_as_recorded() {
    let Some(recordings) = recordings() else { return };
    let mut replay = Replay::default();
    for record in recordings {
        let kind = (record["resp"].text("apiVersion"), record["resp"].text("kind"));
        let kind =
            if kind.1 == "Status" { (record["body"].text("apiVersion"), record["body"].text("kind")) } else { kind };
        let Ok(gvk) = GroupVersionKind::parse(kind.0, kind.1) else { continue };
        if let Some(schema) = api::schemas::schema_of(&gvk.group, &gvk.version, &gvk.kind) {
            replay.step(&schema, &gvk, &record);
        }
    }
    let Replay { checks, failures, .. } = &replay;
    eprintln!("checked: {checks:?}");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(checks.values().sum::<usize>() > 3000, "recordings are read: {checks:?}");
}

/// The fields that a kind sets back on writes of the object itself.
struct SetBack(Filter);

impl SetBack {
    fn of(kind: &str) -> Self {
        let fields: &[&[&str]] = match kind {
            "CertificateSigningRequest" => &[&["spec"], &["status"]],
            _ => &[&["status"]],
        };
        SetBack(Filter::Without(Set::of_fields(fields)))
    }
}

impl Versions for SetBack {
    fn schema(&self, _: &str) -> Option<&Schema> {
        None
    }
    fn convert(&self, _: &Value, _: &str) -> Result<Value, String> {
        Err("there is one version".to_owned())
    }
    fn filter(&self, _: &str) -> Option<&Filter> {
        Some(&self.0)
    }
}

impl Replay {
    fn step(&mut self, schema: &Schema, gvk: &GroupVersionKind, record: &Value) {
        let (api_version, kind) = (&*gvk.api_version(), gvk.kind.as_str());
        let (path, query) = record.text("path").split_once('?').unwrap_or((record.text("path"), ""));
        let param =
            |name: &str| query.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default();
        let (resp, body, code) = (&record["resp"], &record["body"], record["code"].as_i64().unwrap_or_default());
        let ok = code == 200 || code == 201;
        let key = match record.text("method") {
            "POST" => format!("{path}/{}", resp.text_at(&["metadata", "name"])),
            _ => path.to_owned(),
        };
        let back = SetBack::of(kind);
        let manager = FieldManager { schema, kind: gvk, api_version, subresource: "", versions: &back };
        let (live, who) = (self.stored.get(&key), param("fieldManager"));
        let checked = match (record.text("method"), record.text("ctype")) {
            ("PATCH", "application/apply-patch+yaml") => {
                let found =
                    manager.on_apply(live, body, who, param("force") == "true", NOW).map(|applied| applied.object);
                applied(found, code, resp).map(|fault| ("apply", fault))
            }
            ("POST", _) if ok => {
                let found = manager.on_update(None, as_tracked(kind, resp, body), who, NOW);
                Some(("create", misses(&found, resp)))
            }
            ("PUT" | "PATCH", _) if ok => live.map(|live| {
                let found = manager.on_update(Some(live), without_managers(resp), who, NOW);
                ("update", misses(&found, resp))
            }),
            _ => None,
        };
        if let Some((what, fault)) = checked.filter(|_| !HIDDEN.contains(&record["id"].as_i64().unwrap_or_default())) {
            *self.checks.entry(what).or_default() += 1;
            self.failures
                .extend(fault.map(|f| format!("{what} #{} {kind} {}: {f}", record["id"], record.text("what"))));
        }
        if ok && resp.text("kind") == record.text("kind") && !query.contains("dryRun") {
            let mut object = resp.clone();
            object["metadata"]["uid"] = json!("u");
            self.stored.insert(key, object);
        }
    }
}

/// What is wrong with the result of an apply; nothing to say if Kubernetes refused what it made for other reasons.
fn applied(found: Result<Value, ApplyError>, code: i64, resp: &Value) -> Option<Option<String>> {
    Some(match (found, code) {
        (Ok(found), 200 | 201) => misses(&found, resp).or_else(|| {
            let mut made = without_managers(&found);
            made.as_object_mut().map(|made| made.remove("status")); // Controllers write it at any time.
            differs(&made, &without_managers(resp), "")
        }),
        (Ok(_), 422 | 500) if !resp.text("message").contains("failed to create typed") => return None,
        (Ok(_), code) => Some(format!("applied, but Kubernetes says {code}: {}", resp.text("message"))),
        (Err(error), _) => {
            // Kubernetes names managers in any order in causes, though not in the message.
            let sorted = |mut status: Value| {
                if let Some(causes) = status.pointer_mut("/details/causes").and_then(Value::as_array_mut) {
                    causes.sort_by_key(Value::to_string);
                }
                status
            };
            let (status, resp) = (sorted(serde_json::to_value(error.status()).unwrap()), sorted(resp.clone()));
            (status != resp).then(|| format!("{status}, but Kubernetes says {resp}"))
        }
    })
}

/// How the managers of two objects differ. Recordings have no times.
fn misses(found: &Value, expected: &Value) -> Option<String> {
    let managers = |object: &Value| -> BTreeMap<[String; 4], Set> {
        let entry = |e: &Value| {
            let who = ["manager", "operation", "apiVersion", "subresource"].map(|name| e.text(name).to_owned());
            (who, decode_fields(&e["fieldsV1"]).unwrap())
        };
        object["metadata"].items("managedFields").iter().map(entry).collect()
    };
    let (found, expected) = (managers(found), managers(expected));
    let nothing = Set::new();
    let describe = |who: &[String; 4]| {
        let (found, expected) = (found.get(who).unwrap_or(&nothing), expected.get(who).unwrap_or(&nothing));
        let (more, less) = (found.difference(expected).to_string(), expected.difference(found).to_string());
        (found != expected)
            .then(|| format!("{who:?}: too many [{}] missing [{}]", more.replace('\n', " "), less.replace('\n', " ")))
    };
    let faults: Vec<String> =
        found.keys().chain(expected.keys().filter(|who| !found.contains_key(*who))).filter_map(describe).collect();
    (!faults.is_empty()).then(|| faults.join("; "))
}

/// Where a value, which has not been defaulted, says something that the stored one does not say, in its order.
fn differs(found: &Value, stored: &Value, at: &str) -> Option<String> {
    match (found, stored) {
        (Value::Object(found), Value::Object(stored)) => {
            found.iter().find_map(|(name, value)| match stored.get(name) {
                _ if matches!(name.as_str(), "generation" | "uid" | "stringData" | "nodePort") => None, // Set or moved by the server.
                Some(stored) => differs(value, stored, &format!("{at}.{name}")),
                None => (!is_empty(value)).then(|| format!("{at}.{name}: {value} is not stored")),
            })
        }
        (Value::Array(found), Value::Array(stored)) => {
            let mut rest = stored.iter();
            let missing = |item: &&Value| !rest.any(|stored| differs(item, stored, "").is_none());
            found.iter().find(missing).map(|item| format!("{at}: {item} is not in {stored:?}"))
        }
        (found, stored) => {
            let as_text = stored.as_str() == Some(&found.to_string()); // A quantity that was sent as a number.
            let alike = same(found, stored) || as_text || (is_empty(found) && is_empty(stored));
            (!alike).then(|| format!("{at}: {found}, stored {stored}"))
        }
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null()
        || value == ""
        || value.as_array().is_some_and(Vec::is_empty)
        || value.as_object().is_some_and(|m| m.is_empty())
}

fn without_managers(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// The object of an answer to a create, as it was when the field manager saw it.
fn as_tracked(kind: &str, resp: &Value, body: &Value) -> Value {
    let mut object = without_managers(resp);
    for (_, paths) in SET_LATER.iter().filter(|(of, _)| *of == kind) {
        for path in *paths {
            forget(&mut object, body, &path.split('.').collect::<Vec<_>>());
        }
    }
    restore_empty(&mut object, body);
    object
}

/// Removes what is at a path, unless the request has it. `*` is every item, `*=x` the items whose name starts so.
fn forget(value: &mut Value, sent: &Value, path: &[&str]) {
    match (path, value) {
        ([prefixed, ..], Value::Array(items)) if prefixed.starts_with("*=") => {
            items.retain(|item| !item.text("name").starts_with(&prefixed[2..]));
        }
        (["*", rest @ ..], Value::Array(items)) => {
            items.iter_mut().enumerate().for_each(|(i, item)| forget(item, sent.get(i).unwrap_or(&Value::Null), rest));
        }
        ([name], Value::Object(map)) if sent.get(*name).is_none_or(is_empty) => {
            map.remove(*name);
        }
        ([name, rest @ ..], Value::Object(map)) if !rest.is_empty() => {
            let Some(below) = map.get_mut(*name) else { return };
            forget(below, sent.get(*name).unwrap_or(&Value::Null), rest);
            if below.as_array().is_some_and(Vec::is_empty) {
                map.remove(*name);
            }
        }
        _ => {}
    }
}

/// Lists that were sent empty and are stored as null.
fn restore_empty(value: &mut Value, sent: &Value) {
    match (value, sent) {
        (Value::Object(map), Value::Object(sent)) => {
            map.iter_mut().for_each(|(name, value)| restore_empty(value, sent.get(name).unwrap_or(&Value::Null)));
        }
        (value @ Value::Null, Value::Array(list)) if list.is_empty() => *value = json!([]),
        _ => {}
    }
}
