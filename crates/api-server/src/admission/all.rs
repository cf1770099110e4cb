//! Every admission plugin, in Kubernetes' order.

use std::sync::Arc;

use super::{
    Chain, default_toleration_seconds::DefaultTolerationSeconds, limit_ranger::LimitRanger,
    namespace_lifecycle::NamespaceLifecycle, node_restriction::NodeRestriction, priority::Priority,
    service_account::ServiceAccount, storage_object_in_use_protection::StorageObjectInUseProtection,
    taint_nodes_by_condition::TaintNodesByCondition,
};
use crate::{
    authorization::{
        Authorization,
        rbac::{Escalation, Rbac},
    },
    watch_cache::WatchCache,
};

/// The last one changes nothing, and must see all that others have changed.
pub fn plugins(cache: &Arc<WatchCache>, authorization: &Arc<Authorization>, rbac: &Rbac) -> Chain {
    Chain::new(vec![
        Box::new(NamespaceLifecycle::new(cache)),
        Box::new(LimitRanger::new(cache)),
        Box::new(ServiceAccount::new(cache)),
        Box::new(NodeRestriction::new(cache, authorization)),
        Box::new(TaintNodesByCondition),
        Box::new(Priority::new(cache)),
        Box::new(DefaultTolerationSeconds),
        Box::new(StorageObjectInUseProtection),
        Box::new(Escalation::new(rbac.clone(), authorization.clone())),
    ])
}
