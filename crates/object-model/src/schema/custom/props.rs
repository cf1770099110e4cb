//! A `JSONSchemaProps` as it is written, typed.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::schema::JsonType;

/// Schemas nest no deeper than this; deeper ones would only serve to exhaust the stack.
const MAX_DEPTH: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Props {
    #[serde(deserialize_with = "or_default")]
    pub id: String,
    #[serde(rename = "$schema", deserialize_with = "or_default")]
    pub schema: String,
    #[serde(rename = "$ref")]
    pub reference: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub description: String,
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub type_name: String,
    #[serde(deserialize_with = "or_default")]
    pub format: String,
    #[serde(deserialize_with = "or_default")]
    pub title: String,
    pub default: Option<Value>,
    pub maximum: Option<f64>,
    #[serde(deserialize_with = "or_default")]
    pub exclusive_maximum: bool,
    pub minimum: Option<f64>,
    #[serde(deserialize_with = "or_default")]
    pub exclusive_minimum: bool,
    pub max_length: Option<i64>,
    pub min_length: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    pub pattern: String,
    pub max_items: Option<i64>,
    pub min_items: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    pub unique_items: bool,
    pub multiple_of: Option<f64>,
    #[serde(rename = "enum", deserialize_with = "or_default")]
    pub values: Vec<Value>,
    pub max_properties: Option<i64>,
    pub min_properties: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    pub required: Vec<String>,
    pub items: Option<OneOrMany>,
    #[serde(deserialize_with = "or_default")]
    pub all_of: Vec<Props>,
    #[serde(deserialize_with = "or_default")]
    pub one_of: Vec<Props>,
    #[serde(deserialize_with = "or_default")]
    pub any_of: Vec<Props>,
    pub not: Option<Box<Props>>,
    #[serde(deserialize_with = "null_is_empty")]
    pub properties: BTreeMap<String, Props>,
    pub additional_properties: Option<SchemaOrBool>,
    #[serde(deserialize_with = "null_is_empty")]
    pub pattern_properties: BTreeMap<String, Props>,
    pub dependencies: Option<Value>,
    pub additional_items: Option<Value>,
    #[serde(deserialize_with = "null_is_empty")]
    pub definitions: BTreeMap<String, Props>,
    pub external_docs: Option<Value>,
    pub example: Option<Value>,
    #[serde(deserialize_with = "or_default")]
    pub nullable: bool,
    #[serde(rename = "x-kubernetes-preserve-unknown-fields")]
    pub preserve_unknown: Option<bool>,
    #[serde(rename = "x-kubernetes-embedded-resource", deserialize_with = "or_default")]
    pub embedded: bool,
    #[serde(rename = "x-kubernetes-int-or-string", deserialize_with = "or_default")]
    pub int_or_string: bool,
    #[serde(rename = "x-kubernetes-list-map-keys", deserialize_with = "or_default")]
    pub list_map_keys: Vec<String>,
    #[serde(rename = "x-kubernetes-list-type")]
    pub list_type: Option<String>,
    #[serde(rename = "x-kubernetes-map-type")]
    pub map_type: Option<String>,
    #[serde(rename = "x-kubernetes-validations", deserialize_with = "or_default")]
    pub validations: Vec<ExpressionProps>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany {
    Many(Vec<Props>),
    One(Box<Props>),
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum SchemaOrBool {
    Bool(bool),
    Schema(Box<Props>),
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ExpressionProps {
    pub rule: String,
    pub message: String,
    pub message_expression: String,
    pub reason: Option<String>,
    pub field_path: String,
    pub optional_old_self: Option<bool>,
}

/// Null means not given, as in Go.
fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The same for maps, whose entries may be null too.
fn null_is_empty<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Props>, D::Error> {
    let map: BTreeMap<String, Option<Props>> = or_default(from)?;
    Ok(map.into_iter().map(|(name, props)| (name, props.unwrap_or_default())).collect())
}

impl Props {
    /// Reads a schema; says in words what is wrong with its form.
    pub fn read(schema: &Value) -> Result<Self, String> {
        if !is_flat(schema, 4 * MAX_DEPTH) {
            return Err("schema is nested too deeply".to_owned());
        }
        let props = Props::deserialize(schema).map_err(|error| error.to_string())?;
        if props.depth() > MAX_DEPTH { Err("schema is nested too deeply".to_owned()) } else { Ok(props) }
    }

    pub fn json_type(&self) -> Option<JsonType> {
        JsonType::parse(&self.type_name)
    }

    pub fn preserves_unknown(&self) -> bool {
        self.preserve_unknown == Some(true)
    }

    /// The schema of all items.
    pub fn item(&self) -> Option<&Props> {
        match &self.items {
            Some(OneOrMany::One(props)) => Some(props),
            _ => None,
        }
    }

    pub fn has_item_list(&self) -> bool {
        matches!(&self.items, Some(OneOrMany::Many(list)) if !list.is_empty())
    }

    /// The schema of additional properties.
    pub fn additional(&self) -> Option<&Props> {
        match &self.additional_properties {
            Some(SchemaOrBool::Schema(props)) => Some(props),
            _ => None,
        }
    }

    /// `additionalProperties` given as a boolean.
    pub fn additional_flag(&self) -> Option<bool> {
        match &self.additional_properties {
            Some(SchemaOrBool::Bool(flag)) => Some(*flag),
            _ => None,
        }
    }

    /// All schemas directly inside.
    pub fn children(&self) -> impl Iterator<Item = &Props> {
        let listed: &[Props] = match &self.items {
            Some(OneOrMany::Many(list)) => list,
            _ => &[],
        };
        let junctors = self.all_of.iter().chain(&self.any_of).chain(&self.one_of).chain(self.not.as_deref());
        let maps = [&self.properties, &self.pattern_properties, &self.definitions];
        let named = maps.into_iter().flat_map(BTreeMap::values);
        junctors.chain(named).chain(self.item()).chain(self.additional()).chain(listed)
    }

    fn depth(&self) -> usize {
        1 + self.children().map(Props::depth).max().unwrap_or(0)
    }
}

/// Does JSON nest at most so deeply? Looks no deeper than that.
fn is_flat(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|item| is_flat(item, depth - 1)),
        Value::Object(object) => depth > 0 && object.values().all(|value| is_flat(value, depth - 1)),
        _ => true,
    }
}
