//! The table of resources: what a fresh server's aggregated discovery lists, in its order.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use super::Error;

pub fn generate(folder: &Path) -> Result<String, Error> {
    let facts: Value = serde_json::from_slice(&std::fs::read(folder.join("bootstrap-v1.36.4.json"))?)?;
    let mut out = String::new();
    for document in ["/api (aggregated v2)", "/apis (aggregated v2)"] {
        for group in list(&facts[document]["items"]) {
            let name = text(&group["metadata"]["name"]);
            for version in list(&group["versions"]) {
                writeln!(out, "version {} {}", dash(name), text(&version["version"]))?;
                for resource in list(&version["resources"]) {
                    write_resource(&mut out, resource)?;
                }
            }
        }
    }
    Ok(out)
}

fn write_resource(out: &mut String, resource: &Value) -> Result<(), Error> {
    let name = text(&resource["resource"]);
    let scope = match text(&resource["scope"]) {
        "Namespaced" => "namespaced",
        "Cluster" => "cluster",
        other => return Err(format!("{name}: unknown scope {other:?}").into()),
    };
    write!(
        out,
        " {name} {} {} {scope} {}",
        text(&resource["singularResource"]),
        kind(resource),
        words(&resource["verbs"])
    )?;
    for (label, key) in [("short", "shortNames"), ("in", "categories")] {
        if !list(&resource[key]).is_empty() {
            write!(out, " {label}={}", words(&resource[key]))?;
        }
    }
    writeln!(out)?;
    for sub in list(&resource["subresources"]) {
        writeln!(out, "  {} {} {}", text(&sub["subresource"]), kind(sub), words(&sub["verbs"]))?;
    }
    Ok(())
}

/// `Kind`, or `group/version/Kind` where it differs from the resource's own.
fn kind(entry: &Value) -> String {
    let kind = &entry["responseKind"];
    match (text(&kind["group"]), text(&kind["version"])) {
        ("", "") => text(&kind["kind"]).to_owned(),
        (group, version) => format!("{group}/{version}/{}", text(&kind["kind"])),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

fn words(value: &Value) -> String {
    list(value).iter().map(text).collect::<Vec<_>>().join(",")
}
