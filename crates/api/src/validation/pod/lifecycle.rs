//! Probes and lifecycle hooks, which share their handlers.
//!
//! `lifecycle.stopSignal` belongs to a feature that is off and is dropped before validation.

use object_model::names;

use super::container::Pod;
use crate::validation::Field;

type Rule = fn(&Field, &Pod);

const HANDLERS: [(&str, Rule); 5] = [
    ("exec", |action, _| {
        action.at("command").required();
    }),
    ("httpGet", |action, _| http_get(action)),
    ("tcpSocket", |action, _| action.at("port").port()),
    ("grpc", |action, _| action.at("port").port_number()),
    ("sleep", sleep),
];

/// Exactly one handler.
fn handler(owner: &Field, kinds: &[&str], pod: &Pod) {
    let mut found = false;
    for (name, rule) in HANDLERS.iter().filter(|(name, _)| kinds.contains(name)) {
        let action = owner.at(name);
        if !action.is_set() {
            continue;
        }
        if found {
            action.forbidden("may not specify more than 1 handler type");
        } else {
            found = true;
            rule(&action, pod);
        }
    }
    if !found {
        owner.missing("must specify a handler type");
    }
}

fn http_get(action: &Field) {
    action.at("path").required();
    action.at("port").port();
    action.at("scheme").one_of(&["HTTP", "HTTPS"]);
    for header in action.at("httpHeaders").each() {
        let name = header.at("name").text();
        for message in names::http_header_name(name) {
            action.at("httpHeaders").invalid_value(name, message);
        }
    }
}

fn sleep(action: &Field, pod: &Pod) {
    let seconds = action.at("seconds").number();
    if let Some(grace) = pod.grace_period
        && !(0..=grace).contains(&seconds)
    {
        action.invalid_value(
            seconds,
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})"),
        );
    }
}

pub fn probes(container: &Field, pod: &Pod) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.at(name);
        if !probe.is_set() {
            continue;
        }
        handler(&probe, &["exec", "httpGet", "tcpSocket", "grpc"], pod);
        for number in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            probe.at(number).non_negative();
        }
        let grace = probe.at("terminationGracePeriodSeconds");
        if grace.int().is_some_and(|seconds| seconds <= 0) {
            grace.invalid("must be greater than 0");
        }
        if name == "readinessProbe" {
            if grace.is_set() {
                grace.invalid("must not be set for readinessProbes");
            }
        } else if probe.at("successThreshold").number() != 1 {
            probe.at("successThreshold").invalid("must be 1");
        }
    }
}

pub fn lifecycle(lifecycle: &Field, pod: &Pod) {
    for hook in ["postStart", "preStop"] {
        if lifecycle.at(hook).is_set() {
            handler(&lifecycle.at(hook), &["exec", "httpGet", "tcpSocket", "sleep"], pod);
        }
    }
}
