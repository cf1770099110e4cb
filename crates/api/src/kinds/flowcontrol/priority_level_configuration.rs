//! PriorityLevelConfiguration: how many requests of a level are served at once, and how the rest waits.

use object_model::names;
use serde_json::Value;

use super::{GROUP, STATUS, conditions, mandatory_level};
use crate::defaults::Defaults;
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::{Field, meta, same, same_at};

const MAX_QUEUES: i64 = 10_000_000;
/// How many bits a request's hash has to deal hands of queues with.
const HASH_BITS: i64 = 60;
/// The struct that messages show.
const LEVEL: &str = "PriorityLevelConfigurationSpec";
const ZERO_SHARES: &str = "flowcontrol.k8s.io/preserve-zero-concurrency-shares";

pub static STRATEGY: Strategy = Strategy {
    defaults,
    create: Create::new(prepare::new_with_status, validate),
    update: Update::of_spec(prepare::spec_only, |level, _| validate(level)),
    subresources: &[STATUS],
    ..Strategy::cluster(GROUP, "PriorityLevelConfiguration")
};

fn defaults(level: &mut Value) {
    let Some(spec) = level.child("spec") else { return };
    for (name, shares) in [("exempt", 0), ("limited", 30)] {
        if let Some(part) = spec.child(name) {
            part.default_if_absent("nominalConcurrencyShares", shares);
            part.default_if_absent("lendablePercent", 0);
        }
    }
    let response = spec.child("limited").and_then(|limited| limited.child("limitResponse"));
    if let Some(queuing) = response.and_then(|response| response.child("queuing")) {
        queuing.default_to("handSize", 8);
        queuing.default_to("queues", 64);
        queuing.default_to("queueLengthLimit", 50);
    }
}

fn validate(level: &Field) {
    let metadata = level.at("metadata");
    meta::builtin_meta(&metadata, false, names::name_is_dns_subdomain);
    if metadata.at("annotations").key(ZERO_SHARES).is_set() {
        metadata.at("annotations").forbidden(format!("annotation '{ZERO_SHARES}' is forbidden"));
    }
    let (spec, name) = (level.at("spec"), metadata.at("name").text());
    specification(&spec, name);
    if let Some(fixed) = mandatory_level(name) {
        // What the exempt level lends may be tuned.
        if name == "exempt" {
            if !["type", "limited"].iter().all(|part| same_at(spec.value(), &fixed, part)) {
                spec.invalid_as(LEVEL, "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value");
            }
        } else if !same(spec.value(), &fixed) {
            spec.invalid_as(LEVEL, &format!("spec of '{name}' must equal the fixed value"));
        }
    }
    conditions(level);
}

fn specification(spec: &Field, name: &str) {
    let (kind, exempt, limited) = (spec.at("type"), spec.at("exempt"), spec.at("limited"));
    if (name == "exempt") != kind.is("Exempt") {
        kind.with_text().invalid("must be 'Exempt' if and only if `name` is 'exempt'");
    }
    match kind.text() {
        "Exempt" => {
            if limited.is_set() {
                limited.forbidden("must be nil if the type is not Limited");
            }
            shares(&exempt);
        }
        "Limited" => {
            if exempt.is_set() {
                exempt.forbidden("must be nil if the type is Limited");
            }
            if !limited.is_set() {
                return limited.missing("must not be empty when type is Limited");
            }
            non_negative(&limited.at("nominalConcurrencyShares"), "must be a non-negative integer");
            limit_response(&limited.at("limitResponse"));
            lendable(&limited);
            non_negative(&limited.at("borrowingLimitPercent"), "if specified, must be a non-negative integer");
        }
        _ => kind.required_one_of(&["Exempt", "Limited"]),
    }
}

fn shares(part: &Field) {
    non_negative(&part.at("nominalConcurrencyShares"), "must be a non-negative integer");
    lendable(part);
}

fn non_negative(number: &Field, detail: &str) {
    if number.number() < 0 {
        number.invalid(detail);
    }
}

fn lendable(part: &Field) {
    part.at("lendablePercent").in_range(0, 100);
}

fn limit_response(response: &Field) {
    let (kind, queuing) = (response.at("type"), response.at("queuing"));
    match kind.text() {
        "Reject" if queuing.is_set() => queuing.forbidden("must be nil if limited.limitResponse.type is not Limited"),
        "Reject" => {}
        "Queue" if !queuing.is_set() => queuing.missing("must not be empty if limited.limitResponse.type is Limited"),
        "Queue" => queues(&queuing),
        _ => kind.required_one_of(&["Queue", "Reject"]),
    }
}

fn queues(queuing: &Field) {
    const POSITIVE: &str = "must be positive";
    let (length, queues, hand) = (queuing.at("queueLengthLimit"), queuing.at("queues"), queuing.at("handSize"));
    if length.number() <= 0 {
        length.invalid(POSITIVE);
    }
    match queues.number() {
        ..=0 => queues.invalid(POSITIVE),
        1..=MAX_QUEUES => {}
        _ => queues.invalid(format!("must not be greater than {MAX_QUEUES}")),
    }
    let (deck, size) = (queues.number(), hand.number());
    if size <= 0 {
        hand.invalid(POSITIVE);
    } else if size > deck {
        hand.invalid(format!("should not be greater than queues ({deck})"));
    } else if ((deck as f64).log2() * size as f64).ceil() as i64 > HASH_BITS {
        hand.invalid(format!(
            "required entropy bits of deckSize {deck} and handSize {size} should not be greater than {HASH_BITS}"
        ));
    }
}
