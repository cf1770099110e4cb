//! Everything that is served: one entry per resource and version, and nothing else decides what exists.
//!
//! Built-in kinds are entered at start from the tables of `api`; a custom resource is entered while running. Readers take
//! the whole catalogue as it is at one moment; a change swaps it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use api::{
    columns::Columns,
    kinds::{Strategy, Update},
};
use arc_swap::ArcSwap;
use object_model::{
    identity::{GroupKind, GroupResource},
    schema::Schema,
};

use crate::watch_cache::{ROOT, ResourceCache};

/// A resource in one of its versions.
pub struct Resource {
    pub group: Box<str>,
    pub version: Box<str>,
    pub plural: Box<str>,
    pub singular: Box<str>,
    pub kind: Box<str>,
    pub list_kind: Box<str>,
    pub namespaced: bool,
    pub short_names: Box<[Box<str>]>,
    pub categories: Box<[Box<str>]>,
    pub verbs: Box<[Box<str>]>,
    pub subresources: Box<[Subresource]>,
    /// The group and version in which all versions of the resource are stored.
    pub stored_group: Box<str>,
    pub stored_version: Box<str>,
    /// Made from a CustomResourceDefinition.
    pub custom: bool,
    pub schema: Schema,
    pub strategy: &'static Strategy,
    /// What `kubectl get` shows.
    pub columns: &'static Columns,
    /// Shared by all versions.
    pub cache: Arc<ResourceCache>,
}

pub struct Subresource {
    pub name: Box<str>,
    pub group: Box<str>,
    pub version: Box<str>,
    pub kind: Box<str>,
    pub verbs: Box<[Box<str>]>,
}

impl Resource {
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    pub fn stored_api_version(&self) -> String {
        api_version(&self.stored_group, &self.stored_version)
    }

    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&*self.group, &*self.plural)
    }

    pub fn group_kind(&self) -> GroupKind {
        GroupKind::new(&*self.group, &*self.kind)
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| &*s.name == name)
    }

    /// Its objects are questions, which are answered and never stored.
    pub fn is_asked(&self) -> bool {
        matches!(&*self.verbs, [only] if &**only == "create")
    }

    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| &**v == verb)
    }
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Where the objects of a resource are in the store, slash included.
pub fn store_prefix(group: &str, plural: &str) -> String {
    let group = if group.is_empty() { "core" } else { group };
    format!("{ROOT}{group}/{plural}/")
}

/// One object of one resource, or the place where it would be.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub resource: &'a Resource,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Empty for what has none.
    pub namespace: &'a str,
    /// Empty for a collection.
    pub name: &'a str,
}

impl Target<'_> {
    /// The name below the resource's prefix.
    pub fn cache_name(&self) -> String {
        if self.resource.namespaced { format!("{}/{}", self.namespace, self.name) } else { self.name.to_owned() }
    }

    /// The key in the store.
    pub fn key(&self) -> String {
        format!("{}{}", self.resource.cache.prefix(), self.cache_name())
    }

    /// The rules for writing what the request names.
    pub fn update(&self) -> &'static Update {
        match self.resource.strategy.update_of(self.subresource) {
            Some(update) => update,
            None if self.subresource == "binding" => &BINDING,
            None => &self.resource.strategy.update,
        }
    }
}

/// A binding changes what no other writer may; its handler makes sure that it changes nothing else.
static BINDING: Update = Update::new(|_, _, _| {}, |_, _| {});

/// All resources at one moment.
#[derive(Default)]
pub struct Served {
    by_path: HashMap<Box<str>, Arc<Resource>>,
    /// Groups in order of preference, each with its versions in order of preference.
    pub groups: Vec<Group>,
}

#[derive(Clone)]
pub struct Group {
    pub name: Box<str>,
    pub versions: Vec<Version>,
}

#[derive(Clone)]
pub struct Version {
    pub name: Box<str>,
    /// By plural name.
    pub resources: BTreeMap<Box<str>, Arc<Resource>>,
}

impl Served {
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path.get(&*path(group, version, plural))
    }

    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|g| &*g.name == name)
    }

    pub fn version(&self, group: &str, version: &str) -> Option<&Version> {
        self.group(group)?.versions.iter().find(|v| &*v.name == version)
    }

    /// Every resource in every version.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.iter().flat_map(|g| &g.versions).flat_map(|v| v.resources.values())
    }
}

fn path(group: &str, version: &str, plural: &str) -> String {
    format!("{group}/{version}/{plural}")
}

/// The catalogue that the server works from.
#[derive(Default)]
pub struct Catalogue(ArcSwap<Served>);

impl Catalogue {
    /// `groups` in order of preference.
    pub fn new(groups: Vec<Group>) -> Self {
        let catalogue = Self::default();
        catalogue.replace(groups);
        catalogue
    }

    pub fn served(&self) -> Arc<Served> {
        self.0.load_full()
    }

    pub fn replace(&self, groups: Vec<Group>) {
        let by_path = groups
            .iter()
            .flat_map(|g| &g.versions)
            .flat_map(|v| v.resources.values())
            .map(|r| (path(&r.group, &r.version, &r.plural).into(), r.clone()))
            .collect();
        self.0.store(Arc::new(Served { by_path, groups }));
    }
}
