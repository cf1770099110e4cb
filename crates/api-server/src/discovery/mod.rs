//! What is served, told to clients: the legacy lists and the aggregated document.

use base64::{Engine, engine::general_purpose::STANDARD};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::catalogue::{Group, Resource, Served, Subresource, Version};

/// Resources whose hash Kubernetes does not tell, since they are not stored.
fn is_stored(resource: &Resource) -> bool {
    resource.has_verb("list") && resource.has_verb("create")
}

/// `/api`
pub fn core_versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// `/apis`
pub fn groups(served: &Served) -> Value {
    let groups: Vec<Value> = served.groups.iter().filter(|g| !g.name.is_empty()).map(group_fields).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`
pub fn group(group: &Group) -> Value {
    let mut value = group_fields(group);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    value
}

fn group_fields(group: &Group) -> Value {
    let version = |v: &Version| json!({"groupVersion": format!("{}/{}", group.name, v.name), "version": v.name});
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({"name": group.name, "versions": versions, "preferredVersion": versions.first()})
}

/// `/api/v1` and `/apis/GROUP/VERSION`
pub fn resources(group: &str, version: &Version) -> Value {
    let mut resources = Vec::new();
    for resource in version.resources.values() {
        resources.push(resource_entry(resource));
        resources.extend(resource.subresources.iter().map(|s| subresource_entry(resource, s)));
    }
    let mut list = json!({"kind": "APIResourceList", "resources": resources});
    if group.is_empty() {
        list["groupVersion"] = version.name.as_ref().into();
    } else {
        list["apiVersion"] = "v1".into();
        list["groupVersion"] = format!("{group}/{}", version.name).into();
    }
    list
}

fn resource_entry(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if is_stored(resource) {
        entry["storageVersionHash"] = storage_version_hash(resource).into();
    }
    entry
}

fn subresource_entry(resource: &Resource, subresource: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", resource.plural, subresource.name),
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": subresource.kind,
        "verbs": subresource.verbs,
    });
    if !is_own(resource, subresource) {
        entry["group"] = subresource.group.as_ref().into();
        entry["version"] = subresource.version.as_ref().into();
    }
    entry
}

/// Is the kind of a subresource of the same group and version as its resource? Then neither is told.
fn is_own(resource: &Resource, subresource: &Subresource) -> bool {
    (&subresource.group, &subresource.version) == (&resource.group, &resource.version) || subresource.version.is_empty()
}

/// A short name for the version that objects are stored in, so that clients can tell when it changes.
fn storage_version_hash(resource: &Resource) -> String {
    let text = format!("{}/{}/{}", resource.group, resource.stored_version, resource.kind);
    STANDARD.encode(&digest(&SHA256, text.as_bytes()).as_ref()[..8])
}

/// The aggregated document of `/api` (the core group) or `/apis` (all others), in version `v2` or `v2beta1`.
pub fn aggregated(served: &Served, core: bool, version: &str) -> Value {
    let items: Vec<Value> = served.groups.iter().filter(|g| g.name.is_empty() == core).map(aggregated_group).collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    })
}

fn aggregated_group(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|v| {
            let resources: Vec<Value> = v.resources.values().map(|r| aggregated_resource(r)).collect();
            json!({"version": v.name, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": kind("", "", &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if !resource.subresources.is_empty() {
        let subresource = |s: &Subresource| {
            let (group, version) = if is_own(resource, s) { ("", "") } else { (&*s.group, &*s.version) };
            json!({"subresource": s.name, "responseKind": kind(group, version, &s.kind), "verbs": s.verbs})
        };
        entry["subresources"] = resource.subresources.iter().map(subresource).collect();
    }
    entry
}
