//! Pods made and deleted for their owner: events told, own writes noted, many at once in growing batches.

use controller_runtime::{
    Informer, Key, OwnWrites,
    events::{EventType, Recorder, about},
    refuses_new_objects,
};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Resource,
    api::{DeleteParams, PostParams, Preconditions},
};

use crate::words;

/// How many pods are made or deleted at most in one go.
pub const BURST: usize = 500;

/// Writes pods on behalf of one owner.
pub struct PodWrites<'a, O> {
    pub api: &'a Api<Pod>,
    pub owner: &'a O,
    pub key: &'a Key,
    pub pods: &'a Informer<Pod>,
    pub own_writes: &'a OwnWrites<Key>,
    pub recorder: &'a Recorder,
}

impl<O: Resource<DynamicType = ()>> PodWrites<'_, O> {
    /// Makes a pod. In a namespace that is going none is made, which is no failure.
    pub async fn create(&self, pod: &Pod) -> Result<(), String> {
        if pod.metadata.labels.as_ref().is_none_or(|labels| labels.is_empty()) {
            return Err("unable to create pods, no labels".to_owned());
        }
        match self.api.create(&PostParams::default(), pod).await {
            Ok(made) => {
                self.own_writes.wrote(self.key, self.pods, &made);
                let message = format!("Created pod: {}", made.metadata.name.as_deref().unwrap_or_default());
                self.tell(EventType::Normal, "SuccessfulCreate", message);
                Ok(())
            }
            Err(kube::Error::Api(status)) if refuses_new_objects(&status) => Ok(()),
            Err(error) => {
                let error = words(&error);
                self.tell(EventType::Warning, "FailedCreate", format!("Error creating: {error}"));
                Err(error)
            }
        }
    }

    /// Deletes a pod, if it is still the one that was seen.
    pub async fn delete(&self, pod: &Pod) -> Result<(), String> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let exactly = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        match self.api.delete(name, &DeleteParams::default().preconditions(exactly)).await {
            Ok(_) => {
                self.own_writes.deleted(self.key, self.pods, pod);
                self.tell(EventType::Normal, "SuccessfulDelete", format!("Deleted pod: {name}"));
                Ok(())
            }
            // It is gone, or another of its name is there.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            Err(error) => {
                let error = words(&error);
                self.tell(EventType::Warning, "FailedDelete", format!("Error deleting: {error}"));
                Err(format!("unable to delete pods: {error}"))
            }
        }
    }

    fn tell(&self, type_: EventType, reason: &str, message: String) {
        self.recorder.event(&about(self.owner), type_, reason, message);
    }
}

/// Does something for each, in batches of one, two, four and so on: where the first fails, so will the others. Gives how
/// many went well, and the first problem.
pub async fn slow_start<'a, T, F>(all: &'a [T], once: impl Fn(&'a T) -> F) -> (usize, Result<(), String>)
where
    F: Future<Output = Result<(), String>>,
{
    let (mut done, mut left, mut batch) = (0, all, 1);
    while !left.is_empty() {
        let (now, later) = left.split_at(batch.min(left.len()));
        let (good, bad): (Vec<_>, Vec<_>) = join_all(now.iter().map(&once)).await.into_iter().partition(Result::is_ok);
        done += good.len();
        if let Some(problem) = bad.into_iter().next() {
            return (done, problem);
        }
        (left, batch) = (later, batch * 2);
    }
    (done, Ok(()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn failures_stop_the_batches() {
        let (tried, all) = (AtomicUsize::new(0), [0; 10]);
        let fail_from = |first: usize| {
            let tried = &tried;
            move |_: &i32| async move {
                let number = tried.fetch_add(1, Ordering::SeqCst);
                if number < first { Ok(()) } else { Err(number.to_string()) }
            }
        };
        assert_eq!(slow_start(&all, fail_from(10)).await, (10, Ok(())));
        tried.store(0, Ordering::SeqCst);
        assert_eq!(slow_start(&all, fail_from(0)).await, (0, Err("0".into())));
        assert_eq!(tried.swap(0, Ordering::SeqCst), 1, "the others are not tried");
        // One, two, and then two of four.
        assert_eq!(slow_start(&all, fail_from(5)).await, (5, Err("5".into())));
        assert_eq!(tried.load(Ordering::SeqCst), 7);
    }
}
