//! Secret: confidential bytes by key, with a type that says which keys there must be.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use object_model::names;
use serde_json::{Map, Value};

use super::config_map::{MAX_SIZE, decoded_len, immutable_content, key_is_valid};
use crate::defaults::Defaults;
use crate::kinds::{Create, Selectable, Strategy, Update};
use crate::validation::{Field, meta};

pub static STRATEGY: Strategy = Strategy {
    defaults,
    create: Create::new(|_, _| {}, validate),
    update: Update::new(|secret, old, _| secret.default_to("type", old["type"].clone()), validate_update),
    fields: &[Selectable { name: "type", read: |secret| secret["type"].as_str().unwrap_or_default().to_owned() }],
    ..Strategy::new("", "Secret")
};

/// Text that was given in clear becomes data; the type is Opaque unless said.
fn defaults(secret: &mut Value) {
    secret.default_to("type", "Opaque");
    let clear = secret.get_mut("stringData").map(Value::take);
    secret.remove("stringData");
    if let Some(Value::Object(clear)) = clear.filter(|c| c.as_object().is_some_and(|c| !c.is_empty())) {
        secret.default_if_absent("data", Value::Object(Map::new()));
        for (key, text) in clear {
            secret["data"][key] = Value::from(BASE64.encode(text.as_str().unwrap_or_default()));
        }
    }
}

fn validate(secret: &Field) {
    meta::builtin_meta(&secret.at("metadata"), true, names::name_is_dns_subdomain);
    let data = secret.at("data");
    let mut size = 0;
    for (key, value) in data.entries() {
        key_is_valid(key, &value);
        size += decoded_len(value.text());
    }
    if size > MAX_SIZE {
        data.too_long(MAX_SIZE);
    }
    let has = |key: &str| data.key(key).is_set();
    match secret.at("type").text() {
        "kubernetes.io/service-account-token" => {
            let metadata = secret.at("metadata");
            metadata.at("annotations").key("kubernetes.io/service-account.name").required();
        }
        "kubernetes.io/dockercfg" => json_object(&data.key(".dockercfg")),
        "kubernetes.io/dockerconfigjson" => json_object(&data.key(".dockerconfigjson")),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            data.key("username").missing("");
            data.key("password").missing("");
        }
        "kubernetes.io/ssh-auth" => {
            data.key("ssh-privatekey").required();
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !has(key) {
                    data.key(key).missing("");
                }
            }
        }
        _ => {}
    }
}

fn json_object(entry: &Field) {
    if !entry.is_set() {
        return entry.missing("");
    }
    let bytes = BASE64.decode(entry.text()).unwrap_or_default();
    if let Err(message) = go_json_object(&bytes) {
        entry.invalid_value("<secret contents redacted>", message);
    }
}

/// Is this a JSON object? If not, what is wrong, in the words of Go's decoder where they are simple.
fn go_json_object(bytes: &[u8]) -> Result<(), String> {
    match serde_json::from_slice::<Value>(bytes) {
        Ok(Value::Object(_) | Value::Null) => Ok(()),
        Ok(other) => {
            let kind = match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            Err(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"))
        }
        Err(error) if error.is_eof() => Err("unexpected end of JSON input".to_owned()),
        Err(error) => {
            let bad = bytes.get(error.column().saturating_sub(1)).copied().unwrap_or_default() as char;
            Err(format!("invalid character '{bad}' looking for beginning of value"))
        }
    }
}

fn validate_update(secret: &Field, old: &Value) {
    meta::builtin_meta_update(&secret.at("metadata"), &old["metadata"]);
    secret.immutable_at("type", old);
    immutable_content(secret, old, &["data"]);
    validate(secret);
}
