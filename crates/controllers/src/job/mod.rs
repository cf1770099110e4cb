//! Jobs: pods that run until enough of them have succeeded, each counted once.
//!
//! A [`Look`] says how a Job stands and what to do about its pods, by the [`policies`] it has, by its [`indexes`] and by its
//! [`backoff`]; [`tracking`] keeps the count, with the help of a finalizer on each pod; [`leftovers`] takes that finalizer
//! off pods whose Job no longer counts.

mod backoff;
mod indexes;
mod leftovers;
mod look;
mod new_pod;
mod policies;
#[cfg(test)]
mod tests;
mod tracking;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use backoff::Record;
use controller_runtime::{
    Clock, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue,
    adoption::claim_keeping,
    events::{EventType, Recorder, about},
    informer::{CONTROLLER, by_controller, orphans},
};
use futures::future::join_all;
use k8s_openapi::api::{
    batch::v1::{Job, JobSpec, JobStatus},
    core::v1::Pod,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
pub use look::finished;
use look::{Look, Over, Plan, TRACKED, count, is_suspended, is_tracked};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    Setting, owners,
    pod_writes::{PodWrites, slow_start},
    pods, words,
};

const ACCOUNT: &str = "job-controller";
const NAME: &str = "job-controller";
/// Who manages a Job that does not say it.
const MANAGER: &str = "kubernetes.io/job-controller";
const WORKERS: usize = 5;
/// Pods of a Job often change together: one look for all of them.
const TOGETHER: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(60);

struct Jobs {
    client: Client,
    jobs: Informer<Job>,
    pods: Informer<Pod>,
    own_writes: OwnWrites<Key>,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    backoffs: Mutex<HashMap<Key, Record>>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::with_longest_delay(LONGEST_DELAY), OwnWrites::default());
    let controller = Jobs {
        client: setting.client(ACCOUNT),
        jobs: setting.informers.of(),
        pods: setting.informers.of(),
        own_writes: own_writes.clone(),
        recorder: setting.recorder(ACCOUNT, NAME),
        clock: setting.clock.clone(),
        backoffs: Mutex::default(),
    };
    controller.pods.index(CONTROLLER, by_controller);
    let on_job = queue.clone();
    controller.jobs.on_change(move |change| on_job.add(Key::of(&**change.object())));
    let (on_pod, jobs) = (queue.clone(), controller.jobs.clone());
    let selects = |job: &Job, pod: &Pod| job.spec.as_ref().is_some_and(|spec| selects(spec, pod));
    controller.pods.on_change(move |change| {
        let lives = |pod: &Pod| pod.metadata.deletion_timestamp.is_none();
        owners::concerned(change, &jobs, lives, selects).into_iter().for_each(|key| on_pod.add_after(key, TOGETHER));
    });
    let leftovers = leftovers::run(controller.client.clone(), &controller.jobs, &controller.pods, stop.clone());
    controller.jobs.synced_or_stopped().await;
    controller.pods.synced_or_stopped().await;
    let jobs = controller_runtime::run(Arc::new(controller), queue, own_writes, WORKERS, stop);
    tokio::join!(jobs, leftovers);
}

fn selects(spec: &JobSpec, pod: &Pod) -> bool {
    spec.selector.as_ref().is_some_and(|selector| pods::selector(selector)(&pod.metadata))
}

/// Whether somebody else does the work.
fn is_managed_elsewhere(job: &Job) -> bool {
    let manager = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
    manager.is_some_and(|manager| manager != MANAGER)
}

