//! Loads to measure Ferry and its peers with, in one run on one machine: ratios count, absolute figures drift. The binary
//! of this crate loads any API server that a kubeconfig names; `benches/` has what is measured inside one process.
//! Nothing depends on this crate.

pub mod process;
pub mod storage_load;
