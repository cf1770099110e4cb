//! Nobody gives away what they do not have.
//!
//! Whoever writes a role must have all that is in it, or the verb `escalate` on it; whoever binds a role must have all that
//! it gives, or the verb `bind` on it. Kubernetes checks this around its storage of the four kinds, after mutating
//! admission and before validation; here it is the last mutating plugin, and changes nothing.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use object_model::{
    go_text::quote,
    meta::{Meta, MetaMut},
    status::{Details, Reason, Status},
    value::Fields,
};
use serde_json::Value;

use super::{GROUP, Rbac, RoleRef, Rule, rule};
use crate::{
    admission::{self, Operation, Plugin},
    authorization::{Attributes, Authorization, MASTERS},
};

/// Roles with more parts than this can only be given by who has everything: every part is looked for in all that the
/// requester has.
const MOST_PARTS: usize = 20_000;
/// How much of what is missing a refusal shows.
const MOST_SHOWN: usize = 200;

pub struct Escalation {
    rbac: Rbac,
    authorization: Arc<Authorization>,
}

impl Escalation {
    pub fn new(rbac: Rbac, authorization: Arc<Authorization>) -> Self {
        Self { rbac, authorization }
    }

    async fn check_role(&self, request: &admission::Attributes<'_>, role: &Value) -> Result<(), Status> {
        let target = request.target;
        let escalate = Attributes {
            namespace: target.namespace,
            name: Cow::Borrowed(target.name),
            ..Attributes::of_resource(&request.context.user, "escalate", GROUP, &target.resource.plural)
        };
        if self.authorization.decide(&escalate).await.is_allowed() {
            return Ok(());
        }
        self.confirm(request, role, &Rule::of_role(role))?;
        let gathers =
            |role: &Value| role.object("aggregationRule").is_some_and(|r| !r.items("clusterRoleSelectors").is_empty());
        if (gathers(role) || request.old.is_some_and(gathers))
            && self.confirm(request, role, &Rule::everything()).is_err()
        {
            let why = "must have cluster-admin privileges to use the aggregationRule";
            return Err(refused(request, role, why));
        }
        Ok(())
    }

    async fn check_binding(&self, request: &admission::Attributes<'_>, binding: &Value) -> Result<(), Status> {
        let namespace = request.target.namespace;
        let name = binding.text_at(&["roleRef", "name"]);
        let plural = match binding.text_at(&["roleRef", "kind"]) {
            "ClusterRole" => "clusterroles",
            _ => "roles",
        };
        let group = binding.text_at(&["roleRef", "apiGroup"]);
        let bind = Attributes {
            namespace,
            name: Cow::Borrowed(name),
            ..Attributes::of_resource(&request.context.user, "bind", group, plural)
        };
        if self.authorization.decide(&bind).await.is_allowed() {
            return Ok(());
        }
        let role = RoleRef::of(binding, namespace);
        let Some(rules) = self.rbac.rules_in(&role) else {
            let details = Details {
                name: name.to_owned(),
                group: GROUP.to_owned(),
                kind: plural.to_owned(),
                ..Details::default()
            };
            return Err(Status::failure(404, Reason::NOT_FOUND, role.missing(true), Some(details)));
        };
        self.confirm(request, binding, &rules)
    }

    /// The requester must have all of these rules where the object is.
    fn confirm(&self, request: &admission::Attributes<'_>, object: &Value, wanted: &[Rule]) -> Result<(), Status> {
        let user = &request.context.user;
        let (owned, errors) = self.rbac.rules_of(user, request.target.namespace, true);
        let parts = rule::size(wanted);
        if parts > MOST_PARTS {
            let why = format!("its rules have {parts} combinations, of which at most {MOST_PARTS} can be checked");
            let has_all = rule::missing(&owned, &Rule::everything()).is_empty();
            return if has_all { Ok(()) } else { Err(refused(request, object, &why)) };
        }
        let mut missing: Vec<String> = rule::missing(&owned, wanted).iter().map(Rule::to_string).collect();
        if missing.is_empty() {
            return Ok(());
        }
        missing.sort();
        missing.dedup();
        if missing.len() > MOST_SHOWN {
            let more = missing.len() - MOST_SHOWN;
            missing.truncate(MOST_SHOWN);
            missing.push(format!("and {more} more"));
        }
        let unresolved = match super::aggregate(errors) {
            Some(errors) => format!("; resolution errors: [{errors}]"),
            None => String::new(),
        };
        let why = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}{unresolved}",
            quote(&user.name),
            rule::quoted(&user.groups),
            missing.join("\n"),
        );
        Err(refused(request, object, &why))
    }
}

fn refused(request: &admission::Attributes<'_>, object: &Value, why: &str) -> Status {
    Status::forbidden(&request.target.resource.group_resource(), Meta::of(object).name(), why)
}

#[async_trait]
impl Plugin for Escalation {
    fn name(&self) -> &'static str {
        "RBACEscalation"
    }

    fn handles(&self, request: &admission::Request<'_>) -> bool {
        request.group == GROUP && matches!(request.operation, Operation::Create | Operation::Update)
    }

    async fn mutate(&self, request: &admission::Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let resource = request.target.resource;
        if request.context.user.is_in(MASTERS) {
            return Ok(());
        }
        if request.old.is_some_and(|old| only_for_the_collector(object, old)) {
            return Ok(());
        }
        match &*resource.plural {
            "roles" | "clusterroles" => self.check_role(request, object).await,
            _ => self.check_binding(request, object).await,
        }
    }
}

/// Is nothing changed but what the garbage collector needs to change to remove the object?
fn only_for_the_collector(object: &Value, old: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            let mut meta = MetaMut::of(fields);
            for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
                meta.remove(field);
            }
        }
        object
    };
    without(object) == without(old)
}
