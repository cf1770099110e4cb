//! What is particular about each built-in kind.
//!
//! A [`Strategy`] is everything the one road for objects needs to know of a kind besides its schema: how it is
//! defaulted, what a writer may not set, what is valid, what may change. Kubernetes spreads this over `defaults.go`,
//! `validation.go` and `strategy.go`; here a kind is one file with one `pub static STRATEGY`, listed in [`all`].
//!
//! # How the server uses it
//!
//! Objects are in their group's storage version and canonical (`codec::canonical`) when they get here.
//!
//! 1. decode: [`Strategy::defaults`], on every object that is decoded, from a client or from the store;
//! 2. create: admission mutates; then [`Strategy::before_create`] prepares (status reset, generation, fields of
//!    disabled features dropped) and validates; then admission validates;
//! 3. update, of the object or of a subresource: the same with [`Strategy::before_update`] and the [`Update`] found
//!    by [`Strategy::update_of`]; it judges against the stored object and puts back what this writer does not own;
//! 4. delete: [`Strategy::grace_period`] says how long a graceful deletion takes, if the kind has one;
//! 5. field selectors: [`Strategy::selectable`] reads the fields a client may select by, `metadata.name` and (if
//!    namespaced) `metadata.namespace` first;
//! 6. server-side apply: [`Update::reset`] are the fields that this writer never owns.
//!
//! Before step 2 the server has set uid, creationTimestamp, namespace and a generated name; after step 3 the
//! resourceVersion. Warnings go to the client as `Warning` headers.
//!
//! # Adding a kind
//!
//! Write `kinds/<group>/<kind>.rs` with `pub static STRATEGY: Strategy = Strategy { …, ..Strategy::new(group, kind) }`
//! and add it to [`all`]. The parts that most kinds share are functions in [`prepare`] (status and generation) and
//! [`crate::validation`] (metadata, selectors, pod templates, …).

pub mod admissionregistration;
pub mod all;
pub mod apiextensions;
pub mod apiregistration;
pub mod apps;
pub mod authentication;
pub mod authorization;
pub mod autoscaling;
pub mod batch;
pub mod certificates;
pub mod coordination;
pub mod core;
pub mod discovery;
pub mod flowcontrol;
pub mod networking;
pub mod node;
pub mod policy;
pub mod prepare;
pub mod rbac;
pub mod resource;
pub mod scheduling;
pub mod storage;

use std::time::Duration;

use object_model::field::Errors;
use object_model::names;
use serde_json::Value;

use crate::validation::{Field, Problems, meta};

/// What is particular about a kind.
pub struct Strategy {
    pub group: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    /// A PUT of a name that does not exist creates it.
    pub create_on_update: bool,
    /// A PUT without a resourceVersion replaces whatever is there.
    pub unconditional_update: bool,
    /// Fills in what a client left out. Must be idempotent.
    pub defaults: fn(&mut Value),
    pub create: Create,
    pub update: Update,
    /// Writable subresources by name (`status`, `finalize`, …).
    pub subresources: &'static [(&'static str, Update)],
    /// The fields that can be selected by, besides those of metadata.
    pub fields: &'static [Selectable],
    /// Other names for them, where this API has others than the one that stores the objects. Then only these are known.
    pub field_names: &'static [(&'static str, &'static str)],
    /// For kinds that are deleted gracefully: the period in seconds, given the one asked for.
    pub grace_period: Option<fn(&Value, Option<i64>) -> i64>,
    pub garbage_collection: GarbageCollection,
    /// For a kind that waits for more than its finalizers when it is deleted.
    pub deletion: Option<Deletion>,
    /// A deletion answers with the object instead of a `Status`.
    pub returns_deleted: bool,
    /// How long after its last write an object disappears by itself.
    pub ttl: Option<Duration>,
}

/// How a kind waits for its own end.
#[derive(Clone, Copy)]
pub struct Deletion {
    /// Shows in the object that it is being deleted. May mutate.
    pub mark: fn(&mut Value),
    /// Whether there is still something to wait for.
    pub waits: fn(&Value) -> bool,
}

/// What becomes of the dependents of a deleted object if the client does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GarbageCollection {
    /// They are deleted too.
    Background,
    /// They stay, without their owner.
    Orphan,
    /// The kind owns nothing.
    Unsupported,
}

pub struct Create {
    /// Resets what a client may not set. May mutate.
    pub prepare: fn(&mut Value, &Context),
    /// Says what is wrong. Must not mutate.
    pub validate: fn(&Field),
    pub warnings: fn(&Value) -> Vec<String>,
}

pub struct Update {
    /// Puts back what this writer may not change. May mutate the new object.
    pub prepare: fn(&mut Value, &Value, &Context),
    /// Says what is wrong with the new object, given the old one. Must not mutate.
    pub validate: fn(&Field, &Value),
    pub warnings: fn(&Value, &Value) -> Vec<String>,
    pub reset: Reset,
}

/// The fields a writer never owns in server-side apply. `*` stands for every item of a list.
#[derive(Clone, Copy, Debug)]
pub enum Reset {
    Fields(&'static [&'static [&'static str]]),
    AllBut(&'static [&'static [&'static str]]),
}

/// A field to select by: its name, and how to read it from an object.
pub struct Selectable {
    pub name: &'static str,
    pub read: fn(&Value) -> String,
}

/// Who asks, and when: for the kinds that record it in the object.
#[derive(Clone, Debug, Default)]
pub struct Context {
    pub user: Requester,
    /// RFC 3339, in seconds.
    pub now: String,
}

#[derive(Clone, Debug, Default)]
pub struct Requester {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Vec<(String, Vec<String>)>,
}

/// The strategy of a built-in kind whose objects are stored.
pub fn find(group: &str, kind: &str) -> Option<&'static Strategy> {
    find_in(all::ALL, group, kind)
}

/// The strategy of a built-in kind that is asked and never stored: a review, a request for a token, an eviction. Of it,
/// only [`Strategy::defaults`] and [`Strategy::check`] say anything.
pub fn find_asked(group: &str, kind: &str) -> Option<&'static Strategy> {
    find_in(all::ASKED, group, kind)
}

fn find_in(list: &'static [&'static Strategy], group: &str, kind: &str) -> Option<&'static Strategy> {
    list.iter().copied().find(|strategy| strategy.group == group && strategy.kind == kind)
}

