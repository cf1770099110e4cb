//! Create and update.

use api::kinds::Strategy;
use async_trait::async_trait;
use object_model::{
    codec::MAX_DEPTH,
    field::{Errors, Path},
    identity::GroupKind,
    meta::{Meta, MetaMut},
    names,
    status::{Reason, Status},
    value::depth,
};
use serde_json::Value;
use storage::{Compare, Expected, KeyValue, Operation, Outcome, Revision, Transaction};

use super::{Answer, Registry, companions::Companions, owners, store_error};
use crate::{
    admission::{self, Attributes},
    catalogue::Target,
    context::RequestContext,
    options::WriteOptions,
    watch_cache::{Entry, encode_stored},
};

const STALE: &str = "the object has been modified; please apply your changes to the latest version and try again";
/// How often a generated name is tried when it is taken.
const NAME_ATTEMPTS: usize = 8;
/// How often companions are chosen anew when another writer took the same.
const COMPANION_ATTEMPTS: usize = 64;

/// What a request wants to make of an object. It is asked again when somebody else was faster.
#[async_trait]
pub trait Change: Send {
    /// The new object in the stored version, decoded, defaulted and with its fields' owners. `current` is `None` where
    /// there is none yet.
    async fn apply(&mut self, current: Option<&Value>) -> Result<Value, Status>;

    /// May the object be created when it does not exist? Who may change objects must not thereby make new ones, so a
    /// change on behalf of a user asks for that right when it is applied to nothing.
    fn creates(&self) -> bool {
        false
    }
}

/// An object as it is in the store, to be replaced or deleted by comparison.
pub(super) struct Current {
    pub object: Value,
    pub revision: Revision,
    /// Straight from the store, and not from the cache, which may be behind.
    pub live: bool,
}

/// Why a write did not go through this time.
pub(super) enum Refused {
    /// Somebody else was faster; this is what is there now.
    Race(Option<KeyValue>),
    /// Somebody else took the same companion.
    Companion,
    /// It must not, as far as the object that was read can tell.
    Verdict(Status),
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Refused::Verdict(status)
    }
}

