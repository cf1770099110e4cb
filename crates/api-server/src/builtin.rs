//! The built-in kinds, entered into the catalogue from the tables of `api`.

use std::{collections::BTreeMap, sync::Arc};

use api::{columns, kinds, resources, schemas};

use crate::{
    catalogue::{Group, Resource, Subresource, Version, store_prefix},
    watch_cache::{SelectableField, WatchCache},
};

/// All groups in order of preference. Versions of one resource share a cache.
pub fn groups(cache: &WatchCache) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for table in resources::all() {
        let entries = table.resources.iter().filter_map(|entry| resource(table, entry, cache));
        let resources: BTreeMap<_, _> = entries.map(|r| (r.plural.clone(), Arc::new(r))).collect();
        if resources.is_empty() {
            continue;
        }
        let version = Version { name: table.version.into(), resources };
        match groups.iter_mut().find(|g| *g.name == *table.group) {
            Some(group) => group.versions.push(version),
            None => groups.push(Group { name: table.group.into(), versions: vec![version] }),
        }
    }
    groups
}

fn resource(table: &resources::GroupVersion, entry: &resources::Resource, cache: &WatchCache) -> Option<Resource> {
    let strategy = kinds::find(table.group, entry.kind).or_else(|| kinds::find_asked(table.group, entry.kind))?;
    let schema = schemas::schema_of(table.group, table.version, entry.kind)?;
    let (stored_group, stored_version) = stored_in(table.group, entry.name);
    let prefix = store_prefix(stored_group, entry.name);
    Some(Resource {
        group: table.group.into(),
        version: table.version.into(),
        plural: entry.name.into(),
        singular: entry.singular.into(),
        kind: entry.kind.into(),
        list_kind: format!("{}List", entry.kind).into(),
        namespaced: entry.namespaced,
        short_names: boxed(&entry.short_names),
        categories: boxed(&entry.categories),
        verbs: boxed(&entry.verbs),
        subresources: entry.subresources.iter().map(subresource).collect(),
        stored_group: stored_group.into(),
        stored_version: stored_version.into(),
        custom: false,
        schema,
        strategy,
        columns: columns::of(table.group, entry.kind),
        cache: cache.enter(&prefix, strategy.fields.iter().map(SelectableField::from).collect()),
    })
}

/// The group and version in which a resource is stored: its own, except that both kinds of Event are one, and that
/// autoscalers are stored with everything they can say.
fn stored_in<'a>(group: &'a str, plural: &str) -> (&'a str, &'static str) {
    match (group, plural) {
        ("events.k8s.io", "events") => ("", "v1"),
        ("autoscaling", "horizontalpodautoscalers") => (group, "v2"),
        _ => (group, "v1"),
    }
}

fn subresource(entry: &resources::Subresource) -> Subresource {
    Subresource {
        name: entry.name.into(),
        group: entry.group.into(),
        version: entry.version.into(),
        kind: entry.kind.into(),
        verbs: boxed(&entry.verbs),
    }
}

fn boxed(texts: &[&str]) -> Box<[Box<str>]> {
    texts.iter().map(|t| (*t).into()).collect()
}
