//! What an object is called: group, version, kind, resource, and namespace and name.
//!
//! All of these are made of [`Name`]s, which clone without copying text, since they travel with every request and
//! every event.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// A short text that clones cheaply. Names of built-in kinds are static; all others are shared.
#[derive(Clone)]
pub struct Name(Repr);

#[derive(Clone)]
enum Repr {
    Static(&'static str),
    Shared(Arc<str>),
}

impl Name {
    pub const EMPTY: Name = Name::fixed("");

    pub const fn fixed(text: &'static str) -> Self {
        Name(Repr::Static(text))
    }

    pub fn as_str(&self) -> &str {
        match &self.0 {
            Repr::Static(text) => text,
            Repr::Shared(text) => text,
        }
    }
}

impl Default for Name {
    fn default() -> Self {
        Name::EMPTY
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Name {}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        if text.is_empty() { Name::EMPTY } else { Name(Repr::Shared(text.into())) }
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Name::from(text.as_str())
    }
}

impl From<&String> for Name {
    fn from(text: &String) -> Self {
        Name::from(text.as_str())
    }
}

impl From<Arc<str>> for Name {
    fn from(text: Arc<str>) -> Self {
        Name(Repr::Shared(text))
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Name::from)
    }
}

/// `apps/v1`, or `v1` for the legacy group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersion {
    pub group: Name,
    pub version: Name,
}

/// An `apiVersion` with more than one slash.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unexpected GroupVersion string: {0}")]
pub struct BadGroupVersion(pub String);

impl GroupVersion {
    pub fn new(group: impl Into<Name>, version: impl Into<Name>) -> Self {
        Self { group: group.into(), version: version.into() }
    }

    pub const fn fixed(group: &'static str, version: &'static str) -> Self {
        Self { group: Name::fixed(group), version: Name::fixed(version) }
    }

    /// Reads an `apiVersion`. Empty text and a lone slash give an empty group and version, as in Kubernetes.
    pub fn parse(text: &str) -> Result<Self, BadGroupVersion> {
        match text.split_once('/') {
            None => Ok(Self::new("", text)),
            Some((_, version)) if version.contains('/') => Err(BadGroupVersion(text.to_owned())),
            Some((group, version)) => Ok(Self::new(group, version)),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.group.is_empty() && self.version.is_empty()
    }

    pub fn kind(&self, kind: impl Into<Name>) -> GroupVersionKind {
        GroupVersionKind { group: self.group.clone(), version: self.version.clone(), kind: kind.into() }
    }

    pub fn resource(&self, resource: impl Into<Name>) -> GroupVersionResource {
        GroupVersionResource { group: self.group.clone(), version: self.version.clone(), resource: resource.into() }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { f.write_str(&self.version) } else { write!(f, "{}/{}", self.group, self.version) }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionKind {
    pub group: Name,
    pub version: Name,
    pub kind: Name,
}

impl GroupVersionKind {
    pub fn new(group: impl Into<Name>, version: impl Into<Name>, kind: impl Into<Name>) -> Self {
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    pub const fn fixed(group: &'static str, version: &'static str, kind: &'static str) -> Self {
        Self { group: Name::fixed(group), version: Name::fixed(version), kind: Name::fixed(kind) }
    }

    /// From the two fields every object has.
    pub fn parse(api_version: &str, kind: &str) -> Result<Self, BadGroupVersion> {
        GroupVersion::parse(api_version).map(|gv| gv.kind(kind))
    }

    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    pub fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.group.clone(), kind: self.kind.clone() }
    }

    /// As the field `apiVersion` says it.
    pub fn api_version(&self) -> String {
        self.group_version().to_string()
    }
}

impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionResource {
    pub group: Name,
    pub version: Name,
    pub resource: Name,
}

impl GroupVersionResource {
    pub fn new(group: impl Into<Name>, version: impl Into<Name>, resource: impl Into<Name>) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }

    pub const fn fixed(group: &'static str, version: &'static str, resource: &'static str) -> Self {
        Self { group: Name::fixed(group), version: Name::fixed(version), resource: Name::fixed(resource) }
    }

    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.resource.clone() }
    }
}

