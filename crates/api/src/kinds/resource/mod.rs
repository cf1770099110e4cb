//! resource.k8s.io: devices, classes of them, and claims on them.
//!
//! That only some namespaces may ask for admin access is for the server to check.

use std::collections::HashSet;
use std::sync::LazyLock;

use expressions::{Environment, Library, LibraryType, ObjectType, Type};
use object_model::names;
use serde_json::Value;

use crate::validation::{Field, pod};

mod claim;
mod claim_status;
mod device;
pub mod device_class;
pub mod resource_claim;
pub mod resource_claim_template;
pub mod resource_slice;

const GROUP: &str = "resource.k8s.io";

const MAX_SELECTORS: usize = 32;
const MAX_CONFIGS: usize = 32;
/// The most requests of a claim, and results of its allocation.
const MAX_REQUESTS: usize = 32;
const MAX_EXPRESSION: usize = 10 * 1024;
const MAX_PARAMETERS: usize = 10 * 1024;
const MAX_POOL_NAME: usize = 253;
const MAX_ID: usize = 32;
const MAX_BINDING_CONDITIONS: usize = 4;

/// A list of at most so many items. If there are more, only that is told.
fn list(list: &Field, max: usize, item: impl Fn(&Field)) {
    if list.len() > max {
        return list.too_many(max);
    }
    list.each().for_each(|one| item(&one));
}

/// A [`list`] in which no two items have the same key.
fn set(items: &Field, max: usize, item: impl Fn(&Field), key: impl Fn(&Field) -> String) {
    list(items, max, item);
    if items.len() <= max {
        let mut seen = HashSet::new();
        for one in items.each() {
            let key = key(&one);
            if seen.contains(&key) {
                one.duplicate_value(key.as_str());
            }
            seen.insert(key);
        }
    }
}

/// The key of items that are text.
fn itself(item: &Field) -> String {
    item.text().to_owned()
}

/// The key of items that have a name.
fn name_of(item: &Field) -> String {
    item.at("name").text().to_owned()
}

fn selectors(selectors: &Field) {
    list(selectors, MAX_SELECTORS, |selector| {
        let cel = selector.at("cel");
        if !cel.is_set() {
            return cel.missing("");
        }
        let expression = cel.at("expression");
        if expression.text().len() > MAX_EXPRESSION {
            expression.too_long(MAX_EXPRESSION);
        }
        match DEVICE.compile(expression.text()) {
            Err(errors) => expression.with_text().invalid(format!("compilation failed: {errors}")),
            Ok(program) if matches!(program.output(), Type::Bool | Type::Dyn) => {}
            Ok(program) => {
                let found = program.output().declared_name();
                expression.invalid(format!("must evaluate to bool or the unknown type, not {found}"));
            }
        }
    });
}

/// What selectors of devices may use.
static DEVICE: LazyLock<Environment> = LazyLock::new(|| {
    let by_domain = |of: Type| Type::map(Type::String, Type::map(Type::String, of));
    let fields = [
        ("driver", Type::String),
        ("allowMultipleAllocations", Type::Bool),
        ("attributes", by_domain(Type::Dyn)),
        ("capacity", by_domain(Type::Library(LibraryType::Quantity))),
    ];
    Environment::kubernetes()
        .with_library(Library::Bindings)
        .with_variable("device", Type::Object(ObjectType::new("kubernetes.DRADevice", fields)))
});

/// The part of a configuration that all have: parameters for one driver.
fn configuration(configuration: &Field, stored: bool) {
    let opaque = configuration.at("opaque");
    if !opaque.is_set() {
        return opaque.missing("");
    }
    pod::csi_driver_name(&opaque.at("driver"));
    json_object(&opaque.at("parameters"), stored);
}

/// An object of any content, not too large unless it is stored already.
fn json_object(raw: &Field, stored: bool) {
    match raw.value() {
        Value::Null => raw.missing(""),
        value if !stored && value.to_string().len() > MAX_PARAMETERS => raw.too_long(MAX_PARAMETERS),
        Value::Object(_) => {}
        _ => raw.invalid_value("<value omitted>", "must be a valid JSON object"),
    }
}

fn pool_name(name: &Field) {
    if !name.required() {
        return;
    }
    if name.text().len() > MAX_POOL_NAME {
        name.too_long(MAX_POOL_NAME);
    }
    for part in name.text().split('/') {
        names::dns_subdomain(part).into_iter().for_each(|message| name.invalid_value(part, message));
    }
}

/// A C identifier, with or without a domain in front; told at `field`.
fn qualified_name(name: &str, field: &Field) {
    match name.split_once('/') {
        None => identifier(name, field),
        Some((_, rest)) if rest.contains('/') => {}
        Some((domain, rest)) => {
            match domain.is_empty() {
                true => field.invalid_value("", "the domain must not be empty"),
                false => pod::csi_driver_name(&field.with(&Value::from(domain))),
            }
            match rest.is_empty() {
                true => field.invalid_value("", "the name must not be empty"),
                false => identifier(rest, field),
            }
        }
    }
}

fn identifier(id: &str, field: &Field) {
    if id.len() > MAX_ID {
        field.too_long(MAX_ID);
    }
    names::c_identifier(id).into_iter().for_each(|message| field.invalid_value(id, message));
}

/// Conditions that a device must and must not have before a pod is bound: both or none.
fn binding_conditions(owner: &Field) {
    let (wanted, unwanted) = (owner.at("bindingConditions"), owner.at("bindingFailureConditions"));
    for conditions in [wanted, unwanted] {
        list(&conditions, MAX_BINDING_CONDITIONS, |condition| condition.qualified_name());
    }
    for conditions in [wanted, unwanted] {
        let repeated = |i: usize, text: &str| conditions.texts().take(i).any(|earlier| earlier == text);
        for (i, condition) in conditions.each().enumerate() {
            if repeated(i, condition.text()) {
                condition.duplicate();
            }
            if std::ptr::eq(conditions.value(), unwanted.value()) && wanted.texts().any(|c| c == condition.text()) {
                condition.invalid("bindingFailureConditions must not overlap with bindingConditions");
            }
        }
    }
    if wanted.is_empty() && !unwanted.is_empty() {
        wanted.invalid("bindingConditions are required to use bindingFailureConditions");
    }
    if unwanted.is_empty() && !wanted.is_empty() {
        unwanted.invalid("bindingFailureConditions are required to use bindingConditions");
    }
}

/// A share of a device: a UUID in its usual form.
fn share_id(id: &Field) {
    let text = id.text();
    let hyphens = [8, 13, 18, 23];
    let is_uuid = text.len() == 36
        && text.bytes().enumerate().all(|(i, b)| if hyphens.contains(&i) { b == b'-' } else { b.is_ascii_hexdigit() });
    if ![32, 36, 38, 45].contains(&text.len()) {
        id.invalid(format!("error validating uid: invalid UUID length: {}", text.len()));
    } else if text.len() == 36 && !is_uuid {
        id.invalid("error validating uid: invalid UUID format");
    } else if !is_uuid || text.bytes().any(|b| b.is_ascii_uppercase()) {
        id.invalid(
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase \
             hexadecimal characters",
        );
    }
}
