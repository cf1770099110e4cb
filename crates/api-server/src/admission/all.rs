//! Every admission plugin, in Kubernetes' order.

use std::sync::Arc;

use super::{
    Chain, default_toleration_seconds::DefaultTolerationSeconds, limit_ranger::LimitRanger,
    namespace_lifecycle::NamespaceLifecycle, priority::Priority, service_account::ServiceAccount,
    storage_object_in_use_protection::StorageObjectInUseProtection, taint_nodes_by_condition::TaintNodesByCondition,
};
use crate::watch_cache::WatchCache;

pub fn plugins(cache: &Arc<WatchCache>) -> Chain {
    Chain::new(vec![
        Box::new(NamespaceLifecycle::new(cache)),
        Box::new(LimitRanger::new(cache)),
        Box::new(ServiceAccount::new(cache)),
        Box::new(TaintNodesByCondition),
        Box::new(Priority::new(cache)),
        Box::new(DefaultTolerationSeconds),
        Box::new(StorageObjectInUseProtection),
    ])
}
