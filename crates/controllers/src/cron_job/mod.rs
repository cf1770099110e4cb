//! CronJobs: Jobs that begin at certain times.
//!
//! A reconcile looks at what has become of the Jobs that were begun, and at the last time that has passed: if no Job was
//! begun for it, one is, unless the policy is against it. Then it sleeps until the next time; nothing polls. The name of a Job
//! is made of its minute, so that none is begun twice.

mod times;

use std::{sync::Arc, time::Duration};

use controller_runtime::{
    Change, Clock, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue,
    adoption::{controller_of, controller_reference},
    events::{EventType, Recorder, about},
    informer::{CONTROLLER, by_controller},
    refuses_new_objects,
};
use k8s_openapi::{
    api::{
        batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job},
        core::v1::ObjectReference,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{Timestamp, fmt::strtime, tz::TimeZone},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions, PropagationPolicy},
};
use times::Times;
use tokio_util::sync::CancellationToken;

use crate::{Setting, job::finished, owners, status_writes::write_status, words};

const ACCOUNT: &str = "cronjob-controller";
const NAME: &str = "cronjob-controller";
const WORKERS: usize = 5;
/// What a Job says of the time it was begun for.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

struct CronJobs {
    client: Client,
    cron_jobs: Informer<CronJob>,
    jobs: Informer<Job>,
    own_writes: OwnWrites<Key>,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let controller = CronJobs {
        client: setting.client(ACCOUNT),
        cron_jobs: setting.informers.of(),
        jobs: setting.informers.of(),
        own_writes: own_writes.clone(),
        recorder: setting.recorder(ACCOUNT, NAME),
        clock: setting.clock.clone(),
    };
    controller.jobs.index(CONTROLLER, by_controller);
    let (on_cron_job, clock) = (queue.clone(), setting.clock.clone());
    controller.cron_jobs.on_change(move |change| {
        let key = Key::of(&**change.object());
        match new_schedule(change).map(|cron_job| until_next(cron_job, clock.now())) {
            // Times of a new schedule count from now on.
            Some(wait) => wait.into_iter().for_each(|wait| on_cron_job.add_after(key.clone(), wait)),
            None => on_cron_job.add(key),
        }
    });
    let (on_job, cron_jobs) = (queue.clone(), controller.cron_jobs.clone());
    controller.jobs.on_change(move |change| {
        // Nobody adopts Jobs.
        owners::concerned(change, &cron_jobs, |_| false, |_, _| false).into_iter().for_each(|key| on_job.add(key));
    });
    controller.cron_jobs.synced_or_stopped().await;
    controller.jobs.synced_or_stopped().await;
    controller_runtime::run(Arc::new(controller), queue, own_writes, WORKERS, stop).await;
}

/// A CronJob whose schedule has changed.
fn new_schedule(change: &Change<CronJob>) -> Option<&CronJob> {
    let Change::Applied { old: Some(old), new } = change else { return None };
    let schedule = |cron_job: &CronJob| (cron_job.spec.schedule.clone(), cron_job.spec.time_zone.clone());
    (schedule(old) != schedule(new)).then_some(&**new)
}

/// How long it takes to the next time of a CronJob.
fn until_next(cron_job: &CronJob, now: Timestamp) -> Option<Duration> {
    let spec = &cron_job.spec;
    let zone = times::zone(spec.time_zone.as_deref().unwrap_or_default())?;
    let times = Times::parse(&spec.schedule, zone).ok()?;
    times.until_next(since(cron_job, cron_job.status.as_ref(), now), now)
}

/// Since when times count: since the last that was seen to, or since there is the CronJob.
fn since(cron_job: &CronJob, status: Option<&CronJobStatus>, now: Timestamp) -> Timestamp {
    let last = status.and_then(|status| status.last_schedule_time.as_ref());
    last.or(cron_job.metadata.creation_timestamp.as_ref()).map_or(now, |time| time.0)
}

impl Controller for CronJobs {
    type Key = Key;

    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(known) = self.cron_jobs.get(key) else { return Ok(Next::WhenChanged) };
        let jobs = self.jobs.by_index(CONTROLLER, known.metadata.uid.as_deref().unwrap_or_default());
        let mut run = Run {
            around: self,
            key,
            api: Api::namespaced(self.client.clone(), &key.namespace),
            cron_job: &known,
            spec: &known.spec,
            status: known.status.clone().unwrap_or_default(),
            now: self.clock.now(),
        };
        run.forget_old(&jobs).await;
        run.see_jobs(&jobs).await?;
        let begun = run.begin_next().await;
        let status = run.status;
        if known.status.clone().unwrap_or_default() != status {
            let api = Api::namespaced(self.client.clone(), &key.namespace);
            let written = write_status(&api, &*known, |cron_job| cron_job.status = Some(status.clone())).await?;
            written.iter().for_each(|cron_job| self.own_writes.wrote(key, &self.cron_jobs, cron_job));
        }
        Ok(begun?.map_or(Next::WhenChanged, Next::After))
    }
}

