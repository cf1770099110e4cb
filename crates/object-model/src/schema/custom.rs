//! Schemas of custom resources, from the `openAPIV3Schema` of a CustomResourceDefinition.
//!
//! [`parse`] checks that the schema is structural (each value has one type, which logical combinations only narrow) and
//! that Kubernetes could serve it, and builds the [`Schema`]. [`load`] builds without the checks, for definitions that
//! passed them when they were stored.
//!
//! The steps: [`props`] reads the JSON; [`structural`], [`definition`] and [`defaults`] check; [`build`] makes the
//! arena. Whatever a schema may hold, it costs stack in proportion to its depth only, and that is limited.

mod build;
mod defaults;
mod definition;
mod props;
mod structural;

use serde_json::Value;

use super::validate::Format;
use super::{Ref, Schema};
use crate::field::{Errors, Path};
use props::Props;

/// What the rest of the definition says that matters to its schema.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The version has a status subresource.
    pub status: bool,
}

/// Checks and builds a schema. `metadata` is the type of `ObjectMeta`, whose nodes are copied; `at` is where the schema
/// stands in its definition, such as `spec.versions[0].schema.openAPIV3Schema`.
pub fn parse(schema: &Value, metadata: Ref<'_>, at: &Path<'_>, options: Options) -> Result<Schema, Errors> {
    let mut errors = Errors::new();
    let Some(props) = read(schema, at, &mut errors) else { return Err(errors) };
    if options.status {
        definition::check_root_with_status(&props, schema, at, &mut errors);
    }
    if props.nullable {
        errors.forbidden(&at.child("nullable"), "nullable cannot be true at the root");
    }
    let unsupported = structural::unsupported(&props);
    let mut built = None;
    if unsupported.is_none() {
        let found = structural::check(&props, at);
        if found.is_empty() {
            let types = build::types(&props, metadata);
            errors.extend(defaults::check(types.root(), at));
            built = Some(types);
        }
        errors.extend(found);
    }
    definition::check(&props, at, &mut errors);
    // These overlap with the other checks.
    if let Some(words) = unsupported.filter(|_| errors.is_empty()) {
        errors.invalid(at, "", words);
    }
    match built.filter(|_| errors.is_empty()) {
        Some(types) => Ok(defaults::pruned(types)),
        None => Err(errors),
    }
}

/// Builds a schema that was checked before.
pub fn load(schema: &Value, metadata: Ref<'_>) -> Result<Schema, Errors> {
    let mut errors = Errors::new();
    match read(schema, &Path::Root, &mut errors) {
        Some(props) => Ok(defaults::pruned(build::types(&props, metadata))),
        None => Err(errors),
    }
}

/// Formats in a schema that mean nothing to Kubernetes, or not beside their type. A definition with one is accepted
/// with the warning `unrecognized format "…"`.
pub fn unknown_formats(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if let Ok(props) = Props::read(schema) {
        collect_unknown_formats(&props, &mut found);
    }
    found
}

fn collect_unknown_formats(props: &Props, found: &mut Vec<String>) {
    if !props.format.is_empty() && Format::parse(&props.format, props.json_type().as_ref()).is_none() {
        found.push(props.format.clone());
    }
    props.children().for_each(|child| collect_unknown_formats(child, found));
}

fn read(schema: &Value, at: &Path<'_>, errors: &mut Errors) -> Option<Props> {
    match Props::read(schema) {
        Ok(props) => Some(props),
        Err(words) => {
            errors.invalid(at, "", words);
            None
        }
    }
}

#[cfg(test)]
mod tests;
