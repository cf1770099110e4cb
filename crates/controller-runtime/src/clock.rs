//! The time, so that tests can set it: as objects record it, and as it passes. Delays go by tokio's clock, which tests can pause.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
    jiff::{Timestamp, Unit},
};
use tokio::time::Instant;

pub trait Clock: Send + Sync + 'static {
    /// By the clock on the wall, which people and NTP set: it may jump.
    fn now(&self) -> Timestamp;

    /// By a clock that only goes on, and rests while the machine does. How long somebody was silent goes by it.
    fn instant(&self) -> Instant {
        Instant::now()
    }

    /// Now, in whole seconds, as `metav1.Time` has it.
    fn time(&self) -> Time {
        let now = self.now();
        Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
    }

    /// Now, in microseconds, as leases have it.
    fn micro_time(&self) -> MicroTime {
        let now = self.now();
        MicroTime(now.round(Unit::Microsecond).unwrap_or(now))
    }
}

pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
