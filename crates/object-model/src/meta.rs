//! Access to `ObjectMeta` and owner references in a value.
//!
//! [`Meta`] reads and [`MetaMut`] writes. Reading an absent field gives the zero value; writing the zero value removes
//! the field, so that an object never carries empty metadata fields.

use serde_json::Value;

use crate::identity::{BadGroupVersion, GroupVersion, GroupVersionKind, ObjectKey};
use crate::time::Time;
use crate::value::{Fields, Object};

pub mod validate;

/// The finalizer of a deletion that leaves dependents alone.
pub const FINALIZER_ORPHAN: &str = "orphan";
/// The finalizer of a deletion that waits for dependents.
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";

/// Group, version and kind as the object states them.
pub fn group_version_kind(object: &Value) -> Result<GroupVersionKind, BadGroupVersion> {
    GroupVersionKind::parse(object.text("apiVersion"), object.text("kind"))
}

/// Writes `apiVersion` and `kind`.
pub fn set_group_version_kind(object: &mut Object, gvk: &GroupVersionKind) {
    object.insert("apiVersion".to_owned(), gvk.api_version().into());
    object.insert("kind".to_owned(), gvk.kind.as_str().into());
}

/// The metadata of an object, to read.
#[derive(Clone, Copy, Debug)]
pub struct Meta<'a>(Option<&'a Object>);

impl<'a> Meta<'a> {
    pub fn of(object: &'a Value) -> Self {
        Self(object.field("metadata").and_then(Value::as_object))
    }

    /// Metadata that stands by itself, such as that of a pod template.
    pub fn from_fields(metadata: &'a Object) -> Self {
        Self(Some(metadata))
    }

    /// The same from a value; one that is no object has no fields.
    pub fn from_value(metadata: &'a Value) -> Self {
        Self(metadata.as_object())
    }

    pub fn get(&self, field: &str) -> Option<&'a Value> {
        self.0?.get(field).filter(|value| !value.is_null())
    }

    fn text(&self, field: &str) -> &'a str {
        self.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn name(&self) -> &'a str {
        self.text("name")
    }

    pub fn generate_name(&self) -> &'a str {
        self.text("generateName")
    }

    pub fn namespace(&self) -> &'a str {
        self.text("namespace")
    }

    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace(), self.name())
    }

    pub fn uid(&self) -> &'a str {
        self.text("uid")
    }

    pub fn resource_version(&self) -> &'a str {
        self.text("resourceVersion")
    }

    pub fn generation(&self) -> i64 {
        self.get("generation").and_then(Value::as_i64).unwrap_or_default()
    }

    pub fn creation_timestamp(&self) -> Option<Time> {
        Time::parse(self.text("creationTimestamp")).ok()
    }

    pub fn deletion_timestamp(&self) -> Option<Time> {
        Time::parse(self.text("deletionTimestamp")).ok()
    }

    /// Has deletion been asked for?
    pub fn is_deleting(&self) -> bool {
        self.get("deletionTimestamp").is_some()
    }

    pub fn deletion_grace_period_seconds(&self) -> Option<i64> {
        self.get("deletionGracePeriodSeconds").and_then(Value::as_i64)
    }

    pub fn labels(&self) -> TextMap<'a> {
        TextMap::of(self.get("labels"))
    }

    pub fn annotations(&self) -> TextMap<'a> {
        TextMap::of(self.get("annotations"))
    }

    pub fn label(&self, key: &str) -> Option<&'a str> {
        self.labels().get(key)
    }

    pub fn annotation(&self, key: &str) -> Option<&'a str> {
        self.annotations().get(key)
    }

    fn items(&self, field: &str) -> &'a [Value] {
        self.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn finalizers(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.items("finalizers").iter().filter_map(Value::as_str)
    }

    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers().any(|f| f == finalizer)
    }

    pub fn owner_references(&self) -> impl Iterator<Item = OwnerReference<'a>> + use<'a> {
        self.items("ownerReferences").iter().map(OwnerReference::read)
    }

    /// The one owner that manages the object.
    pub fn controller(&self) -> Option<OwnerReference<'a>> {
        self.owner_references().find(|owner| owner.controller)
    }

    pub fn is_controlled_by(&self, uid: &str) -> bool {
        self.controller().is_some_and(|owner| owner.uid == uid)
    }

    /// The entries as they are.
    pub fn managed_fields(&self) -> &'a [Value] {
        self.items("managedFields")
    }
}

