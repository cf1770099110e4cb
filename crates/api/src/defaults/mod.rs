//! Kubernetes' defaults: what is filled in when an object is decoded.
//!
//! Here is what several kinds share, above all the pod specification; a kind's own defaults are in its file under
//! [`crate::kinds`]. Defaults are idempotent: applying them twice changes nothing more.

mod pod;

pub use pod::{declared as volume_source, pod, pod_template, service_account};

use object_model::quantity::Scale;
use serde_json::Value;

use crate::validation::quantity;

/// Filling in values. Paths that lead through something that is not there change nothing.
pub trait Defaults {
    /// The nested object of this name, if it is there.
    fn child(&mut self, name: &str) -> Option<&mut Value>;

    /// The items of a list, if it is there.
    fn each(&mut self, name: &str) -> impl Iterator<Item = &mut Value>;

    /// Sets a field that is absent, null, or holds its zero value (an empty text or 0).
    fn default_to(&mut self, name: &str, value: impl Into<Value>);

    /// Sets a field that is absent or null: one where zero is a value.
    fn default_if_absent(&mut self, name: &str, value: impl Into<Value>);

    fn remove(&mut self, name: &str);
}

impl Defaults for Value {
    fn child(&mut self, name: &str) -> Option<&mut Value> {
        self.get_mut(name).filter(|child| child.is_object())
    }

    fn each(&mut self, name: &str) -> impl Iterator<Item = &mut Value> {
        self.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
    }

    fn default_to(&mut self, name: &str, value: impl Into<Value>) {
        let zero = match self.get(name) {
            None | Some(Value::Null) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Number(number)) => number.as_i64() == Some(0),
            _ => false,
        };
        if zero && let Some(fields) = self.as_object_mut() {
            fields.insert(name.to_owned(), value.into());
        }
    }

    fn default_if_absent(&mut self, name: &str, value: impl Into<Value>) {
        if self.get(name).is_none_or(Value::is_null)
            && let Some(fields) = self.as_object_mut()
        {
            fields.insert(name.to_owned(), value.into());
        }
    }

    fn remove(&mut self, name: &str) {
        if let Some(fields) = self.as_object_mut() {
            fields.remove(name);
        }
    }
}

/// Amounts finer than a thousandth are rounded up.
pub fn resource_list(owner: &mut Value, name: &str) {
    for (_, amount) in owner.get_mut(name).and_then(Value::as_object_mut).into_iter().flatten() {
        let mut rounded = quantity(amount);
        if !rounded.round_up(Scale(-3)) {
            *amount = Value::from(rounded.to_string());
        }
    }
}

/// `limits` and `requests`.
pub fn resources(owner: &mut Value) {
    if let Some(resources) = owner.child("resources") {
        resource_list(resources, "limits");
        resource_list(resources, "requests");
    }
}

/// The specification of a claim, in an object or a template.
pub fn claim_spec(spec: &mut Value) {
    spec.default_if_absent("volumeMode", "Filesystem");
    resources(spec);
}

/// What an image is pulled by when nothing is said: always for `latest`, else if it is not there.
pub fn pull_policy(image: &str) -> &'static str {
    // An image with a digest has no implied tag.
    let (name, digest) = image.split_once('@').map_or((image, false), |(name, _)| (name, true));
    let last = name.rsplit('/').next().unwrap_or(name);
    let latest = match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => !digest,
    };
    // What is no image name has no tag either.
    if latest && is_image_name(image) { "Always" } else { "IfNotPresent" }
}

fn is_image_name(image: &str) -> bool {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let (domain, path) = match name.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" || first.to_lowercase() != first => {
            (Some(first), rest)
        }
        _ => (None, name),
    };
    let (path, tag) = match path.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (path, None),
    };
    let component = |part: &str| {
        let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        edge(part.as_bytes().first())
            && edge(part.as_bytes().last())
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
            && !part.contains("..")
            && !part.contains("___")
    };
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let tag_fits = |tag: &str| {
        (1..=128).contains(&tag.len()) && word(tag.as_bytes()[0]) && tag.bytes().all(|b| word(b) || b".-".contains(&b))
    };
    let host_fits = |domain: &str| {
        let (host, port) = domain.rsplit_once(':').unwrap_or((domain, "0"));
        port.bytes().all(|b| b.is_ascii_digit())
            && !port.is_empty()
            && (host.starts_with('[')
                || host.split('.').all(|label| {
                    !label.is_empty()
                        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                        && !label.starts_with('-')
                        && !label.ends_with('-')
                }))
    };
    // Sixty-four hexadecimal digits alone are an identifier, not a name.
    let is_identifier = image.len() == 64 && image.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    !is_identifier
        && path.split('/').all(component)
        && domain.is_none_or(host_fits)
        && tag.is_none_or(tag_fits)
        && digest.is_none_or(|digest| digest.split_once(':').is_some_and(|(_, hex)| hex.len() >= 32))
        && domain.map_or(path.len(), |d| d.len() + 1 + path.len()) <= 255
}
