//! `metadata.managedFields`: who owns which fields of an object.
//!
//! One entry per manager, operation, subresource and, for updates, API version. FieldsV1 of entries that nobody
//! touched is written back as it was read.

use std::collections::{HashMap, hash_map};
use std::fmt;

use serde_json::{Map, Value};

use super::fields_v1::{self, BadFields};
use super::json;
use super::set::Set;
use crate::go_text;
use crate::value::Fields;

/// How a manager came to own its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// Who wrote: what tells two entries apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Manager {
    pub name: String,
    pub operation: Operation,
    pub subresource: String,
}

/// What one manager owns.
#[derive(Clone, Debug)]
pub struct Entry {
    pub manager: Manager,
    /// The version whose field names the set uses.
    pub api_version: String,
    /// RFC 3339 in UTC; of the last write that changed the set or the object.
    pub time: Option<String>,
    fields: Set,
    /// FieldsV1 as it was read, while it still says the same as `fields`.
    encoded: Option<Value>,
}

/// The entries of an object, each manager once.
#[derive(Clone, Debug, Default)]
pub struct Managed {
    pub(super) entries: Vec<Entry>,
}

/// Why `managedFields` cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadManagedFields {
    #[error("managedFields must be a list of objects")]
    NotAList,
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    ApiVersion,
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    #[error("invalid fieldsType {0} in managed fields entry {1}")]
    FieldsType(String, usize),
    #[error("error decoding set: {0}")]
    Fields(#[from] BadFields),
}

impl Manager {
    /// The text by which Kubernetes sorts managers: the entry as JSON, without version for appliers.
    fn sort_text(&self, api_version: &str) -> String {
        let mut out = String::from("{");
        let mut field = |name: &str, value: &str| {
            if !value.is_empty() {
                let comma = if out.len() > 1 { "," } else { "" };
                out.push_str(&format!("{comma}\"{name}\":"));
                json::write_string(value, &mut out);
            }
        };
        field("manager", &self.name);
        field("operation", self.operation.as_str());
        if self.operation == Operation::Update {
            field("apiVersion", api_version);
        }
        field("subresource", &self.subresource);
        out
    }
}

impl Entry {
    pub fn new(manager: Manager, api_version: &str, fields: Set, time: Option<String>) -> Self {
        Self { manager, api_version: api_version.to_owned(), time, fields, encoded: None }
    }

    pub fn fields(&self) -> &Set {
        &self.fields
    }

    pub fn set_fields(&mut self, fields: Set) {
        self.fields = fields;
        self.encoded = None;
    }

    /// Brings the set up to date with the schema of its version.
    pub(super) fn reconcile(&mut self, schema: &crate::schema::Schema) {
        if super::schema_sets::reconcile(schema, &mut self.fields) {
            self.encoded = None;
        }
    }

    pub(super) fn sort_text(&self) -> String {
        self.manager.sort_text(&self.api_version)
    }

    /// Does the entry belong to this manager, writing in this version?
    pub(super) fn is_of(&self, manager: &Manager, api_version: &str) -> bool {
        self.manager == *manager && (manager.operation == Operation::Apply || self.api_version == api_version)
    }

    fn decode(place: usize, value: &mut Value) -> Result<Self, BadManagedFields> {
        let operation = match value.text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(BadManagedFields::Operation),
        };
        let api_version = value.text("apiVersion").to_owned();
        if api_version.is_empty() {
            return Err(BadManagedFields::ApiVersion);
        }
        match value.text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(BadManagedFields::NoFieldsType(place)),
            other => return Err(BadManagedFields::FieldsType(go_text::quote(other), place)),
        }
        let manager =
            Manager { name: value.text("manager").into(), operation, subresource: value.text("subresource").into() };
        let time = Some(value.text("time").to_owned()).filter(|t| !t.is_empty());
        let encoded = value.get_mut("fieldsV1").map(Value::take).filter(|v| !v.is_null());
        let fields = encoded.as_ref().map(fields_v1::decode).transpose()?.unwrap_or_default();
        Ok(Self { manager, api_version, time, fields, encoded })
    }

    fn encode(self) -> Value {
        let mut map = Map::new();
        let mut text = |name: &str, value: String| {
            if !value.is_empty() {
                map.insert(name.to_owned(), Value::String(value));
            }
        };
        text("manager", self.manager.name);
        text("operation", self.manager.operation.as_str().to_owned());
        text("apiVersion", self.api_version);
        text("time", self.time.unwrap_or_default());
        text("fieldsType", "FieldsV1".to_owned());
        text("subresource", self.manager.subresource);
        map.insert("fieldsV1".to_owned(), self.encoded.unwrap_or_else(|| fields_v1::encode(&self.fields)));
        Value::Object(map)
    }
}

