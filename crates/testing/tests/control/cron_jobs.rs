//! CronJobs begin Jobs when their time has come, and Jobs go when theirs is over. The clock is the test's.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering},
};

use controller_runtime::{Clock, Informers};
use k8s_openapi::{
    api::{
        batch::v1::{CronJob, CronJobStatus, Job},
        core::v1::{Event, ServiceAccount},
    },
    jiff::{SignedDuration, Timestamp, tz::TimeZone},
};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testing::TestServer;
use tokio_util::sync::CancellationToken;

use super::{
    client, eventually,
    nodes::{Fate, play},
};

/// The time, and so many seconds more.
#[derive(Default)]
struct Ahead(AtomicI64);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        Timestamp::now() + SignedDuration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

struct Case {
    cron_jobs: Api<CronJob>,
    jobs: Api<Job>,
    client: Client,
    clock: Arc<Ahead>,
    /// Whether pods succeed, or just run.
    succeed: Arc<AtomicBool>,
    _server: TestServer,
}

impl Case {
    async fn new() -> Self {
        let server = TestServer::embedded().await;
        let clock = Arc::new(Ahead::default());
        let own = clock.clone();
        server.run_controllers_with(|setting| setting.clock = own);
        let client = client(&server).await;
        let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
        eventually("an account", || async { accounts.get_opt("default").await.expect("an answer") }).await;
        let succeed = Arc::new(AtomicBool::new(false));
        let fate = succeed.clone();
        play(&client, &Informers::new(client.clone(), CancellationToken::new()), move |_| {
            if fate.load(Ordering::SeqCst) { Fate::Succeeded } else { Fate::Ready }
        });
        let (cron_jobs, jobs) = (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
        Self { cron_jobs, jobs, client, clock, succeed, _server: server }
    }

    /// Once an hour, half an hour from now.
    async fn create(&self, more: Value) {
        let minute = (Timestamp::now().to_zoned(TimeZone::UTC).minute() + 30) % 60;
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "a:1"}]});
        let job = json!({"metadata": {"labels": {"app": "report"}}, "spec": {"template": {"spec": pod}}});
        let mut spec = json!({"schedule": format!("{minute} * * * *"), "jobTemplate": job});
        spec.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        let cron_job = json!({"metadata": {"name": "report"}, "spec": spec});
        let cron_job = serde_json::from_value(cron_job).expect("a cron job");
        self.cron_jobs.create(&PostParams::default(), &cron_job).await.expect("created");
    }

    /// Time passes, which is seen when something changes.
    async fn pass(&self, hours: i64, spec: Value) {
        self.clock.0.fetch_add(hours * 3600, Ordering::SeqCst);
        let touched = json!({"touched": self.clock.0.load(Ordering::SeqCst).to_string()});
        let patch = Patch::Merge(json!({"metadata": {"annotations": touched}, "spec": spec}));
        self.cron_jobs.patch("report", &PatchParams::default(), &patch).await.expect("patched");
    }

    async fn status(&self, what: &str, is: impl Fn(&CronJobStatus) -> bool) -> CronJobStatus {
        let look = || async { self.cron_jobs.get("report").await.expect("one").status.filter(|status| is(status)) };
        eventually(what, look).await
    }

    async fn names(&self) -> Vec<String> {
        let all = self.jobs.list(&ListParams::default()).await.expect("a list").items;
        let lives = |job: &Job| job.metadata.deletion_timestamp.is_none();
        all.into_iter().filter(lives).filter_map(|job| job.metadata.name).collect()
    }

    async fn event(&self, reason: &str) -> Event {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        eventually(reason, || async {
            let all = events.list(&ListParams::default()).await.expect("a list").items;
            all.into_iter().find(|event| event.reason.as_deref() == Some(reason))
        })
        .await
    }
}

