//! Namespace deletion: everything in a namespace that is being deleted goes first, pods before all else, then the
//! namespace itself.

mod conditions;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use conditions::Findings;
use controller_runtime::{Change, Clock, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, PostParams},
    discovery::verbs,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Setting,
    discovered::{Discovered, Everything},
    words,
};

const ACCOUNT: &str = "namespace-controller";
/// What keeps a namespace until this controller is done with it.
const FINALIZER: &str = "kubernetes";
const TERMINATING: &str = "Terminating";
/// Requests that were let in before the namespace was deleted come to an end in this time. Other API servers also have to
/// learn of the deletion first.
const GRACE: Duration = Duration::from_millis(500);
const GRACE_OF_SEVERAL: Duration = Duration::from_secs(5);
/// A namespace is tried again at least this often.
const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// How long somebody else's finalizer is expected to take.
const SECONDS_FOR_FINALIZERS: i64 = 15;

pub fn is_active(namespace: &Namespace) -> bool {
    namespace.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Active")
}

struct Namespaces {
    client: Client,
    api: Api<Namespace>,
    namespaces: Informer<Namespace>,
    clock: Arc<dyn Clock>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let queue = WorkQueue::with_longest_delay(LONGEST_DELAY);
    let client = setting.client(ACCOUNT);
    let namespaces: Informer<Namespace> = setting.informers.of();
    let grace = if setting.several_servers { GRACE_OF_SEVERAL } else { GRACE };
    let on_namespace = queue.clone();
    namespaces.on_change(move |change| {
        if let Change::Applied { new, .. } = change
            && new.metadata.deletion_timestamp.is_some()
        {
            on_namespace.add_after(Key::of(&**new).name, grace);
        }
    });
    let pods: Informer<Pod> = setting.informers.of();
    let (on_pod, known, there) = (queue.clone(), namespaces.clone(), pods.clone());
    pods.on_change(move |change| {
        let goes = |name: &str| {
            known.get(&Key::new("", name)).is_some_and(|found| found.metadata.deletion_timestamp.is_some())
        };
        if let Some(emptied) = without_pods(change, |name| there.has_none_in(name), goes) {
            on_pod.add(emptied);
        }
    });
    namespaces.synced_or_stopped().await;
    let api = Api::all(client.clone());
    let controller = Arc::new(Namespaces { client, api, namespaces, clock: setting.clock.clone() });
    controller_runtime::run(controller, queue, OwnWrites::default(), 10, stop).await;
}

/// The namespace whose last pod is gone: everything else waited for that. A look is one at all there is, so pods before it are
/// not worth one.
fn without_pods(change: &Change<Pod>, is_empty: impl Fn(&str) -> bool, goes: impl Fn(&str) -> bool) -> Option<String> {
    let Change::Deleted(last) = change else { return None };
    let namespace = last.metadata.namespace.clone().unwrap_or_default();
    (is_empty(&namespace) && goes(&namespace)).then_some(namespace)
}

impl Controller for Namespaces {
    type Key = String;

    fn name(&self) -> &'static str {
        "namespace-controller"
    }

    async fn reconcile(&self, name: &String) -> Result<Next, Error> {
        if self.namespaces.get(&Key::new("", name)).is_none() {
            return Ok(Next::WhenChanged);
        }
        match self.delete(name).await {
            Ok(0) => Ok(Next::WhenChanged),
            Ok(seconds) => Ok(Next::After(Duration::from_secs(seconds.unsigned_abs() / 2 + 1))),
            Err(Error::Api(kube::Error::Api(status))) if status.is_not_found() => Ok(Next::WhenChanged),
            Err(error) => Err(error),
        }
    }
}

impl Namespaces {
    /// Removes what can be removed, and gives in how many seconds the rest is expected to be gone.
    async fn delete(&self, name: &str) -> Result<i64, Error> {
        let mut namespace = self.api.get(name).await?;
        if namespace.metadata.deletion_timestamp.is_none() {
            return Ok(0);
        }
        let status = namespace.status.get_or_insert_default();
        if status.phase.as_deref() != Some(TERMINATING) {
            status.phase = Some(TERMINATING.to_owned());
            namespace = self.api.replace_status(name, &PostParams::default(), &namespace).await?;
        }
        if finalizers(&namespace).next().is_none() {
            return Ok(0);
        }
        let estimate = self.empty(&mut namespace).await?;
        if estimate > 0 {
            return Ok(estimate);
        }
        let kept: Vec<String> = finalizers(&namespace).filter(|name| *name != FINALIZER).map(str::to_owned).collect();
        namespace.spec.get_or_insert_default().finalizers = Some(kept);
        self.api.replace_subresource("finalize", name, &PostParams::default(), &namespace).await?;
        Ok(0)
    }

    async fn empty(&self, namespace: &mut Namespace) -> Result<i64, Error> {
        let mut findings = Findings::default();
        let everything = match Everything::discover(&self.client).await {
            Ok(everything) => everything,
            Err(error) => {
                findings.discovery = Some(words(&error));
                Everything::default()
            }
        };
        let deletable = |resource: &&Discovered| resource.namespaced && resource.can(verbs::DELETE);
        let (pods, others): (Vec<_>, Vec<_>) = everything
            .resources
            .iter()
            .filter(deletable)
            .partition(|resource| resource.resource.group.is_empty() && resource.resource.plural == "pods");
        let mut estimate = 0;
        for pods in pods {
            let left = self.empty_of(pods, namespace).await;
            if let Err(problem) = &left.result {
                let (name, problem) = (namespace.metadata.name.as_deref().unwrap_or_default(), problem.clone());
                findings.problems.push(format!("failed to delete pods for namespace: {name}, err: {problem}"));
                findings.content.push(problem);
            }
            estimate = estimate.max(left.seconds);
            if left.count > 0 {
                // The rest stays until the last pod is gone, for pods may need it to end in order.
                self.report(namespace, &findings).await;
                return findings.outcome(estimate);
            }
        }
        for resource in others {
            let left = self.empty_of(resource, namespace).await;
            estimate = estimate.max(left.seconds);
            findings.count(&resource.resource, left.count, left.finalizers);
            if let Err(problem) = left.result {
                findings.problems.push(problem.clone());
                findings.content.push(problem);
            }
        }
        findings.complete = true;
        self.report(namespace, &findings).await;
        findings.outcome(estimate)
    }