impl Strategy {
    /// A namespaced kind without defaults and rules, to be filled in.
    pub const fn new(group: &'static str, kind: &'static str) -> Strategy {
        Strategy {
            group,
            kind,
            namespaced: true,
            create_on_update: false,
            unconditional_update: true,
            defaults: |_| {},
            create: Create { prepare: |_, _| {}, validate: |_| {}, warnings: |_| Vec::new() },
            update: Update::new(|_, _, _| {}, |_, _| {}),
            subresources: &[],
            fields: &[],
            field_names: &[],
            grace_period: None,
            garbage_collection: GarbageCollection::Background,
            deletion: None,
            returns_deleted: false,
            ttl: None,
        }
    }

    /// A kind without a namespace.
    pub const fn cluster(group: &'static str, kind: &'static str) -> Strategy {
        Strategy { namespaced: false, ..Strategy::new(group, kind) }
    }

    /// The rules for updating the object itself (`""`) or a subresource.
    pub fn update_of(&self, subresource: &str) -> Option<&Update> {
        if subresource.is_empty() {
            return Some(&self.update);
        }
        self.subresources.iter().find(|(name, _)| *name == subresource).map(|(_, update)| update)
    }

    /// For the kinds that are asked and never stored (reviews, evictions): what is wrong with the body.
    pub fn check(&self, body: &Value) -> Result<(), Errors> {
        let errors = Field::check(body, self.create.validate);
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Prepares and validates a new object. The warnings, or all that is wrong.
    pub fn before_create(&self, object: &mut Value, context: &Context) -> Result<Vec<String>, Errors> {
        (self.create.prepare)(object, context);
        let problems = Problems::default();
        let field = Field::root(object, &problems);
        (self.create.validate)(&field);
        if problems.is_empty() {
            meta::object_meta(&field.at("metadata"), self.namespaced, names::name_is_path_segment);
        }
        if !problems.is_empty() {
            return Err(problems.into_errors());
        }
        let warnings = (self.create.warnings)(object);
        // Preparation may have filled in what defaults follow from.
        (self.defaults)(object);
        Ok(warnings)
    }

    /// Prepares and validates a changed object. The warnings, or all that is wrong.
    pub fn before_update(
        &self,
        update: &Update,
        object: &mut Value,
        old: &Value,
        context: &Context,
    ) -> Result<Vec<String>, Errors> {
        let null = Value::Null;
        let old_meta = old.get("metadata").unwrap_or(&null);
        prepare::put(object, &["metadata", "generation"], old_meta.get("generation"));
        (update.prepare)(object, old, context);
        prepare::keep_system_metadata(object, old_meta);
        let problems = Problems::default();
        let field = Field::root(object, &problems);
        let metadata = field.at("metadata");
        meta::object_meta(&metadata, self.namespaced, names::name_is_path_segment);
        meta::meta_update(&metadata, old_meta);
        (update.validate)(&field, old);
        if !problems.is_empty() {
            return Err(problems.into_errors());
        }
        let warnings = (update.warnings)(object, old);
        (self.defaults)(object);
        Ok(warnings)
    }

    /// The fields of an object that can be selected by.
    pub fn selectable<'a>(&'a self, object: &'a Value) -> impl Iterator<Item = (&'static str, String)> + 'a {
        let metadata = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        let namespace = self.namespaced.then(|| ("metadata.namespace", metadata("namespace")));
        std::iter::once(("metadata.name", metadata("name")))
            .chain(namespace)
            .chain(self.fields.iter().map(|field| (field.name, (field.read)(object))))
    }

    /// What a field is called by those who store the objects.
    pub fn stored_field<'a>(&self, name: &'a str) -> Option<&'a str> {
        if self.field_names.is_empty() {
            return Some(name);
        }
        self.field_names.iter().find(|(known, _)| *known == name).map(|(_, stored)| *stored)
    }

    /// Can objects of this kind be selected by this field?
    pub fn can_select(&self, field: &str) -> bool {
        field == "metadata.name"
            || (self.namespaced && field == "metadata.namespace")
            || self.fields.iter().any(|selectable| selectable.name == field)
    }
}

impl Create {
    pub const fn new(prepare: fn(&mut Value, &Context), validate: fn(&Field)) -> Create {
        Create { prepare, validate, warnings: |_| Vec::new() }
    }
}

impl Update {
    pub const fn new(prepare: fn(&mut Value, &Value, &Context), validate: fn(&Field, &Value)) -> Update {
        Update { prepare, validate, warnings: |_, _| Vec::new(), reset: Reset::Fields(&[]) }
    }

    /// The object itself, whose status has a writer of its own.
    pub const fn of_spec(prepare: fn(&mut Value, &Value, &Context), validate: fn(&Field, &Value)) -> Update {
        Update { reset: Reset::Fields(&[&["status"]]), ..Update::new(prepare, validate) }
    }

    /// The `status` subresource: everything but the status is put back.
    pub const fn of_status(validate: fn(&Field, &Value)) -> Update {
        Update { reset: Reset::Fields(&[&["spec"]]), ..Update::new(prepare::status_only, validate) }
    }
}
