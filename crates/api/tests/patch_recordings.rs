//! Patches against what kube-apiserver v1.36.4 answered: the patched object where it was accepted, the refusal where the
//! patch itself was refused.
//!
//! An answer shows the object after decoding, defaulting and the strategy. So it may hold more than the patch made, and
//! lacks nulls and empty values; what both have must be equal, and what the patch does not mention stays as it was.

use std::collections::{BTreeMap, HashMap};

use object_model::patch::{PatchDocument, PatchKind};
use object_model::quantity::Quantity;
use object_model::schema::{Ref, Scalar, Schema, Shape};
use object_model::value::{Fields, Object};
use serde_json::Value;

/// Fields that the server itself keeps.
const SERVER_FIELDS: [&str; 3] = ["managedFields", "generation", "creationTimestamp"];

/// Fields that the Service strategy clears when the patch changes what they depend on.
const CLEARED: [&str; 3] = ["externalTrafficPolicy", "nodePort", "sessionAffinityConfig"];

fn recordings() -> Option<impl Iterator<Item = Value>> {
    // Recordings hide allocated addresses, and what looks like one.
    let shown = |line: String| line.replace("<service ip>/8", "10.0.0.0/8");
    Some(testing::recordings()?.map(move |line| serde_json::from_str(&shown(line)).expect("a recording")))
}

#[test]
fn patches_end_as_recorded() {
    let Some(recordings) = recordings() else { return };
    let mut stored: HashMap<String, Object> = HashMap::new();
    let mut checks: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut failures = Vec::new();
    for record in recordings {
        let (path, query) = record.text("path").split_once('?').unwrap_or((record.text("path"), ""));
        if let Some(kind) = PatchKind::from_content_type(record.text("ctype"))
            && let Some(current) = stored.get(path)
        {
            match check(kind, &record, current) {
                Ok(what) => *checks.entry((kind.content_type(), what)).or_default() += 1,
                Err(problem) => failures.push(format!("{} {}: {problem}", record["id"], record.text("what"))),
            }
        }
        let written = matches!(record.int("code"), Some(200 | 201)) && !query.contains("dryRun");
        match (record.text("method"), record.object("resp").and_then(Value::as_object)) {
            ("POST", Some(object)) if written => {
                let name = record.text_at(&["resp", "metadata", "name"]);
                stored.insert(format!("{path}/{name}"), object.clone());
            }
            ("PUT" | "PATCH", Some(object)) if written => {
                stored.insert(path.to_owned(), object.clone());
            }
            _ => {}
        }
    }
    assert!(failures.is_empty(), "{} of {checks:?} failed:\n{}", failures.len(), failures.join("\n"));
    assert!(checks.values().sum::<usize>() > 1000, "recordings are read: {checks:?}");
}

/// Checks one patch and says what kind of answer it was.
fn check(kind: PatchKind, record: &Value, current: &Object) -> Result<&'static str, String> {
    let schema = schema_of(current)?;
    let result = PatchDocument::parse(kind, record["body"].clone())
        .and_then(|patch| patch.apply(schema.root(), current.clone()));
    let answer = &record["resp"];
    let refused_patch = answer.get("message").is_some_and(|m| !m.as_str().unwrap_or_default().contains(" is invalid"));
    match (record.int("code"), result) {
        (Some(200), Ok(result)) => {
            let mut problems = Vec::new();
            compare(schema.root(), "", &result, answer, &mut problems);
            if let (Value::Object(result), Value::Object(patch)) = (&result, &record["body"]) {
                unmentioned(current, result, patch, &mut problems);
            }
            if problems.is_empty() { Ok("accepted") } else { Err(problems.join("; ")) }
        }
        (Some(_), Err(error)) if refused_patch => {
            let status = serde_json::to_value(error.status()).map_err(|e| e.to_string())?;
            if status == *answer { Ok("refused") } else { Err(format!("{status} instead of {answer}")) }
        }
        // Merging went well, and the result was refused. Some refusals quote it.
        (Some(422), Ok(result)) => quoted(kind, answer, &result),
        (code, result) => Err(format!("{code:?}, and ours is {result:?}")),
    }
}