/// A map from text to text inside a value, such as labels. Copies nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextMap<'a>(Option<&'a Object>);

impl<'a> TextMap<'a> {
    pub fn of(value: Option<&'a Value>) -> Self {
        Self(value.and_then(Value::as_object))
    }

    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.0?.get(key).map(|value| value.as_str().unwrap_or_default())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.0.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
    }

    pub fn len(&self) -> usize {
        self.0.map_or(0, Object::len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Who an object belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerReference<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    /// Is this the one owner that manages the object?
    pub controller: bool,
    /// Must the owner wait for this object when it is deleted in the foreground?
    pub block_owner_deletion: bool,
}

impl<'a> OwnerReference<'a> {
    pub fn read(value: &'a Value) -> Self {
        Self {
            api_version: value.text("apiVersion"),
            kind: value.text("kind"),
            name: value.text("name"),
            uid: value.text("uid"),
            controller: value.flag("controller") == Some(true),
            block_owner_deletion: value.flag("blockOwnerDeletion") == Some(true),
        }
    }

    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        for (name, text) in
            [("apiVersion", self.api_version), ("kind", self.kind), ("name", self.name), ("uid", self.uid)]
        {
            object.insert(name.to_owned(), text.into());
        }
        for (name, flag) in [("controller", self.controller), ("blockOwnerDeletion", self.block_owner_deletion)] {
            if flag {
                object.insert(name.to_owned(), true.into());
            }
        }
        object.into()
    }

    /// Do both speak of the same group, kind and name? Versions may differ.
    pub fn is_same_owner(&self, other: &OwnerReference<'_>) -> bool {
        let group = |text: &str| GroupVersion::parse(text).ok().map(|gv| gv.group);
        self.kind == other.kind
            && self.name == other.name
            && self.uid == other.uid
            && group(self.api_version) == group(other.api_version)
    }
}

/// The metadata of an object, to change. Made where it is absent.
#[derive(Debug)]
pub struct MetaMut<'a>(&'a mut Object);

impl<'a> MetaMut<'a> {
    pub fn of(object: &'a mut Object) -> Self {
        Self(nested(object, "metadata"))
    }

    pub fn read(&self) -> Meta<'_> {
        Meta(Some(self.0))
    }

    /// The whole object, for fields without a method.
    pub fn fields(&mut self) -> &mut Object {
        self.0
    }

    pub fn set(&mut self, field: &str, value: impl Into<Value>) {
        self.0.insert(field.to_owned(), value.into());
    }

    pub fn remove(&mut self, field: &str) -> Option<Value> {
        self.0.remove(field)
    }

    fn set_text(&mut self, field: &str, text: &str) {
        match text {
            "" => drop(self.0.remove(field)),
            text => self.set(field, text),
        }
    }

    pub fn set_name(&mut self, name: &str) {
        self.set_text("name", name);
    }

    pub fn set_generate_name(&mut self, base: &str) {
        self.set_text("generateName", base);
    }

    pub fn set_namespace(&mut self, namespace: &str) {
        self.set_text("namespace", namespace);
    }

    pub fn set_uid(&mut self, uid: &str) {
        self.set_text("uid", uid);
    }

    pub fn set_resource_version(&mut self, version: &str) {
        self.set_text("resourceVersion", version);
    }

    pub fn set_generation(&mut self, generation: i64) {
        match generation {
            0 => drop(self.remove("generation")),
            generation => self.set("generation", generation),
        }
    }

    pub fn set_creation_timestamp(&mut self, time: Option<Time>) {
        self.set_time("creationTimestamp", time);
    }

    pub fn set_deletion_timestamp(&mut self, time: Option<Time>) {
        self.set_time("deletionTimestamp", time);
    }

    fn set_time(&mut self, field: &str, time: Option<Time>) {
        match time {
            None => drop(self.remove(field)),
            Some(time) => self.set(field, time.to_string()),
        }
    }

    pub fn set_deletion_grace_period_seconds(&mut self, seconds: Option<i64>) {
        match seconds {
            None => drop(self.remove("deletionGracePeriodSeconds")),
            Some(seconds) => self.set("deletionGracePeriodSeconds", seconds),
        }
    }

    pub fn set_label(&mut self, key: &str, value: &str) {
        nested(self.0, "labels").insert(key.to_owned(), value.into());
    }

    pub fn remove_label(&mut self, key: &str) {
        self.remove_entry("labels", key);
    }

    pub fn set_annotation(&mut self, key: &str, value: &str) {
        nested(self.0, "annotations").insert(key.to_owned(), value.into());
    }

    pub fn remove_annotation(&mut self, key: &str) {
        self.remove_entry("annotations", key);
    }

    fn remove_entry(&mut self, field: &str, key: &str) {
        if let Some(map) = self.0.get_mut(field).and_then(Value::as_object_mut) {
            map.remove(key);
            if map.is_empty() {
                self.0.remove(field);
            }
        }
    }

    pub fn set_list(&mut self, field: &str, items: Vec<Value>) {
        match items.is_empty() {
            true => drop(self.remove(field)),
            false => self.set(field, items),
        }
    }

    pub fn set_finalizers<'f>(&mut self, finalizers: impl IntoIterator<Item = &'f str>) {
        self.set_list("finalizers", finalizers.into_iter().map(Value::from).collect());
    }

    /// Says whether it was absent.
    pub fn add_finalizer(&mut self, finalizer: &str) -> bool {
        let absent = !self.read().has_finalizer(finalizer);
        if absent {
            let mut items = self.read().items("finalizers").to_vec();
            items.push(finalizer.into());
            self.set_list("finalizers", items);
        }
        absent
    }

    /// Says whether it was there.
    pub fn remove_finalizer(&mut self, finalizer: &str) -> bool {
        let kept: Vec<Value> =
            self.read().items("finalizers").iter().filter(|f| f.as_str() != Some(finalizer)).cloned().collect();
        let found = kept.len() < self.read().items("finalizers").len();
        self.set_list("finalizers", kept);
        found
    }

    pub fn set_owner_references<'o>(&mut self, owners: impl IntoIterator<Item = OwnerReference<'o>>) {
        self.set_list("ownerReferences", owners.into_iter().map(|owner| owner.to_value()).collect());
    }

    pub fn set_managed_fields(&mut self, entries: Vec<Value>) {
        self.set_list("managedFields", entries);
    }
}

