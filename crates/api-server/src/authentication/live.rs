//! The objects that credentials rest on, as they are now.

use std::sync::Arc;

use super::tokens::RestsOn;
use crate::{
    catalogue::store_prefix,
    watch_cache::{Entry, ResourceCache, WatchCache},
};

pub struct Live {
    all: Arc<WatchCache>,
    pub service_accounts: Arc<ResourceCache>,
    pub pods: Arc<ResourceCache>,
    pub secrets: Arc<ResourceCache>,
    pub nodes: Arc<ResourceCache>,
}

impl Live {
    pub fn new(all: &Arc<WatchCache>) -> Self {
        let of = |plural: &str| all.resource(&store_prefix("", plural));
        Self {
            all: all.clone(),
            service_accounts: of("serviceaccounts"),
            pods: of("pods"),
            secrets: of("secrets"),
            nodes: of("nodes"),
        }
    }

    /// An object by its `namespace/name` or `name`. Before it is said to be absent, the cache is brought up to date: another
    /// server may have made it a moment ago.
    pub async fn find(&self, resource: &Arc<ResourceCache>, key: &str) -> Option<Arc<Entry>> {
        if let Some(entry) = resource.get(key) {
            return Some(entry);
        }
        self.all.fresh().await.ok()?;
        resource.get(key)
    }

    /// The same, noted as something that a verdict rests on.
    pub async fn relied_on(
        &self,
        resource: &Arc<ResourceCache>,
        key: &str,
        rests_on: &mut Vec<RestsOn>,
    ) -> Option<Arc<Entry>> {
        self.find(resource, key).await?;
        self.known(resource, key, rests_on)
    }

    /// The same without asking the store: for who has shown nothing yet that strangers could not make up.
    pub fn known(&self, resource: &Arc<ResourceCache>, key: &str, rests_on: &mut Vec<RestsOn>) -> Option<Arc<Entry>> {
        let entry = resource.get(key)?;
        rests_on.push(RestsOn { resource: resource.clone(), entry: entry.clone() });
        Some(entry)
    }
}
