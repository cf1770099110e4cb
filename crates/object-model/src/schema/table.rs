//! Built-in types from a compact table of facts.
//!
//! The table is text, one fact per line:
//!
//! ```text
//! package core.v1 io.k8s.api.core.v1 -/v1     short name, full name, group/version of its kinds (- is the core group)
//! = Protocol string                           a named type; `message` behind it: protobuf wraps it in a message
//! : Pod kind                                  a struct; `kind`: an object of its own; `atomic`: applied as a whole
//!  + meta.v1.TypeMeta 0                       its fields are among the outer ones in JSON, a message of their own in protobuf
//!  ports 6 []ContainerPort omitempty ...      name, protobuf number (0: none), Go type, facts
//! ```
//!
//! A type is `*` (pointer), `[]`, `map[key]`, a scalar, a special word (`quantity`, `raw`, …) or a name, with its short
//! package unless it is of the same one. Facts of a field: `omitempty`, `omitzero`, `required`, `list=set`,
//! `list=map:<keys>`, `map=atomic`, `map=granular`, `patch=<strategies>`, `key=<merge key>`, `default=<JSON>`.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::{
    Facts, Field, List, ListKind, Map, Member, MemberTarget, Omit, Patch, Scalar, Schema, Shape, Struct, Type, TypeId,
    Types, Wire,
};

/// The types of a table, and where its kinds are among them.
#[derive(Debug)]
pub struct Table {
    types: Arc<Types>,
    /// Sorted by group, version and kind.
    kinds: Box<[Kind]>,
    /// The structs, sorted by definition name.
    structs: Box<[TypeId]>,
}

/// One kind of object in one version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub group: Box<str>,
    pub version: Box<str>,
    pub kind: Box<str>,
    pub r#type: TypeId,
}

/// What is wrong with a table, and in which line.
#[derive(Debug, thiserror::Error)]
#[error("table of types, line {line}: {problem}")]
pub struct TableError {
    pub line: usize,
    pub problem: String,
}

impl Table {
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let mut builder = Builder { declared: declarations(text)?, types: Types::default(), nodes: HashMap::new() };
        builder.build()
    }

    pub fn types(&self) -> &Arc<Types> {
        &self.types
    }

    /// Every kind, sorted by group, version and kind.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<Schema> {
        let wanted = (group, version, kind);
        let at = self.kinds.binary_search_by(|k| (&*k.group, &*k.version, &*k.kind).cmp(&wanted)).ok()?;
        Some(Schema::new(self.types.clone(), self.kinds[at].r#type))
    }

    /// By the full name of a definition, such as `io.k8s.api.core.v1.PodSpec`.
    pub fn definition(&self, name: &str) -> Option<Schema> {
        let at = self.structs.binary_search_by(|id| struct_name(&self.types, *id).cmp(name)).ok()?;
        Some(Schema::new(self.types.clone(), self.structs[at]))
    }

    /// The full names of all structs, sorted.
    pub fn definitions(&self) -> impl Iterator<Item = &str> {
        self.structs.iter().map(|id| struct_name(&self.types, *id))
    }
}

fn struct_name(types: &Types, id: TypeId) -> &str {
    match &types.get(id).shape {
        Shape::Struct(s) => &s.name,
        _ => "",
    }
}

/// A named type as the table declares it.
struct Declaration<'a> {
    package: Package<'a>,
    name: &'a str,
    line: usize,
    content: Content<'a>,
}

#[derive(Clone, Copy)]
struct Package<'a> {
    short: &'a str,
    full: &'a str,
    /// Group and version of its kinds.
    version: Option<(&'a str, &'a str)>,
}

enum Content<'a> {
    Named { r#type: &'a str, message: bool },
    Struct { kind: bool, atomic: bool, fields: Vec<&'a str> },
}

struct Declarations<'a> {
    /// In the order of the table.
    list: Vec<Declaration<'a>>,
    /// By short package and name.
    by_name: HashMap<(&'a str, &'a str), usize>,
}

