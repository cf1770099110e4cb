//! Brings the parts of the agent together.

use std::sync::Arc;

use controller_runtime::events::Recorder;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    Settings,
    configuration::Configuration,
    eviction::{self, Pressure, Told},
    node,
    objects::Objects,
    pods::{Pods, access::ImageAccess, classes, context::Context, registry::Registry},
    server,
    volumes::Volumes,
};

/// Runs the agent until it is told to stop. Pods go on when it stops.
pub async fn run(settings: Settings, stop: CancellationToken) {
    let recorder = Recorder::new(settings.client.clone(), "kubelet", settings.clock.clone());
    let recorder = recorder.on_host(&settings.node_name);
    let (changed, changes) = mpsc::unbounded_channel();
    let objects = Arc::new(Objects::new(settings.client.clone(), changed));
    let (evictions, evicted) = mpsc::unbounded_channel();
    let (pressure, under_pressure) = watch::channel(Pressure::default());
    let runtime_name = settings.runtime.version().await.map_or_else(|_| "ferry".to_owned(), |found| found.runtime_name);
    let known = node::follow(&settings, stop.clone());
    let context = Arc::new(Context {
        runtime_name,
        volumes: Volumes::new(&settings, objects.clone()),
        configuration: Configuration::new(settings.clone(), objects.clone()),
        objects,
        recorder: recorder.clone(),
        pulls: Default::default(),
        access: ImageAccess::open(&settings.root),
        claims: Default::default(),
        node: known.clone(),
        pressure: under_pressure.clone(),
        settings: settings.clone(),
    });
    let registry = Arc::new(Registry::default());
    let serve = async {
        if let Err(error) = server::serve(settings.clone(), registry.clone(), stop.clone()).await {
            tracing::error!(%error, "the node agent's server does not run");
        }
    };
    tokio::join!(
        node::run(settings.clone(), recorder, under_pressure, known, stop.clone()),
        classes::keep_weighed(context.clone(), stop.clone()),
        eviction::run(context.clone(), registry.clone(), Told { evictions, pressure }, stop.clone()),
        Pods::new(context, registry.clone()).run(changes, evicted, stop.clone()),
        serve,
    );
}
