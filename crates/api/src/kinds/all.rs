//! Every built-in kind that has a strategy. A new one is one file and one line here.

use super::{Strategy, apps, core};

pub static ALL: &[&Strategy] = &[
    &apps::controller_revision::STRATEGY,
    &apps::daemon_set::STRATEGY,
    &apps::deployment::STRATEGY,
    &apps::replica_set::STRATEGY,
    &apps::stateful_set::STRATEGY,
    &core::config_map::STRATEGY,
    &core::endpoints::STRATEGY,
    &core::event::STRATEGY,
    &core::event::EVENTS_STRATEGY,
    &core::limit_range::STRATEGY,
    &core::namespace::STRATEGY,
    &core::node::STRATEGY,
    &core::persistent_volume::STRATEGY,
    &core::persistent_volume_claim::STRATEGY,
    &core::pod::STRATEGY,
    &core::pod_template::STRATEGY,
    &core::replication_controller::STRATEGY,
    &core::resource_quota::STRATEGY,
    &core::secret::STRATEGY,
    &core::service::STRATEGY,
    &core::service_account::STRATEGY,
];
