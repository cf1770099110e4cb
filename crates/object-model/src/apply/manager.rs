//! The field manager: keeps `metadata.managedFields` true on every write, and carries out server-side apply.
//!
//! An update owns what it changes; whoever owned it before loses it. An apply owns all it says, whether that changes
//! anything or not: it merges, drops what it said last time and no more and what nobody else owns, and stops at fields
//! of others with other values unless forced.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::compare::{Comparison, compare, field_set};
use super::conflict::Conflicts;
use super::element::same;
use super::empty::empty_object;
use super::error::ApplyError;
use super::managed::{self, Entry, Managed, Manager, Operation};
use super::merge::merge;
use super::remove::remove_items;
use super::schema_sets::with_named_fields;
use super::set::Set;
use super::validate::{Duplicates, validate};
use super::versions::Versions;
use super::{cap, last_applied};
use crate::identity::GroupVersionKind;
use crate::schema::Schema;
use crate::value::Fields;

/// The manager that is given the fields of an object which had no managers before its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The name of a writer who gave none.
const UNKNOWN: &str = "unknown";

/// Fields of the system: they are never owned.
static SYSTEM_FIELDS: LazyLock<Set> = LazyLock::new(|| {
    let mut set = Set::of_fields(&[&["apiVersion"], &["kind"], &["metadata"]]);
    for name in [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ] {
        set = set.union(&Set::of_fields(&[&["metadata", name]]));
    }
    set
});

static MANAGED_FIELDS: LazyLock<Set> = LazyLock::new(|| Set::of_fields(&[&["metadata", "managedFields"]]));

/// What an apply made of the live object.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// With its new managed fields, not yet defaulted.
    pub object: Value,
    /// Does it differ from the live object in more than its managed fields?
    pub changed: bool,
}

/// The field manager of one resource or subresource in the version of a request.
#[derive(Clone, Copy)]
pub struct FieldManager<'a> {
    pub schema: &'a Schema,
    pub kind: &'a GroupVersionKind,
    /// The group and version of `kind`, as objects say it.
    pub api_version: &'a str,
    /// Empty for the resource itself.
    pub subresource: &'a str,
    pub versions: &'a dyn Versions,
}

/// An object before and after a write.
struct Write<'v> {
    live: &'v Value,
    new: &'v Value,
}

