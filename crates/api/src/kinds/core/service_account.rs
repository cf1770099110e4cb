//! ServiceAccount: the identity of a process in a pod.

use object_model::names;
use serde_json::{Value, json};

use crate::defaults::Defaults;
use crate::kinds::{Create, Strategy, Update};
use crate::validation::{Field, meta};

const ENFORCE_MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

pub static STRATEGY: Strategy = Strategy {
    returns_deleted: true,
    create: Create {
        warnings: |account| warnings(account, None),
        ..Create::new(|account, _| names_only(account), validate)
    },
    update: Update {
        warnings: |account, old| warnings(account, Some(old)),
        ..Update::new(
            |account, _, _| names_only(account),
            |account, old| {
                meta::builtin_meta_update(&account.at("metadata"), &old["metadata"]);
                validate(account);
            },
        )
    },
    ..Strategy::new("", "ServiceAccount")
};

fn validate(account: &Field) {
    meta::builtin_meta(&account.at("metadata"), true, names::name_is_dns_subdomain);
}

/// Secrets are referred to by name only.
fn names_only(account: &mut Value) {
    for secret in account.each("secrets") {
        *secret = match secret["name"].as_str().filter(|name| !name.is_empty()) {
            Some(name) => json!({ "name": name }),
            None => json!({}),
        };
    }
}

fn warnings(account: &Value, old: Option<&Value>) -> Vec<String> {
    let has = |account: &Value| account["metadata"]["annotations"].get(ENFORCE_MOUNTABLE).is_some();
    if !has(account) || old.is_some_and(has) {
        return Vec::new();
    }
    vec![format!(
        "metadata.annotations[{ENFORCE_MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate access \
         to mounted secrets"
    )]
}
