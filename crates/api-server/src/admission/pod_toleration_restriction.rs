//! PodTolerationRestriction: pods get the default tolerations of their namespace, and no others than it allows. By flag.

use std::sync::Arc;

use api::kinds::core::pod::quality_of_service;
use async_trait::async_trait;
use object_model::{identity::GroupResource, meta::Meta, status::Status, value::Fields};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Attributes, Lookup, Operation, Plugin, Request, failure, tolerations};
use crate::watch_cache::WatchCache;

const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

/// What holds for namespaces that say nothing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Configuration {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    default: Vec<Value>,
    whitelist: Vec<Value>,
}

pub struct PodTolerationRestriction {
    namespaces: Lookup,
    configuration: Configuration,
}

impl PodTolerationRestriction {
    pub fn new(cache: &Arc<WatchCache>, configuration: Configuration) -> Self {
        Self { namespaces: Lookup::new(cache, "", "namespaces", "Namespace"), configuration }
    }

    /// The tolerations in an annotation of the namespace; `None` where it has none.
    async fn annotated(&self, namespace: &str, annotation: &str) -> Result<Option<Vec<Value>>, Status> {
        let Some(found) = self.namespaces.get(namespace).await? else {
            return Err(Status::not_found(&GroupResource::new("", "namespaces"), namespace));
        };
        match Meta::of(&found).annotation(annotation) {
            None => Ok(None),
            Some("") => Ok(Some(Vec::new())),
            Some(text) => serde_json::from_str(text).map(Some).map_err(|error| failure(error.to_string())),
        }
    }

    async fn check(&self, attributes: &Attributes<'_>, pod: &Value) -> Result<(), Status> {
        let given = pod.field("spec").map(|spec| spec.items("tolerations")).unwrap_or_default();
        if given.is_empty() {
            return Ok(());
        }
        let (allowed, scope) = match self.annotated(attributes.target.namespace, ALLOWED).await? {
            Some(allowed) => (allowed, "namespace"),
            None => (self.configuration.whitelist.clone(), "cluster"),
        };
        let mut wide = tolerations::Set::default();
        allowed.iter().for_each(|toleration| wide.add(toleration));
        if allowed.is_empty() || given.iter().all(|toleration| wide.covers(toleration)) {
            return Ok(());
        }
        Err(failure(format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
        )))
    }
}

#[async_trait]
impl Plugin for PodTolerationRestriction {
    fn name(&self) -> &'static str {
        "PodTolerationRestriction"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.writes("", "pods", "")
    }

    async fn mutate(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let mut extra = Vec::new();
        if attributes.operation == Operation::Create {
            let own = self.annotated(attributes.target.namespace, DEFAULTS).await?;
            extra = own.unwrap_or_else(|| self.configuration.default.clone());
        }
        let class = match object.text_at(&["status", "qosClass"]) {
            "" => quality_of_service(object.field("spec").unwrap_or(&Value::Null)),
            known => known,
        };
        if class != "BestEffort" {
            extra.push(json!({
                "key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule",
            }));
        }
        if let (false, Some(spec)) = (extra.is_empty(), object.get_mut("spec").and_then(Value::as_object_mut)) {
            let merged = tolerations::merge(spec.items("tolerations"), &extra);
            spec.insert("tolerations".into(), merged.into());
        }
        self.check(attributes, object).await
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        self.check(attributes, object).await
    }
}
