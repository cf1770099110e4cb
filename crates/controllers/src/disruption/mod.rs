//! PodDisruptionBudgets: how many pods may go on purpose. The eviction API of the server grants what the status allows.

mod scale;
mod status;

use std::{sync::Arc, time::Duration};

use controller_runtime::{
    Change, Clock, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue,
    events::{EventType, Recorder, about},
};
use k8s_openapi::{
    api::{
        core::v1::Pod,
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
    jiff::{SignedDuration, Timestamp},
};
use kube::{Api, Client, api::PostParams};
use scale::Scales;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{Setting, pods};

const ACCOUNT: &str = "disruption-controller";
const COMPONENT: &str = "controllermanager";
const WORKERS: usize = 1;
/// A pod that was to go and has not for so long stays after all.
const STALE_AFTER: SignedDuration = SignedDuration::from_mins(2);

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Subject {
    Budget(Key),
    /// One that says that it will go.
    Pod(Key),
}

struct Disruption {
    client: Client,
    budgets: Informer<PodDisruptionBudget>,
    pods: Informer<Pod>,
    scales: Scales,
    own_writes: OwnWrites<Subject>,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let client = setting.client(ACCOUNT);
    let controller = Disruption {
        client: client.clone(),
        budgets: setting.informers.of(),
        pods: setting.informers.of(),
        scales: Scales {
            client,
            sets: setting.informers.of(),
            deployments: setting.informers.of(),
            stateful_sets: setting.informers.of(),
            replication_controllers: setting.informers.of(),
        },
        own_writes: own_writes.clone(),
        recorder: setting.recorder(ACCOUNT, COMPONENT),
        clock: setting.clock.clone(),
    };
    let on_budget = queue.clone();
    controller.budgets.on_change(move |change| on_budget.add(Subject::Budget(Key::of(&**change.object()))));
    controller.budgets.synced_or_stopped().await;
    let (on_pod, budgets, recorder) = (queue.clone(), controller.budgets.clone(), controller.recorder.clone());
    controller.pods.on_change(move |change| {
        let concerned = concerned(change, &budgets);
        if let (Change::Applied { new, .. }, [first, _, ..]) = (change, &concerned[..]) {
            tell_of_many(&recorder, new, first);
        }
        concerned.into_iter().for_each(|budget| on_pod.add(Subject::Budget(budget)));
        if let Change::Applied { new, .. } = change
            && disrupted_since(new).is_some()
        {
            on_pod.add(Subject::Pod(Key::of(&**new)));
        }
    });
    controller.pods.synced_or_stopped().await;
    controller.scales.synced_or_stopped().await;
    controller_runtime::run(Arc::new(controller), queue, own_writes, WORKERS, stop).await;
}

/// The budgets that select a pod, or did until now.
fn concerned(change: &Change<Pod>, budgets: &Informer<PodDisruptionBudget>) -> Vec<Key> {
    let old = if let Change::Applied { old, .. } = change { old.as_deref() } else { None };
    let new = change.object();
    let around = budgets.in_namespace(new.metadata.namespace.as_deref().unwrap_or_default());
    let selects = |budget: &&Arc<PodDisruptionBudget>| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()).map(pods::selector);
        selector.is_some_and(|selects| selects(&new.metadata) || old.is_some_and(|old| selects(&old.metadata)))
    };
    around.iter().filter(selects).map(|budget| Key::of(&**budget)).collect()
}

fn tell_of_many(recorder: &Recorder, pod: &Pod, chosen: &Key) {
    let Key { namespace, name } = Key::of(pod);
    let message = format!(
        "Pod {namespace:?}/{name:?} matches multiple PodDisruptionBudgets.  Chose {:?} arbitrarily.",
        chosen.name
    );
    recorder.event(&about(pod), EventType::Warning, "MultiplePodDisruptionBudgets", message);
}

/// Since when a pod that is not being deleted says that it will be.
fn disrupted_since(pod: &Pod) -> Option<Timestamp> {
    if !pods::is_active(pod) {
        return None;
    }
    let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    let said = conditions.into_iter().find(|condition| {
        condition.type_ == pods::DISRUPTED
            && condition.status == "True"
            && condition.reason.as_deref() != Some("TerminationByKubelet")
    });
    said.and_then(|said| said.last_transition_time.as_ref()).map(|time| time.0)
}

impl Controller for Disruption {
    type Key = Subject;

    fn name(&self) -> &'static str {
        "disruption-controller"
    }

    async fn reconcile(&self, subject: &Subject) -> Result<Next, Error> {
        match subject {
            Subject::Pod(key) => self.stays_after_all(subject, key).await,
            Subject::Budget(key) => {
                let Some(budget) = self.budgets.get(key) else { return Ok(Next::WhenChanged) };
                match self.allow(subject, key, &budget).await {
                    // As of now, or nothing may go until it is known how many there should be.
                    Ok(next) => Ok(next),
                    Err(Problem::Scale(problem)) => {
                        let message = format!("Failed to calculate the number of expected pods: {problem}");
                        self.tell(&budget, EventType::Warning, "CalculateExpectedPodCountFailed", message);
                        let status = status::unknown(&budget, &problem, &self.clock.time());
                        self.write(subject, &budget, status).await?;
                        Ok(Next::WhenChanged)
                    }
                    Err(Problem::Write(error)) => Err(error.into()),
                }
            }
        }
    }
}