fn active(status: &CronJobStatus) -> Vec<String> {
    status.active.iter().flatten().filter_map(|active| active.name.clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_begin_when_their_time_has_come() {
    let case = Case::new().await;
    case.create(json!({"concurrencyPolicy": "Forbid", "successfulJobsHistoryLimit": 1})).await;
    case.pass(1, json!({})).await;
    let status = case.status("a job", |status| active(status).len() == 1).await;
    let (first, at) = (active(&status).remove(0), status.last_schedule_time.expect("a time").0);
    assert_eq!(first, format!("report-{}", at.as_second() / 60));
    let job = case.jobs.get(&first).await.expect("a job").metadata;
    assert_eq!(job.annotations.expect("some")["batch.kubernetes.io/cronjob-scheduled-timestamp"], at.to_string());
    assert_eq!(job.labels.expect("some")["app"], "report");
    assert_eq!(job.owner_references.expect("an owner")[0].controller, Some(true));

    case.pass(1, json!({})).await;
    case.event("JobAlreadyActive").await;
    assert_eq!(case.names().await, std::slice::from_ref(&first));
    case.pass(0, json!({"concurrencyPolicy": "Replace"})).await;
    let status = case.status("another", |status| active(status).iter().any(|name| *name != first)).await;
    assert_eq!(active(&status).len(), 1);
    eventually("the first is gone", || async { (!case.names().await.contains(&first)).then_some(()) }).await;
    // It has met its fate before that of all others changes.
    let second = active(&status).remove(0);
    eventually("the second is at work", || async {
        case.jobs.get(&second).await.expect("a job").status?.ready.filter(|ready| *ready == 1)
    })
    .await;

    // From now on all succeed, and one is remembered.
    case.succeed.store(true, Ordering::SeqCst);
    case.pass(1, json!({"concurrencyPolicy": "Allow"})).await;
    case.status("success", |status| status.last_successful_time.is_some()).await;
    case.event("SawCompletedJob").await;
    let third =
        case.status("a third", |status| status.last_schedule_time.as_ref().is_some_and(|time| time.0 > at)).await;
    case.pass(1, json!({})).await;
    let later =
        |status: &CronJobStatus| status.last_schedule_time > third.last_schedule_time && active(status).len() == 1;
    let fourth = case.status("the second is still at work", later).await.last_schedule_time.expect("a time").0;
    let fourth = format!("report-{}", fourth.as_second() / 60);
    eventually("only the last that succeeded is left", || async {
        let names = case.names().await;
        (names.contains(&fourth) && names.len() == 2).then_some(())
    })
    .await;

    case.pass(0, json!({"suspend": true})).await;
    let before = case.names().await;
    case.pass(5, json!({})).await;
    // Too late for all that has passed.
    case.pass(0, json!({"suspend": false, "startingDeadlineSeconds": 10})).await;
    case.create_other().await;
    assert_eq!(case.names().await, before);
}

impl Case {
    /// Another CronJob that is seen to after all that was changed before.
    async fn create_other(&self) {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "a:1"}]});
        let spec = json!({"schedule": "0 0 31 2 *", "jobTemplate": {"spec": {"template": {"spec": pod}}}});
        let other = serde_json::from_value(json!({"metadata": {"name": "never"}, "spec": spec})).expect("one");
        self.cron_jobs.create(&PostParams::default(), &other).await.expect("created");
        self.event("InvalidSchedule").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_missed_for_long_is_told_and_ended_jobs_go() {
    let case = Case::new().await;
    case.succeed.store(true, Ordering::SeqCst);
    case.create(json!({"timeZone": "Europe/Berlin"})).await;
    case.pass(200, json!({})).await;
    case.event("TooManyMissedTimes").await;
    let name = eventually("a job", || async { case.names().await.into_iter().next() }).await;
    eventually("it ends", || async {
        let conditions = case.jobs.get(&name).await.expect("a job").status?.conditions?;
        conditions.iter().any(|condition| condition.type_ == "Complete").then_some(())
    })
    .await;
    case.pass(0, json!({"suspend": true})).await;
    let ttl = |seconds: i32| Patch::Merge(json!({"spec": {"ttlSecondsAfterFinished": seconds}}));
    case.jobs.patch(&name, &PatchParams::default(), &ttl(7200)).await.expect("patched");
    case.create_other().await;
    assert_eq!(case.names().await.len(), 1, "not yet");
    case.clock.0.fetch_add(3 * 3600, Ordering::SeqCst);
    case.jobs.patch(&name, &PatchParams::default(), &ttl(7201)).await.expect("patched");
    eventually("it goes", || async { case.jobs.get_opt(&name).await.expect("an answer").is_none().then_some(()) })
        .await;
}
