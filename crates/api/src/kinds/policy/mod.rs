//! policy: how many pods may be disrupted at once.

pub mod eviction;
pub mod pod_disruption_budget;

const GROUP: &str = "policy";
