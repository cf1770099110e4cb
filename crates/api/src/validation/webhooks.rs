//! Where a webhook is: a URL or a Service in the cluster.

use std::collections::HashSet;

use object_model::names;

use super::Field;

const FORM: &str = "; desired format: https://host[/path]";

/// `clientConfig` of a webhook, told at the path it has there.
pub fn client_config(config: &Field) {
    let (url, service) = (config.at("url"), config.at("service"));
    match (url.is_set(), service.is_set()) {
        (true, false) => webhook_url(&url),
        (false, true) => webhook_service(&service),
        _ => config.missing("exactly one of url or service is required"),
    }
}

/// The versions of a review that a webhook understands: one of the known ones, unless `any` will do.
pub fn review_versions(versions: &Field, known: &[&str], any: bool) {
    let mut seen = HashSet::new();
    for version in versions.each() {
        if seen.contains(&version.text()) {
            version.invalid("duplicate version");
            continue;
        }
        seen.insert(version.text());
        version.invalid_for(names::dns1035_label(version.text()));
    }
    if !any && !seen.iter().any(|version| known.contains(version)) {
        versions.invalid(format!("must include at least one of {}", known.join(", ")));
    }
}

/// Is this a URL with a scheme and a host?
pub fn is_absolute_url(text: &str) -> bool {
    parse(text).is_ok_and(|url| !url.scheme.is_empty() && !url.host.is_empty())
}

struct Url<'a> {
    scheme: &'a str,
    host: &'a str,
    user: Option<&'a str>,
    query: &'a str,
    fragment: &'a str,
}

/// Takes a URL apart as Go does.
fn parse(text: &str) -> Result<Url<'_>, String> {
    let wrong = |problem: &str| Err(format!("parse {text:?}: {problem}"));
    if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return wrong("net/url: invalid control character in URL");
    }
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let scheme_end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(rest.len());
    let (scheme, rest) = match rest.split_at(scheme_end) {
        ("", after) if after.starts_with(':') => return wrong("missing protocol scheme"),
        (scheme, after) if after.starts_with(':') && scheme.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            (scheme, &after[1..])
        }
        _ => ("", rest),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if scheme.is_empty() && rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
        return wrong("first path segment in URL cannot contain colon");
    }
    let authority = rest.strip_prefix("//").map_or("", |rest| rest.split('/').next().unwrap_or(rest));
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if let Some(bad) = host.chars().find(|c| " \"<>\\^`{|}".contains(*c)) {
        return wrong(&format!("invalid character {:?} in host name", bad.to_string()));
    }
    let port = host.rsplit_once(']').map_or(host, |(_, after)| after).rsplit_once(':').map_or("", |(_, port)| port);
    if !port.bytes().all(|b| b.is_ascii_digit()) {
        return wrong(&format!("invalid port {:?} after host", format!(":{port}")));
    }
    Ok(Url { scheme, host, user, query, fragment })
}

fn webhook_url(field: &Field) {
    let url = match parse(field.text()) {
        Ok(url) => url,
        Err(problem) => return field.missing(format!("url must be a valid URL: {problem}{FORM}")),
    };
    if !url.scheme.eq_ignore_ascii_case("https") {
        let scheme = url.scheme.to_lowercase();
        field.invalid_value(scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if url.host.is_empty() {
        field.invalid_value("", format!("host must be specified{FORM}"));
    }
    if let Some(user) = url.user {
        field.invalid_value(user, "user information is not permitted in the URL");
    }
    if !url.fragment.is_empty() {
        field.invalid_value(url.fragment, "fragments are not permitted in the URL");
    }
    if !url.query.is_empty() {
        field.invalid_value(url.query, "query parameters are not permitted in the URL");
    }
}

/// Kubernetes takes the name for the namespace and the other way round.
fn webhook_service(service: &Field) {
    for (told, meant) in [("name", "namespace"), ("namespace", "name")] {
        if service.at(meant).is_empty() {
            service.at(told).missing("");
        }
    }
    let port = service.at("port");
    let wrong = names::port_number(port.number());
    if !wrong.is_empty() {
        port.invalid_value(port.number(), format!("port is not valid: {}", wrong.join(", ")));
    }
    url_path(&service.at("path"));
}

/// A path of DNS names.
fn url_path(path: &Field) {
    let text = path.text();
    match text {
        "" | "/" => return,
        "//" => return path.invalid("segment[0] may not be empty"),
        _ if !text.starts_with('/') => path.invalid("must start with a '/'"),
        _ => {}
    }
    let inner = text.get(1..).unwrap_or_default();
    for (i, step) in inner.strip_suffix('/').unwrap_or(inner).split('/').enumerate() {
        if step.is_empty() {
            path.invalid(format!("segment[{i}] may not be empty"));
            continue;
        }
        for message in names::dns_subdomain(step) {
            path.invalid(format!("segment[{i}]: {message}"));
        }
    }
}