fn declarations(text: &str) -> Result<Declarations<'_>, TableError> {
    let mut found = Declarations { list: Vec::new(), by_name: HashMap::new() };
    let mut package = Package { short: "", full: "", version: None };
    for (index, line) in text.lines().enumerate() {
        let fail = |problem: &str| TableError { line: index + 1, problem: problem.to_owned() };
        if let Some(field) = line.strip_prefix(' ') {
            match found.list.last_mut() {
                Some(Declaration { content: Content::Struct { fields, .. }, .. }) => fields.push(field),
                _ => return Err(fail("a field outside of a struct")),
            }
            continue;
        }
        let mut words = line.split(' ');
        let mark = words.next().unwrap_or_default();
        let name = words.next().ok_or_else(|| fail("no name"))?;
        let content = match mark {
            "package" => {
                let full = words.next().ok_or_else(|| fail("no full name"))?;
                let version = words.next().and_then(|v| v.split_once('/'));
                package = Package { short: name, full, version };
                continue;
            }
            "=" => {
                let r#type = words.next().ok_or_else(|| fail("no type"))?;
                Content::Named { r#type, message: words.any(|w| w == "message") }
            }
            ":" => {
                let (mut kind, mut atomic) = (false, false);
                for word in words {
                    match word {
                        "kind" => kind = true,
                        "atomic" => atomic = true,
                        _ => return Err(fail("unknown fact of a struct")),
                    }
                }
                Content::Struct { kind, atomic, fields: Vec::new() }
            }
            _ => return Err(fail("neither package, type nor struct")),
        };
        if found.by_name.insert((package.short, name), found.list.len()).is_some() {
            return Err(fail("declared twice"));
        }
        found.list.push(Declaration { package, name, line: index + 1, content });
    }
    Ok(found)
}

/// What makes an unnamed node, or a variant of a named one, the same as another.
#[derive(PartialEq, Eq, Hash)]
enum Node<'a> {
    Struct { package: &'a str, name: &'a str, atomic: bool },
    Scalar(Scalar, Option<(&'a str, &'a str)>),
    Any(&'a str),
    List { item: TypeId, kind: ListKind, name: Option<(&'a str, &'a str)> },
    Map { key: &'a str, key_package: &'a str, value: TypeId, atomic: bool, name: Option<(&'a str, &'a str)> },
    Default { of: TypeId, value: &'a str },
}

struct Builder<'a> {
    declared: Declarations<'a>,
    types: Types,
    nodes: HashMap<Node<'a>, TypeId>,
}

/// The facts of a field that change the node of its type.
#[derive(Default)]
struct Merging<'a> {
    list: Option<&'a str>,
    map: Option<&'a str>,
    default: Option<&'a str>,
}

/// A field of a struct, or a struct among its fields, before they are sorted.
enum Part<'a> {
    Field(Field),
    Embedded { number: u32, name: &'a str, parts: Vec<Part<'a>> },
}

