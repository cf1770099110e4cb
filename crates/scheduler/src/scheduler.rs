//! The one task that knows what there is, decides what goes where, and hears what came of it.
//!
//! Informers and bindings tell it things through a channel; it takes all of them in before it tries the next pod. So a cycle sees
//! everything that happened before it, and no event can slip past a pod that is being tried. A pod is in one of these
//! places: in the queue, assumed on a node (its binding is on its way), or on a node.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use controller_runtime::{Change, Informers};
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    binding,
    cycle::{Cycles, Search},
    framework::{BindError, Diagnosis, Event, Framework, NodeChange, Outcome, Rejection},
    nominations::Nominations,
    pod::{PodInfo, Shapes, is_finished, node_of},
    preemption::Evictions,
    queue::{Queue, Queued},
    selection::labels_of,
    snapshot::Snapshot,
    telling::{Nominated, Reason, Teller},
};

/// Pods that name another scheduler are left to it.
pub const NAME: &str = "default-scheduler";
/// Bindings on their way at once. More would only wait in the server.
const MOST_BINDINGS: usize = 128;
/// How long that which was begun may take when the scheduler stops: less than its lease lasts, and than anybody waits for it.
const STOPS_WITHIN: Duration = Duration::from_secs(5);

/// What the scheduler is told.
pub enum Told {
    Pod(Arc<Pod>),
    PodGone(Arc<Pod>),
    Node(Arc<Node>),
    NodeGone(Arc<Node>),
    Namespace(Arc<Namespace>),
    NamespaceGone(Arc<Namespace>),
    /// A claim of a namespace, or a volume, has changed or is gone.
    Volumes(Option<String>),
    /// How the binding of a pod ended.
    Bound {
        pod: Arc<PodInfo>,
        node: String,
        result: Result<(), BindError>,
    },
    /// All who were to go for a pod have been told to, or that has failed.
    Evicted {
        for_pod: String,
        failed: bool,
    },
}

pub struct Scheduler {
    framework: Arc<Framework>,
    teller: Teller,
    evictions: Evictions,
    snapshot: Snapshot,
    queue: Queue,
    nominations: Nominations,
    cycles: Cycles,
    shapes: Shapes,
    /// Pods whose binding was not seen yet, by uid, with their history in the queue.
    assumed: HashMap<String, Queued>,
    /// Bindings on their way.
    bindings: usize,
    /// Bindings and evictions. They end with the scheduler, which waits for them only when it is told to stop.
    at_work: JoinSet<()>,
    told: UnboundedReceiver<Told>,
    tell: UnboundedSender<Told>,
}

