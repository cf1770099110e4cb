//! ServiceAccount: every pod has one, and its token where it can be read.

use std::sync::Arc;

use async_trait::async_trait;
use object_model::{meta::Meta, names, status::Status, value::Fields};
use serde_json::{Value, json};

use super::{Attributes, Lookup, Operation, Plugin};
use crate::watch_cache::WatchCache;

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
const MIRROR: &str = "kubernetes.io/config.mirror";
/// A token lives an hour, and seven seconds so that it can be told from one that asked for an hour.
const TOKEN_SECONDS: i64 = 3607;

pub struct ServiceAccount {
    accounts: Lookup,
}

impl ServiceAccount {
    pub fn new(cache: &Arc<WatchCache>) -> Self {
        Self { accounts: Lookup::new(cache, "", "serviceaccounts", "ServiceAccount") }
    }
}

#[async_trait]
impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    async fn mutate(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        if !attributes.is(Operation::Create, "", "pods") {
            return Ok(());
        }
        if Meta::of(object).annotation(MIRROR).is_some() {
            return refuse_mirror(attributes, object);
        }
        let name = match object.text_at(&["spec", "serviceAccountName"]) {
            "" => "default".to_owned(),
            given => given.to_owned(),
        };
        let namespace = attributes.target.namespace;
        let Some(account) = self.accounts.get(&format!("{namespace}/{name}")).await? else {
            let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
            return Err(attributes.forbidden(object, why));
        };
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
        spec.insert("serviceAccountName".into(), name.clone().into());
        spec.insert("serviceAccount".into(), name.into());
        let automount = spec.flag("automountServiceAccountToken").or(account.flag("automountServiceAccountToken"));
        if automount.unwrap_or(true) {
            mount_token(spec);
        }
        if spec.items("imagePullSecrets").is_empty() && !account.items("imagePullSecrets").is_empty() {
            spec.insert("imagePullSecrets".into(), json!(account.items("imagePullSecrets")));
        }
        Ok(())
    }
}

/// A pod that its node made from a file cannot have what the API hands out.
fn refuse_mirror(attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
    let spec = object.field("spec").cloned().unwrap_or_default();
    let volumes = spec.items("volumes");
    let containers = ["initContainers", "containers", "ephemeralContainers"];
    let secret_in_env = |c: &Value| {
        c.items("env").iter().any(|e| e.at(&["valueFrom", "secretKeyRef"]).is_some())
            || c.items("envFrom").iter().any(|e| e.has("secretRef"))
    };
    if !spec.text("serviceAccountName").is_empty() {
        return Err(attributes.forbidden(object, "a mirror pod may not reference service accounts"));
    }
    if volumes.iter().any(|v| v.has("secret"))
        || !spec.items("imagePullSecrets").is_empty()
        || containers.iter().any(|list| spec.items(list).iter().any(secret_in_env))
    {
        return Err(attributes.forbidden(object, "a mirror pod may not reference secrets"));
    }
    let sources = |v: &Value| v.object("projected").map(|p| p.items("sources").to_vec()).unwrap_or_default();
    if volumes.iter().any(|v| sources(v).iter().any(|s| s.has("serviceAccountToken"))) {
        let why = "a mirror pod may not use ServiceAccountToken volume projections";
        return Err(attributes.forbidden(object, why));
    }
    Ok(())
}

/// Adds the token's volume, and mounts it in every container that has nothing else in that place.
fn mount_token(spec: &mut object_model::value::Object) {
    let existing = spec.items("volumes").iter().map(|v| v.text("name")).find(|n| n.starts_with(VOLUME_PREFIX));
    let existing = existing.map(str::to_owned);
    let volume = existing.clone().unwrap_or_else(|| format!("{VOLUME_PREFIX}{}", names::random_suffix(5)));
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if container.items("volumeMounts").iter().any(|m| m.text("mountPath") == TOKEN_PATH) {
                continue;
            }
            let mount = json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH});
            let Some(fields) = container.as_object_mut() else { continue };
            if let Some(mounts) = fields.entry("volumeMounts").or_insert_with(|| json!([])).as_array_mut() {
                mounts.push(mount);
                needed = true;
            }
        }
    }
    if needed
        && existing.is_none()
        && let Some(volumes) = spec.entry("volumes").or_insert_with(|| json!([])).as_array_mut()
    {
        volumes.push(json!({
            "name": volume,
            "projected": {
                "defaultMode": 420,
                "sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    {"downwardAPI": {"items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                    ]}},
                ],
            },
        }));
    }
}