impl<'a> Builder<'a> {
    fn build(&mut self) -> Result<Table, TableError> {
        let (mut kinds, mut structs) = (Vec::new(), Vec::new());
        for index in 0..self.declared.list.len() {
            let Declaration { package, name, content, .. } = &self.declared.list[index];
            let Content::Struct { kind, atomic, .. } = *content else { continue };
            let (package, name) = (*package, *name);
            let id = self.r#struct(package.short, name, atomic)?;
            structs.push(id);
            if let Some((group, version)) = package.version.filter(|_| kind) {
                let group = if group == "-" { "" } else { group };
                kinds.push(Kind { group: group.into(), version: version.into(), kind: name.into(), r#type: id });
            }
        }
        kinds.sort_unstable();
        structs.sort_unstable_by(|a, b| struct_name(&self.types, *a).cmp(struct_name(&self.types, *b)));
        let types = std::mem::take(&mut self.types);
        Ok(Table { types: Arc::new(types.shrunk()), kinds: kinds.into(), structs: structs.into() })
    }

    fn find(&self, package: &'a str, name: &'a str, line: usize) -> Result<&Declaration<'a>, TableError> {
        let found = self.declared.by_name.get(&(package, name)).map(|index| &self.declared.list[*index]);
        found.ok_or_else(|| TableError { line, problem: format!("{package}.{name} is not declared") })
    }

    /// The node of a struct, with another atomicity than its own if a field says so.
    fn r#struct(&mut self, package: &'a str, name: &'a str, atomic: bool) -> Result<TypeId, TableError> {
        let node = Node::Struct { package, name, atomic };
        if let Some(id) = self.nodes.get(&node) {
            return Ok(*id);
        }
        let id = self.types.add(Type::new(Shape::Any));
        self.nodes.insert(node, id);
        let parts = self.parts(package, name, 0)?;
        let full = self.find(package, name, 0)?.package.full;
        let mut fields = Vec::new();
        let mut members = flatten(parts, &mut fields);
        // members know their fields by the order of declaration, schemas have them by name
        let mut order: Vec<usize> = (0..fields.len()).collect();
        order.sort_by(|a, b| fields[*a].name.cmp(&fields[*b].name));
        let mut places = vec![0; fields.len()];
        order.iter().enumerate().for_each(|(place, index)| places[*index] = place as u16);
        renumber(&mut members, &places);
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        let wire = Wire::Members(members);
        let shape = Shape::Struct(Struct {
            name: format!("{full}.{name}").into(),
            fields: fields.into(),
            atomic,
            preserve_unknown: false,
            embedded: false,
        });
        self.types.set(id, Type::new(shape));
        self.types.state(id, Facts { wire, ..Facts::default() });
        Ok(id)
    }

