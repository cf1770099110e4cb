//! ConfigMap: configuration by key, as text or bytes.

use object_model::names;
use serde_json::Value;

use crate::kinds::{Create, Strategy, Update};
use crate::validation::{Field, meta};

/// ConfigMaps and Secrets hold at most this many bytes.
pub const MAX_SIZE: usize = 1024 * 1024;

pub static STRATEGY: Strategy = Strategy {
    create: Create::new(|_, _| {}, validate),
    update: Update::new(|_, _, _| {}, validate_update),
    ..Strategy::new("", "ConfigMap")
};

fn validate(config: &Field) {
    meta::builtin_meta(&config.at("metadata"), true, names::name_is_dns_subdomain);
    let (text, binary) = (config.at("data"), config.at("binaryData"));
    let mut size = 0;
    for (key, value) in text.entries() {
        key_is_valid(key, &value);
        if binary.key(key).is_set() {
            value.invalid_value(key, "duplicate of key present in binaryData");
        }
        size += value.text().len();
    }
    for (key, value) in binary.entries() {
        key_is_valid(key, &value);
        size += decoded_len(value.text());
    }
    if size > MAX_SIZE {
        config.too_long(MAX_SIZE);
    }
}

/// The key of an entry, told at the entry.
pub fn key_is_valid(key: &str, entry: &Field) {
    for message in names::config_map_key(key) {
        entry.invalid_value(key, message);
    }
}

/// How many bytes a base64 text stands for.
pub fn decoded_len(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

fn validate_update(config: &Field, old: &Value) {
    meta::builtin_meta_update(&config.at("metadata"), &old["metadata"]);
    immutable_content(config, old, &["data", "binaryData"]);
    validate(config);
}

/// Content that was declared immutable stays, and stays declared so.
pub fn immutable_content(object: &Field, old: &Value, fields: &[&str]) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if old["immutable"] == true {
        if !object.at("immutable").is_true() {
            object.at("immutable").forbidden(DETAIL);
        }
        for name in fields.iter().filter(|name| object.value()[**name] != old[**name]) {
            object.at(name).forbidden(DETAIL);
        }
    }
}
