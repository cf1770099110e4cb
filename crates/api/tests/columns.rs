//! Tables as Kubernetes answered them, made again from the recorded objects.

#[path = "columns/cases.rs"]
mod cases;
mod facts;

use std::collections::HashMap;

use api::{columns, resources};
use object_model::time::{Duration, Time};
use regex::Regex;
use serde_json::{Value, json};

/// The day of the recordings.
const NOW: &str = "2026-11-15T12:00:00Z";
const UID: &str = "0a0b0c0d-1111-2222-3333-444455556666";

#[test]
fn tables_are_as_recorded() {
    let Some(recordings) = facts::recordings() else { return };
    let mut objects = HashMap::new();
    let mut tables = 0;
    let mut wrong = Vec::new();
    for recording in recordings.filter(|r| r.code < 300) {
        match (recording.method.as_str(), recording.accept.as_deref().unwrap_or_default()) {
            ("POST", "") if !recording.path.contains("dryRun") => {
                let collection = recording.path.split('?').next().unwrap_or_default();
                let name = recording.answer["metadata"]["name"].as_str().unwrap_or_default();
                objects.insert(format!("{collection}/{name}"), recording.answer);
            }
            ("GET", "") => {
                objects.insert(recording.path, recording.answer);
            }
            (_, accept) if accept.contains("as=Table") => {
                tables += 1;
                let object = objects.get(&recording.path).unwrap_or_else(|| panic!("no object {}", recording.path));
                wrong.extend(differences(object, &recording.answer).map(|d| format!("{}: {d}", recording.path)));
            }
            _ => {}
        }
    }
    assert!(tables >= 49, "only {tables} tables are recorded");
    assert!(wrong.is_empty(), "{} of {tables} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn differences(object: &Value, want: &Value) -> impl Iterator<Item = String> + use<> {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let columns = columns::of(group, object["kind"].as_str().unwrap_or_default());
    let mut found = Vec::new();
    if columns.definitions() != want["columnDefinitions"] {
        found.push(format!("columns {}, Kubernetes {}", columns.definitions(), want["columnDefinitions"]));
    }
    let now = Time::parse(NOW).expect("a time");
    let cells: Value = (columns.cells)(&as_stored(object, now), now).iter().map(normal).collect();
    let row = &want["rows"][0];
    if cells != row["cells"] {
        found.push(format!("cells {cells}, Kubernetes {}", row["cells"]));
    }
    if (columns.conditions)(object).unwrap_or_default() != row["conditions"] {
        found.push("conditions".to_owned());
    }
    found.into_iter()
}

/// Recordings have no times and no allocated numbers; an autoscaler is stored in `v2`.
fn as_stored(object: &Value, now: Time) -> Value {
    let text = object.to_string().replace("<uid>", UID);
    let mut object: Value = serde_json::from_str(&text).expect("JSON");
    let made = now.plus(Duration::from_seconds(-3)).to_string();
    object["metadata"]["creationTimestamp"] = made.into();
    if object["kind"] == "Service" && object["spec"]["type"] != "ExternalName" {
        object["spec"]["clusterIPs"] = json!(["10.96.0.1"]);
        for port in object["spec"]["ports"].as_array_mut().into_iter().flatten() {
            if port.get("nodePort").is_some() {
                port["nodePort"] = 30001.into();
            }
        }
    }
    let percent = object["spec"]["targetCPUUtilizationPercentage"].clone();
    if !percent.is_null() {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        object["spec"]["metrics"] = json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]);
    }
    object
}

/// What remains of a cell when everything that differs by nature is gone.
fn normal(cell: &Value) -> Value {
    let Some(text) = cell.as_str() else { return cell.clone() };
    let words = [
        (r"^\d+s$", "<age>"),
        (r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$", "<time>"),
        (r"\b10\.96\.\d+\.\d+\b", "<service ip>"),
        (r":30001/", ":<node port>/"),
        (UID, "<uid>"),
    ];
    let replaced = words.iter().fold(text.to_owned(), |text, (pattern, word)| {
        Regex::new(pattern).expect("a pattern").replace_all(&text, *word).into_owned()
    });
    replaced.into()
}

/// A cell for every column, whatever the object says. Kubernetes itself has one too many for an IPAddress.
#[test]
fn every_kind_fills_its_columns() {
    let now = Time::parse(NOW).expect("a time");
    for version in resources::all() {
        for resource in &version.resources {
            let columns = columns::of(version.group, resource.kind);
            let cells = (columns.cells)(&json!({}), now);
            let extra = usize::from(resource.kind == "IPAddress");
            assert_eq!(cells.len(), columns.columns.len() + extra, "{}", resource.kind);
        }
    }
}
