//! The `batch` group.

pub mod cron_job;
pub mod job;
pub mod schedule;

const GROUP: &str = "batch";
