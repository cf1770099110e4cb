//! ServiceAccount: every pod has one, its token where it can be read, and only the secrets that its account may have.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use object_model::{meta::Meta, names, status::Status, value::Fields};
use serde_json::{Value, json};

use super::{Attributes, CONTAINERS, Lookup, Operation, Plugin, Request, failure};
use crate::{
    authorization::node::references,
    watch_cache::{Scope, WatchCache},
};

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
const MIRROR: &str = "kubernetes.io/config.mirror";
/// A token lives an hour, and seven seconds so that it can be told from one that asked for an hour.
const TOKEN_SECONDS: i64 = 3607;
/// How long a pod waits for the account that its namespace is about to have.
const PATIENCE: Duration = Duration::from_millis(1500);
const DEFAULT: &str = "default";
/// An account with this annotation lends its pods no secrets but those that it names.
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

pub struct ServiceAccount {
    accounts: Lookup,
}

impl ServiceAccount {
    pub fn new(cache: &Arc<WatchCache>) -> Self {
        Self { accounts: Lookup::new(cache, "", "serviceaccounts", "ServiceAccount") }
    }
}

impl ServiceAccount {
    /// The account of a pod, or why it cannot be had.
    async fn account(&self, attributes: &Attributes<'_>, pod: &Value) -> Result<Value, Status> {
        let (namespace, name) = (attributes.target.namespace, pod.text_at(&["spec", "serviceAccountName"]));
        if name.is_empty() {
            let why = format!("no service account specified for pod {namespace}/{}", Meta::of(pod).name());
            return Err(attributes.forbidden(pod, why));
        }
        let key = format!("{namespace}/{name}");
        let mut account = self.accounts.get(&key).await?;
        if account.is_none() && name == DEFAULT {
            // The namespace may be so new that its controller has not made it yet.
            account = self.wait_for(namespace, &key).await;
        }
        account.ok_or_else(|| {
            let why = format!("error looking up service account {key}: serviceaccount {name:?} not found");
            attributes.forbidden(pod, why)
        })
    }

    async fn wait_for(&self, namespace: &str, key: &str) -> Option<Value> {
        let resource = &self.accounts.resource;
        let scope = Scope::Object { namespace: namespace.into(), name: DEFAULT.into() };
        let mut watcher = resource.watch(scope, self.accounts.all.applied()).ok()?;
        if resource.get(key).is_none() {
            let _ = tokio::time::timeout(PATIENCE, watcher.next()).await;
        }
        resource.get(key).map(|entry| entry.object(self.accounts.kind))
    }

    /// What must hold of a new pod.
    async fn check(&self, attributes: &Attributes<'_>, pod: &Value) -> Result<(), Status> {
        if Meta::of(pod).annotation(MIRROR).is_some() {
            return refuse_mirror(attributes, pod);
        }
        let account = self.account(attributes, pod).await?;
        if !limits_secrets(&account) {
            return Ok(());
        }
        match forbidden_secret(&account, pod) {
            Some(why) => Err(attributes.forbidden(pod, why)),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.creates("", "pods") || request.updates("", "pods", "ephemeralcontainers")
    }

    async fn mutate(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        if attributes.operation != Operation::Create {
            return Ok(());
        }
        if Meta::of(object).annotation(MIRROR).is_some() {
            return refuse_mirror(attributes, object);
        }
        if object.text_at(&["spec", "serviceAccountName"]).is_empty() {
            set_account(object, DEFAULT);
        }
        let account = self.account(attributes, object).await?;
        let name = object.text_at(&["spec", "serviceAccountName"]).to_owned();
        set_account(object, &name);
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            let automount = spec.flag("automountServiceAccountToken").or(account.flag("automountServiceAccountToken"));
            if automount.unwrap_or(true) {
                mount_token(spec);
            }
            if spec.items("imagePullSecrets").is_empty() && !account.items("imagePullSecrets").is_empty() {
                spec.insert("imagePullSecrets".into(), json!(account.items("imagePullSecrets")));
            }
        }
        self.check(attributes, object).await
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        if attributes.operation == Operation::Create {
            return self.check(attributes, object).await;
        }
        let account = self.account(attributes, object).await?;
        let spec = object.field("spec").unwrap_or(&Value::Null);
        let (list, words) = CONTAINERS[2];
        match limits_secrets(&account).then(|| forbidden_in(&account, spec.items(list), words)).flatten() {
            Some(why) => Err(failure(why)),
            None => Ok(()),
        }
    }
}