impl fmt::Display for GroupVersionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Resource={}", self.group, self.version, self.resource)
    }
}

/// A resource without its version: `deployments.apps`, `pods`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    pub group: Name,
    pub resource: Name,
}

/// A kind without its version: `Deployment.apps`, `Pod`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKind {
    pub group: Name,
    pub kind: Name,
}

impl GroupResource {
    pub fn new(group: impl Into<Name>, resource: impl Into<Name>) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }

    pub const fn fixed(group: &'static str, resource: &'static str) -> Self {
        Self { group: Name::fixed(group), resource: Name::fixed(resource) }
    }

    /// Reads what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Self::new(group, resource)
    }

    pub fn is_empty(&self) -> bool {
        self.group.is_empty() && self.resource.is_empty()
    }
}

impl GroupKind {
    pub fn new(group: impl Into<Name>, kind: impl Into<Name>) -> Self {
        Self { group: group.into(), kind: kind.into() }
    }

    pub const fn fixed(group: &'static str, kind: &'static str) -> Self {
        Self { group: Name::fixed(group), kind: Name::fixed(kind) }
    }

    /// Reads what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Self {
        let (kind, group) = text.split_once('.').unwrap_or((text, ""));
        Self::new(group, kind)
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_group(f, &self.resource, &self.group)
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_group(f, &self.kind, &self.group)
    }
}

fn with_group(f: &mut fmt::Formatter<'_>, name: &str, group: &str) -> fmt::Result {
    if group.is_empty() { f.write_str(name) } else { write!(f, "{name}.{group}") }
}

/// Which object of a resource: its namespace (empty for cluster-scoped ones) and name. Ordered as lists are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    pub namespace: Name,
    pub name: Name,
}

impl ObjectKey {
    pub fn new(namespace: impl Into<Name>, name: impl Into<Name>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Reads `namespace/name` or `name`.
    pub fn parse(text: &str) -> Self {
        let (namespace, name) = text.split_once('/').unwrap_or(("", text));
        Self::new(namespace, name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_versions_read_and_print() {
        for (text, group, version) in [("v1", "", "v1"), ("apps/v1", "apps", "v1"), ("", "", ""), ("/v1", "", "v1")] {
            let gv = GroupVersion::parse(text).unwrap();
            assert_eq!((&*gv.group, &*gv.version), (group, version));
        }
        assert!(GroupVersion::parse("/").unwrap().is_empty());
        let error = GroupVersion::parse("a/b/c").unwrap_err();
        assert_eq!(error.to_string(), "unexpected GroupVersion string: a/b/c");
        assert_eq!(GroupVersion::fixed("apps", "v1").to_string(), "apps/v1");
    }

    #[test]
    fn forms_in_messages() {
        assert_eq!(GroupVersionKind::fixed("", "v1", "Pod").to_string(), "/v1, Kind=Pod");
        assert_eq!(GroupVersionKind::fixed("apps", "v1", "Deployment").api_version(), "apps/v1");
        assert_eq!(GroupResource::fixed("apps", "deployments").to_string(), "deployments.apps");
        assert_eq!(GroupResource::parse("a.b.c"), GroupResource::fixed("b.c", "a"));
        assert_eq!(GroupKind::fixed("", "Pod").to_string(), "Pod");
        assert_eq!(ObjectKey::parse("ns/a").to_string(), "ns/a");
        assert_eq!(ObjectKey::parse("a"), ObjectKey::new("", "a"));
    }

    #[test]
    fn static_and_shared_names_are_the_same_key() {
        let map = std::collections::HashMap::from([(Name::fixed("pods"), 1)]);
        assert_eq!(map.get(&Name::from("pods")), Some(&1));
        assert_eq!(map.get("pods"), Some(&1));
    }
}
