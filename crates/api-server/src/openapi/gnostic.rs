//! OpenAPI documents in protobuf: the messages of the gnostic library, which is what clients of Kubernetes read.
//!
//! A document is written from its JSON by a table of messages: the number and type of each field. Only what our documents
//! say is in the table.

use object_model::codec::{
    protobuf::{append_bytes, append_double, append_varint},
    yaml,
};
use serde_json::{Map, Value};

use super::Dialect;

enum Type {
    Text,
    Bool,
    Int,
    Double,
    /// Any value, as YAML.
    Any,
    Message(&'static Message),
    /// A field that is repeated for each item.
    List(&'static Type),
    /// A message with one repeated field, even where there is a single item.
    Items(&'static Type),
    /// A message that holds one of several: the number and type of this one.
    Either(fn(&Value) -> Option<(u32, &'static Type)>),
}

/// A message made from an object.
struct Message {
    fields: &'static [(&'static str, u32, &'static Type)],
    /// All other fields, as pairs of a name and a value of this type.
    rest: Option<(u32, &'static Type)>,
    /// Fields that begin with `x-`, as pairs of a name and any value; 0 where such names are nothing special.
    extensions: u32,
}

pub fn write(dialect: Dialect, document: &Value) -> Vec<u8> {
    let message = if dialect == Dialect::V2 { &v2::DOCUMENT } else { &v3::DOCUMENT };
    let mut out = Vec::new();
    if let Value::Object(fields) = document {
        put_fields(&mut out, message, fields);
    }
    out
}

fn put(out: &mut Vec<u8>, number: u32, r#type: &Type, value: &Value) {
    match (r#type, value) {
        (Type::Text, Value::String(text)) => append_bytes(out, number, text.as_bytes()),
        (Type::Bool, Value::Bool(yes)) => append_varint(out, number, u64::from(*yes)),
        (Type::Int, value) => append_varint(out, number, value.as_i64().unwrap_or_default() as u64),
        (Type::Double, value) => append_double(out, number, value.as_f64().unwrap_or_default()),
        (Type::Any, value) => put_message(out, number, |out| append_bytes(out, 2, yaml::write(value).as_bytes())),
        (Type::Message(message), Value::Object(fields)) => {
            put_message(out, number, |out| put_fields(out, message, fields));
        }
        (Type::List(item), Value::Array(items)) => items.iter().for_each(|value| put(out, number, item, value)),
        (Type::Items(item), value) => put_message(out, number, |out| match value {
            Value::Array(items) => items.iter().for_each(|value| put(out, 1, item, value)),
            value => put(out, 1, item, value),
        }),
        (Type::Either(choose), value) => {
            if let Some((inner, r#type)) = choose(value) {
                put_message(out, number, |out| put(out, inner, r#type, value));
            }
        }
        // Not in our documents.
        (Type::Text | Type::Bool | Type::Message(_) | Type::List(_), _) => {}
    }
}

/// Fields of the table first, in the order of their numbers.
fn put_fields(out: &mut Vec<u8>, message: &Message, object: &Map<String, Value>) {
    for (name, number, r#type) in message.fields {
        if let Some(value) = object.get(*name) {
            put(out, *number, r#type, value);
        }
    }
    for (name, value) in object {
        let (number, r#type) = match message.rest {
            _ if message.extensions != 0 && name.starts_with("x-") => (message.extensions, &Type::Any),
            Some(rest) if !message.fields.iter().any(|(known, ..)| known == name) => rest,
            _ => continue,
        };
        put_message(out, number, |out| {
            append_bytes(out, 1, name.as_bytes());
            put(out, 2, r#type, value);
        });
    }
}

fn put_message(out: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let mut message = Vec::new();
    write(&mut message);
    append_bytes(out, number, &message);
}

const fn message(fields: &'static [(&'static str, u32, &'static Type)], extensions: u32) -> Message {
    Message { fields, rest: None, extensions }
}

/// A message of names and values.
const fn map(values: &'static Type) -> Message {
    Message { fields: &[], rest: Some((1, values)), extensions: 0 }
}

fn is_reference(value: &Value) -> bool {
    value.get("$ref").is_some()
}

static TEXTS: Type = Type::List(&Type::Text);
/// Requirements are lists of texts by name.
static SECURITY: Message = map(&Type::Items(&Type::Text));

mod v2 {
    use super::{
        Message, SECURITY, TEXTS,
        Type::{self, Any, Bool, Double, Either, Int, Items, List, Text},
        map, message,
    };

    pub static DOCUMENT: Message = message(
        &[
            ("swagger", 1, &Text),
            ("info", 2, &Type::Message(&INFO)),
            ("paths", 8, &Type::Message(&PATHS)),
            ("definitions", 9, &Type::Message(&SCHEMAS)),
            ("security", 12, &List(&Type::Message(&SECURITY))),
            ("securityDefinitions", 13, &Type::Message(&SECURITY_DEFINITIONS)),
        ],
        16,
    );
    static INFO: Message = message(&[("title", 1, &Text), ("version", 2, &Text), ("description", 3, &Text)], 7);
    static PATHS: Message = Message { fields: &[], rest: Some((2, &Type::Message(&PATH))), extensions: 1 };
    static PATH: Message = message(
        &[
            ("get", 2, &OPERATION),
            ("put", 3, &OPERATION),
            ("post", 4, &OPERATION),
            ("delete", 5, &OPERATION),
            ("options", 6, &OPERATION),
            ("head", 7, &OPERATION),
            ("patch", 8, &OPERATION),
            ("parameters", 9, &List(&PARAMETERS_ITEM)),
        ],
        10,
    );
    static OPERATION: Type = Type::Message(&message(
        &[
            ("tags", 1, &TEXTS),
            ("description", 3, &Text),
            ("operationId", 5, &Text),
            ("produces", 6, &TEXTS),
            ("consumes", 7, &TEXTS),
            ("parameters", 8, &List(&PARAMETERS_ITEM)),
            ("responses", 9, &Type::Message(&RESPONSES)),
            ("schemes", 10, &TEXTS),
        ],
        13,
    ));
    static PARAMETERS_ITEM: Type = Either(|_| Some((1, &PARAMETER)));
    static PARAMETER: Type =
        Either(|value| Some(if value["in"] == "body" { (1, &BODY) } else { (2, &OTHER_PARAMETER) }));
    static BODY: Type = Type::Message(&message(
        &[
            ("description", 1, &Text),
            ("name", 2, &Text),
            ("in", 3, &Text),
            ("required", 4, &Bool),
            ("schema", 5, &SCHEMA),
        ],
        6,
    ));
    static OTHER_PARAMETER: Type =
        Either(|value| Some(if value["in"] == "query" { (3, &QUERY) } else { (4, &IN_PATH) }));
    static QUERY: Type = Type::Message(&message(
        &[
            ("required", 1, &Bool),
            ("in", 2, &Text),
            ("description", 3, &Text),
            ("name", 4, &Text),
            ("type", 6, &Text),
            ("format", 7, &Text),
            ("uniqueItems", 20, &Bool),
        ],
        23,
    ));
    static IN_PATH: Type = Type::Message(&message(
        &[
            ("required", 1, &Bool),
            ("in", 2, &Text),
            ("description", 3, &Text),
            ("name", 4, &Text),
            ("type", 5, &Text),
            ("format", 6, &Text),
            ("uniqueItems", 19, &Bool),
        ],
        22,
    ));
    static RESPONSES: Message = Message { fields: &[], rest: Some((1, &RESPONSE)), extensions: 2 };
    static RESPONSE: Type = Either(|_| {
        static RESPONSE: Type =
            Type::Message(&message(&[("description", 1, &Text), ("schema", 2, &Either(|_| Some((1, &SCHEMA))))], 5));
        Some((1, &RESPONSE))
    });
    static SECURITY_DEFINITIONS: Message = map(&Either(|_| {
        static API_KEY: Type = Type::Message(&message(
            &[("type", 1, &Text), ("name", 2, &Text), ("in", 3, &Text), ("description", 4, &Text)],
            5,
        ));
        Some((2, &API_KEY))
    }));
    static SCHEMAS: Message = map(&SCHEMA);
    static SCHEMA: Type = Type::Message(&message(
        &[
            ("$ref", 1, &Text),
            ("format", 2, &Text),
            ("title", 3, &Text),
            ("description", 4, &Text),
            ("default", 5, &Any),
            ("multipleOf", 6, &Double),
            ("maximum", 7, &Double),
            ("exclusiveMaximum", 8, &Bool),
            ("minimum", 9, &Double),
            ("exclusiveMinimum", 10, &Bool),
            ("maxLength", 11, &Int),
            ("minLength", 12, &Int),
            ("pattern", 13, &Text),
            ("maxItems", 14, &Int),
            ("minItems", 15, &Int),
            ("uniqueItems", 16, &Bool),
            ("maxProperties", 17, &Int),
            ("minProperties", 18, &Int),
            ("required", 19, &TEXTS),
            ("enum", 20, &List(&Any)),
            (
                "additionalProperties",
                21,
                &Either(|value| Some(if value.is_boolean() { (2, &Bool) } else { (1, &SCHEMA) })),
            ),
            ("type", 22, &Items(&Text)),
            ("items", 23, &Items(&SCHEMA)),
            ("allOf", 24, &List(&SCHEMA)),
            ("properties", 25, &Type::Message(&SCHEMAS)),
            ("example", 30, &Any),
        ],
        31,
    ));
}

mod v3 {
    use serde_json::Value;

    use super::{
        Message, TEXTS,
        Type::{self, Any, Bool, Double, Either, Int, Items, List, Text},
        is_reference, map, message,
    };

    pub static DOCUMENT: Message = message(
        &[
            ("openapi", 1, &Text),
            ("info", 2, &Type::Message(&INFO)),
            ("paths", 4, &Type::Message(&PATHS)),
            ("components", 5, &Type::Message(&COMPONENTS)),
        ],
        9,
    );
    static INFO: Message = message(&[("title", 1, &Text), ("description", 2, &Text), ("version", 6, &Text)], 7);
    static PATHS: Message = Message { fields: &[], rest: Some((1, &Type::Message(&PATH))), extensions: 2 };
    static PATH: Message = message(
        &[
            ("get", 4, &OPERATION),
            ("put", 5, &OPERATION),
            ("post", 6, &OPERATION),
            ("delete", 7, &OPERATION),
            ("options", 8, &OPERATION),
            ("head", 9, &OPERATION),
            ("patch", 10, &OPERATION),
            ("parameters", 13, &List(&PARAMETER)),
        ],
        14,
    );
    static OPERATION: Type = Type::Message(&message(
        &[
            ("tags", 1, &TEXTS),
            ("description", 3, &Text),
            ("operationId", 5, &Text),
            ("parameters", 6, &List(&PARAMETER)),
            ("requestBody", 7, &Either(|_| Some((1, &REQUEST)))),
            ("responses", 8, &Type::Message(&RESPONSES)),
        ],
        13,
    ));
    static PARAMETER: Type = Either(|_| {
        static PARAMETER: Type = Type::Message(&message(
            &[
                ("name", 1, &Text),
                ("in", 2, &Text),
                ("description", 3, &Text),
                ("required", 4, &Bool),
                ("schema", 10, &SCHEMA_OR_REFERENCE),
            ],
            14,
        ));
        Some((1, &PARAMETER))
    });
    static REQUEST: Type = Type::Message(&message(
        &[("description", 1, &Text), ("content", 2, &Type::Message(&CONTENT)), ("required", 3, &Bool)],
        4,
    ));
    static RESPONSES: Message = Message { fields: &[], rest: Some((2, &RESPONSE)), extensions: 3 };
    static RESPONSE: Type = Either(|_| {
        static RESPONSE: Type =
            Type::Message(&message(&[("description", 1, &Text), ("content", 3, &Type::Message(&CONTENT))], 5));
        Some((1, &RESPONSE))
    });
    static CONTENT: Message = map(&Type::Message(&MEDIA));
    static MEDIA: Message = message(&[("schema", 1, &SCHEMA_OR_REFERENCE)], 5);
    static COMPONENTS: Message = message(
        &[("schemas", 1, &Type::Message(&SCHEMAS)), ("securitySchemes", 7, &Type::Message(&SECURITY_SCHEMES))],
        10,
    );
    static SECURITY_SCHEMES: Message = map(&Either(|_| {
        static SCHEME: Type = Type::Message(&message(
            &[("type", 1, &Text), ("description", 2, &Text), ("name", 3, &Text), ("in", 4, &Text)],
            9,
        ));
        Some((1, &SCHEME))
    }));
    static SCHEMAS: Message = map(&SCHEMA_OR_REFERENCE);
    static SCHEMA_OR_REFERENCE: Type =
        Either(|value| Some(if is_reference(value) { (2, &REFERENCE) } else { (1, &SCHEMA) }));
    static REFERENCE: Type = Type::Message(&message(&[("$ref", 1, &Text), ("description", 3, &Text)], 0));
    static SCHEMA: Type = Type::Message(&message(
        &[
            ("nullable", 1, &Bool),
            ("example", 7, &Any),
            ("title", 9, &Text),
            ("multipleOf", 10, &Double),
            ("maximum", 11, &Double),
            ("exclusiveMaximum", 12, &Bool),
            ("minimum", 13, &Double),
            ("exclusiveMinimum", 14, &Bool),
            ("maxLength", 15, &Int),
            ("minLength", 16, &Int),
            ("pattern", 17, &Text),
            ("maxItems", 18, &Int),
            ("minItems", 19, &Int),
            ("uniqueItems", 20, &Bool),
            ("maxProperties", 21, &Int),
            ("minProperties", 22, &Int),
            ("required", 23, &TEXTS),
            ("enum", 24, &List(&Any)),
            ("type", 25, &Text),
            ("allOf", 26, &List(&SCHEMA_OR_REFERENCE)),
            ("oneOf", 27, &List(&SCHEMA_OR_REFERENCE)),
            ("anyOf", 28, &List(&SCHEMA_OR_REFERENCE)),
            ("not", 29, &SCHEMA),
            ("items", 30, &Items(&SCHEMA_OR_REFERENCE)),
            ("properties", 31, &Type::Message(&SCHEMAS)),
            (
                "additionalProperties",
                32,
                &Either(|value| Some(if value.is_boolean() { (2, &Bool) } else { (1, &SCHEMA_OR_REFERENCE) })),
            ),
            ("default", 33, &Either(default)),
            ("description", 34, &Text),
            ("format", 35, &Text),
        ],
        36,
    ));

    /// There are messages for plain values only.
    fn default(value: &Value) -> Option<(u32, &'static Type)> {
        match value {
            Value::Number(_) => Some((1, &Double)),
            Value::Bool(_) => Some((2, &Bool)),
            Value::String(_) => Some((3, &Text)),
            _ => None,
        }
    }
}