/// As conflicts name it: `"kubectl" with subresource "status" using apps/v1`.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&go_text::quote(&self.manager.name))?;
        if !self.manager.subresource.is_empty() {
            write!(f, " with subresource {}", go_text::quote(&self.manager.subresource))?;
        }
        match self.manager.operation {
            Operation::Update => write!(f, " using {}", self.api_version),
            Operation::Apply => Ok(()),
        }
    }
}

impl Managed {
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn get(&self, manager: &Manager, api_version: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.is_of(manager, api_version))
    }

    /// Takes the entry out.
    pub(super) fn take(&mut self, manager: &Manager, api_version: &str) -> Option<Entry> {
        let at = self.entries.iter().position(|e| e.is_of(manager, api_version))?;
        Some(self.entries.remove(at))
    }

    /// Adds an entry, in the place of the one its manager had.
    pub(super) fn put(&mut self, entry: Entry) {
        match self.entries.iter_mut().find(|e| e.is_of(&entry.manager, &entry.api_version)) {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
    }

    /// Reads `metadata.managedFields`; a missing list is an empty one.
    pub fn decode(value: Option<Value>) -> Result<Self, BadManagedFields> {
        let list = match value {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(BadManagedFields::NotAList),
        };
        let mut entries: Vec<Entry> = Vec::with_capacity(list.len());
        let mut places = HashMap::with_capacity(list.len());
        for (place, mut entry) in list.into_iter().enumerate() {
            if !entry.is_object() {
                return Err(BadManagedFields::NotAList);
            }
            let entry = Entry::decode(place, &mut entry)?;
            // Appliers have one entry for all versions; of several that say so, the last counts.
            let version = (entry.manager.operation == Operation::Update).then(|| entry.api_version.clone());
            match places.entry((entry.manager.clone(), version)) {
                hash_map::Entry::Vacant(at) => {
                    at.insert(entries.len());
                    entries.push(entry);
                }
                hash_map::Entry::Occupied(at) => entries[*at.get()] = entry,
            }
        }
        Ok(Self { entries })
    }

    /// The same entries, to be written anew: a client may have spelled them in its own way.
    pub(super) fn respelled(mut self) -> Self {
        self.entries.iter_mut().for_each(|e| e.encoded = None);
        self
    }

    /// The list for `metadata.managedFields`: appliers first, then by time, oldest first.
    pub fn encode(mut self) -> Option<Value> {
        if self.entries.is_empty() {
            return None;
        }
        self.entries.sort_by(|a, b| {
            (a.manager.operation.cmp(&b.manager.operation))
                .then_with(|| a.time.cmp(&b.time))
                .then_with(|| a.manager.name.cmp(&b.manager.name))
                .then_with(|| a.api_version.cmp(&b.api_version))
                .then_with(|| a.manager.subresource.cmp(&b.manager.subresource))
        });
        Some(Value::Array(self.entries.into_iter().map(Entry::encode).collect()))
    }
}

/// Reads the list of an object that is only looked at.
pub fn of_object(object: &Value) -> Result<Managed, BadManagedFields> {
    Managed::decode(object.at(&["metadata", "managedFields"]).cloned())
}

/// Takes the list out of an object.
pub(super) fn take_list(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Puts the list into an object, which is given metadata if it has none.
pub(super) fn put_list(object: &mut Value, list: Option<Value>) {
    let Some(object) = object.as_object_mut() else { return };
    let Some(list) = list else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("managedFields".to_owned(), list);
    }
}

/// Does a client ask to forget all managers? It does with an empty list or a single empty entry.
pub(super) fn is_reset(list: &Value) -> bool {
    let is_zero = |value: &Value| value.is_null() || value.as_str() == Some("");
    match list.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(entry)]) => entry.values().all(is_zero),
        _ => false,
    }
}