/// One look at a CronJob.
struct Run<'a> {
    around: &'a CronJobs,
    key: &'a Key,
    api: Api<Job>,
    cron_job: &'a CronJob,
    spec: &'a CronJobSpec,
    status: CronJobStatus,
    now: Timestamp,
}

impl Run<'_> {
    fn tell(&self, type_: EventType, reason: &str, message: String) {
        self.around.recorder.event(&about(self.cron_job), type_, reason, message);
    }

    fn active(&self) -> &[ObjectReference] {
        self.status.active.as_deref().unwrap_or_default()
    }

    fn is_active(&self, uid: Option<&String>) -> bool {
        self.active().iter().any(|active| active.uid.as_ref() == uid)
    }

    fn no_longer_active(&mut self, uid: Option<&String>) {
        let left = self.active().iter().filter(|active| active.uid.as_ref() != uid).cloned().collect();
        self.status.active = Some(left).filter(|left: &Vec<ObjectReference>| !left.is_empty());
    }

    /// Deletes the oldest of the Jobs that have ended, until no more than wanted are left.
    async fn forget_old(&mut self, jobs: &[Arc<Job>]) {
        let limits =
            [("Complete", self.spec.successful_jobs_history_limit), ("Failed", self.spec.failed_jobs_history_limit)];
        for (end, limit) in limits {
            let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { continue };
            let ended = |job: &&Arc<Job>| finished(job).is_some_and(|condition| condition.type_ == end);
            let mut ended: Vec<&Arc<Job>> = jobs.iter().filter(ended).collect();
            ended.sort_by_key(|job| {
                let start = job.status.as_ref().and_then(|status| status.start_time.clone());
                (start.is_none(), start, job.metadata.name.clone())
            });
            let too_many = ended.len().saturating_sub(limit);
            for job in ended.into_iter().take(too_many) {
                // Told by an event; the next look tries again.
                let _ = self.delete(job).await;
            }
        }
    }

    async fn delete(&mut self, job: &Job) -> Result<(), String> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let exactly = Preconditions { uid: job.metadata.uid.clone(), resource_version: None };
        let how = DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
        match self.api.delete(name, &how.preconditions(exactly)).await {
            Ok(_) => {
                self.around.own_writes.deleted(self.key, &self.around.jobs, job);
                self.no_longer_active(job.metadata.uid.as_ref());
                self.tell(EventType::Normal, "SuccessfulDelete", format!("Deleted job {name}"));
                Ok(())
            }
            Err(error) => {
                let error = words(&error);
                self.tell(EventType::Warning, "FailedDelete", format!("Deleted job: {error}"));
                Err(error)
            }
        }
    }

    /// Sees what has become of the Jobs.
    async fn see_jobs(&mut self, jobs: &[Arc<Job>]) -> Result<(), Error> {
        for job in jobs {
            let (uid, name) = (job.metadata.uid.as_ref(), job.metadata.name.as_deref().unwrap_or_default());
            match finished(job) {
                None if !self.is_active(uid) => {
                    let message = format!("Saw a job that the controller did not create or forgot: {name}");
                    self.tell(EventType::Warning, "UnexpectedJob", message);
                }
                None => {}
                Some(condition) => {
                    if self.is_active(uid) {
                        self.no_longer_active(uid);
                        let message = format!("Saw completed job: {name}, condition: {}", condition.type_);
                        self.tell(EventType::Normal, "SawCompletedJob", message);
                    }
                    if condition.type_ == "Complete" {
                        let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
                        self.status.last_successful_time = self.status.last_successful_time.take().max(completed);
                    }
                }
            }
        }
        for active in self.active().to_vec() {
            if jobs.iter().any(|job| job.metadata.uid == active.uid) {
                continue;
            }
            let name = active.name.as_deref().unwrap_or_default();
            if self.api.get_opt(name).await?.is_none() {
                self.tell(EventType::Normal, "MissingJob", format!("Active job went missing: {name}"));
                self.no_longer_active(active.uid.as_ref());
            }
        }
        Ok(())
    }

    /// Begins a Job if its time has come, and says how long the next one takes.
    async fn begin_next(&mut self) -> Result<Option<Duration>, Error> {
        if self.cron_job.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let name = self.spec.time_zone.as_deref().unwrap_or_default();
        let Some(zone) = times::zone(name) else {
            let message = format!("invalid timeZone: {name:?}: unknown time zone {name}");
            self.tell(EventType::Warning, "UnknownTimeZone", message);
            return Ok(None);
        };
        if self.spec.suspend == Some(true) {
            return Ok(None);
        }
        let Some(times) = self.times(&zone) else { return Ok(None) };
        let since = since(self.cron_job, Some(&self.status), self.now);
        let deadline = self.spec.starting_deadline_seconds;
        let earliest = deadline.map_or(since, |seconds| since.max(times::later(self.now, seconds.saturating_neg())));
        match times.missed(earliest, self.now) {
            Err(error) => {
                let message = format!("invalid schedule: {} : {error}", self.spec.schedule);
                self.tell(EventType::Warning, "InvalidSchedule", message);
                return Ok(None);
            }
            Ok(missed) => {
                if let Some(time) = missed.last {
                    if missed.many {
                        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or \
                                       check clock skew";
                        self.tell(EventType::Warning, "TooManyMissedTimes", message.to_owned());
                    }
                    if !self.begin(time, &zone).await? {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(times.until_next(self::since(self.cron_job, Some(&self.status), self.now), self.now))
    }

    fn times(&self, zone: &TimeZone) -> Option<Times> {
        let schedule = &self.spec.schedule;
        if schedule.contains("TZ") {
            let message = format!(
                "CRON_TZ or TZ used in schedule {schedule:?} is not officially supported, see \
                 https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
            );
            self.tell(EventType::Warning, "UnsupportedSchedule", message);
        }
        match Times::parse(schedule, zone.clone()) {
            Ok(times) => Some(times),
            Err(error) => {
                let message = format!("unparseable schedule: {schedule:?} : {error}");
                self.tell(EventType::Warning, "UnparseableSchedule", message);
                None
            }
        }
    }

    /// Begins the Job of a time, unless there is a reason not to. False if nothing is left to wait for.
    async fn begin(&mut self, time: Timestamp, zone: &TimeZone) -> Result<bool, Error> {
        let deadline = self.spec.starting_deadline_seconds.map(|seconds| times::later(time, seconds));
        if deadline.is_some_and(|deadline| deadline < self.now) {
            let told = strtime::format("%a, %d %b %Y %H:%M:%S +0000", time).unwrap_or_else(|_| time.to_string());
            self.tell(EventType::Warning, "MissSchedule", format!("Missed scheduled time to start a job: {told}"));
            return Ok(true);
        }
        let name = format!("{}-{}", self.key.name, time.as_second().div_euclid(60));
        let is_begun = self.active().iter().any(|active| active.name.as_ref() == Some(&name));
        if is_begun || self.status.last_schedule_time.as_ref().is_some_and(|last| last.0 == time) {
            return Ok(true);
        }
        let policy = self.spec.concurrency_policy.as_deref();
        if policy == Some("Forbid") && !self.active().is_empty() {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            self.tell(EventType::Normal, "JobAlreadyActive", message.to_owned());
            return Ok(true);
        }
        if policy == Some("Replace") {
            self.end_active().await?;
        }
        self.create(name, time, zone).await
    }

    /// Deletes Jobs that still run.
    async fn end_active(&mut self) -> Result<(), Error> {
        for active in self.active().to_vec() {
            let name = active.name.as_deref().unwrap_or_default();
            let job = match self.api.get(name).await {
                Ok(job) => job,
                Err(error) => {
                    self.tell(EventType::Warning, "FailedGet", format!("Get job: {}", words(&error)));
                    return Err(error.into());
                }
            };
            if self.delete(&job).await.is_err() {
                return Err(Error::Other(format!("could not replace job {}/{name}", self.key.namespace)));
            }
        }
        Ok(())
    }

    async fn create(&mut self, name: String, time: Timestamp, zone: &TimeZone) -> Result<bool, Error> {
        let job = self.new_job(name, time, zone);
        let made = match self.api.create(&PostParams::default(), &job).await {
            Ok(made) => {
                self.around.own_writes.wrote(self.key, &self.around.jobs, &made);
                let name = made.metadata.name.as_deref().unwrap_or_default();
                self.tell(EventType::Normal, "SuccessfulCreate", format!("Created job {name}"));
                made
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                // Begun before a crash: it is ours, but the status does not say it.
                let there = self.api.get(job.metadata.name.as_deref().unwrap_or_default()).await?;
                let ours =
                    controller_of(&there).is_some_and(|owner| Some(&owner.uid) == self.cron_job.metadata.uid.as_ref());
                if !ours || self.is_active(there.metadata.uid.as_ref()) {
                    return Ok(false);
                }
                there
            }
            Err(kube::Error::Api(status)) if refuses_new_objects(&status) => return Ok(false),
            Err(error) => {
                self.tell(EventType::Warning, "FailedCreate", format!("Error creating job: {}", words(&error)));
                return Err(error.into());
            }
        };
        self.status.active.get_or_insert_default().push(about(&made));
        self.status.last_schedule_time = Some(Time(time));
        Ok(true)
    }

    fn new_job(&self, name: String, time: Timestamp, zone: &TimeZone) -> Job {
        let template = &self.spec.job_template;
        let meta = template.metadata.clone().unwrap_or_default();
        let mut annotations = meta.annotations.unwrap_or_default();
        annotations.insert(SCHEDULED.to_owned(), rfc3339(time, zone));
        Job {
            metadata: ObjectMeta {
                name: Some(name),
                labels: meta.labels,
                annotations: Some(annotations),
                owner_references: Some(vec![controller_reference(self.cron_job)]),
                ..ObjectMeta::default()
            },
            spec: template.spec.clone(),
            status: None,
        }
    }
}

/// A time as it is told in a zone.
fn rfc3339(time: Timestamp, zone: &TimeZone) -> String {
    let here = zone.to_offset(time);
    if here.is_zero() { time.to_string() } else { time.display_with_offset(here).to_string() }
}