    async fn report(&self, namespace: &mut Namespace, findings: &Findings) {
        let status = namespace.status.get_or_insert_default();
        if !findings.update(status.conditions.get_or_insert_default(), &self.clock.time()) {
            return;
        }
        let name = namespace.metadata.name.clone().unwrap_or_default();
        match self.api.replace_status(&name, &PostParams::default(), namespace).await {
            Ok(written) => *namespace = written,
            Err(error) => tracing::warn!(namespace = name, %error, "cannot write the conditions"),
        }
    }

    /// Deletes all objects of a resource, and says what is left.
    async fn empty_of(&self, resource: &Discovered, namespace: &Namespace) -> Left {
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        let mut left = Left::default();
        left.result = self.try_to_empty(resource, name, namespace, &mut left).await;
        left
    }

    async fn try_to_empty(
        &self,
        resource: &Discovered,
        name: &str,
        namespace: &Namespace,
        left: &mut Left,
    ) -> Result<(), String> {
        let is_pods = resource.resource.group.is_empty() && resource.resource.plural == "pods";
        if is_pods {
            left.seconds = self.seconds_for_pods(name, namespace).await.map_err(|error| words(&error))?;
        }
        let api = resource.api(&self.client, name);
        let (all, background) = (ListParams::default(), DeleteParams::background());
        let list = || async {
            if !resource.can(verbs::LIST) {
                return Ok(None);
            }
            match api.list(&all).await {
                Ok(list) => Ok(Some(list.items)),
                Err(kube::Error::Api(status)) if status.code == 404 || status.code == 405 => Ok(None),
                Err(error) => Err(words(&error)),
            }
        };
        let collection = resource.can(verbs::DELETE_COLLECTION);
        let deleted = if collection { api.delete_collection(&background, &all).await.map(drop) } else { Ok(()) };
        let one_by_one = match deleted {
            Ok(()) => !collection,
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 405 => true,
            Err(error) => return Err(words(&error)),
        };
        if one_by_one {
            for object in list().await?.into_iter().flatten() {
                let object = object.metadata.name.unwrap_or_default();
                match api.delete(&object, &background).await {
                    Err(kube::Error::Api(status)) if status.code == 404 || status.code == 405 => {}
                    Err(error) => return Err(words(&error)),
                    Ok(_) => {}
                }
            }
        }
        let Some(objects) = list().await? else { return Ok(()) };
        left.count = objects.len();
        if objects.is_empty() {
            left.seconds = 0;
            return Ok(());
        }
        for finalizer in objects.iter().flat_map(|object| object.meta().finalizers.iter().flatten()) {
            *left.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        if left.seconds > 0 {
            return Ok(());
        }
        if !left.finalizers.is_empty() {
            left.seconds = SECONDS_FOR_FINALIZERS;
            return Ok(());
        }
        let kube::api::ApiResource { group, version, plural, .. } = &resource.resource;
        Err(format!("unexpected items still remain in namespace: {name} for gvr: {group}/{version}, Resource={plural}"))
    }

    /// The longest time that a pod has to end in, unless it is over already.
    async fn seconds_for_pods(&self, name: &str, namespace: &Namespace) -> kube::Result<i64> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), name);
        let running = pods.list(&ListParams::default()).await?.items.into_iter().filter(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            !matches!(phase, Some("Succeeded" | "Failed"))
        });
        let longest = running.filter_map(|pod| pod.spec?.termination_grace_period_seconds).max().unwrap_or(0);
        let deleted = namespace.metadata.deletion_timestamp.as_ref().map_or(0, |time| time.0.as_second());
        Ok(if self.clock.now().as_second() - deleted >= longest { 0 } else { longest })
    }
}

/// What is left of a resource.
struct Left {
    /// In how many seconds it is expected to be gone. Zero is not known.
    seconds: i64,
    count: usize,
    /// How many objects wait for which finalizer.
    finalizers: BTreeMap<String, usize>,
    result: Result<(), String>,
}

impl Default for Left {
    fn default() -> Self {
        Self { seconds: 0, count: 0, finalizers: BTreeMap::new(), result: Ok(()) }
    }
}

fn finalizers(namespace: &Namespace) -> impl Iterator<Item = &str> {
    let finalizers = namespace.spec.iter().filter_map(|spec| spec.finalizers.as_ref());
    finalizers.flatten().map(String::as_str)
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;

    use super::*;

    #[test]
    fn only_the_last_pod_is_worth_a_look() {
        let metadata = ObjectMeta { namespace: Some("ns".to_owned()), ..ObjectMeta::default() };
        let pod = Arc::new(Pod { metadata, ..Pod::default() });
        let (gone, there) = (Change::Deleted(pod.clone()), Change::Applied { old: None, new: pod });
        let (yes, no) = (|_: &str| true, |_: &str| false);
        assert_eq!(without_pods(&gone, yes, yes).as_deref(), Some("ns"));
        assert_eq!(without_pods(&gone, no, yes), None, "others are there");
        assert_eq!(without_pods(&gone, yes, no), None, "the namespace stays");
        assert_eq!(without_pods(&there, yes, yes), None);
    }
}