enum Problem {
    /// It is not known how many pods there should be.
    Scale(String),
    Write(kube::Error),
}

impl Disruption {
    async fn allow(&self, subject: &Subject, key: &Key, budget: &PodDisruptionBudget) -> Result<Next, Problem> {
        let Some(spec) = &budget.spec else { return Ok(Next::WhenChanged) };
        let selector = spec.selector.as_ref();
        let mut pods = self.pods.in_namespace(&key.namespace);
        let selects = selector.map(pods::selector);
        pods.retain(|pod| selects.as_ref().is_some_and(|selects| selects(&pod.metadata)));
        if pods.is_empty() {
            self.tell(budget, EventType::Normal, "NoPods", "No matching pods found".to_owned());
        }
        let expected = if status::needs_scale(spec) {
            let scale = self.scales.of(&pods).await.map_err(Problem::Scale)?;
            if !scale.of_nobody.is_empty() {
                self.tell(budget, EventType::Warning, "UnmanagedPods", unmanaged(selector));
            }
            status::expected(spec, scale.pods)
        } else {
            status::expected(spec, i32::try_from(pods.len()).unwrap_or(i32::MAX))
        };
        let now = self.clock.now();
        let disrupted = status::disrupted(budget, &pods, now);
        for pod in &disrupted.overdue {
            let message = format!("Pod was expected by PDB {key} to be deleted but it wasn't");
            self.recorder.event(&about(&**pod), EventType::Warning, "NotDeleted", message);
        }
        let status = status::of(budget, &pods, expected, disrupted.still_going, &self.clock.time());
        self.write(subject, budget, status).await.map_err(Problem::Write)?;
        let wait = disrupted.next.map(|next| Duration::try_from(next.duration_since(now)).unwrap_or_default());
        Ok(wait.map_or(Next::WhenChanged, |wait| Next::After(wait + Duration::from_millis(1))))
    }

    async fn write(
        &self,
        subject: &Subject,
        budget: &PodDisruptionBudget,
        status: PodDisruptionBudgetStatus,
    ) -> kube::Result<()> {
        if budget.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let Key { namespace, name } = Key::of(budget);
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &namespace);
        // With the revision that was seen: the server counts down as it grants.
        let changed = PodDisruptionBudget { status: Some(status), ..budget.clone() };
        match api.replace_status(&name, &PostParams::default(), &changed).await {
            Ok(written) => self.own_writes.wrote(subject, &self.budgets, &written),
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Takes back what a pod says of its end, if that does not come.
    async fn stays_after_all(&self, subject: &Subject, key: &Key) -> Result<Next, Error> {
        let Some(pod) = self.pods.get(key) else { return Ok(Next::WhenChanged) };
        let Some(since) = disrupted_since(&pod) else { return Ok(Next::WhenChanged) };
        let left = STALE_AFTER - self.clock.now().duration_since(since);
        if left > SignedDuration::ZERO {
            return Ok(Next::After(Duration::try_from(left).unwrap_or_default()));
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let stays = json!({
            "type": pods::DISRUPTED,
            "status": "False",
            "reason": null,
            "message": null,
            "observedGeneration": pod.metadata.generation,
            "lastTransitionTime": self.clock.time(),
        });
        match pods::patch_status(&api, &pod, json!({"conditions": [stays]})).await {
            Ok(written) => self.own_writes.wrote(subject, &self.pods, &written),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Next::WhenChanged)
    }

    fn tell(&self, budget: &PodDisruptionBudget, type_: EventType, reason: &str, message: String) {
        self.recorder.event(&about(budget), type_, reason, message);
    }
}

/// What is said of pods that nobody controls, word for word as people look for it.
fn unmanaged(selector: Option<&LabelSelector>) -> String {
    let labels = selector.iter().filter_map(|selector| selector.match_labels.as_ref()).flatten();
    let labels: String = labels.map(|(name, value)| format!("{name}: {value},")).collect();
    let expressions = selector.iter().filter_map(|selector| selector.match_expressions.as_ref()).flatten();
    let expressions: String = expressions
        .map(|wants| {
            let values = wants.values.as_deref().unwrap_or_default().join(" ");
            format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", wants.key, wants.operator)
        })
        .collect();
    format!(
        "Pods selected by this PodDisruptionBudget (selector: &LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}) were found to be unmanaged. As a result, the \
         status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these \
         pods please set \".spec.minAvailable\" field of the PDB to an integer value."
    )
}
