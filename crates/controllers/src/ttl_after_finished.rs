//! Jobs that have ended and say how long they are of interest: then they go.

use std::{sync::Arc, time::Duration};

use controller_runtime::{Clock, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue};
use k8s_openapi::{
    api::batch::v1::Job,
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Preconditions},
};
use tokio_util::sync::CancellationToken;

use crate::{Setting, job::finished};

const ACCOUNT: &str = "ttl-after-finished-controller";
const NAME: &str = "ttl-after-finished-controller";

struct Finished {
    client: Client,
    jobs: Informer<Job>,
    clock: Arc<dyn Clock>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let queue = WorkQueue::default();
    let (client, jobs) = (setting.client(ACCOUNT), setting.informers.of::<Job>());
    let (on_job, clock) = (queue.clone(), setting.clock.clone());
    jobs.on_change(move |change| {
        if time_left(change.object(), clock.now()).is_some() {
            on_job.add(Key::of(&**change.object()));
        }
    });
    jobs.synced_or_stopped().await;
    let controller = Finished { client, jobs, clock: setting.clock.clone() };
    controller_runtime::run(Arc::new(controller), queue, OwnWrites::default(), 1, stop).await;
}

/// How long a Job stays. None if it stays for good.
fn time_left(job: &Job, now: Timestamp) -> Option<Duration> {
    let seconds =
        job.spec.as_ref()?.ttl_seconds_after_finished.filter(|_| job.metadata.deletion_timestamp.is_none())?;
    let end = finished(job)?.last_transition_time.as_ref()?.0;
    let left = SignedDuration::from_secs(i64::from(seconds)).saturating_sub(now.duration_since(end));
    Some(Duration::try_from(left).unwrap_or_default())
}

impl Controller for Finished {
    type Key = Key;

    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let left = |job: &Job| time_left(job, self.clock.now());
        match self.jobs.get(key).and_then(|job| left(&job)) {
            None => return Ok(Next::WhenChanged),
            Some(wait) if !wait.is_zero() => return Ok(Next::After(wait)),
            Some(_) => {}
        }
        // The time may just have been made longer: ask the server, not the cache.
        let api: Api<Job> = Api::namespaced(self.client.clone(), &key.namespace);
        let Some(job) = api.get_opt(&key.name).await? else { return Ok(Next::WhenChanged) };
        match left(&job) {
            None => return Ok(Next::WhenChanged),
            Some(wait) if !wait.is_zero() => return Ok(Next::After(wait)),
            Some(_) => {}
        }
        let exactly = Preconditions { uid: job.metadata.uid, resource_version: None };
        match api.delete(&key.name, &DeleteParams::foreground().preconditions(exactly)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            answer => drop(answer?),
        }
        Ok(Next::WhenChanged)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_has_ended_goes() {
        let job = |ttl: Option<i32>, type_: &str| -> Job {
            let condition = json!({"type": type_, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let spec = json!({"template": {}, "ttlSecondsAfterFinished": ttl});
            serde_json::from_value(json!({"spec": spec, "status": {"conditions": [condition]}})).expect("a job")
        };
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let (early, late) = (at("2026-01-01T00:00:04Z"), at("2026-01-01T00:00:10Z"));
        assert_eq!(time_left(&job(Some(10), "Complete"), early), Some(Duration::from_secs(6)));
        assert_eq!(time_left(&job(Some(10), "Failed"), late), Some(Duration::ZERO));
        assert_eq!(time_left(&job(Some(10), "Suspended"), late), None);
        assert_eq!(time_left(&job(None, "Complete"), late), None);
        let mut going = job(Some(0), "Complete");
        going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(early));
        assert_eq!(time_left(&going, late), None);
    }
}
