//! CertificateSigningRequest: who asks for a certificate, whether it is approved, and the certificate.
//!
//! Three writers have a part each: the requester the specification (once), the approver (`approval`) the conditions
//! Approved and Denied, the signer (`status`) the certificate. That the request is signed by the key it is for is not
//! checked here, but by the signer.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use object_model::names;
use serde_json::{Map, Value, json};

use super::GROUP;
use crate::defaults::Defaults;
use crate::kinds::{Context, Create, Reset, Selectable, Strategy, Update, prepare};
use crate::validation::{Field, meta, pem};

const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Which part of the status a writer may change.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Nothing,
    Approval,
    Certificate,
}

pub static STRATEGY: Strategy = Strategy {
    create: Create::new(prepare_create, |request| validate(request, &Value::Null)),
    update: Update {
        reset: Reset::Fields(&[&["spec"], &["status"]]),
        ..Update::new(
            |request, old, _| {
                prepare::keep(request, old, "spec");
                prepare::keep(request, old, "status");
            },
            |request, old| validate_update(request, old, Part::Nothing),
        )
    },
    subresources: &[
        (
            "status",
            Update {
                reset: Reset::Fields(&[&["spec"], &["status", "conditions"]]),
                ..Update::new(prepare_status, |request, old| validate_update(request, old, Part::Certificate))
            },
        ),
        (
            "approval",
            Update {
                reset: Reset::Fields(&[&["spec"], &["status", "certificate"]]),
                ..Update::new(prepare_approval, |request, old| validate_update(request, old, Part::Approval))
            },
        ),
    ],
    fields: &[Selectable {
        name: "spec.signerName",
        read: |request| request["spec"]["signerName"].as_str().unwrap_or_default().to_owned(),
    }],
    ..Strategy::cluster(GROUP, "CertificateSigningRequest")
};

/// The server says who asks.
fn prepare_create(request: &mut Value, context: &Context) {
    prepare::put(request, &["status"], Some(&json!({})));
    let Some(spec) = request.child("spec") else { return };
    let user = &context.user;
    let extra: Map<String, Value> = user.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
    for (name, value, absent) in [
        ("username", json!(user.name), user.name.is_empty()),
        ("uid", json!(user.uid), user.uid.is_empty()),
        ("groups", json!(user.groups), user.groups.is_empty()),
        ("extra", Value::Object(extra), user.extra.is_empty()),
    ] {
        prepare::put(spec, &[name], Some(&value).filter(|_| !absent));
    }
}

fn prepare_status(request: &mut Value, old: &Value, context: &Context) {
    prepare::keep(request, old, "spec");
    for kind in ["Approved", "Denied"] {
        let before = of_type(old, kind);
        if before.len() == of_type(request, kind).len() {
            let mut before = before.into_iter().cloned();
            for condition in conditions_mut(request).filter(|condition| condition["type"] == kind) {
                before.next().into_iter().for_each(|kept| *condition = kept);
            }
        }
    }
    stamp(request, old, context);
}

fn prepare_approval(request: &mut Value, old: &Value, context: &Context) {
    stamp(request, old, context);
    let conditions = request["status"].get("conditions").cloned();
    prepare::keep(request, old, "spec");
    prepare::keep(request, old, "status");
    prepare::put(request, &["status", "conditions"], conditions.as_ref());
}

fn conditions_mut(request: &mut Value) -> impl Iterator<Item = &mut Value> {
    request.child("status").into_iter().flat_map(|status| status.each("conditions"))
}

fn of_type<'a>(request: &'a Value, kind: &str) -> Vec<&'a Value> {
    let conditions = request["status"]["conditions"].as_array();
    conditions.into_iter().flatten().filter(|condition| condition["type"] == kind).collect()
}

/// Conditions without times get them.
fn stamp(request: &mut Value, old: &Value, context: &Context) {
    for condition in conditions_mut(request) {
        condition.default_if_absent("lastUpdateTime", context.now.as_str());
        let before = of_type(old, condition["type"].as_str().unwrap_or_default());
        let same = before.into_iter().find(|was| was["status"] == condition["status"]);
        let since = same.and_then(|was| was["lastTransitionTime"].as_str()).unwrap_or(&context.now);
        condition.default_if_absent("lastTransitionTime", since);
    }
}

/// What a stored request had wrong already may stay.
fn validate(request: &Field, old: &Value) {
    meta::builtin_meta(&request.at("metadata"), false, |_, _| Vec::new());
    let spec = request.at("spec");
    if let Err(message) = signing_request(spec.at("request").text()) {
        spec.at("request").invalid(message);
    }
    usages(&spec.at("usages"), &old["spec"]["usages"]);
    let signer = spec.at("signerName");
    if signer.is(LEGACY_SIGNER) && old["spec"]["signerName"] != LEGACY_SIGNER {
        signer.invalid("the legacy signerName is not allowed via this API version");
    } else {
        signer_name(&signer);
    }
    let expiration = spec.at("expirationSeconds");
    if expiration.int().is_some_and(|seconds| seconds < 600) {
        expiration.invalid("may not specify a duration less than 600 seconds (10 minutes)");
    }
    let status = request.at("status");
    conditions(&status.at("conditions"), old);
    let (certificate, before) =
        (status.at("certificate").text(), old["status"]["certificate"].as_str().unwrap_or_default());
    let kept = !old.is_null() && (certificate == before || certificates(before).is_err());
    if !kept && let Err(message) = certificates(certificate) {
        status.at("certificate").invalid_value("<certificate data>", message);
    }
}

