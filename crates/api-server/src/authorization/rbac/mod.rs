//! Role-based access control: users have what the roles say that are bound to them, and nothing else.
//!
//! [`Rbac`] judges from an index of all roles and bindings. [`policy`] is what a fresh cluster starts with, [`bootstrap`]
//! keeps it in place, [`aggregation`] fills the roles that gather others, and [`escalation`] keeps people from giving away
//! what they do not have.

mod aggregation;
mod bootstrap;
mod escalation;
mod index;
pub mod policy;
mod rule;

use std::sync::Arc;

use async_trait::async_trait;
pub use bootstrap::reconcile;
pub use escalation::Escalation;
use index::{Index, RoleRef};
pub use rule::Rule;

use super::{Attributes, Authorizer, Decision, Rules, aggregate, follower::Followed};
use crate::{catalogue::store_prefix, context::User, watch_cache::WatchCache};

pub const GROUP: &str = "rbac.authorization.k8s.io";

/// Cheap to clone; clones share the index.
#[derive(Clone)]
pub struct Rbac(Arc<Followed<Index>>);

impl Rbac {
    pub fn new(cache: &WatchCache) -> Self {
        let resources = index::RESOURCES.map(|plural| cache.resource(&store_prefix(GROUP, plural)));
        Self(Arc::new(Followed::new(resources)))
    }

    /// Decides without waiting for anybody.
    pub fn judge(&self, attributes: &Attributes<'_>) -> Decision {
        self.0.read(|index| judge(index, attributes))
    }

    /// All rules that apply to a user in a namespace, and the roles that are bound but do not exist.
    fn rules_of(&self, user: &User, namespace: &str, in_registry: bool) -> (Vec<Rule>, Vec<String>) {
        self.0.read(|index| {
            let (mut rules, mut errors) = (Vec::new(), Vec::new());
            for (grant, role) in index.grants_of(user, namespace) {
                match role {
                    Some(role) => rules.extend(role.rules.iter().cloned()),
                    None => errors.push(grant.role.missing(in_registry)),
                }
            }
            (rules, errors)
        })
    }

    /// The rules of a role, if it exists.
    fn rules_in(&self, role: &RoleRef) -> Option<Arc<[Rule]>> {
        self.0.read(|index| index.role(role).map(|role| role.rules.clone()))
    }
}

fn judge(index: &Index, attributes: &Attributes<'_>) -> Decision {
    let combined = attributes.combined_resource();
    let wildcard = (!attributes.subresource.is_empty()).then(|| format!("*/{}", attributes.subresource));
    let mut errors = Vec::new();
    for (grant, role) in index.grants_of(attributes.user, attributes.namespace) {
        match role {
            Some(role) if role.allows(attributes, &combined, wildcard.as_deref()) => {
                return Decision::allow(grant.reason.clone());
            }
            Some(_) => {}
            None => errors.push(grant.role.missing(false)),
        }
    }
    match aggregate(errors) {
        Some(errors) => Decision::no_opinion_because(format!("RBAC: {errors}")),
        None => Decision::no_opinion(),
    }
}

#[async_trait]
impl Authorizer for Rbac {
    async fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        self.judge(attributes)
    }

    fn rules(&self, user: &User, namespace: &str) -> Rules {
        let (rules, errors) = self.rules_of(user, namespace, false);
        Rules { rules, incomplete: false, errors }
    }
}

#[cfg(test)]
mod tests;