    fn parts(&mut self, package: &'a str, name: &'a str, line: usize) -> Result<Vec<Part<'a>>, TableError> {
        let declared = self.find(package, name, line)?;
        let Content::Struct { fields, .. } = &declared.content else {
            return Err(TableError { line, problem: format!("{package}.{name} is no struct") });
        };
        let lines = fields.clone();
        let first = declared.line + 1;
        lines.into_iter().enumerate().map(|(index, text)| self.part(package, text, first + index)).collect()
    }

    fn part(&mut self, package: &'a str, text: &'a str, line: usize) -> Result<Part<'a>, TableError> {
        let fail = |problem: String| TableError { line, problem };
        let mut words = text.split(' ');
        let (Some(name), Some(second), Some(third)) = (words.next(), words.next(), words.next()) else {
            return Err(fail("a field needs a name, a number and a type".to_owned()));
        };
        let number = |word: &str| word.parse::<u32>().map_err(|_| fail(format!("{word:?} is no field number")));
        if name == "+" {
            let (package, name) = qualified(package, second);
            return Ok(Part::Embedded { number: number(third)?, name, parts: self.parts(package, name, line)? });
        }
        let pointer = third.starts_with('*');
        let mut field = Field {
            name: name.into(),
            r#type: TypeId(0),
            number: number(second)?,
            omit: Omit::Never,
            pointer,
            required: false,
            patch: Patch::default(),
        };
        let mut merging = Merging::default();
        for word in words {
            match word.split_once('=') {
                None if word == "omitempty" => field.omit = Omit::Empty,
                None if word == "omitzero" => field.omit = Omit::Zero,
                None if word == "required" => field.required = true,
                Some(("list", kind)) => merging.list = Some(kind),
                Some(("map", kind)) => merging.map = Some(kind),
                Some(("default", value)) => merging.default = Some(value),
                Some(("key", key)) => field.patch.merge_key = Some(key.into()),
                Some(("patch", strategies)) => {
                    field.patch.merge = strategies.split(',').any(|s| s == "merge");
                    field.patch.retain_keys = strategies.split(',').any(|s| s == "retainKeys");
                    field.patch.replace = strategies == "replace";
                }
                _ => return Err(fail(format!("unknown fact {word:?}"))),
            }
        }
        let expression = third.strip_prefix('*').unwrap_or(third);
        field.r#type = self.resolve(package, expression, &merging, line)?;
        Ok(Part::Field(field))
    }

    /// The node of a type expression.
    fn resolve(
        &mut self,
        package: &'a str,
        expression: &'a str,
        merging: &Merging<'a>,
        line: usize,
    ) -> Result<TypeId, TableError> {
        let id = self.unnamed(package, expression, merging, None, line)?;
        let Some(value) = merging.default else { return Ok(id) };
        if let Some(id) = self.nodes.get(&Node::Default { of: id, value }) {
            return Ok(*id);
        }
        let parsed: Value = serde_json::from_str(value)
            .map_err(|e| TableError { line, problem: format!("the default {value}: {e}") })?;
        let with_default = Type { default: Some(Box::new(parsed)), ..self.types.get(id).clone() };
        let facts = self.types.facts(id).cloned();
        let new = self.types.add(with_default);
        if let Some(facts) = facts {
            self.types.state(new, facts);
        }
        self.nodes.insert(Node::Default { of: id, value }, new);
        Ok(new)
    }

    fn unnamed(
        &mut self,
        package: &'a str,
        expression: &'a str,
        merging: &Merging<'a>,
        name: Option<(&'a str, &'a str)>,
        line: usize,
    ) -> Result<TypeId, TableError> {
        if let Some(item) = expression.strip_prefix("[]") {
            let item = self.unnamed(package, item, &Merging::default(), None, line)?;
            let kind = match merging.list {
                None => ListKind::Atomic,
                Some("set") => ListKind::Set,
                Some(kind) => {
                    let keys = kind.strip_prefix("map:");
                    let keys =
                        keys.ok_or_else(|| TableError { line, problem: format!("unknown list type {kind:?}") })?;
                    ListKind::Map(keys.split(',').map(Into::into).collect())
                }
            };
            let shape = Shape::List(List { item, kind: kind.clone() });
            return Ok(self.node(Node::List { item, kind, name }, shape, || named(name)));
        }
        if let Some((key, value)) = expression.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            let value = self.unnamed(package, value, &Merging::default(), None, line)?;
            let atomic = merging.map == Some("atomic");
            let (key_package, key_name) = qualified(package, key);
            let key_package = if key == "string" { "" } else { key_package };
            let shape = Shape::Map(Map { value, atomic });
            return Ok(self.node(Node::Map { key: key_name, key_package, value, atomic, name }, shape, || {
                let key = if key == "string" { key.into() } else { go_name(key_package, key_name) };
                Facts { key: Some(key), ..named(name) }
            }));
        }
        if let Some(scalar) = scalar(expression) {
            return Ok(self.node(Node::Scalar(scalar, name), Shape::Scalar(scalar), || named(name)));
        }
        if let Some(id) = self.any(expression)? {
            return Ok(id);
        }
        let (package, short) = qualified(package, expression);
        match self.find(package, short, line)?.content {
            Content::Struct { atomic, .. } => {
                self.r#struct(package, short, merging.map.map_or(atomic, |kind| kind == "atomic"))
            }
            Content::Named { r#type, message } => {
                let id = self.unnamed(package, r#type, merging, Some((package, short)), line)?;
                if message {
                    let facts = self.types.facts(id).cloned().unwrap_or_default();
                    self.types.state(id, Facts { wire: Wire::Items, ..facts });
                }
                Ok(id)
            }
        }
    }

    /// The nodes for what has no structure, and for the three unions in the schema of a custom resource definition.
    fn any(&mut self, word: &'a str) -> Result<Option<TypeId>, TableError> {
        let union: Option<fn(TypeId) -> Wire> = match word {
            "any" | "raw" | "json" | "fields" => None,
            "schema-or-bool" => Some(Wire::SchemaOrBool),
            "schema-or-list" => Some(Wire::SchemaOrList),
            "schema-or-strings" => Some(Wire::SchemaOrStrings),
            _ => return Ok(None),
        };
        let (wire, go) = match (union, word) {
            (Some(union), _) => {
                let schema = self.r#struct("apiextensions.v1", "JSONSchemaProps", false)?;
                (union(schema), "v1.JSONSchemaProps")
            }
            (None, "raw") => (Wire::Plain, "runtime.RawExtension"),
            (None, "json") => (Wire::Plain, "v1.JSON"),
            (None, "fields") => (Wire::Plain, "v1.FieldsV1"),
            (None, _) => (Wire::Plain, "interface {}"),
        };
        Ok(Some(self.node(Node::Any(word), Shape::Any, || Facts { go: Some(go.into()), wire, key: None })))
    }

    fn node(&mut self, node: Node<'a>, shape: Shape, facts: impl FnOnce() -> Facts) -> TypeId {
        *self.nodes.entry(node).or_insert_with(|| {
            let id = self.types.add(Type::new(shape));
            let facts = facts();
            if facts != Facts::default() {
                self.types.state(id, facts);
            }
            id
        })
    }
}

