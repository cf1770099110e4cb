//! The canonical form, against what a real server read, refused and answered.

mod facts;

use api::schemas::schema_of;
use object_model::codec::StrictErrors;
use object_model::codec::canonical::canonicalise;
use object_model::schema::Schema;
use serde_json::Value;

fn schema(object: &Value) -> Option<Schema> {
    let version = object["apiVersion"].as_str()?;
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    schema_of(group, version, object["kind"].as_str()?)
}

/// The recorder wrote `<allocated>` for every port that the server chose, `<time>` for every moment, and left out the
/// moments of conditions.
fn put_values_back(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if object.contains_key("reason") && object.contains_key("type") && object.contains_key("status") {
                object.insert("lastTransitionTime".to_owned(), "2026-01-01T00:00:00Z".into());
            }
            object.iter_mut().for_each(|(key, value)| match value {
                Value::String(text) if key.ends_with("odePort") && text == "<allocated>" => *value = 30000.into(),
                Value::String(text) if text == "<time>" => *text = "2026-01-01T00:00:00Z".to_owned(),
                value => put_values_back(value),
            })
        }
        Value::Array(items) => items.iter_mut().for_each(put_values_back),
        _ => {}
    }
}

#[test]
fn answers_of_a_real_server_are_canonical() {
    let Some(recordings) = facts::recordings() else { return };
    let (mut seen, mut failures) = (0, Vec::new());
    for mut recording in recordings.filter(|r| matches!(r.code, 200 | 201)) {
        put_values_back(&mut recording.answer);
        let Some(schema) = schema(&recording.answer) else { continue };
        seen += 1;
        let mut value = recording.answer.clone();
        match canonicalise(&schema, &mut value) {
            Ok(unknown) if unknown.is_empty() && value == recording.answer => {}
            outcome => failures.push(format!("{}: {outcome:?}\n{}\n{value}", recording.what, recording.answer)),
        }
    }
    assert!(seen > 2500, "only {seen} answers");
    assert!(failures.is_empty(), "{} of {seen}:\n{}", failures.len(), failures[..failures.len().min(5)].join("\n"));
}

#[test]
fn bodies_are_refused_in_the_words_of_a_real_server() {
    let Some(recordings) = facts::recordings() else { return };
    let (mut seen, mut failures) = (0, Vec::new());
    for recording in recordings.filter(|r| r.code == 400 && r.method != "PATCH") {
        let message = recording.answer["message"].as_str().unwrap_or_default();
        let Some((_, expected)) = message.split_once(" cannot be handled as a ") else { continue };
        let Some((_, expected)) = expected.split_once(": ") else { continue };
        let Some(schema) = schema(&recording.body) else { continue };
        seen += 1;
        let got = match canonicalise(&schema, &mut recording.body.clone()) {
            Ok(unknown) => unknown.to_string(),
            // the recorder took Go's layout for a moment
            Err(error) => error
                .to_string()
                .replace("2006-01-02T15:04:05Z", "<time>")
                .replace("2006-01-02T15:04:05.000000Z", "<time>"),
        };
        if got != expected {
            failures.push(format!("{}: {}\n  want {expected}\n  got  {got}", recording.what, recording.body));
        }
    }
    assert!(seen > 1400, "only {seen} refusals");
    assert!(failures.is_empty(), "{} of {seen}:\n{}", failures.len(), failures[..failures.len().min(12)].join("\n"));
}

/// What a server accepted can be read, and is canonical at once.
#[test]
fn accepted_bodies_become_canonical_in_one_step() {
    let Some(recordings) = facts::recordings() else { return };
    let mut seen = 0;
    for recording in recordings.filter(|r| matches!(r.code, 200 | 201) && matches!(&*r.method, "POST" | "PUT")) {
        let Some(schema) = schema(&recording.body) else { continue };
        seen += 1;
        let mut once = recording.body.clone();
        canonicalise(&schema, &mut once).unwrap_or_else(|e| panic!("{}: {e}", recording.what));
        let mut twice = once.clone();
        assert_eq!(canonicalise(&schema, &mut twice), Ok(StrictErrors::default()), "{}", recording.what);
        assert_eq!(once, twice, "{}", recording.what);
    }
    assert!(seen > 1200, "only {seen} bodies");
}
