//! One look at a Deployment: what to make, scale and delete now.

use std::{sync::Arc, time::Duration};

use controller_runtime::{
    Error, Key,
    adoption::{controller_of, controller_reference},
    events::{EventType, about},
    informer::CONTROLLER,
    refuses_new_objects,
};
use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet, ReplicaSetSpec},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::api::{DeleteParams, ObjectMeta, PostParams, Preconditions};

use super::{
    Deployments,
    arithmetic::{
        active, available, is_rolling, max_unavailable, most, new_size, replicas, shares, size, sort_by_age, total,
    },
    revisions::{self, DESIRED_REPLICAS, HASH, REVISION, ROLLBACK, annotation},
    status::{self, PAUSED, PROGRESSING, TIMED_OUT},
    wait_until,
};
use crate::{pods, words};

const LONGEST_NAME: usize = 253;

pub struct Rollout<'a> {
    around: &'a Deployments,
    key: &'a Key,
    deployment: Deployment,
    spec: DeploymentSpec,
    /// All ReplicaSets of the Deployment.
    sets: Vec<Arc<ReplicaSet>>,
}

/// The set of the template as it is now, if there is one, and the others.
struct Sets {
    new: Option<Arc<ReplicaSet>>,
    old: Vec<Arc<ReplicaSet>>,
}

impl Sets {
    fn all(&self) -> Vec<Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new).cloned().collect()
    }
}

/// When to look again if nothing happens.
type Wait = Result<Option<Duration>, Error>;

impl<'a> Rollout<'a> {
    pub fn new(
        around: &'a Deployments,
        key: &'a Key,
        deployment: Deployment,
        spec: DeploymentSpec,
        sets: Vec<Arc<ReplicaSet>>,
    ) -> Self {
        Self { around, key, deployment, spec, sets }
    }

