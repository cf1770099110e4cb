//! What a claim, or a template of claims, asks for.

use object_model::names;
use serde_json::Value;

use super::{MAX_CONFIGS, MAX_REQUESTS, configuration, itself, list, name_of, qualified_name, selectors, set};
use crate::defaults::Defaults;
use crate::validation::Field;

const MAX_CONSTRAINTS: usize = 32;
const MAX_ALTERNATIVES: usize = 8;
const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

/// One device unless said.
pub fn defaults(spec: &mut Value) {
    let Some(devices) = spec.child("devices") else { return };
    for request in devices.each("requests") {
        if let Some(exactly) = request.child("exactly") {
            request_defaults(exactly);
        }
        request.each("firstAvailable").for_each(request_defaults);
    }
}

fn request_defaults(request: &mut Value) {
    request.default_to("allocationMode", "ExactCount");
    if request["allocationMode"] == "ExactCount" {
        request.default_to("count", 1);
    }
}

/// The specification of a claim.
pub fn spec(spec: &Field) {
    let devices = spec.at("devices");
    let known = RequestNames::of(devices.value());
    set(&devices.at("requests"), MAX_REQUESTS, request, name_of);
    list(&devices.at("constraints"), MAX_CONSTRAINTS, |constraint| {
        known.references(&constraint.at("requests"));
        let (same, distinct) = (constraint.at("matchAttribute"), constraint.at("distinctAttribute"));
        match (same.is_set(), distinct.is_set()) {
            (true, _) => attribute(&same),
            (false, true) => attribute(&distinct),
            (false, false) => constraint.missing(
                "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
            ),
        }
    });
    list(&devices.at("config"), MAX_CONFIGS, |config| {
        known.references(&config.at("requests"));
        configuration(config, false);
    });
}

fn attribute(name: &Field) {
    qualified_name(name.text(), name);
    if !name.text().contains('/') {
        name.invalid("a fully qualified name must be a domain and a name separated by a slash");
    }
}

fn request(request: &Field) {
    request.at("name").dns_label();
    let (exactly, alternatives) = (request.at("exactly"), request.at("firstAvailable"));
    match (exactly.is_set(), !alternatives.is_empty()) {
        (false, false) => request.missing("exactly one of `exactly` or `firstAvailable` is required"),
        (true, true) => request.invalid_value(
            Value::Null,
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        ),
        (true, false) => wanted(&exactly),
        (false, true) => {
            let alternative = |item: &Field| {
                item.at("name").dns_label();
                wanted(item);
            };
            set(&alternatives, MAX_ALTERNATIVES, alternative, name_of);
        }
    }
}

/// Which devices, and how many.
fn wanted(request: &Field) {
    let (class, mode, count) = (request.at("deviceClassName"), request.at("allocationMode"), request.at("count"));
    if class.required() {
        class.dns_subdomain();
    }
    selectors(&request.at("selectors"));
    match mode.text() {
        "All" if count.number() != 0 => count.invalid("must not be specified when allocationMode is 'All'"),
        "All" => {}
        "ExactCount" => count.positive(),
        _ => mode.not_supported(&["All", "ExactCount"]),
    }
    request.at("tolerations").each().for_each(|item| toleration(&item));
}

fn toleration(toleration: &Field) {
    let (key, operator) = (toleration.at("key"), toleration.at("operator"));
    let (value, effect) = (toleration.at("value"), toleration.at("effect"));
    if !key.is_empty() {
        key.qualified_name();
    }
    match operator.text() {
        "Exists" if !value.is_empty() => value.invalid("must be empty for operator `Exists`"),
        "Exists" => {}
        "Equal" => value.invalid_for(names::label_value(value.text())),
        _ => operator.required_one_of(&["Equal", "Exists"]),
    }
    if !effect.is_empty() {
        effect.one_of(EFFECTS);
    }
}

/// The taint of a device.
pub fn taint(taint: &Field) {
    taint.at("key").qualified_name();
    let value = taint.at("value");
    value.invalid_for(names::label_value(value.text()));
    taint.at("effect").required_one_of(EFFECTS);
}

/// The requests of a claim, and those among which the first is taken, as `request/alternative`.
pub struct RequestNames<'a>(Vec<(&'a str, Vec<&'a str>)>);

impl<'a> RequestNames<'a> {
    pub fn of(devices: &'a Value) -> Self {
        let list = |value: &'a Value| value.as_array().into_iter().flatten();
        let name = |item: &'a Value| item["name"].as_str().unwrap_or_default();
        let named = list(&devices["requests"]).map(|r| (name(r), list(&r["firstAvailable"]).map(name).collect()));
        Self(named.collect())
    }

    fn has(&self, reference: &str) -> bool {
        match reference.split_once('/') {
            None => self.0.iter().any(|(name, _)| *name == reference),
            Some((request, alternative)) => self
                .0
                .iter()
                .rev()
                .find(|(name, _)| *name == request)
                .is_some_and(|(_, all)| all.contains(&alternative)),
        }
    }

    /// A list of references to requests.
    pub fn references(&self, list: &Field) {
        set(list, MAX_REQUESTS, |reference| self.reference(reference), itself);
    }

    pub fn reference(&self, reference: &Field) {
        const UNKNOWN: &str =
            "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        let text = reference.text();
        if text.matches('/').count() > 1 {
            reference.invalid(UNKNOWN);
        }
        for part in text.split('/') {
            names::dns_label(part).into_iter().for_each(|message| reference.invalid_value(part, message));
        }
        if !self.has(text) {
            reference.with_text().invalid(UNKNOWN);
        }
    }
}