/// The package and the name of a type that may be of another package.
fn qualified<'a>(package: &'a str, name: &'a str) -> (&'a str, &'a str) {
    name.rsplit_once('.').unwrap_or((package, name))
}

/// The name that Go prints: the last word of the package and the type.
fn go_name(package: &str, name: &str) -> Box<str> {
    format!("{}.{name}", package.rsplit('.').next().unwrap_or_default()).into()
}

fn named(name: Option<(&str, &str)>) -> Facts {
    Facts { go: name.map(|(package, name)| go_name(package, name)), ..Facts::default() }
}

fn scalar(word: &str) -> Option<Scalar> {
    Some(match word {
        "bool" => Scalar::Bool,
        "int32" => Scalar::Int32,
        "int64" => Scalar::Int64,
        "float64" => Scalar::Float64,
        "string" => Scalar::String,
        "bytes" => Scalar::Bytes,
        "quantity" => Scalar::Quantity,
        "time" => Scalar::Time,
        "microtime" => Scalar::MicroTime,
        "duration" => Scalar::Duration,
        "intstr" => Scalar::IntOrString,
        _ => return None,
    })
}

/// Takes the fields out as JSON has them, and returns the members as protobuf has them, in the order of their numbers.
/// What is embedded without a number is in no message.
fn flatten(parts: Vec<Part<'_>>, fields: &mut Vec<Field>) -> Box<[Member]> {
    let mut members = Vec::new();
    for part in parts {
        match part {
            Part::Field(field) => {
                if field.number > 0 {
                    members.push(Member { number: field.number, target: MemberTarget::Field(fields.len() as u16) });
                }
                fields.push(field);
            }
            Part::Embedded { number, name, parts } => {
                let start = fields.len();
                let inner = flatten(parts, fields);
                match number {
                    0 => fields[start..].iter_mut().for_each(|f| f.number = 0),
                    _ => members.push(Member { number, target: MemberTarget::Embedded(name.into(), inner) }),
                }
            }
        }
    }
    members.sort_by_key(|m| m.number);
    members.into()
}

fn renumber(members: &mut [Member], places: &[u16]) {
    for member in members {
        match &mut member.target {
            MemberTarget::Field(index) => *index = places[usize::from(*index)],
            MemberTarget::Embedded(_, inner) => renumber(inner, places),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_table_is_refused_with_its_line() {
        let cases = [
            (" field 1 string", "line 1: a field outside of a struct"),
            ("package a x.a -\n: A\n b 1 Nothing", "line 3: a.Nothing is not declared"),
            ("package a x.a -\n: A\n b one string", "line 3: \"one\" is no field number"),
            ("package a x.a -\n: A\n b 1 string maybe", "line 3: unknown fact \"maybe\""),
            ("package a x.a -\n: A\n b 1", "line 3: a field needs a name, a number and a type"),
            ("package a x.a -\n: A\n: A", "line 3: declared twice"),
            ("package a x.a -\n: A\n b 1 []string list=heap", "line 3: unknown list type \"heap\""),
            ("nonsense a", "line 1: neither package, type nor struct"),
        ];
        for (text, expected) in cases {
            let error = Table::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_same_type_is_one_node() {
        let text = "package a x.a -\n: A\n b 1 []string\n c 2 []string\n d 3 []string list=set\n e 4 *A\n";
        let table = Table::parse(text).expect("a table");
        let schema = table.definition("x.a.A").expect("A");
        let id = |name: &str| schema.root().child(name).map(super::super::Ref::id);
        assert_eq!(id("b"), id("c"));
        assert_ne!(id("b"), id("d"));
        assert_eq!(id("e"), Some(schema.root().id()), "a type may refer to itself");
    }
}
