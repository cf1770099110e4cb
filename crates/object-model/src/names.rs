//! What may be called what: names, label keys and values, ports, environment variables.
//!
//! A rule gives every message about a text that breaks it, and none about one that keeps it. The messages are
//! Kubernetes', with the regular expressions they quote; the checks themselves are written out by hand.

use std::hash::{BuildHasher, RandomState};

use crate::field::{Errors, Path};

pub mod address;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_WORDS: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

pub const DNS_LABEL_MAX: usize = 63;
pub const DNS_SUBDOMAIN_MAX: usize = 253;
pub const LABEL_VALUE_MAX: usize = 63;

/// Says what is wrong with the name of an object, or with a `generateName` (`prefix`), to which something is added.
pub type NameRule = fn(name: &str, prefix: bool) -> Vec<String>;

// Messages

pub fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn too_many_bytes(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

pub fn not_in_range(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

/// What a text must look like, with examples and the expression for it.
pub fn not_matching(words: &str, expression: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{words} (regex used for validation is '{expression}')");
    }
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{words} (e.g. {}regex used for validation is '{expression}')", examples.join(" or "))
}

/// The messages of which the condition holds.
fn messages<const N: usize>(checks: [(bool, &dyn Fn() -> String); N]) -> Vec<String> {
    checks.into_iter().filter(|(broken, _)| *broken).map(|(_, message)| message()).collect()
}

// DNS names

fn is_lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// `first` at the start, alphanumeric at the end, alphanumeric or one of `inner` between.
fn shaped(text: &[u8], first: fn(u8) -> bool, last: fn(u8) -> bool, inner: &[u8]) -> bool {
    match text {
        [] => false,
        [only] => first(*only),
        [start, middle @ .., end] => {
            first(*start) && last(*end) && middle.iter().all(|b| last(*b) || inner.contains(b))
        }
    }
}

fn is_label(text: &[u8]) -> bool {
    shaped(text, is_lower_alnum, is_lower_alnum, b"-")
}

fn is_subdomain(text: &str) -> bool {
    text.as_bytes().split(|b| *b == b'.').all(is_label)
}

/// `metadata.name` of many kinds and every namespace: `my-name`.
pub fn dns_label(text: &str) -> Vec<String> {
    messages([
        (text.len() > DNS_LABEL_MAX, &|| too_long(DNS_LABEL_MAX)),
        (!is_label(text.as_bytes()), &|| match is_subdomain(text) {
            true => "must not contain dots".to_owned(),
            false => not_matching(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            ),
        }),
    ])
}

fn bad_subdomain() -> String {
    not_matching(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
        SUBDOMAIN,
        &["example.com"],
    )
}

/// `metadata.name` of most kinds: `example.com`.
pub fn dns_subdomain(text: &str) -> Vec<String> {
    messages([(text.len() > DNS_SUBDOMAIN_MAX, &|| too_long(DNS_SUBDOMAIN_MAX)), (!is_subdomain(text), &bad_subdomain)])
}

/// [`dns_subdomain`] where the rule is declared with the type, which words it a little differently.
pub fn declared_long_name(text: &str) -> Vec<String> {
    messages([
        (text.len() > DNS_SUBDOMAIN_MAX, &|| too_many_bytes(DNS_SUBDOMAIN_MAX)),
        (!is_subdomain(text), &bad_subdomain),
    ])
}

/// A subdomain in which capitals are let through, for drivers' names of old.
pub fn dns_subdomain_caseless(text: &str) -> Vec<String> {
    messages([
        (text.len() > DNS_SUBDOMAIN_MAX, &|| too_many_bytes(DNS_SUBDOMAIN_MAX)),
        (!is_subdomain(&text.to_ascii_lowercase()), &|| {
            not_matching(
                "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
                SUBDOMAIN,
                &["Example.com"],
            )
        }),
    ])
}

/// A search domain of a pod, where labels may contain underscores.
pub fn dns_subdomain_with_underscore(text: &str) -> Vec<String> {
    let is_one = |label: &[u8]| {
        let label = label.strip_prefix(b"_").unwrap_or(label);
        shaped(label, is_lower_alnum, is_lower_alnum, b"-_")
    };
    messages([
        (text.len() > DNS_SUBDOMAIN_MAX, &|| too_long(DNS_SUBDOMAIN_MAX)),
        (!text.as_bytes().split(|b| *b == b'.').all(is_one), &|| {
            let expression = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
            not_matching(
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
                expression,
                &["example.com"],
            )
        }),
    ])
}

/// A name that starts with a letter: `my-name`.
pub fn dns1035_label(text: &str) -> Vec<String> {
    messages([
        (text.len() > DNS_LABEL_MAX, &|| too_long(DNS_LABEL_MAX)),
        (!shaped(text.as_bytes(), |b| b.is_ascii_lowercase(), is_lower_alnum, b"-"), &|| {
            not_matching(
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
                LABEL_1035,
                &["my-name", "abc-123"],
            )
        }),
    ])
}

/// `*.example.com`.
pub fn wildcard_dns_subdomain(text: &str) -> Vec<String> {
    messages([
        (text.len() > DNS_SUBDOMAIN_MAX, &|| too_long(DNS_SUBDOMAIN_MAX)),
        (!text.strip_prefix("*.").is_some_and(is_subdomain), &|| {
            not_matching(
                "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
                &format!(r"\*\.{SUBDOMAIN}"),
                &["*.example.com"],
            )
        }),
    ])
}

/// A domain of at least three labels, such as the name of a readiness gate's owner.
pub fn fully_qualified_name(path: &Path<'_>, name: &str, errors: &mut Errors) {
    let problems = dns_subdomain(name);
    if name.is_empty() {
        errors.required(path, "");
    } else if !problems.is_empty() {
        errors.invalid(path, name, problems.join(","));
    } else if name.split('.').count() < 3 {
        errors.invalid(path, name, "should be a domain with at least three segments separated by dots");
    }
}

/// A domain of at least two labels, with or without a dot at its end.
pub fn fully_qualified_domain_name(path: &Path<'_>, name: &str, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let problems = dns_subdomain(name);
    if !problems.is_empty() {
        return errors.invalid(path, name, problems.join(","));
    }
    if !name.contains('.') {
        return errors.invalid(path, name, "should be a domain with at least two segments separated by dots");
    }
    for label in name.split('.') {
        let problems = dns_label(label);
        if !problems.is_empty() {
            return errors.invalid(path, label, problems.join(","));
        }
    }
}

/// A domain, a slash and a path: `acme.io/foo`.
pub fn domain_prefixed_path(path: &Path<'_>, text: &str, errors: &mut Errors) {
    if text.is_empty() {
        return errors.required(path, "");
    }
    let Some((host, rest)) = text.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty()) else {
        return errors.invalid(path, text, "must be a domain-prefixed path (such as \"acme.io/foo\")");
    };
    errors.invalid_each(path, host, dns_subdomain(host));
    if !rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
        errors.invalid(path, rest, not_matching("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[]));
    }
}

/// A label key that has a prefix: `acme.io/foo`.
pub fn domain_prefixed_key(path: &Path<'_>, key: &str, errors: &mut Errors) {
    if key.is_empty() {
        return errors.required(path, "");
    }
    let problems = qualified_name(key);
    if problems.is_empty() && !key.contains('/') {
        errors.invalid(path, key, "must be a domain-prefixed key (such as \"acme.io/foo\")");
    }
    errors.invalid_each(path, key, problems);
}

// Labels

fn is_qualified(text: &str) -> bool {
    shaped(text.as_bytes(), |b| b.is_ascii_alphanumeric(), |b| b.is_ascii_alphanumeric(), b"-_.")
}

fn bad_qualified() -> String {
    not_matching(QUALIFIED_WORDS, QUALIFIED, &["MyName", "my.name", "123-abc"])
}

/// A label key, a taint, a finalizer: a name, with or without a domain in front (`example.com/MyName`).
pub fn qualified_name(text: &str) -> Vec<String> {
    let (prefix, name) = match text.split_once('/') {
        None => (None, text),
        Some((prefix, name)) => (Some(prefix), name),
    };
    if name.contains('/') {
        let shape = bad_qualified();
        return vec![format!(
            "a valid label key {shape} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )];
    }
    let prefix_empty = prefix == Some("");
    let checked = prefix.filter(|prefix| !prefix.is_empty());
    messages([
        (prefix_empty, &|| "prefix part must be non-empty".to_owned()),
        (checked.is_some_and(|p| p.len() > DNS_SUBDOMAIN_MAX), &|| {
            format!("prefix part {}", too_many_bytes(DNS_SUBDOMAIN_MAX))
        }),
        (checked.is_some_and(|p| !is_subdomain(p)), &|| format!("prefix part {}", bad_subdomain())),
        (name.is_empty(), &|| "name part must be non-empty".to_owned()),
        (name.len() > LABEL_VALUE_MAX, &|| format!("name part {}", too_many_bytes(LABEL_VALUE_MAX))),
        (!is_qualified(name), &|| format!("name part {}", bad_qualified())),
    ])
}

pub fn label_value(text: &str) -> Vec<String> {
    messages([
        (text.len() > LABEL_VALUE_MAX, &|| too_many_bytes(LABEL_VALUE_MAX)),
        (!text.is_empty() && !is_qualified(text), &|| {
            not_matching(
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
                &format!("({QUALIFIED})?"),
                &["MyValue", "my_value", "12345"],
            )
        }),
    ])
}

// Other texts

fn made_of(text: &str, allowed: fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(allowed)
}

pub fn c_identifier(text: &str) -> Vec<String> {
    let good =
        made_of(text, |b| b.is_ascii_alphanumeric() || b == b'_') && !text.starts_with(|c: char| c.is_ascii_digit());
    messages([(!good, &|| {
        not_matching(
            "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
            "[A-Za-z_][A-Za-z0-9_]*",
            &["my_name", "MY_NAME", "MyName"],
        )
    })])
}

fn in_file_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-._".contains(&b)
}

/// Names that would lead out of a folder.
fn leads_out(text: &str) -> Option<String> {
    match text {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        text if text.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

/// The strict rule of old; pods follow [`relaxed_env_var_name`].
pub fn env_var_name(text: &str) -> Vec<String> {
    let good = made_of(text, in_file_name) && !text.starts_with(|c: char| c.is_ascii_digit());
    let mut problems = messages([(!good, &|| {
        not_matching(
            "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start with a digit",
            "[-._a-zA-Z][-._a-zA-Z0-9]*",
            &["my.env-name", "MY_ENV.NAME", "MyEnvName1"],
        )
    })]);
    problems.extend(leads_out(text));
    problems
}

/// Any printable ASCII but `=`.
pub fn relaxed_env_var_name(text: &str) -> Vec<String> {
    let good = text.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'=');
    messages([
        (text.is_empty(), &|| "environment variable name must be non-empty".to_owned()),
        (!good, &|| {
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned()
        }),
    ])
}

/// A key of a ConfigMap or Secret, which may become a file name.
pub fn config_map_key(text: &str) -> Vec<String> {
    let mut problems = messages([
        (text.len() > DNS_SUBDOMAIN_MAX, &|| too_long(DNS_SUBDOMAIN_MAX)),
        (!made_of(text, in_file_name), &|| {
            not_matching(
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
                "[-._a-zA-Z0-9]+",
                &["key.name", "KEY_NAME", "key-name"],
            )
        }),
    ]);
    problems.extend(leads_out(text));
    problems
}

/// The name of a port: an IANA service name.
pub fn port_name(text: &str) -> Vec<String> {
    messages([
        (text.len() > 15, &|| too_long(15)),
        (!made_of(text, |b| is_lower_alnum(b) || b == b'-'), &|| {
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned()
        }),
        (!text.bytes().any(|b| b.is_ascii_lowercase()), &|| "must contain at least one letter (a-z)".to_owned()),
        (text.contains("--"), &|| "must not contain consecutive hyphens".to_owned()),
        (text.starts_with('-') || text.ends_with('-'), &|| "must not begin or end with a hyphen".to_owned()),
    ])
}

pub fn in_range(number: i64, low: i64, high: i64) -> Vec<String> {
    messages([(!(low..=high).contains(&number), &|| not_in_range(low, high))])
}

pub fn port_number(number: i64) -> Vec<String> {
    in_range(number, 1, 65535)
}

pub fn user_id(number: i64) -> Vec<String> {
    in_range(number, 0, i32::MAX.into())
}

pub fn group_id(number: i64) -> Vec<String> {
    in_range(number, 0, i32::MAX.into())
}

pub fn percent(text: &str) -> Vec<String> {
    let good = text.strip_suffix('%').is_some_and(|digits| made_of(digits, |b| b.is_ascii_digit()));
    messages([(!good, &|| {
        not_matching(
            "a valid percent string must be a numeric string followed by an ending '%'",
            "[0-9]+%",
            &["1%", "93%"],
        )
    })])
}

pub fn http_header_name(text: &str) -> Vec<String> {
    let good = made_of(text, |b| b.is_ascii_alphanumeric() || b == b'-');
    messages([(!good, &|| {
        let words = "a valid HTTP header must consist of alphanumeric characters or '-'";
        not_matching(words, "[-A-Za-z0-9]+", &["X-Header-Name"])
    })])
}

/// An integer as people write it: no zeros or plus in front.
pub fn decimal_integer(text: &str) -> Vec<String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let good = text == "0" || (made_of(digits, |b| b.is_ascii_digit()) && !digits.starts_with('0'));
    messages([
        (text.is_empty(), &|| "must be non-empty".to_owned()),
        (!text.is_empty() && !good, &|| "must be a valid decimal integer in canonical form".to_owned()),
    ])
}

// Rules for the names of objects

/// A trailing dash is fine in a `generateName`, since something follows it.
fn without_trailing_dash(name: &str, prefix: bool) -> std::borrow::Cow<'_, str> {
    match name.strip_suffix('-') {
        // Kubernetes drops the character before the dash too, and puts an `a` in their place.
        Some(rest) if prefix && !rest.is_empty() => {
            let mut end = rest.len() - 1;
            while !rest.is_char_boundary(end) {
                end -= 1;
            }
            format!("{}a", &rest[..end]).into()
        }
        _ => name.into(),
    }
}

pub fn name_is_dns_subdomain(name: &str, prefix: bool) -> Vec<String> {
    dns_subdomain(&without_trailing_dash(name, prefix))
}

/// [`name_is_dns_subdomain`] for kinds that declare it with the type.
pub fn name_is_declared_long_name(name: &str, prefix: bool) -> Vec<String> {
    declared_long_name(&without_trailing_dash(name, prefix))
}

pub fn name_is_dns_label(name: &str, prefix: bool) -> Vec<String> {
    dns_label(&without_trailing_dash(name, prefix))
}

pub fn name_is_dns1035_label(name: &str, prefix: bool) -> Vec<String> {
    dns1035_label(&without_trailing_dash(name, prefix))
}

/// Anything that can stand in a URL path, as for RBAC kinds.
pub fn name_is_path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    messages([
        (name.contains('/'), &|| "may not contain '/'".to_owned()),
        (name.contains('%'), &|| "may not contain '%'".to_owned()),
    ])
}

// Generated names

const GENERATED_MAX: usize = 63;
const SUFFIX_LENGTH: usize = 5;
/// No vowels and no digits that look like them, so that no words come out.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A name from a `generateName`: cut to 58 bytes, and five random characters.
pub fn generate_name(base: &str) -> String {
    let mut end = base.len().min(GENERATED_MAX - SUFFIX_LENGTH);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{}", &base[..end], random_suffix(SUFFIX_LENGTH))
}

/// Random characters as they stand at the end of generated names.
pub fn random_suffix(length: usize) -> String {
    let mut random = 0u64;
    (0..length)
        .map(|i| {
            if i % 12 == 0 {
                // Twelve letters take 57 bits. The hasher is seeded by the operating system.
                random = RandomState::new().hash_one(i);
            }
            let letter = ALPHABET[(random % 27) as usize];
            random /= 27;
            char::from(letter)
        })
        .collect()
}

#[cfg(test)]
mod tests;