impl Scheduler {
    pub fn new(framework: Arc<Framework>, teller: Teller, evictions: Evictions) -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        Self {
            queue: Queue::new(framework.clone(), Instant::now()),
            framework,
            teller,
            evictions,
            snapshot: Snapshot::default(),
            nominations: Nominations::default(),
            cycles: Cycles::default(),
            shapes: Shapes::default(),
            assumed: HashMap::new(),
            bindings: 0,
            at_work: JoinSet::new(),
            told,
            tell,
        }
    }

    /// Learns of the cluster, all of it at first.
    pub async fn follow(&self, informers: &Informers) {
        let (pods, nodes, namespaces) = (informers.of::<Pod>(), informers.of::<Node>(), informers.of::<Namespace>());
        nodes.on_change(self.telling(Told::Node, Told::NodeGone));
        namespaces.on_change(self.telling(Told::Namespace, Told::NamespaceGone));
        let (claims, volumes) = (informers.of::<PersistentVolumeClaim>(), informers.of::<PersistentVolume>());
        let of_claim = |claim: Arc<PersistentVolumeClaim>| Told::Volumes(claim.metadata.namespace.clone());
        claims.on_change(self.telling(of_claim, of_claim));
        volumes.on_change(self.telling(|_| Told::Volumes(None), |_| Told::Volumes(None)));
        pods.on_change(self.telling(Told::Pod, Told::PodGone));
        tokio::join!(pods.synced(), nodes.synced(), namespaces.synced(), claims.synced(), volumes.synced());
    }

    fn telling<K>(&self, applied: fn(Arc<K>) -> Told, gone: fn(Arc<K>) -> Told) -> impl Fn(&Change<K>) + use<K> {
        let tell = self.tell.clone();
        move |change| {
            let told = match change {
                Change::Applied { new, .. } => applied(new.clone()),
                Change::Deleted(last) => gone(last.clone()),
            };
            // The scheduler has ended.
            let _ = tell.send(told);
        }
    }

    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            self.hear_all();
            while self.at_work.try_join_next().is_some() {}
            let may_bind = self.bindings < MOST_BINDINGS;
            if may_bind && let Some(queued) = self.queue.pop(Instant::now()) {
                let kept = queued.clone();
                if !self.guarded(|scheduler| scheduler.place(queued)) {
                    self.queue.remove(&kept.pod.uid);
                    self.queue.failed(kept, Instant::now());
                }
                // Others on this thread have work to do as well.
                tokio::task::yield_now().await;
                continue;
            }
            let wakes = self.queue.next_change().filter(|_| may_bind);
            tokio::select! {
                () = stop.cancelled() => {}
                Some(told) = self.told.recv() => drop(self.guarded(|scheduler| scheduler.hear(told))),
                () = sleep_until(wakes.unwrap_or_else(Instant::now)), if wakes.is_some() => {}
            }
        }
        if timeout(STOPS_WITHIN, self.finish()).await.is_err() {
            tracing::warn!("the scheduler has stopped before all that it began was done");
        }
    }

    /// Brings to an end what was begun: whoever leads next must not meet it.
    async fn finish(mut self) {
        while self.at_work.join_next().await.is_some() {}
        self.hear_all();
        self.teller.finish().await;
    }

    /// Takes in everything that was told until now.
    fn hear_all(&mut self) {
        while let Ok(told) = self.told.try_recv() {
            self.guarded(|scheduler| scheduler.hear(told));
        }
    }

    /// Works, and says whether that came to its end: an object that nobody foresaw must not end the scheduling of all others.
    fn guarded(&mut self, work: impl FnOnce(&mut Self)) -> bool {
        let ended = catch_unwind(AssertUnwindSafe(|| work(self))).is_ok();
        if !ended {
            tracing::error!("the scheduler has panicked over one object, and goes on with the others");
        }
        ended
    }

    fn hear(&mut self, told: Told) {
        let now = Instant::now();
        match told {
            Told::Pod(pod) if is_finished(&pod) => self.pod_has_gone(&pod, now),
            Told::Pod(pod) => match node_of(&pod).map(str::to_owned) {
                Some(node) => self.pod_is_on(pod, &node, now),
                None => self.pod_waits(pod, now),
            },
            Told::PodGone(pod) => self.pod_has_gone(&pod, now),
            Told::Node(node) => self.node_is(node, now),
            Told::NodeGone(node) => {
                self.snapshot.remove_node(node.metadata.name.as_deref().unwrap_or_default());
                self.queue.wake(&Event::NodeRemoved(&node), now);
            }
            Told::Volumes(namespace) => {
                self.queue.wake(&Event::VolumesChanged { namespace: namespace.as_deref() }, now);
            }
            Told::Namespace(namespace) => {
                let name = namespace.metadata.name.as_deref().unwrap_or_default();
                self.snapshot.set_namespace(name, Some(labels_of(&namespace.metadata)));
                self.queue.wake(&Event::NamespaceChanged, now);
            }
            Told::NamespaceGone(namespace) => {
                self.snapshot.set_namespace(namespace.metadata.name.as_deref().unwrap_or_default(), None);
            }
            Told::Bound { pod, node, result } => self.binding_ended(&pod, &node, result, now),
            Told::Evicted { for_pod, failed } => self.queue.release(&for_pod, failed, now),
        }
    }

    fn pod_is_on(&mut self, pod: Arc<Pod>, node: &str, now: Instant) {
        let pod = Arc::new(PodInfo::new(pod, &mut self.shapes));
        self.queue.remove(&pod.uid);
        self.goes_to(&pod, node, now);
        let was_assumed = self.assumed.remove(&pod.uid).is_some();
        let was = self.snapshot.pod(&pod.uid).filter(|_| !was_assumed);
        self.snapshot.add_pod(pod.clone(), node);
        match was {
            None => self.queue.wake(&Event::PodAdded(&pod), now),
            Some(was) if was.labels() != pod.labels() || !Arc::ptr_eq(&was.shape, &pod.shape) => {
                self.queue.wake(&Event::PodChanged { old: &was, new: &pod }, now);
            }
            Some(_) => {}
        }
    }

    fn pod_waits(&mut self, pod: Arc<Pod>, now: Instant) {
        let scheduler = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
        if scheduler.is_some_and(|name| name != NAME) {
            return;
        }
        if pod.metadata.deletion_timestamp.is_some() {
            return self.pod_has_gone(&pod, now);
        }
        let pod = Arc::new(PodInfo::new(pod, &mut self.shapes));
        if let Some(queued) = self.assumed.get_mut(&pod.uid) {
            queued.pod = pod;
            return;
        }
        // A status that says what it said before may be older than what was decided here.
        let said = self.queue.get(&pod.uid).map(|was| was.nominated_node());
        if said != Some(pod.nominated_node()) {
            self.nominate(&pod, pod.nominated_node(), now);
        }
        self.queue.set(pod, now);
    }

    /// Room was made for a pod at a node, or is none any more. What it gives up elsewhere may do for those who had to leave it free.
    fn nominate(&mut self, pod: &Arc<PodInfo>, node: Option<&str>, now: Instant) {
        let gives_up = self.nominations.node_of(&pod.uid).is_some_and(|was| node != Some(was));
        self.nominations.set(pod, node);
        if gives_up {
            self.queue.wake_up_to(pod.priority, &Event::PodRemoved(pod), now);
        }
    }

    /// Room that was made for a pod, if it was, is of no use to it. Its status may not say so yet, or still say so.
    fn give_up_room(&mut self, pod: &Arc<PodInfo>, now: Instant) -> Nominated {
        let had_room = self.nominations.node_of(&pod.uid).or(pod.nominated_node()).is_some();
        self.nominate(pod, None, now);
        if had_room { Nominated::Nowhere } else { Nominated::Unchanged }
    }

    /// A pod does not wait for room any more: it takes it, there or elsewhere.
    fn goes_to(&mut self, pod: &Arc<PodInfo>, node: &str, now: Instant) {
        if self.nominations.node_of(&pod.uid).is_some_and(|was| was != node) {
            self.nominate(pod, None, now);
        }
        self.nominations.remove(&pod.uid);
    }

    fn pod_has_gone(&mut self, pod: &Pod, now: Instant) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.queue.remove(uid);
        self.assumed.remove(uid);
        let nominated = self.nominations.remove(uid);
        if let Some(gone) = self.snapshot.remove_pod(uid).or(nominated) {
            self.queue.wake(&Event::PodRemoved(&gone), now);
        }
    }

    fn node_is(&mut self, node: Arc<Node>, now: Instant) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let old = self.snapshot.slot(name).and_then(|slot| self.snapshot.node(slot).node().cloned());
        self.snapshot.set_node(node.clone());
        match old {
            None => self.queue.wake(&Event::NodeAdded(&node), now),
            Some(old) => {
                let what = NodeChange::between(&old, &node);
                if what.is_any() {
                    self.queue.wake(&Event::NodeChanged { old: &old, new: &node, what }, now);
                }
            }
        }
    }

    /// Tries to find a node for a pod.
    fn place(&mut self, queued: Queued) {
        self.snapshot.refresh();
        let pod = queued.pod.clone();
        let search =
            Search { framework: &self.framework, snapshot: &self.snapshot, nominations: &self.nominations, pod: &pod };
        match self.cycles.find(search) {
            Ok(slot) => {
                let node = self.snapshot.node(slot).name().to_owned();
                self.assume(queued, node);
            }
            Err(diagnosis) => self.fits_nowhere(queued, diagnosis),
        }
    }

    /// The pod counts as being on the node from now on; its binding begins.
    fn assume(&mut self, queued: Queued, node: String) {
        let (pod, now) = (queued.pod.clone(), Instant::now());
        if let Err(rejection) = self.framework.reserve(&pod, &node) {
            return self.rejected_late(queued, &rejection, now);
        }
        self.goes_to(&pod, &node, now);
        self.snapshot.add_pod(pod.clone(), &node);
        self.assumed.insert(pod.uid.clone(), queued);
        self.bindings += 1;
        let (framework, bound, at) = (self.framework.clone(), pod.clone(), node.clone());
        let work = async move { binding::bind(&framework, &bound, &at).await };
        self.beside(work, |ended| Told::Bound { pod, node, result: ended.unwrap_or(Err(BindError::Panicked)) });
    }

    /// Works beside the next cycles, and hears what came of it; of a panic, that nothing did.
    fn beside<T>(
        &mut self,
        work: impl Future<Output = T> + Send + 'static,
        told: impl FnOnce(Option<T>) -> Told + Send + 'static,
    ) {
        let tell = self.tell.clone();
        self.at_work.spawn(async move {
            let ended = AssertUnwindSafe(work).catch_unwind().await.ok();
            // The scheduler has ended.
            let _ = tell.send(told(ended));
        });
    }

    /// Makes room for a pod if possible, tells it, and lets it wait.
    fn fits_nowhere(&mut self, queued: Queued, mut diagnosis: Diagnosis) {
        let (pod, now) = (queued.pod.clone(), Instant::now());
        let nominated = match self.make_room(&pod, &diagnosis) {
            Some(Outcome::Room { node, victims }) => {
                for lesser in self.nominations.below(&node, pod.priority) {
                    self.nominate(&lesser, None, now);
                    self.teller.take_room(&lesser);
                }
                self.nominate(&pod, Some(&node), now);
                self.evict(victims, pod.clone(), node.clone());
                Nominated::At(node)
            }
            Some(Outcome::Nothing { words, for_good }) => {
                diagnosis.making_room = Some(words);
                if for_good { self.give_up_room(&pod, now) } else { Nominated::Unchanged }
            }
            None => self.give_up_room(&pod, now),
        };
        self.teller.tell(&pod, Reason::Unschedulable, &diagnosis.to_string(), &nominated);
        self.queue.misfit(queued, diagnosis.plugins(), now);
    }

    /// Makes pods go for another one. That one is not tried meanwhile: while some do not go yet it would make others go as well.
    fn evict(&mut self, victims: Vec<Arc<PodInfo>>, for_pod: Arc<PodInfo>, node: String) {
        self.queue.hold(&for_pod.uid);
        let (evictions, uid) = (self.evictions.clone(), for_pod.uid.clone());
        let work = async move { evictions.evict(&victims, &for_pod, &node).await };
        self.beside(work, |ended| Told::Evicted { for_pod: uid, failed: !matches!(ended, Some(Ok(()))) });
    }

    /// The first plugin that makes room, or the words of the last one. Where there are no nodes, nobody is asked.
    fn make_room(&self, pod: &PodInfo, diagnosis: &Diagnosis) -> Option<Outcome> {
        let search =
            Search { framework: &self.framework, snapshot: &self.snapshot, nominations: &self.nominations, pod };
        let mut last = None;
        for plugin in self.framework.post_filters.iter().filter(|_| diagnosis.nodes > 0) {
            match plugin.post_filter(search, diagnosis) {
                room @ Outcome::Room { .. } => return Some(room),
                nothing @ Outcome::Nothing { .. } => last = Some(nothing),
            }
        }
        last
    }

    /// A node was found, and then somebody objected.
    fn rejected_late(&mut self, queued: Queued, rejection: &Rejection, now: Instant) {
        self.nominate(&queued.pod, None, now);
        self.teller.tell(&queued.pod, Reason::Unschedulable, &rejection.to_string(), &Nominated::Nowhere);
        self.queue.misfit(queued, BTreeSet::from([rejection.plugin]), now);
    }

    fn binding_ended(&mut self, pod: &PodInfo, node: &str, result: Result<(), BindError>, now: Instant) {
        self.bindings -= 1;
        let Err(error) = result else { return self.teller.tell_of_node(pod, node) };
        self.framework.unreserve(pod, node);
        // The pod has gone, or was seen on a node meanwhile.
        let Some(queued) = self.assumed.remove(&pod.uid) else { return };
        if let Some(gone) = self.snapshot.remove_pod(&pod.uid) {
            self.queue.wake(&Event::PodRemoved(&gone), now);
        }
        match error {
            BindError::Rejected(rejection) => self.rejected_late(queued, &rejection, now),
            BindError::Api(_) | BindError::Panicked => {
                self.teller.tell(&queued.pod, Reason::SchedulerError, &error.to_string(), &Nominated::Nowhere);
                self.queue.failed(queued, now);
            }
        }
    }
}
