//! Leader election on Leases: of several processes with the same controllers, one works.
//!
//! Kubernetes' algorithm: whoever finds the lease free, or unchanged for as long as it says on it, takes it by
//! compare-and-commit; the holder renews it every retry period and stops working if it could not do so until the renew
//! deadline, which is before anybody else may take it. How long a lease was unchanged goes by the own clock: the times in
//! it are for people. A holder that stops finishes its work and gives the lease back; one that has lost it drops its work, for
//! somebody else may do the same already.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::PostParams};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Clock, Error,
    events::{EventType, Recorder, about},
};

#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub lease: Duration,
    pub renew_deadline: Duration,
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), renew_deadline: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

pub struct Elector {
    leases: Api<Lease>,
    name: String,
    identity: String,
    timing: Timing,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    /// The lease as last seen, and when it was first seen like this.
    observed: Option<(Lease, Instant)>,
}

impl Elector {
    /// `identity` is unique among the processes, such as the host's name and a random part.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: impl Into<String>,
        timing: Timing,
        clock: Arc<dyn Clock>,
        recorder: Recorder,
    ) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.into(),
            timing,
            clock,
            recorder,
            observed: None,
        }
    }

    /// Works whenever this process leads, until `stop`. The work is told to stop by its token, and is waited for. When the lease
    /// is lost, the work is dropped, and with it whatever it holds: tasks that it started must end with it (`JoinSet`).
    pub async fn run<W>(mut self, stop: CancellationToken, work: impl Fn(CancellationToken) -> W)
    where
        W: Future<Output = ()> + Send + 'static,
    {
        while stop.run_until_cancelled(self.acquire()).await.is_some() {
            self.tell("became leader");
            let term = stop.child_token();
            let working: JoinHandle<()> = tokio::spawn(work(term.clone()));
            let lost = stop.run_until_cancelled(self.renew()).await.is_some();
            // Who is told to stop finishes its work, so one who has lost the lease is not.
            if lost {
                working.abort()
            } else {
                term.cancel()
            }
            if let Err(error) = working.await
                && !error.is_cancelled()
            {
                tracing::error!(%error, lease = self.name, "the work of the leader ended badly");
            }
            // What it followed ends as well.
            term.cancel();
            self.tell("stopped leading");
            self.release().await;
        }
    }

    async fn acquire(&mut self) {
        loop {
            match self.try_to_lead().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, lease = self.name, "cannot take the lease"),
            }
            // Jitter, so that two who started together do not stay in step.
            let share = f64::from(self.clock.now().subsec_nanosecond().unsigned_abs() % 1000) / 1000.0;
            sleep(self.timing.retry.mul_f64(1.0 + 1.2 * share)).await;
        }
    }

    /// Renews until that has not worked for too long.
    async fn renew(&mut self) {
        loop {
            let deadline = Instant::now() + self.timing.renew_deadline;
            loop {
                match timeout_at(deadline, self.try_to_lead()).await {
                    Ok(Ok(true)) => break,
                    Ok(Ok(false)) => tracing::warn!(lease = self.name, "somebody else leads"),
                    Ok(Err(error)) => tracing::warn!(%error, lease = self.name, "cannot renew the lease"),
                    Err(_) => return,
                }
                if timeout_at(deadline, sleep(self.timing.retry)).await.is_err() {
                    return;
                }
            }
            sleep(self.timing.retry).await;
        }
    }

    fn leads(&self) -> bool {
        self.observed.as_ref().is_some_and(|(lease, _)| holder(lease) == self.identity)
    }

    async fn try_to_lead(&mut self) -> Result<bool, Error> {
        if self.leads()
            && let Some((lease, _)) = self.observed.clone()
        {
            match self.write(lease, true).await {
                Ok(()) => return Ok(true),
                Err(error) => tracing::debug!(%error, lease = self.name, "the lease has changed"),
            }
        }
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            let new = Lease { metadata, spec: Some(self.claim(None)) };
            let made = self.leases.create(&PostParams::default(), &new).await?;
            self.observed = Some((made, Instant::now()));
            return Ok(true);
        };
        if self.observed.as_ref().is_none_or(|(known, _)| known.spec != lease.spec) {
            self.observed = Some((lease.clone(), Instant::now()));
        }
        let held = !holder(&lease).is_empty() && holder(&lease) != self.identity;
        if held && self.observed.as_ref().is_some_and(|(lease, since)| since.elapsed() < duration(lease)) {
            return Ok(false);
        }
        self.write(lease, true).await?;
        Ok(true)
    }

    /// What a lease says that is ours from now on, or still.
    fn claim(&self, old: Option<&LeaseSpec>) -> LeaseSpec {
        let now = self.clock.micro_time();
        let ours = old.filter(|old| old.holder_identity.as_deref() == Some(&self.identity));
        let transitions = old.and_then(|old| old.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.timing.lease.as_secs()).ok(),
            acquire_time: ours.and_then(|ours| ours.acquire_time.clone()).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if old.is_none() || ours.is_some() { transitions } else { transitions + 1 }),
            ..LeaseSpec::default()
        }
    }

    /// Writes the lease, if it is still the one that was seen.
    async fn write(&mut self, mut lease: Lease, lead: bool) -> Result<(), Error> {
        lease.spec = Some(if lead {
            self.claim(lease.spec.as_ref())
        } else {
            let now = self.clock.micro_time();
            LeaseSpec {
                holder_identity: Some(String::new()),
                lease_duration_seconds: Some(1),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: lease.spec.and_then(|spec| spec.lease_transitions),
                ..LeaseSpec::default()
            }
        });
        let written = self.leases.replace(&self.name, &PostParams::default(), &lease).await?;
        self.observed = Some((written, Instant::now()));
        Ok(())
    }

    /// Gives the lease back if it is ours, so that nobody has to wait for it to run out.
    async fn release(&mut self) {
        let deadline = Instant::now() + self.timing.renew_deadline;
        let release = async {
            loop {
                let held = self.leases.get_opt(&self.name).await?.filter(|lease| holder(lease) == self.identity);
                let Some(lease) = held else { return Ok(()) };
                match self.write(lease, false).await {
                    // A renewal that was given up half-way has come through after all.
                    Err(Error::Api(kube::Error::Api(status))) if status.code == 409 => {}
                    answer => return answer,
                }
            }
        };
        match timeout_at(deadline, release).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot give the lease back"),
            Err(_) => tracing::warn!("cannot give the lease back in time"),
        }
    }

    fn tell(&self, what: &str) {
        if let Some((lease, _)) = &self.observed {
            let message = format!("{} {what}", self.identity);
            self.recorder.event(&about(lease), EventType::Normal, "LeaderElection", message);
        }
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn duration(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}
