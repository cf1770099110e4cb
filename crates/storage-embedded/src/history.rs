//! How old and how big the history is, to know what to trim. Sparse samples say which revision was current at a time and
//! how many bytes had been written until then; they are stored with the commits that they describe, so that trimming
//! goes on after a restart where it was.

use std::{collections::VecDeque, time::Duration};

use redb::{Database, ReadableDatabase, ReadableTable};

use crate::{clock::millis, fault::Result, format::HISTORY};

/// How many samples a full history has, by time and by bytes.
const RESOLUTION: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub revision: u64,
    pub time: u64,
    pub written: u64,
}

#[derive(Debug)]
pub(crate) struct History {
    samples: VecDeque<Sample>,
    /// Bytes of records ever written.
    written: u64,
    keep_millis: u64,
    keep_bytes: u64,
}

impl History {
    pub(crate) fn load(database: &Database, keep: Duration, keep_bytes: u64) -> Result<Self> {
        let table = database.begin_read()?.open_table(HISTORY)?;
        let mut samples = VecDeque::new();
        for entry in table.iter()? {
            let (revision, value) = entry?;
            let (time, written) = value.value();
            samples.push_back(Sample { revision: revision.value(), time, written });
        }
        let written = samples.back().map_or(0, |sample| sample.written);
        Ok(Self { samples, written, keep_millis: millis(keep), keep_bytes })
    }

    /// Counts the bytes of a batch that ends at `revision`. Answers a sample, to be stored with it, if one is due.
    pub(crate) fn record(&mut self, revision: u64, bytes: u64, now: u64) -> Option<Sample> {
        self.written = self.written.saturating_add(bytes);
        let due = self.samples.back().is_none_or(|last| {
            now.abs_diff(last.time) >= self.keep_millis / RESOLUTION
                || self.written.saturating_sub(last.written) >= self.keep_bytes / RESOLUTION
        });
        let sample = Sample { revision, time: now, written: self.written };
        due.then(|| self.samples.push_back(sample))?;
        Some(sample)
    }

    /// The newest revision that is too old to be kept, or that too much was written after.
    pub(crate) fn trim(&mut self, now: u64) -> Option<u64> {
        let mut target = None;
        while let Some(oldest) = self.samples.front_mut() {
            // The wall clock was set back: count from now.
            oldest.time = oldest.time.min(now);
            let too_old = now - oldest.time >= self.keep_millis;
            let too_big = self.written.saturating_sub(oldest.written) >= self.keep_bytes;
            if !too_old && !too_big {
                break;
            }
            target = Some(oldest.revision);
            self.samples.pop_front();
        }
        target
    }

    /// When [`Self::trim`] next has something to do, in milliseconds since the epoch.
    pub(crate) fn next_trim(&self) -> Option<u64> {
        self.samples.front().map(|oldest| oldest.time.saturating_add(self.keep_millis))
    }
}
