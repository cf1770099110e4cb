//! Delete: at once, gracefully, or when the last finalizer is gone.
//!
//! An object goes in up to three steps: deletionTimestamp is set while somebody (the node, for pods) winds it down; it
//! stays while it has finalizers (the garbage collector's own are set here, from the propagation policy); then it is
//! removed from the store, comparing revisions, so that no change is lost unseen.

use api::kinds::GarbageCollection;
use object_model::{
    field::{Errors, Path},
    identity::GroupKind,
    meta::{Meta, MetaMut},
    status::{Details, Status},
    time::Time,
};
use serde::Deserialize;
use serde_json::Value;
use storage::{Compare, Expected, Lifetime, Operation};

use super::{
    Answer, Registry,
    companions::Companions,
    write::{Current, Refused, conflict},
};
use crate::{
    admission::{self, Attributes},
    catalogue::Target,
    context::RequestContext,
    watch_cache::encode_stored,
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// How an object is to be deleted: the body or the query of a DELETE.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct DeleteOptions {
    pub grace_period_seconds: Option<i64>,
    pub preconditions: Option<Preconditions>,
    pub orphan_dependents: Option<bool>,
    pub propagation_policy: Option<String>,
    pub dry_run: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct Preconditions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

impl Preconditions {
    /// Is this the object, and as the client has seen it?
    pub fn check(&self, target: &Target<'_>, object: &Value) -> Result<(), Status> {
        let meta = Meta::of(object);
        let conflict = |why: String| {
            let kind = target.resource.group_kind();
            let shown = object_model::identity::GroupResource::new(kind.group, kind.kind);
            Err(Status::conflict(&shown, target.name, why))
        };
        if let Some(uid) = &self.uid
            && uid != meta.uid()
        {
            return conflict(format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted \
             and then recreated",
                meta.uid()
            ));
        }
        if let Some(version) = &self.resource_version
            && version != meta.resource_version()
        {
            return conflict(format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The \
             object might have been modified",
                meta.resource_version()
            ));
        }
        Ok(())
    }
}

/// How a deletion ended.
pub enum Deleted {
    /// The object is gone; this is how it was.
    Gone(Answer),
    /// The object remains for now, marked as deleting.
    Pending(Answer),
}

impl DeleteOptions {
    pub fn is_dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }

    pub fn validate(&self) -> Result<(), Status> {
        let mut errors = Errors::new();
        let root = Path::root();
        if self.propagation_policy.is_some() && self.orphan_dependents.is_some() {
            errors.invalid(
                &root.child("propagationPolicy"),
                self.propagation_policy.clone(),
                "orphanDependents and deletionPropagation cannot be both set",
            );
        }
        if let Some(policy) = self.propagation_policy.as_deref()
            && !matches!(policy, "Foreground" | "Background" | "Orphan")
        {
            errors.not_supported(&root.child("propagationPolicy"), policy, &["Foreground", "Background", "Orphan"]);
        }
        for value in &self.dry_run {
            if value != "All" {
                errors.not_supported(&root.child("dryRun"), value.as_str(), &["All"]);
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Status::invalid(&GroupKind::new("meta.k8s.io", "DeleteOptions"), "", &errors))
    }
}

impl Registry {
    pub async fn delete(
        &self,
        target: &Target<'_>,
        context: &RequestContext,
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        options.validate()?;
        let mut current = self.current(target).await?;
        loop {
            let Some(existing) = &current else {
                return Err(Status::not_found(&target.resource.group_resource(), target.name));
            };
            match self.delete_once(target, context, existing, options).await {
                Err(Refused::Verdict(_)) if !existing.live => current = self.live(target).await?,
                Err(Refused::Verdict(status)) => return Err(status),
                Err(Refused::Race(now)) => current = self.read_current(target, now)?,
                Err(Refused::Companion) => current = self.live(target).await?,
                Ok(deleted) => return Ok(deleted),
            }
        }
    }

    async fn delete_once(
        &self,
        target: &Target<'_>,
        context: &RequestContext,
        existing: &Current,
        options: &DeleteOptions,
    ) -> Result<Deleted, Refused> {
        let old = &existing.object;
        if let Some(preconditions) = &options.preconditions {
            preconditions.check(target, old)?;
        }
        let attributes = Attributes {
            operation: admission::Operation::Delete,
            target,
            old: Some(old),
            context,
            dry_run: options.is_dry_run(),
        };
        self.admission.mutate(&attributes, &mut Value::Null).await?;
        self.admission.validate(&attributes, &Value::Null).await?;
        let version = target.resource.stored_api_version();
        let mut object = old.clone();
        let step = self.mark(target, &mut object, options);
        if matches!(step, Step::AlreadyPending) {
            return Ok(Deleted::Pending(Answer::stored(&version, &encode_stored(old), existing.revision)));
        }
        if matches!(step, Step::Now) {
            return self.remove(target, existing, &object, options.is_dry_run()).await.map(Deleted::Gone);
        }
        let stored = encode_stored(&object);
        if options.is_dry_run() {
            return Ok(Deleted::Pending(Answer::dry(&version, &stored, Some(existing.revision))));
        }
        if stored == encode_stored(old) {
            if !existing.live {
                return Err(conflict(target).into());
            }
            return Ok(Deleted::Pending(Answer::stored(&version, &stored, existing.revision)));
        }
        let compare = Compare { key: target.key(), expected: Expected::ModRevision(existing.revision) };
        let put = Operation::Put { key: target.key(), value: stored.clone(), lifetime: Lifetime::Endless };
        let revision = self.commit(target, compare, put, Companions::default()).await?;
        Ok(Deleted::Pending(Answer::stored(&version, &stored, revision)))
    }

