//! Events: what a component tells people about an object, as core/v1 Events.
//!
//! Recording never waits and never fails: a task writes. What is said again and again is counted, combined or left out
//! by [`correlator`] before it is written.

mod correlator;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use correlator::{Correlator, Written};
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{sync::mpsc, time::sleep};

use crate::Clock;

/// How often and how far apart writing is tried when the server cannot be reached.
const TRIES: usize = 12;
const BETWEEN_TRIES: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

/// What an event is about, as it was seen.
pub fn about<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    ObjectReference { resource_version: object.meta().resource_version.clone(), ..object.object_ref(&()) }
}

/// Records events of one component. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    component: Arc<str>,
    /// The node it runs on, for components of which each node has one.
    host: Option<Arc<str>>,
    clock: Arc<dyn Clock>,
    correlator: Arc<Mutex<Correlator>>,
    writer: mpsc::UnboundedSender<Written>,
}

impl Recorder {
    /// `component` is what `kubectl describe` shows in the column From, such as `deployment-controller`.
    pub fn new(client: Client, component: &str, clock: Arc<dyn Clock>) -> Self {
        let (writer, mut written) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(event) = written.recv().await {
                write(&client, event).await;
            }
        });
        Self { component: component.into(), host: None, clock, correlator: Arc::default(), writer }
    }

    /// The same for a component that runs on a node.
    pub fn on_host(self, name: &str) -> Self {
        Self { host: Some(name.into()), ..self }
    }

    pub fn event(&self, about: &ObjectReference, type_: EventType, reason: &str, message: impl Into<String>) {
        let (now, time) = (self.clock.now(), self.clock.time());
        let namespace = about.namespace.clone().filter(|namespace| !namespace.is_empty());
        let name = format!("{}.{:x}", about.name.as_deref().unwrap_or_default(), now.as_nanosecond());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.unwrap_or_else(|| "default".to_owned())),
                ..ObjectMeta::default()
            },
            involved_object: about.clone(),
            reason: Some(reason.to_owned()),
            message: Some(message.into()),
            source: Some(EventSource {
                component: Some(self.component.to_string()),
                host: self.host.as_ref().map(ToString::to_string),
            }),
            reporting_component: Some(self.component.to_string()),
            reporting_instance: self.host.as_ref().map(ToString::to_string),
            first_timestamp: Some(time.clone()),
            last_timestamp: Some(time),
            count: Some(1),
            type_: Some(format!("{type_:?}")),
            ..Event::default()
        };
        let correlated = self.correlator.lock().unwrap_or_else(PoisonError::into_inner).correlate(event, now);
        if let Some(written) = correlated {
            // The task ends with the runtime, and then nobody is told anything.
            let _ = self.writer.send(written);
        }
    }
}

async fn write(client: &Client, written: Written) {
    for _ in 0..TRIES {
        match try_to_write(client, &written).await {
            Ok(()) => return,
            Err(kube::Error::Api(status)) => {
                tracing::debug!(%status, "the server does not take an event");
                return;
            }
            Err(error) => tracing::debug!(%error, "cannot write an event; trying again"),
        }
        sleep(BETWEEN_TRIES).await;
    }
}

async fn try_to_write(client: &Client, Written { event, again }: &Written) -> kube::Result<()> {
    let events: Api<Event> = Api::namespaced(client.clone(), event.metadata.namespace.as_deref().unwrap_or("default"));
    if *again {
        let name = event.metadata.name.as_deref().unwrap_or_default();
        let change = json!({"count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message});
        match events.patch(name, &PatchParams::default(), &Patch::Strategic(change)).await {
            // It was too old and is gone: tell it anew.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            other => return other.map(drop),
        }
    }
    events.create(&PostParams::default(), event).await.map(drop)
}
