//! One pod from its admission to its end. A worker is the only one that touches its pod's sandbox, containers and volumes.
//!
//! ```text
//!            rejected ────────────────────────────┐
//!               │                                 ▼
//!   admitted ─► Syncing ──► Terminating ──► Terminated ──► gone
//! ```
//!
//! A worker waits for messages (the API, the runtime, a probe, its own job) and for one timer, and after each it takes a step:
//! it looks at the runtime, tells the status, and decides what to do. What takes time runs in a job beside it, one at a time, so
//! that the status is told at once whatever is going on. Termination stops the job of a sync, and never goes back.

use std::{borrow::Cow, collections::HashMap, sync::Arc, time::Duration};

use container_runtime::services::{ContainerStatus, LinuxContainerResources, ServiceError};
use controller_runtime::events::EventType;
use k8s_openapi::{
    api::core::v1::{Pod, PodStatus},
    jiff::{SignedDuration, Timestamp},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    backoff::Backoff,
    containers::{Kind, find, is_final, is_on_host_network, phase, uid},
    context::Context,
    ending, kill,
    observed::Observed,
    plan::{Plan, Stop, plan},
    registry::Registry,
    resize,
    sync::{Progress, Renewal, SyncError, SyncJob},
};
use crate::{
    configuration::named,
    eviction::Eviction,
    probes::{Outcome, ProbeKind, Probes},
    status::{self, Facts, Reason, writer::Writer},
    volumes::mounted_images,
};

/// How long it waits after something failed, twice as long each time.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How long `ErrImagePull` is shown before `ImagePullBackOff` is.
const SHOWN_FOR: Duration = Duration::from_secs(1);

/// The seconds that a pod gets that the node cannot keep.
const GRACE_OF_EVICTED: i64 = 1;

/// What a worker is told.
#[derive(Debug)]
pub enum Message {
    /// The pod as the API has it now.
    Pod(Arc<Pod>),
    /// The API has no such pod any more.
    Gone,
    /// Something happened in the runtime.
    Runtime,
    /// Something that the pod refers to has changed.
    Objects,
    /// The network has become ready, or not.
    Network,
    /// The node cannot keep it.
    Evicted(Eviction),
    Probe(String, ProbeKind, Outcome),
    Progress(Progress),
    Synced(Result<Renewal, SyncError>),
    Killed(Result<(), ServiceError>),
    /// Nothing is left but what the runtime keeps for its logs. Whether the API has deleted the pod.
    Cleaned(Result<bool, String>),
    /// Not even that.
    Removed(Result<(), String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Syncing,
    Terminating,
    Terminated,
    Gone,
}

/// What goes on beside the worker.
enum Job {
    /// With the limits of the pod as a whole that it sets.
    Sync(CancellationToken, Option<LinuxContainerResources>),
    /// With the grace period that it began with.
    Kill(JoinHandle<()>, Option<i64>),
    Clean,
    Remove,
}

pub struct Worker {
    context: Arc<Context>,
    registry: Arc<Registry>,
    inbox: mpsc::UnboundedReceiver<Message>,
    me: mpsc::UnboundedSender<Message>,
    state: State,
    /// As the API has it, but with what it was granted of the node.
    pod: Arc<Pod>,
    /// What the API asks for beyond that, and why it is not granted.
    wish: Option<(Arc<Pod>, Reason)>,
    /// Changes when there may be room for a wish.
    room: watch::Receiver<()>,
    resizing: Vec<String>,
    /// What the pod as a whole is limited to, as far as this agent has set it.
    limits: Option<LinuxContainerResources>,
    /// The API has it no more.
    gone: bool,
    /// Its status as it was last, and of which pod.
    told: Arc<PodStatus>,
    told_of: Option<Arc<Pod>>,
    /// The same as the API was told it.
    shown: Arc<PodStatus>,
    writer: Writer,
    observed: Observed,
    /// The runtime has more to tell than `observed`.
    stale: bool,
    job: Option<Job>,
    /// Why the node has given the pod up.
    failed: Option<Reason>,
    /// The pod has to go for the node's sake: it gets little time.
    eviction: Option<Eviction>,
    waiting: HashMap<String, Reason>,
    /// The container whose hook is running.
    starting: Option<String>,
    /// Containers that the job of a sync ends to start them anew, as they were before: the status goes from the old one to the
    /// new one, and tells nothing in between.
    replacing: Vec<ContainerStatus>,
    crashes: HashMap<String, Backoff>,
    /// Containers that are not started before a time, after they could not be.
    held: HashMap<String, Instant>,
    /// Nothing is tried before this time, after everything failed.
    not_before: Option<Instant>,
    failures: u32,
    /// The volumes want to be looked at.
    refresh: bool,
    renew_at: Option<Instant>,
    probes: Probes,
    cleaned: bool,
    wake: Option<Instant>,
}

/// How a pod comes to its worker.
pub enum Admitted {
    Yes,
    /// It does not fit here.
    No(Reason),
    /// The API does not have it; the runtime does.
    Orphan,
}

impl Worker {
    pub fn new(
        context: Arc<Context>,
        registry: Arc<Registry>,
        pod: Arc<Pod>,
        admitted: Admitted,
        (me, inbox): (mpsc::UnboundedSender<Message>, mpsc::UnboundedReceiver<Message>),
    ) -> Self {
        let (state, failed, gone) = match admitted {
            Admitted::Yes => (State::Syncing, None, false),
            Admitted::No(reason) => (State::Terminating, Some(reason), false),
            Admitted::Orphan => (State::Terminating, None, true),
        };
        let of_api = Arc::new(pod.status.clone().unwrap_or_default());
        Self {
            state,
            failed,
            gone,
            told: of_api.clone(),
            told_of: None,
            shown: of_api,
            writer: Writer::new(context.settings.client.clone(), pod.clone()),
            probes: Probes::new(context.clone(), me.clone(), &pod),
            room: context.claims.changes(),
            context,
            registry,
            inbox,
            me,
            pod,
            wish: None,
            resizing: Vec::new(),
            limits: None,
            observed: Observed::default(),
            stale: true,
            job: None,
            eviction: None,
            waiting: HashMap::new(),
            starting: None,
            replacing: Vec::new(),
            crashes: HashMap::new(),
            held: HashMap::new(),
            not_before: None,
            failures: 0,
            refresh: true,
            renew_at: None,
            cleaned: false,
            wake: None,
        }
    }