fn schema_of(object: &Object) -> Result<Schema, String> {
    let api_version = object.text("apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    api::schemas::schema_of(group, version, object.text("kind"))
        .ok_or_else(|| format!("no schema of {api_version} {}", object.text("kind")))
}

/// A merge patch whose result cannot be decoded is refused with the whole result in quotes.
fn quoted(kind: PatchKind, answer: &Value, result: &Value) -> Result<&'static str, String> {
    let message = answer.text("message");
    let Some((_, rest)) = message.split_once("patch: Invalid value: ").filter(|_| kind == PatchKind::Merge) else {
        return Ok("refused later");
    };
    let quoted = serde_json::Deserializer::from_str(rest).into_iter::<String>().next();
    let text = quoted.and_then(Result::ok).ok_or_else(|| format!("no quoted text in {rest}"))?;
    let mut recorded: Value = serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))?;
    let mut ours = result.clone();
    for value in [&mut recorded, &mut ours] {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata
                .retain(|k, _| !["uid", "resourceVersion", "managedFields", "creationTimestamp"].contains(&k.as_str()));
        }
    }
    if recorded == ours { Ok("refused as quoted") } else { Err(format!("{ours} instead of {recorded}")) }
}

/// Finds what the patched object has otherwise than the answer.
fn compare(schema: Ref<'_>, path: &str, ours: &Value, answer: &Value, problems: &mut Vec<String>) {
    match (ours, answer) {
        (Value::Object(ours), Value::Object(answer)) => {
            for (name, value) in ours {
                if SERVER_FIELDS.contains(&name.as_str()) || (path.is_empty() && name == "status") {
                    continue;
                }
                let path = format!("{path}.{name}");
                match (answer.get(name), schema.child(name)) {
                    (Some(answer), Some(schema)) => compare(schema, &path, value, answer, problems),
                    // Decoding drops what the schema does not know.
                    (None, None) if matches!(schema.shape(), Shape::Struct(_)) => {}
                    (None, _) if is_empty(value) || CLEARED.contains(&name.as_str()) => {}
                    (found, _) if found == Some(value) => {}
                    (found, _) => problems.push(format!("{path}: {value} instead of {found:?}")),
                }
            }
        }
        // Empty lists may be filled by defaulting.
        (Value::Array(ours), _) if ours.is_empty() => {}
        (Value::Array(ours), Value::Array(answer)) if ours.len() == answer.len() => {
            for (i, (ours, answer)) in ours.iter().zip(answer).enumerate() {
                compare(schema.item().unwrap_or(schema), &format!("{path}[{i}]"), ours, answer, problems);
            }
        }
        (ours, answer) if ours == answer || same_quantity(schema, ours, answer) => {}
        (ours, answer) => problems.push(format!("{path}: {ours} instead of {answer}")),
    }
}

/// Finds fields that changed although the patch does not mention them.
fn unmentioned(current: &Object, ours: &Object, patch: &Object, problems: &mut Vec<String>) {
    let directives: Vec<&String> = patch.keys().filter(|k| k.starts_with('$')).collect();
    if directives.iter().any(|k| !k.contains('/')) {
        return;
    }
    for (name, value) in current {
        match (patch.get(name), value, ours.get(name)) {
            (None, _, now) => {
                let ordered = directives.iter().any(|k| k.ends_with(&format!("/{name}")));
                if !ordered && now != Some(value) {
                    problems.push(format!("{name} is {now:?}, was {value}, and the patch does not mention it"));
                }
            }
            (Some(Value::Object(patch)), Value::Object(current), Some(Value::Object(ours))) => {
                unmentioned(current, ours, patch, problems);
            }
            _ => {}
        }
    }
}

fn same_quantity(schema: Ref<'_>, a: &Value, b: &Value) -> bool {
    let quantity = |v: &Value| Quantity::parse(&v.as_str().map_or_else(|| v.to_string(), str::to_owned)).ok();
    matches!(schema.shape(), Shape::Scalar(Scalar::Quantity)) && quantity(a).is_some() && quantity(a) == quantity(b)
}

/// What is left out of an answer: null, zero, empty.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(is_empty),
    }
}
