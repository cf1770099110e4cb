//! From a checked schema to the arena of types.

use std::collections::HashMap;
use std::sync::Arc;

use crate::schema::validate::{Format, Pattern};
use crate::schema::{
    Bound, Expression, Facts, Field, JsonType, List, ListKind, Map, Omit, Patch, Ref, Rules, Scalar, Schema, Shape,
    Struct, Type, TypeId, Types, Untyped, Wire,
};

use super::props::Props;

/// Builds the types of a custom resource, with defaults as they are written.
pub(super) fn types(root: &Props, metadata: Ref<'_>) -> Schema {
    let mut builder = Builder { types: Types::default(), metadata, copied: HashMap::new() };
    let mut node = builder.node(root, Place::Root);
    if !matches!(node.shape, Shape::Struct(_)) {
        // Only a schema that is refused or was never checked.
        node.shape = builder.structure(root, Place::Root);
    }
    let id = builder.types.add(node);
    Schema::new(Arc::new(builder.types), id)
}

struct Builder<'m> {
    types: Types,
    metadata: Ref<'m>,
    copied: HashMap<TypeId, TypeId>,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Root,
    Inner,
    /// An item of a list that keeps unknown fields hands that down to its items.
    PreservedItem,
}

impl Builder<'_> {
    fn add(&mut self, props: &Props, place: Place) -> TypeId {
        let node = self.node(props, place);
        self.types.add(node)
    }

    fn node(&mut self, props: &Props, place: Place) -> Type {
        let mut rules = values(props, false);
        let shape = match props.json_type() {
            _ if props.int_or_string => Shape::Scalar(Scalar::IntOrString),
            Some(JsonType::Object) => match props.additional() {
                Some(additional) if props.properties.is_empty() && place != Place::Root => Shape::Map(Map {
                    value: self.add(additional, Place::Inner),
                    atomic: props.map_type.as_deref() == Some("atomic"),
                }),
                _ => self.structure(props, place),
            },
            Some(JsonType::Array) => match props.item() {
                Some(item) => self.list(props, item, place),
                None => Shape::Any,
            },
            Some(JsonType::String) => Shape::Scalar(Scalar::String),
            Some(JsonType::Integer) if props.format == "int32" => Shape::Scalar(Scalar::Int32),
            Some(JsonType::Integer) => Shape::Scalar(Scalar::Int64),
            Some(JsonType::Number) => Shape::Scalar(Scalar::Float64),
            Some(JsonType::Boolean) => Shape::Scalar(Scalar::Bool),
            Some(JsonType::Unknown(_)) | None => {
                rules.untyped = self.untyped(props, place).map(Box::new);
                Shape::Any
            }
        };
        if shape == Shape::Any {
            rules.json_type = props.json_type();
        }
        if matches!(&shape, Shape::Struct(s) if s.embedded) || place == Place::Root {
            rules.properties =
                props.properties.get("metadata").map(|m| ("metadata".into(), values(m, true))).into_iter().collect();
        }
        let rules = (rules != Rules::default()).then(|| Box::new(rules));
        Type { shape, nullable: props.nullable, default: props.default.clone().map(Box::new), rules }
    }

    fn list(&mut self, props: &Props, item: &Props, place: Place) -> Shape {
        let preserved = props.preserves_unknown() || place == Place::PreservedItem;
        let item = self.add(item, if preserved { Place::PreservedItem } else { Place::Inner });
        let kind = match props.list_type.as_deref() {
            Some("set") => ListKind::Set,
            Some("map") => ListKind::Map(props.list_map_keys.iter().map(|key| key.as_str().into()).collect()),
            _ => ListKind::Atomic,
        };
        Shape::List(List { item, kind })
    }

    /// An object with named fields. The object itself and embedded resources have their three common fields as well.
    fn structure(&mut self, props: &Props, place: Place) -> Shape {
        let is_resource = props.embedded || place == Place::Root;
        let mut fields: Vec<Field> = Vec::with_capacity(props.properties.len() + 3);
        for (name, property) in &props.properties {
            if is_resource && name == "metadata" {
                continue;
            }
            let id = self.add(property, Place::Inner);
            fields.push(field(name, id, props.required.contains(name)));
        }
        if is_resource {
            for name in ["apiVersion", "kind"] {
                if !props.properties.contains_key(name) {
                    let id = self.types.add(Type::new(Shape::Scalar(Scalar::String)));
                    fields.push(field(name, id, false));
                }
            }
            let id = self.metadata(props.properties.get("metadata").filter(|_| props.embedded));
            fields.push(field("metadata", id, false));
            fields.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let preserve_unknown =
            props.preserves_unknown() || place == Place::PreservedItem || props.additional_flag().is_some();
        Shape::Struct(Struct {
            name: "".into(),
            fields: fields.into(),
            atomic: props.map_type.as_deref() == Some("atomic"),
            preserve_unknown,
            embedded: props.embedded,
        })
    }

    /// A copy of `ObjectMeta`, with the defaults that the schema of an embedded resource declares for it.
    fn metadata(&mut self, declared: Option<&Props>) -> TypeId {
        let id = self.copy(self.metadata);
        match declared {
            Some(declared) => self.with_defaults(id, declared),
            None => id,
        }
    }

    fn with_defaults(&mut self, id: TypeId, declared: &Props) -> TypeId {
        let mut node = self.types.get(id).clone();
        node.default = declared.default.clone().map(Box::new);
        if let Shape::Struct(shape) = &mut node.shape {
            for field in &mut shape.fields {
                if let Some(property) = declared.properties.get(&*field.name) {
                    field.r#type = self.with_defaults(field.r#type, property);
                }
            }
        }
        if node == *self.types.get(id) { id } else { self.types.add(node) }
    }

    /// Copies a type of another arena with all that it refers to, once, without defaults.
    fn copy(&mut self, from: Ref<'_>) -> TypeId {
        if let Some(id) = self.copied.get(&from.id()) {
            return *id;
        }
        // Taken first, so that a type which refers to itself finds it.
        let id = self.types.add(Type::new(Shape::Any));
        self.copied.insert(from.id(), id);
        let mut node = from.node().clone();
        node.default = None;
        match &mut node.shape {
            Shape::List(list) => list.item = self.copy(from.to(list.item)),
            Shape::Map(map) => map.value = self.copy(from.to(map.value)),
            Shape::Struct(shape) => {
                shape.fields.iter_mut().for_each(|field| field.r#type = self.copy(from.to(field.r#type)));
            }
            Shape::Any | Shape::Scalar(_) => {}
        }
        self.types.set(id, node);
        if let Some(Facts { go, key, .. }) = from.facts() {
            // Custom resources have no protobuf.
            self.types.state(id, Facts { go: go.clone(), key: key.clone(), wire: Wire::Plain });
        }
        id
    }

    fn untyped(&mut self, props: &Props, place: Place) -> Option<Untyped> {
        let preserved = props.preserves_unknown() || place == Place::PreservedItem;
        let item_place = if preserved { Place::PreservedItem } else { Place::Inner };
        let properties = props.properties.iter();
        let untyped = Untyped {
            properties: properties.map(|(name, p)| (name.as_str().into(), self.add(p, Place::Inner))).collect(),
            additional: props.additional().map(|p| self.add(p, Place::Inner)),
            items: props.item().map(|p| self.add(p, item_place)),
        };
        (untyped != Untyped::default()).then_some(untyped)
    }
}

fn field(name: &str, id: TypeId, required: bool) -> Field {
    Field {
        name: name.into(),
        r#type: id,
        number: 0,
        omit: Omit::Never,
        pointer: false,
        required,
        patch: Patch::default(),
    }
}

/// The value rules of a node, or the whole of a branch.
fn values(props: &Props, is_branch: bool) -> Rules {
    // Two types are as good as none to a format.
    let json_type = props.json_type().filter(|_| !props.int_or_string);
    let branches = |list: &[Props]| list.iter().map(|branch| values(branch, true)).collect();
    let mut rules = Rules {
        format: Format::parse(&props.format, json_type.as_ref()),
        minimum: props.minimum.map(|value| Bound { value, exclusive: props.exclusive_minimum }),
        maximum: props.maximum.map(|value| Bound { value, exclusive: props.exclusive_maximum }),
        multiple_of: props.multiple_of,
        min_length: props.min_length,
        max_length: props.max_length,
        pattern: (!props.pattern.is_empty()).then(|| Pattern::new(&props.pattern)),
        min_items: props.min_items,
        max_items: props.max_items,
        min_properties: props.min_properties,
        max_properties: props.max_properties,
        values: props.values.clone().into(),
        required: props.required.iter().map(|name| name.as_str().into()).collect(),
        additional: props.additional_flag(),
        all_of: branches(&props.all_of),
        any_of: branches(&props.any_of),
        one_of: branches(&props.one_of),
        not: props.not.as_deref().map(|branch| Box::new(values(branch, true))),
        expressions: props.validations.iter().map(expression).collect(),
        ..Rules::default()
    };
    if is_branch {
        rules.json_type = json_type;
        rules.nullable = props.nullable;
        rules.properties = props.properties.iter().map(|(name, p)| (name.as_str().into(), values(p, true))).collect();
        rules.items = props.item().map(|item| Box::new(values(item, true)));
    }
    rules
}

fn expression(props: &super::props::ExpressionProps) -> Expression {
    Expression {
        rule: props.rule.as_str().into(),
        message: props.message.as_str().into(),
        message_expression: props.message_expression.as_str().into(),
        reason: props.reason.as_deref().map(Into::into),
        field_path: props.field_path.as_str().into(),
        optional_old_self: props.optional_old_self,
    }
}