impl Registry {
    /// Creates an object that is decoded, defaulted and has its fields' owners.
    ///
    /// The stations: mutating admission (may mutate), system fields and name, companions (may mutate), the strategy's
    /// preparation (may mutate), validation (must not), validating admission (must not), commit.
    pub async fn create(
        &self,
        target: &Target<'_>,
        context: &RequestContext,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Answer, Status> {
        let generated = Meta::of(&object).name().is_empty() && !Meta::of(&object).generate_name().is_empty();
        if !generated {
            return self.create_named(target, context, object, options).await;
        }
        let mut left = NAME_ATTEMPTS;
        loop {
            left -= 1;
            match self.create_named(target, context, object.clone(), options).await {
                Err(status) if status.is(Reason::ALREADY_EXISTS) => {
                    if left == 0 {
                        let name = status.details.map(|d| d.name).unwrap_or_default();
                        return Err(Status::generate_name_conflict(&target.resource.group_resource(), &name, 1));
                    }
                }
                result => return result,
            }
        }
    }

    async fn create_named(
        &self,
        target: &Target<'_>,
        context: &RequestContext,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Answer, Status> {
        let attributes = Attributes {
            operation: admission::Operation::Create,
            target,
            old: None,
            context,
            dry_run: options.dry_run,
        };
        settle_namespace(target, &mut object)?;
        self.admission.mutate(&attributes, &mut object).await?;
        owners::told_once(&mut object, owners::When::Admitted, &context.warnings);
        self.fill_system_fields(&mut object);
        let mut left = COMPANION_ATTEMPTS;
        loop {
            left -= 1;
            match self.create_once(&attributes, object.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(Refused::Verdict(status)) => return Err(status),
                Err(Refused::Race(_)) => {
                    let name = Meta::of(&object).name();
                    return Err(Status::already_exists(&target.resource.group_resource(), name));
                }
                Err(Refused::Companion) if left == 0 => return Err(too_busy(target, "create")),
                Err(Refused::Companion) => {}
            }
        }
    }

    async fn create_once(&self, attributes: &Attributes<'_>, mut object: Value) -> Result<Answer, Refused> {
        let (target, context) = (attributes.target, attributes.context);
        let mut companions = match self.keeper(target) {
            Some(keeper) => {
                // What is free must be known as of now, or a retry would choose the same again.
                self.cache.fresh().await.map_err(store_error)?;
                keeper.create(target, &mut object, attributes.dry_run)?
            }
            None => Companions::default(),
        };
        let warnings = target
            .resource
            .strategy
            .before_create(&mut object, &context.for_strategy(self.clock.seconds()))
            .map_err(|errors| invalid(target, &object, &errors))?;
        warnings.into_iter().for_each(|warning| context.warnings.add(warning));
        companions.extend(self.admission.validate(attributes, &object).await?);
        let named = Target { name: Meta::of(&object).name(), ..*target };
        check_depth(&object)?;
        let stored = encode_stored(&object);
        if attributes.dry_run {
            return match self.current(&named).await? {
                Some(_) => Err(Refused::Race(None)),
                None => Ok(Answer::dry(&target.resource.stored_api_version(), &stored, None).created()),
            };
        }
        let compare = Compare { key: named.key(), expected: Expected::Absent };
        let lifetime = target.resource.strategy.ttl.into();
        let put = Operation::Put { key: named.key(), value: stored.clone(), lifetime };
        let revision = self.commit(target, compare, put, companions).await?;
        Ok(Answer::stored(&target.resource.stored_api_version(), &stored, revision).created())
    }

    /// A question, which is answered and not stored: it takes the road of a new object up to the store. `strategy` is of its
    /// kind, which for a subresource is not the target's.
    pub async fn ask(
        &self,
        target: &Target<'_>,
        strategy: &Strategy,
        context: &RequestContext,
        mut question: Value,
        options: &WriteOptions,
    ) -> Result<Value, Status> {
        let dry_run = options.dry_run;
        let attributes = Attributes { operation: admission::Operation::Create, target, old: None, context, dry_run };
        settle_namespace(target, &mut question)?;
        self.admission.mutate(&attributes, &mut question).await?;
        strategy.check(&question).map_err(|errors| {
            Status::invalid(&GroupKind::new(strategy.group, strategy.kind), Meta::of(&question).name(), &errors)
        })?;
        self.admission.validate(&attributes, &question).await?;
        Ok(question)
    }

    /// What every new object has, whatever its client says.
    fn fill_system_fields(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else { return };
        let mut meta = MetaMut::of(fields);
        meta.set_creation_timestamp(Some(self.clock.seconds()));
        meta.set_uid(&uuid::Uuid::new_v4().to_string());
        meta.set_deletion_timestamp(None);
        meta.set_deletion_grace_period_seconds(None);
        meta.remove("selfLink");
        meta.remove("resourceVersion");
        if meta.read().name().is_empty() && !meta.read().generate_name().is_empty() {
            let name = names::generate_name(meta.read().generate_name());
            meta.set_name(&name);
        }
    }

    /// Replaces or patches an object, whichever `change` does.
    ///
    /// The stations: the change, mutating admission (may mutate), companions (may mutate), the strategy's preparation (may
    /// mutate), validation (must not), validating admission (must not), commit; again from the start when the object
    /// changed meanwhile.
    pub async fn update(
        &self,
        target: &Target<'_>,
        context: &RequestContext,
        change: &mut dyn Change,
        options: &WriteOptions,
    ) -> Result<Answer, Status> {
        let mut current = self.current(target).await?;
        let mut left = COMPANION_ATTEMPTS;
        loop {
            let Some(existing) = &current else {
                if !change.creates() {
                    return Err(Status::not_found(&target.resource.group_resource(), target.name));
                }
                let object = change.apply(None).await?;
                match self.create_named(target, context, object, options).await {
                    Err(status) if status.is(Reason::ALREADY_EXISTS) => {
                        current = self.live(target).await?;
                        continue;
                    }
                    result => return result,
                }
            };
            match self.update_once(target, context, existing, change, options).await {
                // A verdict on a stale read is reached again on the store's own word.
                Err(Refused::Verdict(_)) if !existing.live => current = self.live(target).await?,
                Err(Refused::Verdict(status)) => return Err(status),
                Err(Refused::Race(now)) => current = self.read_current(target, now)?,
                Err(Refused::Companion) if left == 0 => return Err(too_busy(target, "update")),
                Err(Refused::Companion) => left -= 1,
                Ok(answer) => return Ok(answer),
            }
        }
    }

    async fn update_once(
        &self,
        target: &Target<'_>,
        context: &RequestContext,
        existing: &Current,
        change: &mut dyn Change,
        options: &WriteOptions,
    ) -> Result<Answer, Refused> {
        let old = &existing.object;
        let mut object = change.apply(Some(old)).await?;
        check_version(target, &object, existing)?;
        if let Some(fields) = object.as_object_mut() {
            MetaMut::of(fields).set_resource_version(&existing.revision.to_string());
        }
        settle_namespace(target, &mut object)?;
        let attributes = Attributes {
            operation: admission::Operation::Update,
            target,
            old: Some(old),
            context,
            dry_run: options.dry_run,
        };
        self.admission.mutate(&attributes, &mut object).await?;
        owners::told_once(&mut object, owners::When::Admitted, &context.warnings);
        let mut companions = match self.keeper(target) {
            Some(keeper) if target.subresource.is_empty() => {
                self.cache.fresh().await.map_err(store_error)?;
                keeper.update(target, &mut object, old, options.dry_run)?
            }
            _ => Companions::default(),
        };
        let warnings = target
            .resource
            .strategy
            .before_update(target.update(), &mut object, old, &context.for_strategy(self.clock.seconds()))
            .map_err(|errors| invalid(target, &object, &errors))?;
        warnings.into_iter().for_each(|warning| context.warnings.add(warning));
        object_model::apply::keep_times(&mut object, old);
        companions.extend(self.admission.validate(&attributes, &object).await?);
        if ends_deletion(target, &object, old) {
            return self.remove(target, existing, &object, options.dry_run).await;
        }
        let version = target.resource.stored_api_version();
        check_depth(&object)?;
        let stored = encode_stored(&object);
        if options.dry_run {
            return Ok(Answer::dry(&version, &stored, Some(existing.revision)));
        }
        if stored == encode_stored(old) {
            if !existing.live {
                return Err(conflict(target).into());
            }
            return Ok(Answer::stored(&version, &stored, existing.revision));
        }
        let compare = Compare { key: target.key(), expected: Expected::ModRevision(existing.revision) };
        let lifetime = target.resource.strategy.ttl.into();
        let put = Operation::Put { key: target.key(), value: stored.clone(), lifetime };
        let revision = self.commit(target, compare, put, companions).await?;
        Ok(Answer::stored(&version, &stored, revision))
    }

    /// Commits a change of one object, and of its companions with it.
    pub(super) async fn commit(
        &self,
        target: &Target<'_>,
        compare: Compare,
        operation: Operation,
        companions: Companions,
    ) -> Result<Revision, Refused> {
        let Companions { compares: more, operations: with, turn: _turn } = companions;
        let mut compares = vec![compare];
        compares.extend(more);
        let mut operations = vec![operation];
        operations.extend(with);
        let expected = compares[0].expected;
        let durability = Self::durability(target.resource, target.namespace);
        match self.store.commit(Transaction { compares, operations, durability }).await.map_err(store_error)? {
            Outcome::Committed(revision) => {
                self.cache.written(revision);
                Ok(revision)
            }
            Outcome::Conflict(mut now) => {
                let own = now.value.swap_remove(0);
                let holds = match (expected, &own) {
                    (Expected::Absent, None) => true,
                    (Expected::ModRevision(revision), Some(kv)) => kv.mod_revision == revision,
                    _ => false,
                };
                Err(if holds { Refused::Companion } else { Refused::Race(own) })
            }
        }
    }

    /// The object as the cache has it, or, where it has none, as the store says.
    pub(super) async fn current(&self, target: &Target<'_>) -> Result<Option<Current>, Status> {
        match target.resource.cache.get(&target.cache_name()) {
            Some(entry) => Ok(Some(Current::of(&entry, target, false))),
            None => self.live(target).await,
        }
    }

    /// The object on the store's own word.
    pub(super) async fn live(&self, target: &Target<'_>) -> Result<Option<Current>, Status> {
        let read = self.store.get(&target.key(), None).await.map_err(store_error)?;
        self.read_current(target, read.value)
    }

    pub(super) fn read_current(
        &self,
        target: &Target<'_>,
        stored: Option<KeyValue>,
    ) -> Result<Option<Current>, Status> {
        let Some(kv) = stored else { return Ok(None) };
        let entry =
            Entry::read(&kv.key, &target.cache_name(), &kv.value, kv.mod_revision, &[]).map_err(Status::internal)?;
        Ok(Some(Current::of(&entry, target, true)))
    }
}

impl Current {
    fn of(entry: &Entry, target: &Target<'_>, live: bool) -> Self {
        Self { object: entry.object(&target.resource.kind), revision: entry.revision, live }
    }
}

/// The version the client has seen must be the current one, unless the kind lets it be left out.
fn check_version(target: &Target<'_>, object: &Value, existing: &Current) -> Result<(), Status> {
    let given = Meta::of(object).resource_version();
    if matches!(given, "" | "0") {
        if target.resource.strategy.unconditional_update {
            return Ok(());
        }
        let mut errors = Errors::new();
        let root = Path::root();
        let metadata = root.child("metadata");
        errors.invalid(&metadata.child("resourceVersion"), 0, "must be specified for an update");
        // Kubernetes names the resource here where all other messages name the kind.
        let kind = GroupKind::new(&*target.resource.group, &*target.resource.plural);
        return Err(Status::invalid(&kind, target.name, &errors));
    }
    if given == existing.revision.to_string() { Ok(()) } else { Err(conflict(target)) }
}

/// What is stored must be read again by everyone. Patches, admission and the tracking of owners can nest an object deeper
/// than the body of a request may.
fn check_depth(object: &Value) -> Result<(), Status> {
    if depth(object) <= MAX_DEPTH {
        return Ok(());
    }
    let words = format!("the object, with its managed fields, is nested more than {MAX_DEPTH} levels deep");
    Err(Status::bad_request(words))
}

/// The namespace of the object is that of the request.
fn settle_namespace(target: &Target<'_>, object: &mut Value) -> Result<(), Status> {
    let given = Meta::of(object).namespace();
    if given == target.namespace {
        return Ok(());
    }
    if !given.is_empty() {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if let Some(fields) = object.as_object_mut() {
        MetaMut::of(fields).set_namespace(target.namespace);
    }
    Ok(())
}

fn invalid(target: &Target<'_>, object: &Value, errors: &Errors) -> Status {
    Status::invalid(&target.resource.group_kind(), Meta::of(object).name(), errors)
}

pub(super) fn conflict(target: &Target<'_>) -> Status {
    Status::conflict(&target.resource.group_resource(), target.name, STALE)
}

fn too_busy(target: &Target<'_>, operation: &str) -> Status {
    Status::server_timeout(&target.resource.group_resource(), operation, 1)
}

/// Was this update the last thing that a deletion waited for?
fn ends_deletion(target: &Target<'_>, object: &Value, old: &Value) -> bool {
    let waits = target.resource.strategy.deletion.is_some_and(|deletion| (deletion.waits)(object));
    let was = Meta::of(old);
    let wound_down = was.is_deleting() && was.deletion_grace_period_seconds().unwrap_or(0) == 0;
    wound_down && !waits && Meta::of(object).finalizers().next().is_none()
}
