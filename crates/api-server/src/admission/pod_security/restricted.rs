//! What a pod must do and leave that follows all good advice.

use std::collections::BTreeSet;

use object_model::value::Fields;
use serde_json::Value;

use super::{
    baseline::{Bad, is_seccomp_confined, items_in},
    checks::{Pod, Violation, containers_named, in_context, plural, quoted, setters, violation},
};

const VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// All the others that there are, in the order in which they are looked for.
const OTHER_VOLUMES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

pub fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    let field = ["allowPrivilegeEscalation"];
    let bad = pod.named(|container| in_context(container, &field) != Some(&Value::Bool(false)));
    if bad.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", containers_named(&bad));
    violation("allowPrivilegeEscalation != false", detail)
}

pub fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let keeping = pod.named(|container| !items_in(container, &["capabilities"], "drop").any(|c| c == "ALL"));
    let mut added = BTreeSet::new();
    let adding = pod.named(|container| {
        let own = items_in(container, &["capabilities"], "add").filter(|c| *c != "NET_BIND_SERVICE");
        let own: Vec<&str> = own.collect();
        added.extend(own.iter().copied());
        !own.is_empty()
    });
    let mut details = Vec::new();
    if !keeping.is_empty() {
        let who = containers_named(&keeping);
        details.push(format!("{who} must set securityContext.capabilities.drop=[\"ALL\"]"));
    }
    if !adding.is_empty() {
        let who = containers_named(&adding);
        details.push(format!("{who} must not include {} in securityContext.capabilities.add", quoted(added)));
    }
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

pub fn volumes(pod: &Pod<'_>) -> Option<Violation> {
    let is_bad = |volume: &&Value| !VOLUMES.iter().any(|kind| volume.has(kind));
    let bad: Vec<&Value> = pod.spec.items("volumes").iter().filter(is_bad).collect();
    if bad.is_empty() {
        return None;
    }
    let kind = |volume: &&Value| OTHER_VOLUMES.iter().find(|kind| volume.has(kind)).copied().unwrap_or("unknown");
    let kinds: BTreeSet<&str> = bad.iter().map(kind).collect();
    let names: Vec<&str> = bad.iter().map(|volume| volume.text("name")).collect();
    let verb = if names.len() == 1 { "uses" } else { "use" };
    let detail = format!(
        "{} {} {verb} {} {}",
        plural("volume", names.len()),
        quoted(&names),
        plural("restricted volume type", kinds.len()),
        quoted(&kinds)
    );
    violation("restricted volume types", detail)
}

pub fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    let reason = "runAsNonRoot != true";
    let field = ["runAsNonRoot"];
    let root = pod.context(&field) == Some(&Value::Bool(false));
    let explicit = pod.named(|container| in_context(container, &field) == Some(&Value::Bool(false)));
    if let Some(who) = setters(root, &explicit) {
        return violation(reason, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let silent = pod.named(|container| in_context(container, &field).is_none());
    if silent.is_empty() || pod.context(&field) == Some(&Value::Bool(true)) {
        return None;
    }
    violation(reason, format!("pod or {} must set securityContext.runAsNonRoot=true", containers_named(&silent)))
}

pub fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    let is_root = |owner: &Value| in_context(owner, &["runAsUser"]).and_then(Value::as_i64) == Some(0);
    let who = setters(is_root(pod.spec), &pod.named(|container| is_root(container)))?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
}

pub fn seccomp_profile(pod: &Pod<'_>) -> Option<Violation> {
    let reason = "seccompProfile";
    let bad = Bad::texts(pod, &["seccompProfile", "type"], is_seccomp_confined);
    if let Some(who) = bad.setters() {
        let kinds = quoted(&bad.values);
        return violation(reason, format!("{who} must not set securityContext.seccompProfile.type to {kinds}"));
    }
    let silent = pod.named(|container| in_context(container, &["seccompProfile"]).is_none());
    if silent.is_empty() || pod.context(&["seccompProfile"]).is_some() {
        return None;
    }
    let who = containers_named(&silent);
    let detail =
        format!("pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"");
    violation(reason, detail)
}
