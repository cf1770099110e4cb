//! Whether several users have something to do.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Whoever had something to do is company for so long.
const LASTS: Duration = Duration::from_secs(10);

pub struct Company {
    begun: Instant,
    /// Who had something to do last; 0 if nobody had.
    latest: AtomicU64,
    /// Until when there is company, in milliseconds since the beginning.
    until: AtomicU64,
}

impl Default for Company {
    fn default() -> Self {
        Self { begun: Instant::now(), latest: AtomicU64::new(0), until: AtomicU64::new(0) }
    }
}

impl Company {
    /// Somebody, who has this number, has something to do. Often that is who had something to do before.
    pub fn saw(&self, who: u64) {
        if self.latest.load(Ordering::Relaxed) == who {
            return;
        }
        if self.latest.swap(who, Ordering::Relaxed) != 0 {
            self.until.store(self.now() + LASTS.as_millis() as u64, Ordering::Relaxed);
        }
    }

    pub fn is_there(&self) -> bool {
        self.now() < self.until.load(Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    #[cfg(test)]
    pub fn forget(&self) {
        self.until.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_alone_and_two_are_company() {
        let company = Company::default();
        (0..3).for_each(|_| company.saw(1));
        assert!(!company.is_there());
        company.saw(2);
        assert!(company.is_there());
        company.forget();
        company.saw(2);
        assert!(!company.is_there(), "the other one has not come back");
        company.saw(1);
        assert!(company.is_there());
    }
}
