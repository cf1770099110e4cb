//! The policy of a fresh cluster, put in place at every start.
//!
//! What is missing is created. Where an object is there, rules and subjects that it lacks are added and nothing is taken
//! away; an object with the annotation `autoupdate: "false"` is left alone. Writes go to the store together, so that an
//! empty disk costs one or two syncs and not one for each object.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;
use object_model::{meta::Meta, status::Status, value::Fields};
use serde_json::{Value, json};

use super::{GROUP, Rule, aggregation, policy, rule};
use crate::{
    Server, bootstrap,
    catalogue::Target,
    context::RequestContext,
    options::WriteOptions,
    registry::{Change, DeleteOptions, store_error},
};

/// Brings the policy in place, and starts to keep gathering roles complete.
pub async fn reconcile(server: &Arc<Server>, context: &RequestContext) -> Result<(), Status> {
    let all = policy::objects();
    let written = join_all(all.iter().map(|(plural, object)| one(server, context, plural, object.clone()))).await;
    for ((plural, object), result) in all.iter().zip(written) {
        // One object that cannot be repaired must not keep anybody from repairing it.
        if let Err(status) = result {
            let name = Meta::of(object).name();
            tracing::error!(plural, name, why = status.message, "cannot bring the policy in place");
        }
    }
    // Who gathers must not see half of them.
    server.registry.cache.fresh().await.map_err(store_error)?;
    tokio::spawn(aggregation::run(server.clone()));
    Ok(())
}

async fn one(server: &Arc<Server>, context: &RequestContext, plural: &str, wanted: Value) -> Result<(), Status> {
    let served = server.catalogue.served();
    let Some(resource) = served.find(GROUP, "v1", plural) else { return Ok(()) };
    let meta = Meta::of(&wanted);
    let target = Target { resource, subresource: "", namespace: meta.namespace(), name: meta.name() };
    let Some(entry) = resource.cache.get(&target.cache_name()) else {
        return bootstrap::create(server, context, GROUP, plural, wanted).await;
    };
    let existing = entry.object(&resource.kind);
    if wanted.has("roleRef") && wanted["roleRef"] != existing["roleRef"] && !is_protected(&existing) {
        // What is bound never changes, so another binding takes its place.
        server.registry.delete(&target, context, &DeleteOptions::default()).await?;
        server.registry.cache.fresh().await.map_err(store_error)?;
        return bootstrap::create(server, context, GROUP, plural, wanted).await;
    }
    if reconciled(&wanted, &existing).is_none() {
        return Ok(());
    }
    let mut change = Reconcile { wanted: &wanted };
    server.registry.update(&target, context, &mut change, &WriteOptions::default()).await.map(drop)
}

struct Reconcile<'a> {
    wanted: &'a Value,
}

#[async_trait]
impl Change for Reconcile<'_> {
    async fn apply(&mut self, current: Option<&Value>) -> Result<Value, Status> {
        let current = current.cloned().unwrap_or_default();
        Ok(reconciled(self.wanted, &current).unwrap_or(current))
    }
}

fn is_protected(existing: &Value) -> bool {
    Meta::of(existing).annotation(policy::AUTOUPDATE) == Some("false")
}

/// The existing object with all that it lacks, if it lacks anything.
fn reconciled(wanted: &Value, existing: &Value) -> Option<Value> {
    if is_protected(existing) {
        return None;
    }
    let mut object = existing.clone();
    for field in ["labels", "annotations"] {
        for (key, value) in wanted["metadata"].entries(field) {
            if existing["metadata"].field(field).is_none_or(|own| !own.has(key)) {
                object["metadata"][field][key] = value.clone();
            }
        }
    }
    if wanted.has("aggregationRule") {
        // Its rules are the controller's.
        add_missing(&mut object["aggregationRule"], &wanted["aggregationRule"], "clusterRoleSelectors");
    } else if wanted.has("roleRef") {
        add_missing(&mut object, wanted, "subjects");
    } else {
        let mut rules = Rule::of_role(existing);
        let missing = rule::missing(&rules, &Rule::of_role(wanted));
        if !missing.is_empty() {
            rules.extend(missing);
            object["rules"] = json!(rules);
        }
    }
    (object != *existing).then_some(object)
}

fn add_missing(object: &mut Value, wanted: &Value, list: &str) {
    let mut items = object.items(list).to_vec();
    let missing: Vec<Value> = wanted.items(list).iter().filter(|item| !items.contains(item)).cloned().collect();
    if !missing.is_empty() {
        items.extend(missing);
        object[list] = items.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(name: &str) -> Value {
        let found = policy::objects().into_iter().find(|(_, o)| Meta::of(o).name() == name);
        found.expect("in the policy").1
    }

    #[test]
    fn what_is_there_stays() {
        for (_, object) in policy::objects() {
            assert_eq!(reconciled(&object, &object), None);
        }
        let node = wanted("system:node");
        let mut more = node.clone();
        let extra = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]});
        more["rules"].as_array_mut().expect("rules").push(extra);
        more["metadata"]["labels"]["own"] = json!("label");
        assert_eq!(reconciled(&node, &more), None);
    }

    #[test]
    fn what_is_missing_is_added() {
        let role = wanted("system:node-proxier");
        let mut less = role.clone();
        less["rules"].as_array_mut().expect("rules").pop();
        less["metadata"].as_object_mut().expect("metadata").remove("labels");
        let added = reconciled(&role, &less).expect("something is missing");
        assert!(rule::missing(&Rule::of_role(&added), &Rule::of_role(&role)).is_empty());
        assert_eq!(added["metadata"]["labels"], role["metadata"]["labels"]);

        let gathering = wanted("view");
        let mut plain = gathering.clone();
        plain.as_object_mut().expect("a role").remove("aggregationRule");
        let added = reconciled(&gathering, &plain).expect("something is missing");
        assert_eq!(added["aggregationRule"], gathering["aggregationRule"]);
    }

    #[test]
    fn what_its_owner_keeps_is_left_alone() {
        let role = wanted("system:discovery");
        let mut own = role.clone();
        own["rules"] = json!([]);
        own["metadata"]["annotations"][policy::AUTOUPDATE] = json!("false");
        assert_eq!(reconciled(&role, &own), None);
    }
}
