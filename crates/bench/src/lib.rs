//! Loads to measure Ferry and its peers with, in one run on one machine: ratios count, absolute figures drift.
//! Nothing depends on this crate.

pub mod storage_load;
