//! Ingress: HTTP from outside to services.

use object_model::names;
use serde_json::{Value, json};

use super::GROUP;
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::{Field, addresses, meta};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// What an old object had wrong and may keep.
#[derive(Clone, Copy, Default)]
struct Tolerated {
    secret_names: bool,
    wildcard_rules: bool,
}

pub static STRATEGY: Strategy = Strategy {
    create: Create {
        warnings,
        ..Create::new(
            |ingress, _| {
                prepare::put(ingress, &["status"], Some(&json!({"loadBalancer": {}})));
                prepare::first_generation(ingress);
            },
            |ingress| {
                validate(ingress, Tolerated::default());
                class_matches_annotation(ingress);
            },
        )
    },
    update: Update::of_spec(prepare::spec_only, |ingress, old| {
        meta::builtin_meta_update(&ingress.at("metadata"), &old["metadata"]);
        validate(ingress, tolerated(old));
    }),
    subresources: &[("status", Update { warnings: status_warnings, ..Update::of_status(validate_status) })],
    ..Strategy::new(GROUP, "Ingress")
};

fn class_matches_annotation(ingress: &Field) {
    let annotation = &ingress.value()["metadata"]["annotations"][CLASS_ANNOTATION];
    let spec = ingress.at("spec");
    let class = spec.at("ingressClassName");
    if let Some(given) = annotation.as_str()
        && class.is_set()
        && !class.is(given)
    {
        let annotations = ingress.at("annotations");
        annotations.at(CLASS_ANNOTATION).invalid_value(given, "must match `ingressClassName` when both are specified");
    }
}

fn warnings(ingress: &Value) -> Vec<String> {
    let annotated = ingress["metadata"]["annotations"].get(CLASS_ANNOTATION).is_some();
    if !annotated || ingress["spec"]["ingressClassName"].is_string() {
        return Vec::new();
    }
    vec![format!("annotation {CLASS_ANNOTATION:?} is deprecated, please use 'spec.ingressClassName' instead")]
}

fn tolerated(old: &Value) -> Tolerated {
    let list = |name: &str| old["spec"][name].as_array().into_iter().flatten();
    Tolerated {
        secret_names: list("tls")
            .any(|tls| !Field::check(&tls["secretName"], |name| name.dns_subdomain_if_any()).is_empty()),
        wildcard_rules: list("rules").any(|rule| {
            rule["host"].as_str().is_some_and(|host| host.contains('*')) && !Field::check(rule, rule_value).is_empty()
        }),
    }
}

fn validate(ingress: &Field, tolerated: Tolerated) {
    meta::builtin_meta(&ingress.at("metadata"), true, names::name_is_dns_subdomain);
    let spec = ingress.at("spec");
    let (rules, default) = (spec.at("rules"), spec.at("defaultBackend"));
    if rules.is_empty() && !default.is_set() {
        spec.invalid_value(rules.value().clone(), "either `defaultBackend` or `rules` must be specified");
    }
    if default.is_set() {
        backend(&default);
    }
    for rule in rules.each() {
        let host = rule.at("host");
        if addresses::parse_ip(host.text()).is_some() {
            host.invalid("must be a DNS name, not an IP address");
        }
        if !host.is_empty() {
            host_name(&host);
        }
        if !(host.text().contains('*') && tolerated.wildcard_rules) {
            rule_value(&rule);
        }
    }
    for tls in spec.at("tls").each() {
        tls.at("hosts").each().for_each(|host| host_name(&host));
        if !tolerated.secret_names {
            tls.at("secretName").dns_subdomain_if_any();
        }
    }
    if spec.at("ingressClassName").is_set() {
        spec.at("ingressClassName").dns_subdomain();
    }
}

/// A domain, or one with a star in place of its first label.
fn host_name(host: &Field) {
    let text = host.text();
    host.invalid_for(if text.contains('*') { names::wildcard_dns_subdomain(text) } else { names::dns_subdomain(text) });
}

fn rule_value(rule: &Field) {
    let http = rule.at("http");
    if !http.is_set() {
        return;
    }
    let paths = http.at("paths");
    paths.required();
    for path in paths.each() {
        http_path(&path);
    }
}

fn http_path(item: &Field) {
    let (path, path_type) = (item.at("path").with_text(), item.at("pathType"));
    if !path_type.is_set() {
        return path_type.missing("pathType must be specified");
    }
    let strict = path_type.is_one_of(&["Exact", "Prefix"]);
    if strict || path_type.is("ImplementationSpecific") {
        if !path.text().starts_with('/') && (strict || !path.is_empty()) {
            path.invalid("must be an absolute path");
        }
    } else {
        path_type.not_supported(&["Exact", "ImplementationSpecific", "Prefix"]);
    }
    if strict {
        for sequence in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|s| path.text().contains(s)) {
            path.invalid(format!("must not contain '{sequence}'"));
        }
        for suffix in ["/..", "/."].into_iter().filter(|s| path.text().ends_with(s)) {
            path.invalid(format!("cannot end with '{suffix}'"));
        }
    }
    backend(&item.at("backend"));
}

fn backend(backend: &Field) {
    let (resource, service) = (backend.at("resource"), backend.at("service"));
    match (resource.is_set(), service.is_set()) {
        (true, true) => backend.invalid_value("", "cannot set both resource and service backends"),
        (true, false) => {
            if resource.at("apiGroup").is_set() {
                resource.at("apiGroup").dns_subdomain();
            }
            resource.at("kind").required_path_segment();
            resource.at("name").required_path_segment();
        }
        (false, true) => {
            service.at("name").required_dns_label();
            let port = service.at("port");
            let (name, number) = (port.at("name"), port.at("number"));
            match (!name.is_empty(), number.number() != 0) {
                (true, true) => backend.invalid_value("", "cannot set both port name & port number"),
                (true, false) => name.invalid_for(names::port_name(name.text())),
                (false, true) => number.port_number(),
                (false, false) => backend.missing("port name or number is required"),
            }
        }
        (false, false) => backend.invalid_value("", "resource or service backend is required"),
    }
}

fn validate_status(ingress: &Field, old: &Value) {
    meta::builtin_meta_update(&ingress.at("metadata"), &old["metadata"]);
    let kept: Vec<&str> = old["status"]["loadBalancer"]["ingress"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|point| point["ip"].as_str())
        .collect();
    let status = ingress.at("status");
    let balancer = status.at("loadBalancer");
    for point in balancer.at("ingress").each() {
        if !point.at("ip").is_empty() {
            addresses::legacy_ip(&point.at("ip"), &kept);
        }
        let hostname = point.at("hostname");
        hostname.dns_subdomain_if_any();
        if addresses::parse_ip(hostname.text()).is_some() {
            hostname.invalid("must be a DNS name, not an IP address");
        }
    }
}

fn status_warnings(ingress: &Value, _: &Value) -> Vec<String> {
    let points = ingress["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten().enumerate();
    let warning = |(i, point): (usize, &Value)| {
        addresses::ip_warning(format_args!("status.loadBalancer.ingress[{i}]"), point["ip"].as_str()?)
    };
    points.filter_map(warning).collect()
}
