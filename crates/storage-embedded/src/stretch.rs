//! Work that may take long lets others have the processor in between.
//!
//! The kernel looks only every few milliseconds whether a thread has had its share. A thread that others need for a
//! moment, when every processor is busy, would wait that long for each.

use std::{
    thread,
    time::{Duration, Instant},
};

const LONG: Duration = Duration::from_micros(100);
const BREATH: Duration = Duration::from_micros(50);

/// A time of uninterrupted work.
#[derive(Clone, Copy, Debug)]
pub struct Stretch(Instant);

impl Stretch {
    pub fn begin() -> Self {
        Self(Instant::now())
    }

    /// Sleeps for a moment if the work has gone on for long: whoever waits for this processor can have it. (To yield is not
    /// enough: a thread that stays ready is given the processor again before others are done.)
    pub fn go_on(&mut self) {
        if self.0.elapsed() > LONG {
            thread::sleep(BREATH);
            *self = Self::begin();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_work_is_interrupted_and_short_work_is_not() {
        let begun = Instant::now();
        let mut stretch = Stretch(begun);
        while begun.elapsed() <= LONG {}
        let worked = begun.elapsed();
        stretch.go_on();
        assert!(begun.elapsed() >= worked + BREATH && stretch.0 >= begun + worked + BREATH);
        // It begins in an hour, as nobody knows how long anything takes here.
        let fresh = Stretch(Instant::now() + Duration::from_secs(3600));
        let mut same = fresh;
        same.go_on();
        assert_eq!(same.0, fresh.0);
    }
}
