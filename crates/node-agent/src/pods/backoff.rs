//! Waiting longer with every failure: 10 seconds at first, then twice as long each time, 5 minutes at most.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

pub const FIRST: Duration = Duration::from_secs(10);
pub const LONGEST: Duration = Duration::from_secs(300);
/// Whoever has gone this long without a failure begins anew.
const FORGIVEN_AFTER: SignedDuration = SignedDuration::from_secs(600);

#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    pub delay: Duration,
    updated: Timestamp,
}

impl Backoff {
    /// Counts a failure at `failed`, in whatever state it was before.
    pub fn next(before: Option<&Self>, failed: Timestamp, now: Timestamp) -> Self {
        let delay = match before {
            Some(before) if !before.is_forgiven(failed) => (before.delay * 2).min(LONGEST),
            _ => FIRST,
        };
        Self { delay, updated: now }
    }

    /// How long to wait still, after a failure at `failed`.
    pub fn remaining(&self, failed: Timestamp, now: Timestamp) -> Option<Duration> {
        if self.is_forgiven(failed) {
            return None;
        }
        let passed = Duration::try_from(now.duration_since(failed)).unwrap_or_default();
        self.delay.checked_sub(passed).filter(|remaining| !remaining.is_zero())
    }

    /// The time since the last failure, for those who count from there.
    pub fn remaining_since_update(&self, now: Timestamp) -> Option<Duration> {
        self.remaining(self.updated, now)
    }

    fn is_forgiven(&self, failed: Timestamp) -> bool {
        failed.duration_since(self.updated) > FORGIVEN_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn it_doubles_up_to_five_minutes_and_is_forgiven_after_ten() {
        let mut backoff = Backoff::next(None, at(0), at(0));
        assert_eq!(backoff.delay, FIRST);
        assert_eq!(backoff.remaining(at(3), at(5)), Some(Duration::from_secs(8)));
        assert_eq!(backoff.remaining(at(3), at(13)), None);
        for expected in [20, 40, 80, 160, 300, 300] {
            backoff = Backoff::next(Some(&backoff), at(13), at(13));
            assert_eq!(backoff.delay, Duration::from_secs(expected));
        }
        assert_eq!(backoff.remaining(at(700), at(700)), None, "it ran for more than ten minutes");
        assert_eq!(Backoff::next(Some(&backoff), at(700), at(700)).delay, FIRST);
    }
}
