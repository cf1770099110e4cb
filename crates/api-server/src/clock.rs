//! The time, so that tests can set it.

use std::time::SystemTime;

use object_model::time::Time;

pub trait Clock: Send + Sync {
    fn now(&self) -> SystemTime;

    /// Now, as objects record it.
    fn seconds(&self) -> Time {
        Time::from(self.now()).to_seconds()
    }
}

pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}
