//! PodDisruptionBudget: how many of some pods must stay, or may go, at once.

use serde_json::{Value, json};

use super::GROUP;
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::selectors::{SelectorOptions, label_selector_with, tolerating};
use crate::validation::{Field, meta};

const COUNTS: [&str; 4] = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];

pub static STRATEGY: Strategy = Strategy {
    unconditional_update: false,
    create: Create::new(
        |budget, _| {
            let status: serde_json::Map<_, _> = COUNTS.iter().map(|name| ((*name).to_owned(), json!(0))).collect();
            prepare::put(budget, &["status"], Some(&Value::Object(status)));
            prepare::first_generation(budget);
        },
        |budget| spec(&budget.at("spec"), SelectorOptions::default()),
    ),
    update: Update::of_spec(prepare::spec_only, |budget, old| {
        spec(&budget.at("spec"), tolerating(&old["spec"]["selector"]));
    }),
    subresources: &[("status", Update::of_status(validate_status))],
    ..Strategy::new(GROUP, "PodDisruptionBudget")
};

fn spec(spec: &Field, options: SelectorOptions) {
    let (least, most) = (spec.at("minAvailable"), spec.at("maxUnavailable"));
    let (selector, policy) = (spec.at("selector"), spec.at("unhealthyPodEvictionPolicy"));
    if least.is_set() && most.is_set() {
        spec.invalid_as("PodDisruptionBudgetSpec", "minAvailable and maxUnavailable cannot be both set");
    }
    for amount in [least, most].iter().filter(|amount| amount.is_set()) {
        amount.positive_int_or_percent();
        amount.at_most_100_percent();
    }
    label_selector_with(&selector, options);
    policy.one_of_if_set(&["AlwaysAllow", "IfHealthyBudget"]);
}

fn validate_status(budget: &Field, _: &Value) {
    let status = budget.at("status");
    meta::conditions(&status.at("conditions"));
    COUNTS.iter().for_each(|name| status.at(name).non_negative());
}
