//! Carries out what was planned for a StatefulSet, and tells of it.

use controller_runtime::{
    Key,
    events::{EventType, about},
    refuses_new_objects,
};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{PersistentVolumeClaim, Pod},
};
use kube::{
    Api,
    api::{DeleteParams, PostParams, Preconditions},
};

use super::{
    StatefulSets,
    identity::{claims, give_identity, has_identity, ordinal},
    plan::{Plan, Step},
    retention::{self, Owners},
};
use crate::{pod_writes::slow_start, words};

pub struct Writes<'a> {
    pub api: Api<Pod>,
    pub claim_api: Api<PersistentVolumeClaim>,
    pub around: &'a StatefulSets,
    pub key: &'a Key,
    pub set: &'a StatefulSet,
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

impl Writes<'_> {
    /// Goes the steps: in order one by one, else in growing batches. Gives how many pods make way for an update.
    pub async fn carry_out(&self, plan: &Plan<'_>) -> Result<i32, String> {
        let steps = plan.steps();
        for part in &steps.parts {
            if plan.is_ordered() {
                for step in part {
                    self.go(step).await?;
                }
            } else {
                slow_start(part, |step| self.go(step)).await.1?;
            }
        }
        Ok(steps.updates)
    }

    async fn go(&self, step: &Step) -> Result<(), String> {
        match step {
            Step::Create(pod) => self.create(pod).await,
            Step::Delete(pod) => self.delete(pod).await,
            Step::Claims(pod) => {
                self.make_claims(pod).await?;
                self.keep_claims(pod).await
            }
            Step::Keep(pod) => self.keep(pod).await,
            Step::KeepClaims(pod) => self.keep_claims(pod).await,
        }
    }

    async fn create(&self, pod: &Pod) -> Result<(), String> {
        if retention::goes_when_scaled(self.set) && self.known_claims(pod).any(|claim| retention::is_stale(&claim, pod))
        {
            // When the claim of the earlier pod is gone, that is told, and this one can be made.
            return Ok(());
        }
        let made = match self.make_claims(pod).await {
            Ok(()) => self.api.create(&PostParams::default(), pod).await,
            Err(error) => {
                self.tell("Create", pod, Err(&error));
                return Err(error);
            }
        };
        match made {
            Ok(made) => {
                self.around.own_writes.wrote(self.key, &self.around.pods, &made);
                self.keep_claims(&made).await?;
                self.tell("Create", pod, Ok(()));
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => Err(status.message.clone()),
            Err(kube::Error::Api(status)) if refuses_new_objects(&status) => Ok(()),
            Err(error) => {
                let error = words(&error);
                self.tell("Create", pod, Err(&error));
                Err(error)
            }
        }
    }

    async fn delete(&self, pod: &Pod) -> Result<(), String> {
        let exactly = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        match self.api.delete(name(pod), &DeleteParams::default().preconditions(exactly)).await {
            Ok(_) => self.around.own_writes.deleted(self.key, &self.around.pods, pod),
            // It is gone, or another of its name is there.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            Err(error) => {
                let error = words(&error);
                self.tell("Delete", pod, Err(&error));
                return Err(error);
            }
        }
        self.tell("Delete", pod, Ok(()));
        Ok(())
    }

    /// Gives a pod back what somebody took from it.
    async fn keep(&self, pod: &Pod) -> Result<(), String> {
        self.keep_claims(pod).await?;
        if has_identity(self.set, pod) {
            return Ok(());
        }
        self.make_claims(pod).await?;
        let mut right = pod.clone();
        give_identity(self.set, &mut right);
        match self.api.replace(name(pod), &PostParams::default(), &right).await {
            Ok(written) => {
                self.around.own_writes.wrote(self.key, &self.around.pods, &written);
                self.tell("Update", pod, Ok(()));
                Ok(())
            }
            Err(error) => {
                let error = words(&error);
                self.tell("Update", pod, Err(&error));
                Err(error)
            }
        }
    }

    /// The claims of a pod that are known.
    fn known_claims(&self, pod: &Pod) -> impl Iterator<Item = PersistentVolumeClaim> {
        let wanted = ordinal(pod).map(|ordinal| claims(self.set, ordinal)).unwrap_or_default();
        wanted.into_iter().filter_map(|(_, claim)| Some((*self.around.claims.get(&Key::of(&claim))?).clone()))
    }

    /// Makes claims that are missing.
    async fn make_claims(&self, pod: &Pod) -> Result<(), String> {
        let wanted = ordinal(pod).map(|ordinal| claims(self.set, ordinal)).unwrap_or_default();
        let mut problems = Vec::new();
        for (_, claim) in wanted {
            let key = Key::of(&claim);
            if let Some(known) = self.around.claims.get(&key) {
                if known.metadata.deletion_timestamp.is_some() {
                    problems.push(format!("pvc {} is being deleted", key.name));
                }
                continue;
            }
            let (set, pod) = (&self.key.name, name(pod));
            match self.claim_api.create(&PostParams::default(), &claim).await {
                Ok(made) => {
                    self.around.own_writes.wrote(self.key, &self.around.claims, &made);
                    let message = format!("Create Claim {} Pod {pod} in StatefulSet {set} success", key.name);
                    self.around.recorder.event(&about(self.set), EventType::Normal, "SuccessfulCreate", message);
                }
                Err(error) => {
                    let there = matches!(&error, kube::Error::Api(status) if status.is_already_exists());
                    let error = words(&error);
                    if !there {
                        let message = format!(
                            "Create Claim {} for Pod {pod} in StatefulSet {set} failed error: {error}",
                            key.name
                        );
                        self.around.recorder.event(&about(self.set), EventType::Warning, "FailedCreate", message);
                    }
                    problems.push(format!("failed to create PVC {}: {error}", key.name));
                }
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join(", ")) }
    }

    /// Gives claims the owners with whom they go.
    async fn keep_claims(&self, pod: &Pod) -> Result<(), String> {
        for mut claim in self.known_claims(pod) {
            let key = Key::of(&claim);
            if retention::is_foreign(&claim, self.set, pod) {
                let message = format!(
                    "PersistentVolumeClaim {} has a conflicting OwnerReference that acts as a manging controller, the \
                     retention policy is ignored for this claim",
                    key.name
                );
                self.around.recorder.event(&about(self.set), EventType::Warning, "ConflictingController", message);
            }
            let Owners::Should(owners) = retention::judge(&claim, self.set, pod) else { continue };
            claim.metadata.owner_references = Some(owners).filter(|owners| !owners.is_empty());
            match self.claim_api.replace(&key.name, &PostParams::default(), &claim).await {
                Ok(written) => self.around.own_writes.wrote(self.key, &self.around.claims, &written),
                Err(error) => {
                    let error =
                        format!("could not update claim {} for delete policy ownerRefs: {}", key.name, words(&error));
                    self.tell("Update", pod, Err(&error));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn tell(&self, verb: &str, pod: &Pod, outcome: Result<(), &str>) {
        let what = format!("{verb} Pod {} in StatefulSet {}", name(pod), self.key.name);
        let (about, recorder) = (about(self.set), &self.around.recorder);
        match outcome {
            Ok(()) => {
                recorder.event(&about, EventType::Normal, &format!("Successful{verb}"), format!("{what} successful"));
            }
            Err(error) => {
                let message = format!("{what} failed error: {error}");
                recorder.event(&about, EventType::Warning, &format!("Failed{verb}"), message);
            }
        }
    }
}
