//! Crates depend on each other only the way the design says: up this list, never down or sideways.

use std::{collections::BTreeMap, process::Command};

/// Each crate with the crates of the workspace it may use in its own code (not in its tests).
const MAY_USE: &[(&str, &[&str])] = &[
    ("object-model", &[]),
    ("expressions", &["object-model"]),
    ("api", &["object-model", "expressions"]),
    ("storage", &[]),
    ("storage-embedded", &["storage"]),
    ("storage-etcd", &["storage"]),
    ("streaming", &[]),
    ("api-server", &["object-model", "expressions", "api", "storage", "streaming"]),
    ("controller-runtime", &[]),
    ("controllers", &["object-model", "api", "controller-runtime"]),
    ("scheduler", &["object-model", "api", "controller-runtime"]),
    ("container-runtime", &["object-model", "streaming"]),
    ("network", &["object-model", "api", "controller-runtime"]),
    ("node-agent", &["object-model", "api", "streaming", "controller-runtime", "container-runtime", "network"]),
    ("mesh", &["object-model", "api", "api-server", "controller-runtime", "network"]),
    (
        "ferry",
        &[
            "object-model",
            "api",
            "storage",
            "storage-embedded",
            "storage-etcd",
            "api-server",
            "controller-runtime",
            "controllers",
            "scheduler",
            "container-runtime",
            "network",
            "node-agent",
            "mesh",
        ],
    ),
    (
        "testing",
        &[
            "api-server",
            "streaming",
            "storage",
            "storage-embedded",
            "storage-etcd",
            "controller-runtime",
            "controllers",
            "scheduler",
        ],
    ),
    ("bench", &["object-model", "api", "storage", "storage-embedded", "storage-etcd"]),
];

#[test]
fn dependencies_point_one_way() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .output()
        .expect("cargo metadata runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let names: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();

    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let Some(may_use) = allowed.get(name) else {
            wrong.push(format!("{name} is not in the list: say here what it may use"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().expect("a name");
            let in_tests = dependency["kind"] == "dev";
            if names.contains(&used) && !in_tests && !may_use.contains(&used) {
                wrong.push(format!("{name} uses {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