    /// Removes an object from the store, unless it changed since it was read.
    pub(super) async fn remove(
        &self,
        target: &Target<'_>,
        existing: &Current,
        last: &Value,
        dry_run: bool,
    ) -> Result<Answer, Refused> {
        let stored = encode_stored(last);
        let version = target.resource.stored_api_version();
        if dry_run {
            return Ok(Answer::dry(&version, &stored, Some(existing.revision)));
        }
        let compare = Compare { key: target.key(), expected: Expected::ModRevision(existing.revision) };
        let delete = Operation::Delete { key: target.key() };
        let companions = self.keeper(target).map(|keeper| keeper.delete(target, last)).unwrap_or_default();
        let revision = self.commit(target, compare, delete, companions).await?;
        Ok(Answer::stored(&version, &stored, revision))
    }

    /// Marks the object as deleting, as far as it must wait for anybody.
    fn mark(&self, target: &Target<'_>, object: &mut Value, options: &DeleteOptions) -> Step {
        let now = self.clock.seconds();
        let asked = options.grace_period_seconds.map(|s| if s < 0 { 1 } else { s });
        let grace = match self.grace(target, object, asked, now) {
            Grace::Pending => return Step::AlreadyPending,
            Grace::None => None,
            Grace::Until(time, seconds) => Some((time, seconds)),
        };
        let finalizers = finalizers(target.resource.strategy.garbage_collection, object, options);
        if let Some(deletion) = target.resource.strategy.deletion
            && (deletion.waits)(object)
        {
            if Meta::of(object).is_deleting() {
                return Step::AlreadyPending;
            }
            (deletion.mark)(object);
            if let Some(fields) = object.as_object_mut() {
                let mut meta = MetaMut::of(fields);
                meta.set_list("finalizers", finalizers);
                meta.set_deletion_timestamp(Some(now));
            }
            return Step::Mark;
        }
        let Some(fields) = object.as_object_mut() else { return Step::Now };
        let mut meta = MetaMut::of(fields);
        let first = !meta.read().is_deleting();
        let waits = !finalizers.is_empty();
        meta.set_list("finalizers", finalizers);
        match grace {
            Some((time, seconds)) => {
                meta.set_deletion_timestamp(Some(time));
                meta.set_deletion_grace_period_seconds(Some(seconds));
                if seconds == 0 && !waits {
                    return Step::Now;
                }
            }
            None if !waits => return Step::Now,
            None => {
                if first {
                    meta.set_deletion_timestamp(Some(now));
                }
                meta.set_deletion_grace_period_seconds(Some(0));
            }
        }
        let generation = meta.read().generation();
        if first && generation > 0 {
            meta.set_generation(generation + 1);
        }
        Step::Mark
    }

    /// For kinds that are wound down by somebody: until when.
    fn grace(&self, target: &Target<'_>, object: &Value, asked: Option<i64>, now: Time) -> Grace {
        let meta = Meta::of(object);
        let Some(graceful) = target.resource.strategy.grace_period else { return Grace::None };
        let Some(deleting) = meta.deletion_timestamp() else {
            // Nobody waits that long, and nobody could read a later moment.
            let seconds = graceful(object, asked).min(now.seconds_left());
            return Grace::Until(after(now, seconds), seconds);
        };
        // A deletion that is under way can only be made shorter.
        let period = match meta.deletion_grace_period_seconds() {
            None | Some(0) => return Grace::None,
            Some(period) => period,
        };
        match asked {
            Some(seconds) if seconds < period => {
                let time = after(deleting, seconds - period);
                if time < now {
                    Grace::Until(now, if seconds == 0 { 0 } else { 1 })
                } else {
                    Grace::Until(time, seconds)
                }
            }
            _ => Grace::Pending,
        }
    }
}

/// What the next step of a deletion is.
enum Step {
    Now,
    Mark,
    AlreadyPending,
}

enum Grace {
    None,
    Until(Time, i64),
    Pending,
}

fn after(time: Time, seconds: i64) -> Time {
    Time::from_unix(time.unix_seconds().saturating_add(seconds), 0)
}

/// The object's finalizers with those of the garbage collector set from the propagation policy.
fn finalizers(collection: GarbageCollection, object: &Value, options: &DeleteOptions) -> Vec<Value> {
    let meta = Meta::of(object);
    let has = |name: &str| meta.has_finalizer(name);
    let policy = options.propagation_policy.as_deref();
    let orphan = match (collection, options.orphan_dependents, policy) {
        (GarbageCollection::Unsupported, ..) => false,
        (_, Some(orphan), _) => orphan,
        (_, _, Some(policy)) => policy == "Orphan",
        _ if has(ORPHAN) => true,
        _ if has(FOREGROUND) => false,
        (collection, ..) => collection == GarbageCollection::Orphan,
    };
    let foreground = match (collection, options.orphan_dependents, policy) {
        (GarbageCollection::Unsupported, ..) | (_, Some(_), _) => false,
        (_, _, Some(policy)) => policy == "Foreground",
        _ => has(FOREGROUND) && !has(ORPHAN),
    };
    let mut kept: Vec<Value> =
        meta.finalizers().filter(|f| *f != ORPHAN && *f != FOREGROUND).map(Value::from).collect();
    if orphan {
        kept.push(ORPHAN.into());
    }
    if foreground {
        kept.push(FOREGROUND.into());
    }
    kept
}

/// The `Status` that tells of a deletion where the object itself is not answered.
pub fn deleted_status(target: &Target<'_>, uid: &str) -> Status {
    let resource = target.resource.group_resource();
    Status::success(Some(Details {
        name: target.name.to_owned(),
        group: resource.group.to_string(),
        kind: resource.resource.to_string(),
        uid: uid.to_owned(),
        ..Details::default()
    }))
}