fn decoded(base64: &str) -> String {
    String::from_utf8(BASE64.decode(base64).unwrap_or_default()).unwrap_or_default()
}

fn signing_request(base64: &str) -> Result<(), &'static str> {
    match pem::blocks(&decoded(base64)).next() {
        Some(block) if block.label == "CERTIFICATE REQUEST" => {
            pem::is_signed_sequence(&block.der).then_some(()).ok_or("asn1: syntax error: data truncated")
        }
        _ => Err("PEM block type must be CERTIFICATE REQUEST"),
    }
}

/// Nothing, or PEM blocks of certificates without headers.
fn certificates(base64: &str) -> Result<(), String> {
    if base64.is_empty() {
        return Ok(());
    }
    let mut count = 0;
    for block in pem::blocks(&decoded(base64)) {
        if block.label != "CERTIFICATE" {
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.label));
        }
        if block.has_headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        if !pem::is_signed_sequence(&block.der) {
            return Err("x509: malformed certificate".to_owned());
        }
        count += 1;
    }
    if count == 0 { Err("must contain at least one CERTIFICATE PEM block".to_owned()) } else { Ok(()) }
}

fn usages(usages: &Field, old: &Value) {
    usages.required();
    let old: Vec<&str> = old.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if old.iter().all(|usage| USAGES.contains(usage)) {
        usages.each().for_each(|usage| usage.one_of(USAGES));
    }
    let mut seen = HashSet::new();
    if old.iter().all(|usage| seen.insert(*usage)) {
        let (now, mut seen) = (usages.texts(), HashSet::new());
        usages.each().zip(now).filter(|(_, text)| !seen.insert(*text)).for_each(|(usage, _)| usage.duplicate());
    }
}

/// A signer: a domain of at least two labels, a slash and a path.
pub fn signer_name(signer: &Field) {
    if !signer.required() {
        return;
    }
    let mut parts = signer.text().split('/');
    let (Some(domain), Some(path), None) = (parts.next(), parts.next(), parts.next()) else {
        return signer.invalid("must be a fully qualified domain and path of the form 'example.com/signer-name'");
    };
    if domain.len() > 253 {
        signer.too_long(253);
    }
    labels(signer, domain, names::dns_label);
    if !domain.contains('.') {
        signer.invalid_value(domain, "should be a domain with at least two segments separated by dots");
    }
    labels(signer, path, names::dns_subdomain);
    if signer.text().len() > 253 + 1 + 253 + 63 + 1 {
        signer.too_long(253 + 1 + 253 + 63 + 1);
    }
}

/// Only the first label that is wrong is told.
fn labels(signer: &Field, segment: &str, rule: fn(&str) -> Vec<String>) {
    let wrong = segment.split('.').map(|label| (label, rule(label))).find(|(_, wrong)| !wrong.is_empty());
    if let Some((label, messages)) = wrong {
        for message in messages {
            signer.invalid_value(segment, format!("validating label {label:?}: {message}"));
        }
    }
}

fn conditions(conditions: &Field, old: &Value) {
    let listed_before = old["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let before: HashSet<&str> =
        listed_before.iter().map(|condition| condition["type"].as_str().unwrap_or_default()).collect();
    let both_before = before.contains("Approved") && before.contains("Denied");
    let repeated_before = before.len() < listed_before.len();
    let mut seen: HashSet<&str> = HashSet::new();
    for condition in conditions.each() {
        let (kind, status) = (condition.at("type"), condition.at("status"));
        if !before.contains("") {
            kind.required();
        }
        status.required_one_of(match kind.text() {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        });
        let contrary = match kind.text() {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "none",
        };
        if !both_before && seen.contains(&contrary) {
            conditions.invalid_value(kind.text(), "Approved and Denied conditions are mutually exclusive");
        }
        if !repeated_before && seen.contains(&kind.text()) {
            kind.with_text().duplicate();
        }
        seen.insert(kind.text());
    }
}

fn validate_update(request: &Field, old: &Value, part: Part) {
    validate(request, old);
    let status = request.at("status");
    let conditions = status.at("conditions");
    let count = |request: &Value, kind: &str| of_type(request, kind).len();
    for kind in ["Approved", "Denied", "Failed"] {
        if count(request.value(), kind) < count(old, kind) {
            conditions.forbidden(format!("updates may not remove a condition of type {kind:?}"));
        }
    }
    for kind in ["Approved", "Denied"] {
        if part != Part::Approval && count(request.value(), kind) > count(old, kind) {
            conditions.forbidden(format!("updates may not add a condition of type {kind:?}"));
        }
    }
    let (certificate, before) = (status.at("certificate"), old["status"]["certificate"].as_str().unwrap_or_default());
    if !certificate.is(before) {
        if part != Part::Certificate {
            certificate.forbidden("updates may not set certificate content");
        } else if !before.is_empty() {
            certificate.forbidden("updates may not modify existing certificate content");
        }
    }
    meta::builtin_meta_update(&request.at("metadata"), &old["metadata"]);
}