/// Names the account in both fields that do, the old one as well.
fn set_account(pod: &mut Value, name: &str) {
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("serviceAccountName".into(), name.into());
        spec.insert("serviceAccount".into(), name.into());
    }
}

fn limits_secrets(account: &Value) -> bool {
    let value = Meta::of(account).annotation(ENFORCE).unwrap_or_default();
    matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// Why a pod may not have one of the secrets that it names.
fn forbidden_secret(account: &Value, pod: &Value) -> Option<String> {
    let spec = pod.field("spec")?;
    let (name, not_named) = (Meta::of(account).name(), "does not reference that secret");
    for secret in spec.items("volumes").iter().filter_map(|volume| volume.object("secret")) {
        let secret = secret.text("secretName");
        if !names_secret(account, secret) {
            return Some(format!(
                "volume with secret.secretName={secret:?} is not allowed because service account {name} {not_named}"
            ));
        }
    }
    if let Some(why) = CONTAINERS[..2].iter().find_map(|(list, words)| forbidden_in(account, spec.items(list), words)) {
        return Some(why);
    }
    let lends = |secret: &str| account.items("imagePullSecrets").iter().any(|s| s.text("name") == secret);
    let pulls = spec.items("imagePullSecrets").iter().map(|secret| secret.text("name")).enumerate();
    pulls.filter(|(_, secret)| !lends(secret)).map(|(i, secret)| format!(
        "imagePullSecrets[{i}].name={secret:?} is not allowed because service account {name} does not reference that \
         imagePullSecret"
    )).next()
}

fn names_secret(account: &Value, secret: &str) -> bool {
    account.items("secrets").iter().any(|known| known.text("name") == secret)
}

fn forbidden_in(account: &Value, containers: &[Value], words: &str) -> Option<String> {
    let account_name = Meta::of(account).name();
    for container in containers {
        let by_variable = container.items("env").iter().filter_map(|variable| {
            let secret = variable.at(&["valueFrom", "secretKeyRef"])?.text("name");
            Some((format!("envVar {}", variable.text("name")), secret))
        });
        let whole = container
            .items("envFrom")
            .iter()
            .filter_map(|source| Some(("envFrom".to_owned(), source.object("secretRef")?.text("name"))));
        if let Some((how, secret)) = by_variable.chain(whole).find(|(_, secret)| !names_secret(account, secret)) {
            return Some(format!(
                "{words} {} with {how} referencing secret.secretName={secret:?} is not allowed because service account \
                 {account_name} does not reference that secret",
                container.text("name")
            ));
        }
    }
    None
}

/// A pod that its node made from a file cannot have what the API hands out.
fn refuse_mirror(attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
    let spec = object.field("spec").unwrap_or(&Value::Null);
    if !spec.text("serviceAccountName").is_empty() {
        return Err(attributes.forbidden(object, "a mirror pod may not reference service accounts"));
    }
    if references::of_pod(object).iter().any(|(kind, _)| *kind == references::Kind::Secret) {
        return Err(attributes.forbidden(object, "a mirror pod may not reference secrets"));
    }
    let sources = |v: &Value| v.object("projected").map(|p| p.items("sources").to_vec()).unwrap_or_default();
    if spec.items("volumes").iter().any(|v| sources(v).iter().any(|s| s.has("serviceAccountToken"))) {
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