/// The object in a field, made where there is none.
fn nested<'a>(object: &'a mut Object, field: &str) -> &'a mut Object {
    let value = object.entry(field).or_insert_with(|| Value::Object(Object::new()));
    if !value.is_object() {
        *value = Value::Object(Object::new());
    }
    match value {
        Value::Object(object) => object,
        _ => unreachable!("made an object above"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reading_gives_zero_for_what_is_absent() {
        let empty = json!({});
        let meta = Meta::of(&empty);
        assert_eq!((meta.name(), meta.generation(), meta.is_deleting()), ("", 0, false));
        assert_eq!((meta.labels().len(), meta.finalizers().count(), meta.controller()), (0, 0, None));

        let object = json!({"metadata": {"name": "a", "namespace": "ns", "labels": {"x": "y"}, "generation": 2,
            "deletionTimestamp": "2024-01-02T03:04:05Z", "finalizers": ["f"],
            "ownerReferences": [{"uid": "1"}, {"uid": "2", "kind": "K", "controller": true}]}});
        let meta = Meta::of(&object);
        assert_eq!((meta.key(), meta.generation(), meta.is_deleting()), (ObjectKey::new("ns", "a"), 2, true));
        assert_eq!(meta.labels().iter().collect::<Vec<_>>(), [("x", "y")]);
        assert_eq!(meta.controller().map(|o| o.uid), Some("2"));
        assert!(meta.is_controlled_by("2") && !meta.is_controlled_by("1"));
    }

    #[test]
    fn writing_zero_removes() {
        let mut object = Object::new();
        let mut meta = MetaMut::of(&mut object);
        meta.set_name("a");
        meta.set_generation(1);
        meta.set_label("x", "y");
        assert!(meta.add_finalizer("f") && !meta.add_finalizer("f"));
        meta.set_owner_references([OwnerReference { name: "o", controller: true, ..OwnerReference::default() }]);
        let expected = json!({"metadata": {"name": "a", "generation": 1, "labels": {"x": "y"}, "finalizers": ["f"],
            "ownerReferences": [{"apiVersion": "", "kind": "", "name": "o", "uid": "", "controller": true}]}});
        assert_eq!(json!(object), expected);

        let mut meta = MetaMut::of(&mut object);
        meta.set_name("");
        meta.set_generation(0);
        meta.remove_label("x");
        assert!(meta.remove_finalizer("f") && !meta.remove_finalizer("f"));
        meta.set_owner_references([]);
        assert_eq!(json!(object), json!({"metadata": {}}));
    }
}
