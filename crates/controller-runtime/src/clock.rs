//! The time as objects record it, so that tests can set it. Delays go by tokio's clock, which tests can pause.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
    jiff::{Timestamp, Unit},
};

pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;

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
