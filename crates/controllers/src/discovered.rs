//! Which resources the server has, by discovery.

use std::collections::HashMap;

use kube::{
    Api, Client, Discovery,
    api::{ApiResource, DynamicObject},
    core::PartialObjectMeta,
    discovery::{ApiCapabilities, Scope, verbs},
};

/// The metadata of any object.
pub type Metadata = PartialObjectMeta<DynamicObject>;

/// A resource in its preferred version.
#[derive(Clone, Debug)]
pub struct Discovered {
    pub resource: ApiResource,
    pub namespaced: bool,
    verbs: Vec<String>,
}

impl Discovered {
    pub fn new((resource, capabilities): (ApiResource, ApiCapabilities)) -> Self {
        let namespaced = capabilities.scope == Scope::Namespaced;
        Self { resource, namespaced, verbs: capabilities.operations }
    }

    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    pub fn can_be_collected(&self) -> bool {
        [verbs::LIST, verbs::WATCH, verbs::DELETE].iter().all(|verb| self.can(verb)) && self.resource.plural != "events"
    }

    /// Its objects in a namespace, or all of them where they are in none.
    pub fn api(&self, client: &Client, namespace: &str) -> Api<Metadata> {
        if self.namespaced {
            Api::namespaced_with(client.clone(), namespace, &self.resource)
        } else {
            Api::all_with(client.clone(), &self.resource)
        }
    }
}

/// Everything the server has.
#[derive(Default)]
pub struct Everything {
    /// Each resource once, in its preferred version.
    pub resources: Vec<Discovered>,
    /// Every kind in every version, by apiVersion and kind.
    kinds: HashMap<(String, String), Discovered>,
}

impl Everything {
    pub async fn discover(client: &Client) -> kube::Result<Self> {
        let discovery = Discovery::new(client.clone()).run_aggregated().await?;
        let mut found = Self::default();
        for group in discovery.groups() {
            found.resources.extend(group.resources_by_stability().into_iter().map(Discovered::new));
            for version in group.versions() {
                for resource in group.versioned_resources(version).into_iter().map(Discovered::new) {
                    let kind = (resource.resource.api_version.clone(), resource.resource.kind.clone());
                    found.kinds.insert(kind, resource);
                }
            }
        }
        Ok(found)
    }

    pub fn kind(&self, api_version: &str, kind: &str) -> Option<&Discovered> {
        self.kinds.get(&(api_version.to_owned(), kind.to_owned()))
    }
}
