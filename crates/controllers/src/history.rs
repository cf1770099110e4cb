//! ControllerRevisions: the templates that a DaemonSet or StatefulSet has had, numbered, the newest last.
//!
//! A revision holds a patch that gives its owner the template back. A template that comes again is the old revision with a
//! new number. The name of a revision ends in a hash of the template; if another template has it already, the owner's
//! collision count goes up and the hash is made anew.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use controller_runtime::{
    Error, Informer, Key, OwnWrites,
    adoption::{claim, controller_reference},
    informer::{CONTROLLER, orphans},
};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{apps::v1::ControllerRevision, core::v1::PodTemplateSpec},
    apimachinery::pkg::runtime::RawExtension,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::revision_hash;

/// How much of the owner's name the name of a revision has at most.
const LONGEST_OWNER: usize = 223;

/// The label by which pods say of which revision they are.
pub const POD_REVISION: &str = "controller-revision-hash";

/// Where the history of one owner is.
pub struct History<'a, O> {
    pub client: &'a Client,
    pub revisions: &'a Informer<ControllerRevision>,
    pub own_writes: &'a OwnWrites<Key>,
    pub key: &'a Key,
    pub owner: &'a O,
}

/// The revision of the template as it is now.
pub enum Newest {
    Is(Arc<ControllerRevision>),
    /// Another template has its name: the owner's collision count must go up.
    Collides,
}

/// The patch that brings a template back.
pub fn patch_of(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

/// The template that a revision brings back.
pub fn template_of(revision: &ControllerRevision) -> serde_json::Result<PodTemplateSpec> {
    let mut template = revision.data.as_ref().map(|data| data.0["spec"]["template"].clone()).unwrap_or_default();
    if let Some(template) = template.as_object_mut() {
        template.remove("$patch");
    }
    serde_json::from_value(template)
}

pub fn is_of(revision: &ControllerRevision, patch: &Value) -> bool {
    revision.data.as_ref().is_some_and(|data| data.0 == *patch)
}

pub fn name(revision: &ControllerRevision) -> &str {
    revision.metadata.name.as_deref().unwrap_or_default()
}

pub fn label<'a>(meta: &'a ObjectMeta, label: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(label).map(String::as_str)
}

impl<O> History<'_, O>
where
    O: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    fn api(&self) -> Api<ControllerRevision> {
        Api::namespaced(self.client.clone(), &self.key.namespace)
    }

    /// All revisions of the owner, the oldest first.
    pub async fn all(&self, matches: impl Fn(&ObjectMeta) -> bool) -> Result<Vec<Arc<ControllerRevision>>, Error> {
        let uid = self.owner.meta().uid.as_deref().unwrap_or_default();
        let mut around = self.revisions.by_index(CONTROLLER, uid);
        around.extend(self.revisions.by_index(CONTROLLER, &orphans(&self.key.namespace)));
        let owners = Api::namespaced(self.client.clone(), &self.key.namespace);
        let wrote = |revision: &ControllerRevision| self.own_writes.wrote(self.key, self.revisions, revision);
        let mut all = claim(self.owner, &owners, around, &self.api(), |one| matches(&one.metadata), wrote).await?;
        all.sort_by(|a, b| {
            let order = |one: &ControllerRevision| (one.revision, one.metadata.creation_timestamp.clone());
            order(a).cmp(&order(b)).then_with(|| name(a).cmp(name(b)))
        });
        Ok(all)
    }

    /// The revision of a template: one of `all`, brought up to date, or a new one. `hash_label` is where it has its hash.
    pub async fn newest(
        &self,
        all: &[Arc<ControllerRevision>],
        template: &PodTemplateSpec,
        hash_label: &str,
        collisions: Option<i32>,
    ) -> Result<Newest, Error> {
        let patch = patch_of(template);
        let Some(known) = all.iter().rev().find(|revision| is_of(revision, &patch)) else {
            let number = all.last().map_or(0, |last| last.revision) + 1;
            return self.create(template, patch, hash_label, collisions, number).await;
        };
        let others = all.iter().filter(|revision| !is_of(revision, &patch));
        let number = others.map(|revision| revision.revision).max().unwrap_or(0) + 1;
        if known.revision >= number {
            return Ok(Newest::Is(known.clone()));
        }
        let newer = ControllerRevision { revision: number, ..(**known).clone() };
        let written = self.api().replace(name(known), &PostParams::default(), &newer).await?;
        self.own_writes.wrote(self.key, self.revisions, &written);
        Ok(Newest::Is(Arc::new(written)))
    }

    async fn create(
        &self,
        template: &PodTemplateSpec,
        patch: Value,
        hash_label: &str,
        collisions: Option<i32>,
        number: i64,
    ) -> Result<Newest, Error> {
        let hash = revision_hash::of(patch.to_string().as_bytes(), collisions);
        let mut labels: BTreeMap<String, String> =
            template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
        labels.insert(hash_label.to_owned(), hash.clone());
        let revision = ControllerRevision {
            metadata: ObjectMeta {
                name: Some(format!("{}-{hash}", self.key.name.get(..LONGEST_OWNER).unwrap_or(&self.key.name))),
                labels: Some(labels),
                annotations: self.owner.meta().annotations.clone(),
                owner_references: Some(vec![controller_reference(self.owner)]),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(patch.clone())),
            revision: number,
        };
        match self.api().create(&PostParams::default(), &revision).await {
            Ok(made) => {
                self.own_writes.wrote(self.key, self.revisions, &made);
                Ok(Newest::Is(Arc::new(made)))
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let there = self.api().get(name(&revision)).await?;
                Ok(if is_of(&there, &patch) { Newest::Is(Arc::new(there)) } else { Newest::Collides })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the oldest of `old` that no pod is of, until no more than `limit` are left.
    pub async fn cut(
        &self,
        old: &[Arc<ControllerRevision>],
        limit: i32,
        in_use: impl Fn(&ControllerRevision) -> bool,
    ) -> Result<(), Error> {
        let too_many = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        for revision in old.iter().filter(|revision| !in_use(revision)).take(too_many) {
            self.delete(revision).await?;
        }
        Ok(())
    }

    pub async fn delete(&self, revision: &ControllerRevision) -> Result<(), Error> {
        let exactly = Preconditions { uid: revision.metadata.uid.clone(), resource_version: None };
        match self.api().delete(name(revision), &DeleteParams::default().preconditions(exactly)).await {
            Ok(_) => self.own_writes.deleted(self.key, self.revisions, revision),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