/// Takes off a pod what keeps it until it is counted, where asked for only if it is still as it was seen.
async fn release(api: &Api<Pod>, pod: &Pod, as_seen: bool) -> kube::Result<Option<Pod>> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let mut off = json!({"metadata": {"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [TRACKED]}});
    if as_seen {
        off["metadata"]["resourceVersion"] = json!(pod.metadata.resource_version);
    }
    match api.patch(name, &PatchParams::default(), &Patch::Strategic(off)).await {
        // It is gone, another of its name is there, or it has changed.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => Ok(None),
        answer => answer.map(Some),
    }
}

/// What came of the work on the pods.
struct Done {
    active: i32,
    deleted: Vec<Arc<Pod>>,
    problem: Result<(), String>,
}

impl Controller for Jobs {
    type Key = Key;

    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(known) = self.jobs.get(key).filter(|job| finished(job).is_none()) else {
            self.backoffs().remove(key);
            return Ok(Next::WhenChanged);
        };
        let Some(spec) = known.spec.as_ref().filter(|_| !is_managed_elsewhere(&known)) else {
            return Ok(Next::WhenChanged);
        };
        if !matches!(spec.completion_mode.as_deref(), None | Some("NonIndexed" | "Indexed")) {
            let message = "Skipped Job sync because completion mode is unknown";
            self.recorder.event(&about(&*known), EventType::Warning, "UnknownCompletionMode", message);
            return Ok(Next::WhenChanged);
        }
        let pods = self.claim(key, &known, spec).await?;
        let mut job = (*known).clone();
        let status = job.status.get_or_insert_default();
        status.uncounted_terminated_pods.get_or_insert_default();
        if status.start_time.is_none() && !is_suspended(spec) {
            status.start_time = Some(self.clock.time());
        }
        let record = self.backoffs().get(key).copied().unwrap_or_default();
        let look = Look::new(&job, spec, pods, record, self.clock.now());
        self.sync(key, &known, &look).await
    }
}

impl Jobs {
    fn backoffs(&self) -> MutexGuard<'_, HashMap<Key, Record>> {
        self.backoffs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn claim(&self, key: &Key, job: &Job, spec: &JobSpec) -> Result<Vec<Arc<Pod>>, Error> {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let mut pods = self.pods.by_index(CONTROLLER, uid);
        pods.extend(self.pods.by_index(CONTROLLER, &orphans(&key.namespace)));
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &key.namespace);
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let wrote = |pod: &Pod| self.own_writes.wrote(key, &self.pods, pod);
        claim_keeping(job, &jobs, pods, &api, |pod| selects(spec, pod), wrote, Some(TRACKED)).await
    }

    async fn sync(&self, key: &Key, known: &Job, look: &Look<'_>) -> Result<Next, Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let mut status = look.job.status.clone().unwrap_or_default();
        let mut over = look.over();
        let mut wait = None;
        let done = if over.is_some() {
            let done = self.delete(key, look, &api, &look.active, false).await;
            // Only when the last pod is on its way, the end is told.
            over = over.filter(|_| done.active == 0);
            done
        } else if look.job.metadata.deletion_timestamp.is_some() {
            Done { active: count(look.active.len()), deleted: Vec::new(), problem: Ok(()) }
        } else {
            let plan = look.plan();
            wait = if let Plan::Wait(wait) = plan { Some(wait) } else { None };
            let done = self.act(key, look, &api, plan).await;
            over = look.complete(done.active);
            if over.is_none() {
                self.tell_suspension(look, &mut status);
            }
            done
        };
        let ready = |pods: &[Arc<Pod>]| count(pods.iter().filter(|pod| pods::ready(pod).is_some()).count());
        status.active = Some(done.active).filter(|active| *active > 0);
        status.ready = Some(ready(&look.active) - ready(&done.deleted));
        status.terminating = Some(look.terminating + count(done.deleted.len()));
        self.track(key, known, look, &api, status, over).await?;
        done.problem.map_err(Error::Other)?;
        // Time that has run out has been seen to.
        let time_left = look.time_left().filter(|left| !left.is_zero());
        let next = wait.into_iter().chain(time_left).min();
        Ok(next.map_or(Next::WhenChanged, Next::After))
    }

    fn writes<'a>(&'a self, key: &'a Key, job: &'a Job, api: &'a Api<Pod>) -> PodWrites<'a, Job> {
        let (pods, own_writes, recorder) = (&self.pods, &self.own_writes, &self.recorder);
        PodWrites { api, owner: job, key, pods, own_writes, recorder }
    }

    async fn act(&self, key: &Key, look: &Look<'_>, api: &Api<Pod>, plan: Plan) -> Done {
        let active = count(look.active.len());
        match plan {
            Plan::Nothing | Plan::Wait(_) => Done { active, deleted: Vec::new(), problem: Ok(()) },
            Plan::Delete(pods) => self.delete(key, look, api, &pods, true).await,
            Plan::Create(indexes) => {
                let writes = &self.writes(key, look.job, api);
                let create = |index: &Option<i32>| {
                    let pod = new_pod::new_pod(look, *index);
                    async move { writes.create(&pod).await }
                };
                let (made, problem) = slow_start(&indexes, create).await;
                Done { active: active + count(made), deleted: Vec::new(), problem }
            }
        }
    }

    /// Deletes active pods. Those that are not to be counted lose their finalizer first.
    async fn delete(&self, key: &Key, look: &Look<'_>, api: &Api<Pod>, pods: &[Arc<Pod>], uncounted: bool) -> Done {
        let writes = &self.writes(key, look.job, api);
        let delete = |pod: Arc<Pod>| async move {
            if uncounted && is_tracked(&pod) {
                release(api, &pod, false)
                    .await
                    .map_err(|error| format!("removing completion finalizer: {}", words(&error)))?;
            }
            writes.delete(&pod).await.map(|()| pod)
        };
        let all = join_all(pods.iter().cloned().map(delete)).await;
        let mut done = Done { active: count(look.active.len()), deleted: Vec::new(), problem: Ok(()) };
        for one in all {
            match one {
                Ok(pod) => done.deleted.push(pod),
                Err(problem) => done.problem = Err(problem),
            }
        }
        done.active -= count(done.deleted.len());
        done
    }

    fn tell_suspension(&self, look: &Look<'_>, status: &mut JobStatus) {
        let (now, about) = (self.clock.time(), about(look.job));
        if is_suspended(look.spec) {
            if tracking::set_condition(status, "Suspended", "True", "JobSuspended", "Job suspended", &now) {
                self.recorder.event(&about, EventType::Normal, "Suspended", "Job suspended");
                status.start_time = None;
            }
        } else if tracking::set_condition(status, "Suspended", "False", "JobResumed", "Job resumed", &now) {
            self.recorder.event(&about, EventType::Normal, "Resumed", "Job resumed");
            status.start_time = Some(now);
        }
    }

    /// Counts what has ended: uids into the status, finalizers off, numbers up; and then the end, if it has come.
    async fn track(
        &self,
        key: &Key,
        known: &Job,
        look: &Look<'_>,
        api: &Api<Pod>,
        mut status: JobStatus,
        over: Option<Over>,
    ) -> Result<(), Error> {
        let now = self.clock.time();
        let mut tally = tracking::tally(look, over.as_ref(), &mut status);
        if let Some(over) = &over {
            tracking::tell_target(&mut status, over, &now);
        }
        let Some(mut job) = self.write_status(key, known.clone(), status).await? else { return Ok(()) };
        self.backoffs().insert(key.clone(), look.backoff);
        let released = join_all(tally.release.iter().map(|pod| release(api, pod, false))).await;
        let mut problem = None;
        for (pod, answer) in tally.release.iter().zip(released) {
            match answer {
                Ok(answer) => {
                    tally.tracked.remove(pod.metadata.uid.as_deref().unwrap_or_default());
                    answer.iter().for_each(|pod| self.own_writes.wrote(key, &self.pods, pod));
                }
                Err(error) => problem = Some(error),
            }
        }
        let mut status = job.status.clone().unwrap_or_default();
        tracking::settle(&mut status, &tally.tracked);
        let over = over.filter(|over| tally.all && problem.is_none() && tracking::tell_end(&mut status, over, &now));
        match self.write_status(key, job, status).await? {
            Some(written) => job = written,
            None => return Ok(()),
        }
        if let Some(over) = over {
            self.tell_end(&job, &over);
        }
        problem.map_or(Ok(()), |problem| Err(problem.into()))
    }

    fn tell_end(&self, job: &Job, over: &Over) {
        let about = about(job);
        if !over.succeeded {
            return self.recorder.event(&about, EventType::Warning, &over.reason, &over.message);
        }
        let wanted = job.spec.as_ref().and_then(|spec| spec.completions);
        let succeeded = job.status.as_ref().and_then(|status| status.succeeded);
        if wanted.is_some_and(|wanted| succeeded.unwrap_or(0) > wanted) {
            let message = "Too many succeeded pods running after completion count reached";
            self.recorder.event(&about, EventType::Warning, "TooManySucceededPods", message);
        }
        self.recorder.event(&about, EventType::Normal, "Completed", "Job completed");
    }

    /// Writes a status that differs. None if the Job is gone.
    async fn write_status(&self, key: &Key, mut job: Job, status: JobStatus) -> Result<Option<Job>, Error> {
        let mut before = job.status.clone().unwrap_or_default();
        before.uncounted_terminated_pods.get_or_insert_default();
        if before == status {
            return Ok(Some(job));
        }
        job.status = Some(status);
        let api: Api<Job> = Api::namespaced(self.client.clone(), &key.namespace);
        match api.replace_status(&key.name, &PostParams::default(), &job).await {
            Ok(written) => {
                self.own_writes.wrote(key, &self.jobs, &written);
                Ok(Some(written))
            }
            Err(kube::Error::Api(gone)) if gone.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
