//! One probe of one container: when it looks, and how often it must find the same before it counts.

use std::{sync::Arc, time::Duration};

use controller_runtime::events::EventType;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval_at},
};

use super::{
    Outcome, ProbeKind,
    check::{Check, Finding},
};
use crate::pods::{context::Context, worker::Message};

/// How often it tries to find something out.
const TRIES: usize = 3;

pub struct Task {
    pub context: Arc<Context>,
    pub worker: mpsc::UnboundedSender<Message>,
    pub pod: Arc<Pod>,
    pub container: Container,
    pub spec: Probe,
    pub kind: ProbeKind,
    pub container_id: String,
    /// Nanoseconds since 1970.
    pub started_at: Option<i64>,
    pub address: String,
}

impl Task {
    /// Looks again and again; until the end for readiness, else until it has found what it was for.
    pub async fn run(self) {
        let seconds = |value: Option<i32>, default: u64| {
            Duration::from_secs(value.and_then(|value| u64::try_from(value).ok()).unwrap_or(default))
        };
        let period = seconds(self.spec.period_seconds, 10).max(Duration::from_secs(1));
        let mut clock = interval_at(self.first_look(seconds(self.spec.initial_delay_seconds, 0)), period);
        clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut last, mut run, mut told) = (None, 0, None);
        loop {
            clock.tick().await;
            // What could not be found out counts for nothing.
            let Some(outcome) = self.look().await else { continue };
            run = if last == Some(outcome) { run + 1 } else { 1 };
            last = Some(outcome);
            let threshold = match outcome {
                Outcome::Success => self.spec.success_threshold.unwrap_or(1),
                Outcome::Failure => self.spec.failure_threshold.unwrap_or(3),
            };
            if run < threshold {
                continue;
            }
            if told != Some(outcome) {
                told = Some(outcome);
                let message = Message::Probe(self.container_id.clone(), self.kind, outcome);
                if self.worker.send(message).is_err() {
                    return;
                }
            }
            match (self.kind, outcome) {
                // The container is stopped, or it has started: there is nothing more to find.
                (ProbeKind::Liveness, Outcome::Failure) | (ProbeKind::Startup, _) => return,
                _ => {}
            }
        }
    }

    /// Some time after the container was started, which may have been before this agent was.
    fn first_look(&self, delay: Duration) -> Instant {
        let now = self.context.settings.clock.now().as_nanosecond();
        let since = self.started_at.map_or(0, |started| now - i128::from(started));
        let since = Duration::from_nanos(u64::try_from(since).unwrap_or(0));
        Instant::now() + delay.saturating_sub(since)
    }

    async fn look(&self) -> Option<Outcome> {
        let check = Check {
            runtime: self.context.runtime(),
            container: &self.container,
            container_id: &self.container_id,
            address: &self.address,
        };
        let kind = match self.kind {
            ProbeKind::Startup => "Startup",
            ProbeKind::Liveness => "Liveness",
            ProbeKind::Readiness => "Readiness",
        };
        let event = |reason, message: String| {
            self.context.container_event(&self.pod, &self.container.name, EventType::Warning, reason, message);
        };
        let mut finding = check.look(&self.spec).await;
        for _ in 1..TRIES {
            if matches!(finding, Finding::Error(_)) {
                finding = check.look(&self.spec).await;
            }
        }
        match finding {
            Finding::Success => Some(Outcome::Success),
            Finding::Warning(output) => {
                event("ProbeWarning", format!("{kind} probe warning: {output}"));
                Some(Outcome::Success)
            }
            Finding::Failure(output) => {
                event("Unhealthy", format!("{kind} probe failed: {output}"));
                Some(Outcome::Failure)
            }
            Finding::Error(error) => {
                event("Unhealthy", format!("{kind} probe errored and resulted in unknown state: {error}"));
                None
            }
        }
    }
}