    /// Works until nothing of the pod is left.
    pub async fn run(mut self) {
        loop {
            self.step().await;
            if self.state == State::Gone {
                return;
            }
            let wake = self.wake;
            let message = tokio::select! {
                message = self.inbox.recv() => message,
                () = async { sleep_until(wake.unwrap_or_else(Instant::now)).await }, if wake.is_some() => continue,
                Ok(()) = self.room.changed(), if self.wish.is_some() => {
                    if let Some((pod, _)) = self.wish.clone() {
                        self.resize(pod);
                    }
                    continue;
                }
            };
            // The worker holds a sender itself: the channel does not end.
            let Some(message) = message else { return };
            self.take(message);
            while let Ok(message) = self.inbox.try_recv() {
                self.take(message);
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Pod(pod) => self.changed(pod),
            Message::Gone => self.gone = true,
            Message::Runtime => self.stale = true,
            Message::Objects | Message::Network => self.try_again(),
            Message::Evicted(eviction) => self.evicted(eviction),
            Message::Probe(id, kind, outcome) => self.probes.found(&id, kind, outcome),
            Message::Progress(progress) => self.progress(progress),
            Message::Synced(result) => {
                let job = self.job.take();
                self.starting = None;
                self.replacing.clear();
                self.stale = true;
                match result {
                    Ok(renewal) => {
                        if let Some(Job::Sync(_, Some(limits))) = job {
                            self.limits = Some(limits);
                        }
                        self.failures = 0;
                        self.not_before = None;
                        self.renew_at = renewal.map(|renewal| Instant::now() + renewal);
                    }
                    Err(SyncError::Stopped) => {}
                    Err(SyncError::Failed(why)) => {
                        tracing::debug!(pod = named(&self.pod), why, "trying again");
                        self.refresh = true;
                        self.wait_after_failure();
                    }
                }
            }
            Message::Killed(result) => {
                self.job = None;
                self.stale = true;
                if let Err(error) = result {
                    let message = format!("error killing pod: {error}");
                    self.context.event(&self.pod, EventType::Warning, "FailedKillPod", message);
                    self.wait_after_failure();
                }
            }
            Message::Cleaned(result) => {
                self.job = None;
                match result {
                    Ok(deleted) => {
                        self.cleaned = true;
                        self.gone |= deleted;
                    }
                    Err(error) => {
                        tracing::debug!(pod = named(&self.pod), error, "cannot clean up; trying again");
                        self.wait_after_failure();
                    }
                }
            }
            Message::Removed(result) => {
                self.job = None;
                match result {
                    Ok(()) => self.state = State::Gone,
                    Err(error) => {
                        tracing::debug!(pod = named(&self.pod), error, "cannot remove; trying again");
                        self.wait_after_failure();
                    }
                }
            }
        }
    }

    fn evicted(&mut self, eviction: Eviction) {
        if self.state != State::Syncing || self.failed.is_some() {
            return;
        }
        self.context.event(&self.pod, EventType::Warning, "Evicted", eviction.message.clone());
        self.failed = Some(Reason::new("Evicted", eviction.message.clone()));
        self.eviction = Some(eviction);
    }

    /// The API has another pod than before. Its status is mostly our own.
    fn changed(&mut self, pod: Arc<Pod>) {
        let (old, new) = (&self.pod.metadata, &pod.metadata);
        let same = (&old.generation, &old.labels, &old.annotations, &old.deletion_grace_period_seconds)
            == (&new.generation, &new.labels, &new.annotations, &new.deletion_grace_period_seconds);
        if !same {
            self.try_again();
            // Another image may well be one that can be fetched, and does not crash.
            self.held.retain(|name, _| image(&self.pod, name) == image(&pod, name));
            self.crashes.retain(|name, _| image(&self.pod, name) == image(&pod, name));
        }
        if self.state == State::Syncing && !resize::asks_the_same(&self.pod, &pod) {
            self.resize(pod);
        } else {
            self.wish = None;
            self.pod = pod;
        }
    }

    /// Grants what the pod asks for, or says why not.
    fn resize(&mut self, pod: Arc<Pod>) {
        let node = self.context.node.borrow().clone();
        match self.context.claims.resize(&pod, node.as_deref()) {
            Ok(()) => {
                self.wish = None;
                self.pod = pod;
            }
            Err(reason) => {
                if self.wish.as_ref().is_none_or(|(_, before)| *before != reason) {
                    let (event, message) = (format!("Resize{}", reason.reason), &reason.message);
                    let message = format!("Pod resize {}: {message}", reason.reason);
                    self.context.event(&pod, EventType::Warning, &event, message);
                }
                self.pod = Arc::new(resize::as_granted(&pod, &self.pod));
                self.wish = Some((pod, reason));
            }
        }
    }

    /// Something has changed that may be what was waited for.
    fn try_again(&mut self) {
        self.refresh = true;
        self.not_before = None;
        let waiting = &self.waiting;
        self.held.retain(|name, _| waiting.get(name).is_some_and(|reason| reason.reason.contains("ImagePull")));
    }

    fn wait_after_failure(&mut self) {
        let wait = FIRST_WAIT.saturating_mul(2u32.saturating_pow(self.failures)).min(LONGEST_WAIT);
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(Instant::now() + wait);
    }

    fn progress(&mut self, progress: Progress) {
        self.stale = true;
        match progress {
            Progress::SandboxReady => {}
            Progress::Hooked(name) => self.starting = Some(name),
            Progress::Started(name, result) => {
                self.starting = None;
                self.replacing.retain(|old| old.metadata.name != name);
                match result {
                    Ok(()) => {
                        self.held.remove(&name);
                        self.waiting.remove(&name);
                    }
                    Err(reason) => {
                        self.held.insert(name.clone(), Instant::now() + self.hold(&name, &reason));
                        self.waiting.insert(name, reason);
                    }
                }
            }
        }
    }

    /// How long a container is not tried again.
    fn hold(&self, name: &str, reason: &Reason) -> Duration {
        match reason.reason.as_str() {
            "ErrImagePull" => SHOWN_FOR,
            "ImagePullBackOff" => {
                let Some((_, container)) = find(&self.pod, name) else { return SHOWN_FOR };
                let volumes = mounted_images(&self.pod, &container);
                let images = volumes.iter().filter_map(|(_, source)| source.reference.as_deref());
                let left = images
                    .chain(container.image.as_deref())
                    .filter_map(|image| self.context.pulls.remaining(uid(&self.pod), image, self.now()));
                left.max().unwrap_or(SHOWN_FOR)
            }
            // It ran, so that it is a crash like any other.
            "PostStartHookError" => Duration::ZERO,
            _ => LONGEST_WAIT,
        }
    }

    /// Looks, tells, decides.
    async fn step(&mut self) {
        self.wake = None;
        if self.stale {
            match Observed::look(self.context.runtime(), &self.pod, &self.observed).await {
                Ok(observed) => {
                    self.observed = observed;
                    self.stale = false;
                }
                Err(error) => {
                    tracing::warn!(pod = named(&self.pod), %error, "cannot look at a pod; trying again");
                    self.wake_at(Instant::now() + FIRST_WAIT);
                    return;
                }
            }
        }
        if self.state == State::Syncing {
            self.check_deadline();
            self.tell();
            let over = self.gone || self.pod.metadata.deletion_timestamp.is_some() || self.failed.is_some();
            if over || is_final(self.told.phase.as_deref().unwrap_or_default()) {
                self.state = State::Terminating;
                self.not_before = None;
                self.failures = 0;
            } else {
                self.probes.follow(&self.pod, &self.observed, self.starting.as_deref());
                self.sync();
                return;
            }
        }
        if self.state == State::Terminating {
            self.terminate();
        }
        self.tell();
        if self.state == State::Terminated {
            self.finish();
        }
    }

    fn wake_at(&mut self, at: Instant) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    fn now(&self) -> Timestamp {
        self.context.settings.clock.now()
    }

    /// Tells the status as it is now.
    fn tell(&mut self) {
        let resizing = match self.state {
            State::Syncing => resize::in_progress(&self.context, &self.pod, &self.observed),
            _ => Vec::new(),
        };
        self.tell_of_resize(&resizing);
        self.resizing = resizing;
        let observed = match self.state {
            State::Syncing => self.observed.with_instead(&self.replacing),
            _ => Cow::Borrowed(&self.observed),
        };
        // Told with the end, as Kubernetes does.
        let disruption = self.eviction.as_ref().filter(|eviction| eviction.disrupts && self.state == State::Terminated);
        let facts = Facts {
            pod: &self.pod,
            observed: &observed,
            previous: &self.told,
            waiting: &self.waiting,
            starting: self.starting.as_deref(),
            probed: self.probes.results(),
            runtime_name: &self.context.runtime_name,
            host_ips: &self.context.settings.addresses,
            resizing: &self.resizing,
            resize_pending: self.wish.as_ref().map(|(_, reason)| reason),
            failed: self.failed.as_ref(),
            disrupted: disruption.map(|eviction| &*eviction.message),
            ending: self.state != State::Syncing,
            ended: self.state == State::Terminated,
            now: self.context.settings.clock.time(),
        };
        let status = status::pod_status(&facts);
        let shown = self.to_be_shown(&status);
        let of_same = self.told_of.as_ref().is_some_and(|pod| Arc::ptr_eq(pod, &self.pod));
        if of_same && *self.told == status && *self.shown == shown {
            return;
        }
        self.told_of = Some(self.pod.clone());
        self.told = Arc::new(status);
        self.shown = Arc::new(shown);
        if !self.gone {
            self.writer.set(&self.pod, self.shown.clone());
        }
        self.registry.update(&self.pod, &self.told, &self.observed);
    }

    /// What the API is told. That the pod is over it hears only when nothing of it runs and its claim is released: from then on
    /// others are sent here in its place.
    fn to_be_shown(&self, status: &PodStatus) -> PodStatus {
        let mut shown = status.clone();
        let is_over = is_final(status.phase.as_deref().unwrap_or_default());
        if is_over && self.state != State::Terminated && !is_final(phase(&self.pod)) {
            let PodStatus { phase, reason, message, .. } = &*self.shown;
            (shown.phase, shown.reason, shown.message) = (phase.clone(), reason.clone(), message.clone());
        }
        shown
    }

    fn tell_of_resize(&self, resizing: &[String]) {
        let (reason, message) = match (self.resizing.is_empty(), resizing.is_empty()) {
            (true, false) => ("ResizeStarted", "Pod resize started"),
            (false, true) if self.state == State::Syncing => ("ResizeCompleted", "Pod resize completed"),
            _ => return,
        };
        self.context.event(&self.pod, EventType::Normal, reason, message);
    }

    /// A pod may be active for so long and no longer.
    fn check_deadline(&mut self) {
        let deadline = self.pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
        let started = self.told.start_time.as_ref().map(|time| time.0);
        let (Some(seconds), Some(started)) = (deadline, started) else { return };
        if is_final(phase(&self.pod)) || self.failed.is_some() {
            return;
        }
        let left = SignedDuration::from_secs(seconds) - self.now().duration_since(started);
        match Duration::try_from(left) {
            Ok(left) if !left.is_zero() => self.wake_at(Instant::now() + left),
            _ => {
                let message = "Pod was active on the node longer than the specified deadline";
                self.context.event(&self.pod, EventType::Normal, "DeadlineExceeded", message);
                self.failed = Some(Reason::new("DeadlineExceeded", message));
            }
        }
    }

    /// Starts a job for what the pod needs done, if none is going on.
    fn sync(&mut self) {
        if self.job.is_some() {
            return;
        }
        let now = Instant::now();
        if let Some(not_before) = self.not_before.filter(|not_before| *not_before > now) {
            self.wake_at(not_before);
            return;
        }
        let mut plan = plan(&self.pod, &self.observed, self.probes.results());
        if plan.sandbox.is_some() && !self.has_network() {
            return;
        }
        resize::add_to(&mut plan, &self.context, &self.pod, &self.observed);
        self.hold_back(&mut plan);
        let limits = self.limits_to_set(&mut plan);
        let renew = self.renew_at.is_some_and(|at| at <= now);
        if plan.is_empty() && !self.refresh && !renew {
            if let Some(at) = self.renew_at {
                self.wake_at(at);
            }
            return;
        }
        self.refresh = false;
        self.renew_at = None;
        let starts = |stop: &&Stop| plan.start.iter().any(|start| start.name == stop.name);
        let replaced = plan.stop.iter().filter(starts).filter_map(|stop| self.observed.latest(&stop.name));
        self.replacing = replaced.cloned().collect();
        let stop = CancellationToken::new();
        let pod = Pod { status: Some((*self.told).clone()), ..(*self.pod).clone() };
        let me = self.me.clone();
        let sync = SyncJob {
            context: self.context.clone(),
            pod: Arc::new(pod),
            observed: self.observed.clone(),
            stop: stop.clone(),
            tell: Box::new(move |progress| drop(me.send(Message::Progress(progress)))),
        };
        let me = self.me.clone();
        tokio::spawn(async move { me.send(Message::Synced(sync.run(plan).await)) });
        self.job = Some(Job::Sync(stop, limits));
    }

    /// The limits of the pod as a whole, if it does not have them: a new sandbox comes with them, one that is there is given them.
    fn limits_to_set(&self, plan: &mut Plan) -> Option<LinuxContainerResources> {
        let limits = self.context.configuration.pod_resources(&self.pod);
        if plan.stop_pod && plan.sandbox.is_none() || self.limits.as_ref() == Some(&limits) && plan.sandbox.is_none() {
            return None;
        }
        plan.limit_pod = Some(limits.clone()).filter(|_| plan.sandbox.is_none());
        Some(limits)
    }

    /// Pods with a network of their own wait until there can be one.
    fn has_network(&mut self) -> bool {
        if is_on_host_network(&self.pod) {
            return true;
        }
        match &*self.context.settings.network.borrow() {
            Ok(()) => true,
            Err(why) => {
                let message = format!("network is not ready: {why}");
                self.context.event(&self.pod, EventType::Warning, "NetworkNotReady", message);
                false
            }
        }
    }

    /// Takes out of the plan what must not be started yet: after a crash, or after it could not be started.
    fn hold_back(&mut self, plan: &mut Plan) {
        let (now, instant) = (self.now(), Instant::now());
        let mut backed_off = false;
        let starts = std::mem::take(&mut plan.start);
        for start in starts {
            if let Some(until) = self.held.get(&start.name).copied().filter(|until| *until > instant) {
                self.wake_at(until);
                continue;
            }
            let ended = self.observed.latest_exited(&start.name).filter(|_| start.kind != Kind::Ephemeral);
            if let Some(ended) = ended {
                let finished = ended.finished_at.unwrap_or(ended.created_at);
                let finished = Timestamp::from_nanosecond(i128::from(finished)).unwrap_or(now);
                let before = self.crashes.get(&start.name);
                let remaining =
                    before.and_then(|before| before.remaining(finished, now).map(|left| (before.delay, left)));
                if let Some((delay, left)) = remaining {
                    self.wake_at(instant + left);
                    backed_off |= self.back_off(&start.name, delay);
                    continue;
                }
                let next = Backoff::next(before, finished, now);
                self.crashes.insert(start.name.clone(), next);
            }
            plan.start.push(start);
        }
        if backed_off {
            self.tell();
        }
    }

    /// Says that a container waits after a crash, unless it is said already.
    fn back_off(&mut self, name: &str, delay: Duration) -> bool {
        let pod = named(&self.pod);
        let message = format!("back-off {} restarting failed container={name} pod={pod}", go_duration(delay));
        let reason = Reason::new("CrashLoopBackOff", message);
        if self.waiting.get(name) == Some(&reason) {
            return false;
        }
        let message = format!("Back-off restarting failed container {name} in pod {pod}");
        self.context.container_event(&self.pod, name, EventType::Warning, "BackOff", message);
        self.waiting.insert(name.to_owned(), reason);
        true
    }

    /// Stops what runs, once the job of a sync has ended.
    fn terminate(&mut self) {
        self.probes.terminate();
        self.probes.follow_readiness(&self.pod, &self.observed);
        let of_spec = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let grace = self.pod.metadata.deletion_grace_period_seconds.or(of_spec);
        match &self.job {
            Some(Job::Sync(stop, _)) => stop.cancel(),
            Some(Job::Kill(job, began)) => {
                // A shorter time than it began with: begin anew.
                if grace < *began {
                    job.abort();
                    self.job = None;
                    self.kill(grace);
                }
            }
            Some(Job::Clean | Job::Remove) => {}
            None if self.not_before.is_some_and(|not_before| not_before > Instant::now()) => {
                self.wake = self.not_before;
            }
            None => {
                if self.observed.has_anything_running() {
                    self.kill(grace);
                } else {
                    self.probes.stop();
                    self.context.claims.release(uid(&self.pod));
                    self.state = State::Terminated;
                    self.not_before = None;
                    self.failures = 0;
                }
            }
        }
    }

    fn kill(&mut self, grace: Option<i64>) {
        let (context, pod, observed, me) =
            (self.context.clone(), self.pod.clone(), self.observed.clone(), self.me.clone());
        let shorter = self.eviction.is_some().then_some(GRACE_OF_EVICTED);
        let job = tokio::spawn(async move {
            let result = kill::kill_pod(&context, &pod, &observed, shorter).await;
            drop(me.send(Message::Killed(result)));
        });
        self.job = Some(Job::Kill(job, grace));
    }

    /// Cleans up; and when the API wants it or has it no more, removes the rest.
    fn finish(&mut self) {
        if self.job.is_some() {
            return;
        }
        if let Some(not_before) = self.not_before.filter(|not_before| *not_before > Instant::now()) {
            self.wake_at(not_before);
            return;
        }
        let deleting = self.pod.metadata.deletion_timestamp.is_some();
        let (context, pod, me) = (self.context.clone(), self.pod.clone(), self.me.clone());
        if self.gone && self.cleaned {
            self.job = Some(Job::Remove);
            let observed = self.observed.clone();
            tokio::spawn(async move { me.send(Message::Removed(ending::remove(&context, &pod, &observed).await)) });
        } else if !self.cleaned || deleting && !self.gone {
            self.job = Some(Job::Clean);
            let flushed = self.writer.flushed();
            let delete = deleting && !self.gone;
            tokio::spawn(
                async move { me.send(Message::Cleaned(ending::clean(&context, &pod, flushed, delete).await)) },
            );
        }
    }
}

fn image(pod: &Pod, container: &str) -> Option<String> {
    find(pod, container).and_then(|(_, container)| container.image)
}

/// A duration as Go writes it: `10s`, `2m40s`.
fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
}