impl FieldManager<'_> {
    /// Tracks a create, replace or patch. `live` is the stored object in the version of the request, none on create;
    /// `new` is what is to be stored, defaulted and canonical, before admission changes it. `new` may bring `managedFields` of its own: an empty list, or a single empty entry,
    /// forgets all managers; what cannot be read is replaced by the stored one.
    ///
    /// Never fails: an object whose fields cannot be tracked is stored without managers.
    pub fn on_update(&self, live: Option<&Value>, mut new: Value, manager: &str, now: &str) -> Value {
        let managed = self.live_or_new(live, managed::take_list(&mut new));
        let live = live.map_or_else(|| Cow::Owned(self.empty()), Cow::Borrowed);
        // An object that already exists and has no managers gets them with its first apply.
        if managed.is_empty() && !live.text_at(&["metadata", "uid"]).is_empty() {
            return new;
        }
        if let Ok(managed) = self.update(Write { live: &live, new: &new }, managed, manager, now) {
            managed::put_list(&mut new, cap::cap_updaters(managed).encode());
        }
        new
    }

    /// Carries out a server-side apply. `live` is the stored object, none on create.
    pub fn on_apply(
        &self,
        live: Option<&Value>,
        applied: &Value,
        manager: &str,
        force: bool,
        now: &str,
    ) -> Result<Applied, ApplyError> {
        let mut live = live.cloned().unwrap_or_else(|| self.empty());
        let managed = Managed::decode(managed::take_list(&mut live))?;
        self.check_applied(applied)?;
        let mut result = self.apply_from(&live, applied, managed.clone(), manager, force, now);
        if manager == last_applied::KUBECTL
            && let Err(ApplyError::Conflict(conflicts)) = result
        {
            // What kubectl set by client-side apply and nobody changed since is kubectl's to take over.
            let theirs = match last_applied::unchanged_fields(self.schema, self.api_version, &live) {
                Some(fields) => conflicts.outside(&fields),
                None => conflicts,
            };
            result = match theirs.is_empty() {
                true => self.apply_from(&live, applied, managed, manager, true, now),
                false => Err(ApplyError::Conflict(theirs)),
            };
        }
        let (mut object, managed, mut changed) = result?;
        if manager == last_applied::KUBECTL {
            changed |= last_applied::keep_up(&mut object, applied);
        }
        managed::put_list(&mut object, managed.encode());
        Ok(Applied { object, changed })
    }

    fn empty(&self) -> Value {
        empty_object(self.schema, self.kind)
    }

    /// The managers that a write starts from.
    fn live_or_new(&self, live: Option<&Value>, new: Option<Value>) -> Managed {
        let of_live = || live.and_then(|live| managed::of_object(live).ok()).unwrap_or_default();
        // Writers of a subresource have no say in the managers.
        if !self.subresource.is_empty() {
            return of_live();
        }
        let Some(new) = new.filter(|v| !v.is_null()) else { return of_live() };
        if managed::is_reset(&new) {
            return Managed::default();
        }
        if live.and_then(|live| live.at(&["metadata", "managedFields"])) == Some(&new) {
            return Managed::decode(Some(new)).unwrap_or_default();
        }
        match Managed::decode(Some(new)) {
            Ok(managed) if !managed.is_empty() => managed.respelled(),
            _ => of_live(),
        }
    }

    fn check_applied(&self, applied: &Value) -> Result<(), ApplyError> {
        let kind = GroupVersionKind::parse(applied.text("apiVersion"), applied.text("kind"));
        if kind.as_ref().ok() != Some(self.kind) {
            let shown = kind.map(|kind| kind.to_string()).unwrap_or_default();
            return Err(ApplyError::BadRequest(format!("invalid object type: {shown}")));
        }
        if applied.at(&["metadata", "managedFields"]).is_some_and(|list| !list.is_null()) {
            return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
        }
        let object = || self.shown(applied);
        validate(self.schema, applied, Duplicates::Refused)
            .map_err(|problems| ApplyError::Applied { object: object(), problems })
    }

    /// As messages name an object: `namespace/name; group/version, Kind=Kind`.
    fn shown(&self, object: &Value) -> String {
        let name = |field| object.text_at(&["metadata", field]);
        format!("{}/{}; {}", name("namespace"), name("name"), self.kind)
    }

    fn manager(&self, name: &str, operation: Operation) -> Manager {
        let name = if name.is_empty() { UNKNOWN } else { name };
        Manager { name: name.to_owned(), operation, subresource: self.subresource.to_owned() }
    }

    fn may_own(&self, api_version: &str, set: Set) -> Set {
        match self.versions.filter(api_version) {
            Some(filter) => filter.apply(&set),
            None => set,
        }
    }

    fn compare_in(&self, schema: &Schema, version: &str, write: &Write<'_>) -> Result<Comparison, ApplyError> {
        let mut found = compare(schema, write.live, write.new).map_err(ApplyError::Compare)?;
        if !found.removed.is_empty() {
            found.removed = found.removed.difference(&MANAGED_FIELDS);
        }
        Ok(match self.versions.filter(version) {
            Some(filter) => found.map(|set| filter.apply(&set)),
            None => found,
        })
    }

    fn schema_of(&self, version: &str) -> Option<&Schema> {
        if version == self.api_version { Some(self.schema) } else { self.versions.schema(version) }
    }

    /// The object in a version, if the kind still has it.
    fn at<'v>(&self, object: &'v Value, version: &str) -> Result<Option<(&Schema, Cow<'v, Value>)>, ApplyError> {
        let Some(schema) = self.schema_of(version) else { return Ok(None) };
        if matches!(object.text("apiVersion"), own if own == version || (own.is_empty() && version == self.api_version))
        {
            return Ok(Some((schema, Cow::Borrowed(object))));
        }
        let bad = |why| ApplyError::Convert { version: version.to_owned(), why };
        let converted = self.versions.convert(object, version).map_err(bad)?;
        Ok(Some((schema, Cow::Owned(converted))))
    }

    /// Brings sets up to date with the schemas of their versions; those of versions that are gone are dropped.
    fn reconcile(&self, managed: &mut Managed) {
        managed.entries.retain_mut(|entry| match self.schema_of(&entry.api_version) {
            Some(schema) => {
                entry.reconcile(schema);
                true
            }
            None => false,
        });
    }

    /// What an update does to the owners of fields.
    fn update(&self, write: Write<'_>, mut managed: Managed, name: &str, now: &str) -> Result<Managed, ApplyError> {
        let version = self.api_version;
        self.reconcile(&mut managed);
        let found = self.take_over(&mut managed, &write, None, true)?;
        let set = self.may_own(version, found.changed()).difference(&SYSTEM_FIELDS);
        if !set.is_empty() {
            let manager = self.manager(name, Operation::Update);
            let set = match managed.get(&manager, version) {
                Some(previous) => set.union(previous.fields()),
                None => set,
            };
            managed.put(Entry::new(manager, version, set, Some(now.to_owned())));
        }
        Ok(managed)
    }

    /// Takes changed and removed fields from all managers but the one that applies. Unless forced, fields that change
    /// under another manager are conflicts.
    fn take_over(
        &self,
        managed: &mut Managed,
        write: &Write<'_>,
        applier: Option<&Manager>,
        force: bool,
    ) -> Result<Comparison, ApplyError> {
        let version = self.api_version;
        let own = self.compare_in(self.schema, version, write)?;
        let mut versions = vec![(version.to_owned(), own.changed(), own.removed.clone())];
        let (mut kept, mut conflicts) = (Vec::with_capacity(managed.entries.len()), Vec::new());
        for entry in std::mem::take(&mut managed.entries) {
            if applier == Some(&entry.manager) {
                kept.push((entry, Set::new()));
                continue;
            }
            if !versions.iter().any(|(version, ..)| *version == entry.api_version) {
                let (old, new) = (self.at(write.live, &entry.api_version)?, self.at(write.new, &entry.api_version)?);
                let (Some((schema, old)), Some((_, new))) = (old, new) else { continue };
                let found = self.compare_in(schema, &entry.api_version, &Write { live: &old, new: &new })?;
                versions.push((entry.api_version.clone(), found.changed(), found.removed));
            }
            let Some((_, changed, removed)) = versions.iter().find(|(version, ..)| *version == entry.api_version)
            else {
                continue;
            };
            let conflict = entry.fields().intersection(changed);
            let lost = if removed.is_empty() { conflict.clone() } else { conflict.union(removed) };
            if !force && !conflict.is_empty() {
                conflicts.push((entry.clone(), conflict));
            }
            kept.push((entry, lost));
        }
        if !conflicts.is_empty() {
            let found = conflicts.iter().map(|(entry, set)| (entry, set.clone())).collect();
            return Err(ApplyError::Conflict(Conflicts::new(found)));
        }
        for (mut entry, lost) in kept {
            if entry.fields().intersects(&lost) {
                entry.set_fields(entry.fields().difference(&lost));
            }
            if !entry.fields().is_empty() {
                managed.entries.push(entry);
            }
        }
        Ok(own)
    }

    /// The merged object, its managers, and whether it differs from the live one.
    fn apply_from(
        &self,
        live: &Value,
        applied: &Value,
        mut managed: Managed,
        name: &str,
        force: bool,
        now: &str,
    ) -> Result<(Value, Managed, bool), ApplyError> {
        if managed.is_empty() {
            let write = Write { live: &self.empty(), new: live };
            managed = cap::cap_updaters(self.update(write, managed, BEFORE_FIRST_APPLY, now)?);
        }
        let version = self.api_version;
        let live_problems = |problems| ApplyError::Live { object: self.shown(live), problems };
        validate(self.schema, live, Duplicates::Allowed).map_err(live_problems)?;
        self.reconcile(&mut managed);
        let merged = merge(self.schema, live, applied).map_err(ApplyError::Merge)?;

        let manager = self.manager(name, Operation::Apply);
        let last = managed.take(&manager, version);
        let set = self.may_own(version, field_set(self.schema, applied));
        let mut entry = Entry::new(manager.clone(), version, set, last.as_ref().and_then(|last| last.time.clone()));
        managed.put(entry.clone());
        let merged = match &last {
            Some(last) if !last.fields().is_empty() => self.prune(merged, &managed, last)?,
            _ => merged,
        };
        self.take_over(&mut managed, &Write { live, new: &merged }, Some(&manager), force)?;

        let changed = !same(live, &merged);
        managed.take(&manager, version);
        entry.set_fields(entry.fields().difference(&SYSTEM_FIELDS));
        if changed {
            entry.time = Some(now.to_owned());
        }
        if !entry.fields().is_empty() {
            managed.put(entry);
        }
        Ok((if changed { merged } else { live.clone() }, managed, changed))
    }

    /// Removes what the manager applied last time, does not apply now, and nobody else owns.
    fn prune(&self, merged: Value, managed: &Managed, last: &Entry) -> Result<Value, ApplyError> {
        let Some((schema, in_last)) = self.at(&merged, &last.api_version)? else { return Ok(merged) };
        let named = with_named_fields(schema, last.fields());
        let mut pruned = remove_items(schema, &in_last, &named);

        // Owned fields come back, those of the version at hand first: without them it may not convert.
        let mut sets: HashMap<&str, Vec<&Set>> = HashMap::new();
        for entry in &managed.entries {
            sets.entry(&entry.api_version).or_default().push(entry.fields());
        }
        let at_hand = (last.api_version.as_str(), sets.remove(last.api_version.as_str()).unwrap_or_default());
        let others = managed.entries.iter().filter_map(|e| sets.remove_entry(e.api_version.as_str()));
        for (version, sets) in [at_hand].into_iter().chain(others) {
            let owned = Set::union_of(sets);
            let (Some((schema, whole)), Some((_, left))) = (self.at(&merged, version)?, self.at(&pruned, version)?)
            else {
                continue;
            };
            let fields = |value: &Value| with_named_fields(schema, &field_set(schema, value));
            let keep = fields(&left).union(&with_named_fields(schema, &owned));
            let back = remove_items(schema, &whole, &fields(&whole).difference(&keep));
            pruned = back;
        }

        // What went without having been the manager's comes back too.
        let Some((_, pruned)) = self.at(&pruned, &last.api_version)? else { return Ok(merged) };
        let fields = |value: &Value| with_named_fields(schema, &field_set(schema, value));
        let gone = fields(&in_last).difference(&fields(&pruned)).intersection(&named);
        let result = remove_items(schema, &in_last, &gone);
        match self.at(&result, self.api_version)? {
            Some((_, result)) => Ok(result.into_owned()),
            None => Ok(merged),
        }
    }
}