    pub async fn run(mut self) -> Wait {
        if self.deployment.metadata.deletion_timestamp.is_some() {
            let sets = self.sets(false).await?;
            return self.sync_status(&sets).await;
        }
        self.tell_pause().await?;
        if self.spec.paused == Some(true) {
            return self.scale_and_sync().await;
        }
        if let Some(revision) = annotation(&self.deployment, ROLLBACK).and_then(|text| text.parse().ok()) {
            return self.roll_back(revision).await;
        }
        let wanted = replicas(&self.spec).to_string();
        let sets = self.sets(false).await?;
        let running = active(&sets.all());
        // What is recreated has one set in the end, whatever its size was meant to be before.
        let scaled = (is_rolling(&self.spec) || running.len() < 2)
            && running.iter().any(|set| {
                let known =
                    annotation(&**set, DESIRED_REPLICAS).filter(|text| text.parse::<i32>().is_ok_and(|n| n >= 0));
                known.is_some_and(|known| known != wanted)
            });
        if scaled {
            return self.scale_and_sync().await;
        }
        match self.spec.strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) {
            Some("Recreate") => self.recreate().await,
            Some("RollingUpdate") => self.roll().await,
            other => Err(Error::Other(format!("unexpected deployment strategy type: {}", other.unwrap_or_default()))),
        }
    }

    fn status(&mut self) -> &mut DeploymentStatus {
        self.deployment.status.get_or_insert_default()
    }

    async fn write_status(&mut self) -> Result<(), Error> {
        self.deployment = self.around.write_status(self.key, self.deployment.clone()).await?;
        Ok(())
    }

    /// A paused rollout does not run out of time.
    async fn tell_pause(&mut self) -> Result<(), Error> {
        if status::deadline(&self.spec).is_none() {
            return Ok(());
        }
        let known = self.deployment.status.as_ref().and_then(|status| status::condition(status, PROGRESSING));
        let reason = known.and_then(|known| known.reason);
        if reason.as_deref() == Some(TIMED_OUT) {
            return Ok(());
        }
        let (told, paused) = (reason.as_deref() == Some(PAUSED), self.spec.paused == Some(true));
        if told == paused {
            return Ok(());
        }
        let now = self.around.clock.time();
        let (reason, message) =
            if paused { (PAUSED, "Deployment is paused") } else { ("DeploymentResumed", "Deployment is resumed") };
        status::set_condition(self.status(), PROGRESSING, "Unknown", reason, message, &now);
        self.write_status().await
    }

    /// The sets, with the annotations of the new one up to date. It is made if it is missing and `create` says so.
    async fn sets(&mut self, create: bool) -> Result<Sets, Error> {
        let new = revisions::find(&self.spec.template, &self.sets);
        let mut old = self.sets.clone();
        old.retain(|set| new.as_ref().is_none_or(|new| new.metadata.uid != set.metadata.uid));
        let revision = revisions::last_revision(&old) + 1;
        let new = match new {
            Some(new) => Some(self.refresh(new, revision).await?),
            None if create => Some(self.create(&old, revision).await?),
            None => None,
        };
        Ok(Sets { new, old })
    }

    async fn refresh(&mut self, new: Arc<ReplicaSet>, revision: i64) -> Result<Arc<ReplicaSet>, Error> {
        let mut set = (*new).clone();
        let annotated = revisions::annotate(&self.deployment, &mut set, revision);
        let min_ready = self.spec.min_ready_seconds;
        let own = set.spec.get_or_insert_default();
        if annotated || own.min_ready_seconds.unwrap_or(0) != min_ready.unwrap_or(0) {
            own.min_ready_seconds = min_ready;
            return self.update(set).await;
        }
        let mut changed = self.set_revision(annotation(&*new, REVISION).unwrap_or_default().to_owned());
        let known = status::condition(self.status(), PROGRESSING);
        if status::deadline(&self.spec).is_some() && known.is_none() {
            let message = format!("Found new replica set {:?}", name(&new));
            let now = self.around.clock.time();
            status::set_condition(self.status(), PROGRESSING, "True", "FoundNewReplicaSet", message, &now);
            changed = true;
        }
        if changed {
            self.write_status().await?;
        }
        Ok(new)
    }

    fn set_revision(&mut self, revision: String) -> bool {
        let annotations = self.deployment.metadata.annotations.get_or_insert_default();
        annotations.insert(REVISION.to_owned(), revision.clone()) != Some(revision)
    }

    /// Writes a set, which takes the place of the one that was known.
    async fn update(&mut self, set: ReplicaSet) -> Result<Arc<ReplicaSet>, Error> {
        let api = self.around.replica_sets(&self.key.namespace);
        let written = Arc::new(api.replace(name(&set), &PostParams::default(), &set).await?);
        self.around.own_writes.wrote(self.key, &self.around.sets, &*written);
        for known in &mut self.sets {
            if known.metadata.uid == written.metadata.uid {
                *known = written.clone();
            }
        }
        Ok(written)
    }

    async fn create(&mut self, old: &[Arc<ReplicaSet>], revision: i64) -> Result<Arc<ReplicaSet>, Error> {
        let set = self.blank(old, revision);
        let api = self.around.replica_sets(&self.key.namespace);
        let deadline = status::deadline(&self.spec).is_some();
        let now = self.around.clock.time();
        let (made, is_new) = match api.create(&PostParams::default(), &set).await {
            Ok(made) => (Arc::new(made), true),
            Err(kube::Error::Api(exists)) if exists.is_already_exists() => {
                let there = api.get(name(&set)).await?;
                let ours = controller_of(&there).map(|owner| &owner.uid) == self.deployment.metadata.uid.as_ref();
                if !ours || !revisions::has_template(&there, &revisions::without_hash(&self.spec.template)) {
                    // Another template has the same hash: a different one next time.
                    let count = self.status().collision_count.get_or_insert_default();
                    *count += 1;
                    self.write_status().await?;
                    return Err(Error::Api(kube::Error::Api(exists)));
                }
                (Arc::new(there), false)
            }
            Err(kube::Error::Api(status)) if refuses_new_objects(&status) => {
                return Err(Error::Api(kube::Error::Api(status)));
            }
            Err(error) => {
                let message = format!("Failed to create new replica set {:?}: {}", name(&set), words(&error));
                if deadline {
                    let reason = "ReplicaSetCreateError";
                    status::set_condition(self.status(), PROGRESSING, "False", reason, message.clone(), &now);
                    self.write_status().await?;
                }
                self.event(EventType::Warning, "ReplicaSetCreateError", message);
                return Err(error.into());
            }
        };
        self.around.own_writes.wrote(self.key, &self.around.sets, &*made);
        self.sets.push(made.clone());
        if is_new && size(&made) > 0 {
            let message = format!("Scaled up replica set {} from 0 to {}", name(&made), size(&made));
            self.event(EventType::Normal, "ScalingReplicaSet", message);
        }
        let mut changed = self.set_revision(revision.to_string());
        if is_new && deadline {
            let message = format!("Created new replica set {:?}", name(&made));
            status::set_condition(self.status(), PROGRESSING, "True", "NewReplicaSetCreated", message, &now);
            changed = true;
        }
        if changed {
            self.write_status().await?;
        }
        Ok(made)
    }

    /// The set of the template, as it is first made.
    fn blank(&self, old: &[Arc<ReplicaSet>], revision: i64) -> ReplicaSet {
        let collisions = self.deployment.status.as_ref().and_then(|status| status.collision_count);
        let hash = revisions::hash(&self.spec.template, collisions);
        let mut template = self.spec.template.clone();
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert(HASH.to_owned(), hash.clone());
        let labels = labels.clone();
        let mut selector: LabelSelector = self.spec.selector.clone();
        selector.match_labels.get_or_insert_default().insert(HASH.to_owned(), hash.clone());
        let own: String = self.key.name.chars().take(LONGEST_NAME - 1 - hash.len()).collect();
        let mut set = ReplicaSet {
            metadata: ObjectMeta {
                name: Some(format!("{own}-{hash}")),
                namespace: Some(self.key.namespace.clone()),
                labels: Some(labels),
                owner_references: Some(vec![controller_reference(&self.deployment)]),
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec {
                replicas: Some(new_size(&self.spec, total(old), 0)),
                min_ready_seconds: self.spec.min_ready_seconds,
                selector,
                template: Some(template),
            }),
            status: None,
        };
        revisions::annotate(&self.deployment, &mut set, revision);
        revisions::annotate_replicas(&mut set, replicas(&self.spec), most(&self.spec));
        set
    }

    fn event(&self, type_: EventType, reason: &str, message: impl Into<String>) {
        self.around.recorder.event(&about(&self.deployment), type_, reason, message);
    }

    /// Gives a set a size, and says whether that is another than it had.
    async fn scale(&mut self, set: &Arc<ReplicaSet>, to: i32) -> Result<bool, Error> {
        let from = size(set);
        let mut changed = (**set).clone();
        changed.spec.get_or_insert_default().replicas = Some(to);
        let annotated = revisions::annotate_replicas(&mut changed, replicas(&self.spec), most(&self.spec));
        if from == to && !annotated {
            return Ok(false);
        }
        self.update(changed).await?;
        if from == to {
            return Ok(false);
        }
        let direction = if from < to { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {} from {from} to {to}", name(set));
        self.event(EventType::Normal, "ScalingReplicaSet", message);
        Ok(true)
    }

    /// The same, but annotations alone are no reason to write.
    async fn resize(&mut self, set: &Arc<ReplicaSet>, to: i32) -> Result<bool, Error> {
        if size(set) == to { Ok(false) } else { self.scale(set, to).await }
    }

    /// The Deployment was scaled or is paused: sizes change, templates do not.
    async fn scale_and_sync(&mut self) -> Wait {
        let sets = self.sets(false).await?;
        self.spread(&sets).await?;
        if self.spec.paused == Some(true) && annotation(&self.deployment, ROLLBACK).is_none() {
            self.clean_up(&sets.old).await?;
        }
        self.sync_status(&sets).await
    }

    async fn spread(&mut self, sets: &Sets) -> Result<(), Error> {
        let (all, wanted) = (sets.all(), replicas(&self.spec));
        let running = active(&all);
        let only = match &running[..] {
            [] => {
                let mut old = sets.old.clone();
                sort_by_age(&mut old);
                sets.new.clone().or_else(|| old.pop())
            }
            [only] => Some(only.clone()),
            _ => None,
        };
        if let Some(only) = only {
            // Also if it has the size already: what it says of the wanted size makes a rollout wait. Kubernetes waits forever.
            return self.scale(&only, wanted).await.map(drop);
        }
        let is_done = |new: &ReplicaSet| {
            let said = annotation(new, DESIRED_REPLICAS).and_then(|text| text.parse::<i32>().ok());
            size(new) == wanted && said == Some(wanted) && available(new) == wanted
        };
        if sets.new.as_deref().is_some_and(is_done) {
            for old in active(&sets.old) {
                self.resize(&old, 0).await?;
            }
        } else if is_rolling(&self.spec) {
            let before = self.deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0);
            for (set, size) in shares(&self.spec, &all, before) {
                self.scale(&set, size).await?;
            }
        }
        Ok(())
    }

    async fn roll(&mut self) -> Wait {
        let sets = self.sets(true).await?;
        let Some(new) = sets.new.clone() else { return Ok(None) };
        let wanted = replicas(&self.spec);
        let all = sets.all();
        let to = if size(&new) > wanted { wanted } else { new_size(&self.spec, total(&all), size(&new)) };
        let grown = size(&new) != wanted && self.resize(&new, to).await?;
        if !grown && !self.shrink_old(&sets, &new).await? && self.is_complete() {
            self.clean_up(&sets.old).await?;
        }
        self.sync_rollout(&sets).await
    }

    fn is_complete(&self) -> bool {
        let status = self.deployment.status.clone().unwrap_or_default();
        status::is_complete(&self.deployment, &self.spec, &status)
    }

    /// Shrinks old sets by as much as can be spared: first by pods that are of no use, then by others.
    async fn shrink_old(&mut self, sets: &Sets, new: &ReplicaSet) -> Result<bool, Error> {
        let mut old = active(&sets.old);
        // What a set told before it knew its size may count pods that it has deleted since.
        if old.is_empty() || !sets.all().iter().all(|set| status::is_current(set)) {
            return Ok(false);
        }
        let least = replicas(&self.spec) - max_unavailable(&self.spec);
        let spare = total(&sets.all()) - least - (size(new) - available(new));
        if spare <= 0 {
            return Ok(false);
        }
        sort_by_age(&mut old);
        let (mut cleaned, mut sizes) = (0, Vec::new());
        for set in &old {
            let useless = (size(set) - available(set)).clamp(0, spare - cleaned);
            cleaned += useless;
            sizes.push(size(set) - useless);
        }
        let are_available: i32 = old.iter().map(|set| available(set)).sum::<i32>() + available(new);
        let mut spare = (are_available - least).max(0);
        let mut shrunk = false;
        for (set, left) in old.iter().zip(sizes) {
            let more = left.min(spare);
            spare -= more;
            shrunk |= self.resize(set, left - more).await?;
        }
        Ok(shrunk)
    }

    async fn recreate(&mut self) -> Wait {
        let mut sets = self.sets(false).await?;
        let mut shrunk = false;
        for old in active(&sets.old) {
            shrunk |= self.resize(&old, 0).await?;
        }
        if shrunk || self.old_pods_run(&sets) {
            return self.sync_rollout(&sets).await;
        }
        if sets.new.is_none() {
            sets = self.sets(true).await?;
        }
        if let Some(new) = sets.new.clone() {
            self.resize(&new, replicas(&self.spec)).await?;
        }
        if self.is_complete() {
            self.clean_up(&sets.old).await?;
        }
        self.sync_rollout(&sets).await
    }

    fn old_pods_run(&self, sets: &Sets) -> bool {
        sets.old.iter().any(|set| {
            let uid = set.metadata.uid.as_deref().unwrap_or_default();
            let pods = self.around.pods.by_index(CONTROLLER, uid);
            status::pods(set) > 0 || pods.iter().any(|pod| !pods::is_finished(pod))
        })
    }

    /// Deletes the oldest sets that are beyond the limit of history and have no pods.
    async fn clean_up(&mut self, old: &[Arc<ReplicaSet>]) -> Result<(), Error> {
        let Some(limit) = self.spec.revision_history_limit.filter(|limit| *limit != i32::MAX) else { return Ok(()) };
        let mut old: Vec<_> = old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).cloned().collect();
        let too_many = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        sort_by_age(&mut old);
        old.sort_by_key(|set| revisions::revision(set));
        for set in old.into_iter().take(too_many) {
            let seen = set.status.as_ref().and_then(|status| status.observed_generation);
            if status::pods(&set) != 0 || size(&set) != 0 || set.metadata.generation > seen {
                continue;
            }
            let exactly = Preconditions { uid: set.metadata.uid.clone(), resource_version: None };
            let api = self.around.replica_sets(&self.key.namespace);
            match api.delete(name(&set), &DeleteParams::background().preconditions(exactly)).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error.into()),
                Ok(_) => self.around.own_writes.deleted(self.key, &self.around.sets, &*set),
            }
        }
        Ok(())
    }

    /// Goes back to the template of a revision. Zero is the one before.
    async fn roll_back(&mut self, revision: i64) -> Wait {
        // Kubernetes makes a set for the template that is given up, with all its pods if they are recreated.
        let sets = self.sets(false).await?;
        let all = sets.all();
        let revision = match (revision, &sets.new) {
            (0, Some(_)) => revisions::revision_before(&all),
            (0, None) => revisions::last_revision(&all),
            (revision, _) => revision,
        };
        let set = all.iter().find(|set| revision != 0 && revisions::revision(set) == Some(revision));
        let name = self.key.name.clone();
        match set {
            None => {
                let what = if revision == 0 { "last revision." } else { "the revision to rollback to." };
                self.event(EventType::Warning, "DeploymentRollbackRevisionNotFound", format!("Unable to find {what}"));
                self.clear_rollback().await?;
            }
            Some(set) if revisions::has_template(set, &revisions::without_hash(&self.spec.template)) => {
                let message =
                    format!("The rollback revision contains the same template as current deployment {name:?}");
                self.event(EventType::Warning, "DeploymentRollbackTemplateUnchanged", message);
                self.clear_rollback().await?;
            }
            Some(set) => {
                revisions::roll_back(&mut self.deployment, set);
                self.clear_rollback().await?;
                let message = format!("Rolled back deployment {name:?} to revision {revision}");
                self.event(EventType::Normal, "DeploymentRollback", message);
            }
        }
        Ok(None)
    }

    async fn clear_rollback(&mut self) -> Result<(), Error> {
        self.deployment.metadata.annotations.get_or_insert_default().remove(ROLLBACK);
        let api = self.around.api(&self.key.namespace);
        self.deployment = api.replace(&self.key.name, &PostParams::default(), &self.deployment).await?;
        self.around.own_writes.wrote(self.key, &self.around.deployments, &self.deployment);
        Ok(())
    }

    async fn sync_status(&mut self, sets: &Sets) -> Wait {
        let now = self.around.clock.time();
        let status = status::of(&self.deployment, &self.spec, &sets.all(), sets.new.as_deref(), &now);
        self.settle(status).await?;
        Ok(None)
    }

    async fn sync_rollout(&mut self, sets: &Sets) -> Wait {
        let now = self.around.clock.time();
        let status = status::of_rollout(&self.deployment, &self.spec, &sets.all(), sets.new.as_deref(), &now);
        if self.settle(status.clone()).await? {
            return Ok(None);
        }
        // Nothing has changed. When the time is over, that is a change.
        let (Some(deadline), Some(condition)) = (status::deadline(&self.spec), status::condition(&status, PROGRESSING))
        else {
            return Ok(None);
        };
        if self.is_complete() || condition.reason.as_deref() == Some(TIMED_OUT) {
            return Ok(None);
        }
        let last = condition.last_update_time.map_or(now.0.as_second(), |time| time.0.as_second());
        Ok(Some(wait_until(last + deadline - now.0.as_second())))
    }

    /// Writes a status that differs, and says whether it did.
    async fn settle(&mut self, status: DeploymentStatus) -> Result<bool, Error> {
        if self.deployment.status.as_ref() == Some(&status) {
            return Ok(false);
        }
        self.deployment.status = Some(status);
        self.write_status().await?;
        Ok(true)
    }
}

fn name(set: &ReplicaSet) -> &str {
    set.metadata.name.as_deref().unwrap_or_default()
}
