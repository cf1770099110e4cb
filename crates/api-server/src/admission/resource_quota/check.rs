//! Whether a request fits into the quotas of its namespace, and what they are afterwards.

use std::{collections::BTreeSet, sync::Arc};

use object_model::{meta::Meta, status::Status, value::Fields};
use serde::Deserialize;
use serde_json::Value;

use super::{
    kinds::{Counter, Kind},
    scopes::Scope,
};
use crate::{
    admission::{
        Attributes, Operation, failure,
        pod_resources::{Amounts, add, amounts},
    },
    watch_cache::Entry,
};

/// A ResourceQuota, read.
pub struct Quota {
    pub entry: Arc<Entry>,
    pub object: Value,
    pub hard: Amounts,
    pub used: Amounts,
    pub scopes: Vec<Scope>,
}

/// Things that nobody may have without a quota that covers them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Limited {
    #[serde(default)]
    api_group: String,
    resource: String,
    #[serde(default)]
    match_contains: Vec<String>,
    #[serde(default)]
    match_scopes: Vec<Scope>,
}

impl Quota {
    pub fn of(entry: Arc<Entry>) -> Self {
        let object = entry.object("ResourceQuota");
        let list = |name| amounts(object.at(&["status", name]));
        Self { hard: list("hard"), used: list("used"), scopes: Scope::of_quota(&object), entry, object }
    }

    fn name(&self) -> &str {
        Meta::of(&self.object).name()
    }

    /// The names in the quota that objects of this kind use.
    fn names<'a>(&'a self, counter: &Counter, kind: &Kind) -> BTreeSet<&'a str> {
        self.hard.keys().map(String::as_str).filter(|name| counter.tracks(kind, name)).collect()
    }

    /// Is the quota about this object?
    pub fn matches(&self, counter: &Counter, kind: &Kind, object: &Value) -> bool {
        self.scopes.iter().all(|scope| scope.matches(kind, object)) && !self.names(counter, kind).is_empty()
    }
}

/// What the quotas that are touched, by their place in the list, have used afterwards.
pub fn check(
    counter: &Counter,
    quotas: &[Quota],
    limited: &[Limited],
    attributes: &Attributes<'_>,
    kind: &Kind,
    object: &Value,
) -> Result<Vec<(usize, Amounts)>, Status> {
    let forbidden = |why: String| Err(attributes.forbidden(object, why));
    let usage = counter.usage(kind, object);
    let negative: Vec<&str> = usage.iter().filter(|(_, v)| v.sign() < 0).map(|(name, _)| name.as_str()).collect();
    let mut touched = Vec::new();
    let mut covered: BTreeSet<&str> = BTreeSet::new();
    for (at, quota) in quotas.iter().enumerate().filter(|(_, quota)| quota.matches(counter, kind, object)) {
        let names = quota.names(counter, kind);
        if let Some(missing) = counter.missing(kind, object, &names) {
            return forbidden(format!("failed quota: {}: {missing}", quota.name()));
        }
        if !names.iter().all(|name| quota.used.contains_key(*name)) {
            let names: Vec<&str> = names.into_iter().collect();
            return forbidden(format!("status unknown for quota: {}, resources: {}", quota.name(), names.join(",")));
        }
        covered.extend(names);
        touched.push(at);
    }
    if !negative.is_empty() {
        return forbidden(format!("quota usage is negative for resource(s): {}", negative.join(",")));
    }
    let charges = charges(counter, quotas, &touched, attributes, kind, &usage);
    if charges.iter().all(|(_, more)| more.is_empty()) {
        return Ok(Vec::new());
    }
    let group_resource = kind.resource();
    let rules: Vec<&Limited> =
        limited.iter().filter(|rule| (rule.api_group.as_str(), rule.resource.as_str()) == group_resource).collect();
    let is_limited = |name: &str| rules.iter().any(|rule| rule.match_contains.iter().any(|part| name.contains(part)));
    let uncovered = usage.iter().filter(|(name, amount)| amount.sign() > 0 && is_limited(name));
    let uncovered: Vec<&str> =
        uncovered.map(|(name, _)| name.as_str()).filter(|name| !covered.contains(name)).collect();
    if !uncovered.is_empty() {
        return forbidden(format!("insufficient quota to consume: {}", uncovered.join(",")));
    }
    check_scopes(quotas, limited, kind, object)?;
    let mut after = Vec::new();
    for (at, more) in charges {
        let Some(quota) = at.and_then(|at| quotas.get(at)) else { continue };
        let more: Amounts = more.into_iter().filter(|(name, _)| quota.hard.contains_key(name)).collect();
        let mut used = quota.used.clone();
        add(&mut used, more.clone());
        let exceeded: Vec<&String> = more.keys().filter(|name| used.get(*name) > quota.hard.get(*name)).collect();
        if !exceeded.is_empty() && attributes.target.subresource != "status" {
            let show = |all: &Amounts| {
                let parts = exceeded.iter().filter_map(|name| Some(format!("{name}={}", all.get(*name)?)));
                parts.collect::<Vec<_>>().join(",")
            };
            let (more, used, hard) = (show(&more), show(&quota.used), show(&quota.hard));
            let name = quota.name();
            return forbidden(format!("exceeded quota: {name}, requested: {more}, used: {used}, limited: {hard}"));
        }
        after.extend(at.map(|at| (at, used)));
    }
    Ok(after)
}

/// What each quota is to be charged, without what is nothing; where no quota is touched, what there would be to charge.
fn charges(
    counter: &Counter,
    quotas: &[Quota],
    touched: &[usize],
    attributes: &Attributes<'_>,
    kind: &Kind,
    usage: &Amounts,
) -> Vec<(Option<usize>, Amounts)> {
    let old = attributes.old.filter(|_| attributes.operation == Operation::Update);
    let before = old.map(|old| counter.usage(kind, old)).unwrap_or_default();
    let grown: Amounts = usage
        .iter()
        .map(|(name, amount)| {
            let mut more = *amount;
            if let Some(before) = before.get(name) {
                more.sub(before);
            }
            (name.clone(), more)
        })
        .collect();
    // An object that comes under a quota only now is charged in full.
    let was_under = |quota: &Quota| old.is_some_and(|old| quota.matches(counter, kind, old));
    let charge = |at: &usize| {
        let is_charged = quotas.get(*at).is_some_and(was_under);
        (Some(*at), if is_charged { grown.clone() } else { usage.clone() })
    };
    let mut charges: Vec<(Option<usize>, Amounts)> = touched.iter().map(charge).collect();
    if charges.is_empty() {
        charges.push((None, grown));
    }
    for (_, more) in &mut charges {
        more.retain(|_, amount| amount.sign() > 0);
    }
    charges
}

/// Scopes that the configuration limits need a quota for them.
fn check_scopes(quotas: &[Quota], limited: &[Limited], kind: &Kind, object: &Value) -> Result<(), Status> {
    let matched = limited.iter().flat_map(|rule| &rule.match_scopes).filter(|scope| scope.matches(kind, object));
    let covers = |wanted: &Scope| {
        let mut scopes = quotas.iter().flat_map(|quota| &quota.scopes);
        scopes.any(|scope| scope.name() == wanted.name() && scope.matches(kind, object))
    };
    let uncovered: Vec<String> = matched.filter(|scope| !covers(scope)).map(Scope::to_string).collect();
    if uncovered.is_empty() {
        return Ok(());
    }
    Err(failure(format!("insufficient quota to match these scopes: [{}]", uncovered.join(" "))))
}
