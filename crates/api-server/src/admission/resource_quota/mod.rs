//! ResourceQuota: a namespace uses only so much.
//!
//! What an object uses is charged in the transaction that writes the object: the quota's new `status.used` is put beside it,
//! on the condition that nobody changed the quota since it was read. So a quota is never exceeded, on however many servers,
//! and an object that is not written in the end is not charged. Kubernetes writes the quota first and the object later,
//! and gives back what was charged in vain when it counts again.
//!
//! Writers of one server who are under the same quotas take turns, since of those who try at once only one can succeed.
//! What is freed (by deletion, by pods that end) is found by counting, see [`controller`].

mod check;
pub mod controller;
mod devices;
mod kinds;
mod scopes;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use check::{Limited, Quota, check};
use kinds::{Counter, Kind};
use object_model::status::Status;
use serde::Deserialize;
use serde_json::{Value, json};
use storage::{Compare, Expected, Lifetime, Operation as Change};

use super::{Attributes, Lookup, Plugin, Request, pod_resources::Amounts};
use crate::{
    clock::Clock,
    registry::{companions::Companions, store_error},
    watch_cache::{WatchCache, encode_stored},
};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Configuration {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    limited_resources: Vec<Limited>,
}

pub struct ResourceQuota {
    quotas: Lookup,
    counter: Counter,
    limited: Vec<Limited>,
    turns: Turns,
}

impl ResourceQuota {
    pub fn new(cache: &Arc<WatchCache>, clock: &Arc<dyn Clock>, configuration: Configuration) -> Self {
        Self {
            quotas: Lookup::new(cache, "", "resourcequotas", "ResourceQuota"),
            counter: Counter::new(cache, clock),
            limited: configuration.limited_resources,
            turns: Turns::default(),
        }
    }

    fn read(&self, namespace: &str) -> Vec<Quota> {
        self.quotas.entries_of(namespace).into_iter().map(Quota::of).collect()
    }
}

#[async_trait]
impl Plugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        let kind = Kind::of(request.group, request.resource).filter(|_| request.namespaced);
        kind.is_some_and(|kind| kind.handles(request))
    }

    async fn charge(&self, attributes: &Attributes<'_>, object: &Value) -> Result<Companions, Status> {
        let (target, namespace) = (attributes.target, attributes.target.namespace);
        if self.limited.is_empty() && !self.quotas.has_any_of(namespace) {
            return Ok(Companions::default());
        }
        let Some(kind) = Kind::of(&target.resource.group, &target.resource.plural) else {
            return Ok(Companions::default());
        };
        if !kind.may_charge(target.subresource, object, attributes.old) {
            return Ok(Companions::default());
        }
        let turn = if attributes.dry_run { None } else { Some(self.turns.take(namespace).await) };
        self.quotas.all.fresh().await.map_err(store_error)?;
        let quotas = self.read(namespace);
        let charged = check(&self.counter, &quotas, &self.limited, attributes, &kind, object)?;
        if attributes.dry_run || charged.is_empty() {
            return Ok(Companions::default());
        }
        let mut companions = Companions { turn, ..Companions::default() };
        for (quota, used) in charged.into_iter().filter_map(|(at, used)| Some((quotas.get(at)?, used))) {
            let key = format!("{}{}", self.quotas.resource.prefix(), quota.entry.key());
            let mut object = quota.object.clone();
            object["status"]["used"] = listed(&used);
            companions
                .compares
                .push(Compare { key: key.clone(), expected: Expected::ModRevision(quota.entry.revision) });
            companions.operations.push(Change::Put { key, value: encode_stored(&object), lifetime: Lifetime::Endless });
        }
        Ok(companions)
    }
}

/// Amounts as an object has them.
fn listed(amounts: &Amounts) -> Value {
    amounts.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect()
}

/// Whose turn it is in each namespace.
#[derive(Default)]
struct Turns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    async fn take(&self, namespace: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let queue = {
            let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody else has those that only this map knows.
            queues.retain(|name, queue| name == namespace || Arc::strong_count(queue) > 1);
            queues.entry(namespace.to_owned()).or_default().clone()
        };
        queue.lock_owned().await
    }
}

#[cfg(test)]
mod tests;
