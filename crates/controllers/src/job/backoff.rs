//! How long a Job waits before it replaces pods that failed: ten seconds, doubled with each failure, ten minutes at most.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{ContainerStatus, Pod},
    jiff::{SignedDuration, Timestamp},
};

const FIRST: i64 = 10;
const LONGEST: i64 = 600;

/// How a Job fares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    failures_since_success: u32,
    last_failure: Option<Timestamp>,
}

impl Record {
    /// The record after pods have ended.
    pub fn after(self, succeeded: &[Arc<Pod>], failed: &[Arc<Pod>]) -> Self {
        let last_success = succeeded.iter().map(|pod| finished(pod)).max();
        let failures = failed.iter().map(|pod| finished(pod));
        match last_success {
            None if failed.is_empty() => self,
            None => Self {
                failures_since_success: self.failures_since_success + u32::try_from(failed.len()).unwrap_or(u32::MAX),
                last_failure: failures.max(),
            },
            Some(success) => {
                let since: Vec<Timestamp> = failures.filter(|failure| *failure > success).collect();
                Self {
                    failures_since_success: u32::try_from(since.len()).unwrap_or(u32::MAX),
                    last_failure: since.into_iter().max(),
                }
            }
        }
    }

    pub fn wait(&self, now: Timestamp) -> Duration {
        self.last_failure.map(|last| wait(self.failures_since_success, last, now)).unwrap_or_default()
    }
}

/// What is left to wait after so many failures.
pub fn wait(failures: u32, last_failure: Timestamp, now: Timestamp) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let whole = LONGEST.min(FIRST << (failures - 1).min(10));
    let left = SignedDuration::from_secs(whole).saturating_sub(now.duration_since(last_failure));
    Duration::try_from(left).unwrap_or_default()
}

/// When a pod ended, as far as it can be told.
pub fn finished(pod: &Pod) -> Timestamp {
    let deleted = || {
        let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
        pod.metadata.deletion_timestamp.as_ref().and_then(|time| time.0.checked_sub(grace).ok())
    };
    let created = || pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    containers_finished(pod).or_else(|| unready_since(pod)).or_else(deleted).or_else(created).unwrap_or_default()
}

/// When the last container ended, sidecars included, if all have.
fn containers_finished(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let init = pod.spec.iter().filter_map(|spec| spec.init_containers.as_ref()).flatten();
    let sidecars: Vec<&str> =
        init.filter(|c| c.restart_policy.as_deref() == Some("Always")).map(|c| c.name.as_str()).collect();
    let is_sidecar = |container: &&ContainerStatus| sidecars.contains(&container.name.as_str());
    let init = status.init_container_statuses.iter().flatten().filter(is_sidecar);
    let mut last = None;
    for container in status.container_statuses.iter().flatten().chain(init) {
        let ended = container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0;
        last = last.max(Some(ended));
    }
    last
}

fn unready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    Some(ready).filter(|ready| ready.status == "False")?.last_transition_time.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(ended: i64) -> Arc<Pod> {
        let time = Timestamp::from_second(ended).expect("a time").to_string();
        let state = json!({"terminated": {"exitCode": 1, "finishedAt": time}});
        let status =
            json!({"name": "a", "ready": false, "restartCount": 0, "image": "", "imageID": "", "state": state});
        Arc::new(serde_json::from_value(json!({"status": {"containerStatuses": [status]}})).expect("a pod"))
    }

    #[test]
    fn each_failure_doubles_the_wait_and_success_ends_it() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let waits = |record: Record, now: i64| record.wait(at(now)).as_secs();
        let none = Record::default();
        assert_eq!(waits(none, 100), 0);
        let once = none.after(&[], &[pod(100)]);
        assert_eq!((waits(once, 100), waits(once, 103), waits(once, 111)), (10, 7, 0));
        let thrice = once.after(&[], &[pod(120), pod(110)]);
        assert_eq!(waits(thrice, 120), 40);
        assert_eq!(waits(thrice.after(&[], &[]), 120), 40, "nothing new");
        assert_eq!(thrice.after(&[pod(130)], &[pod(125)]), none);
        assert_eq!(waits(thrice.after(&[pod(130)], &[pod(125), pod(131)]), 131), 10);
        let many: Vec<_> = (0..50).map(pod).collect();
        assert_eq!(waits(none.after(&[], &many), 49), 600);
    }

    #[test]
    fn the_end_of_a_pod_is_told_by_what_there_is() {
        let mut pod: Pod =
            serde_json::from_value(json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}})).expect("a pod");
        let end = |pod: &Pod| finished(pod).to_string();
        assert_eq!(end(&pod), "2026-01-01T00:00:00Z");
        pod.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:01:30Z")).expect("a time"));
        pod.metadata.deletion_grace_period_seconds = Some(30);
        assert_eq!(end(&pod), "2026-01-01T00:01:00Z");
        let ready = json!({"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:50Z"});
        pod.status = serde_json::from_value(json!({"conditions": [ready]})).expect("a status");
        assert_eq!(end(&pod), "2026-01-01T00:00:50Z");
    }
}
