//! The walk over a value and its schema that applies the rules.
//!
//! Nothing is allocated while nothing is wrong. Alternatives (`anyOf`, `oneOf`, `not`) are tried in silence; if none
//! fits, the one that came closest is walked again to say why. Closeness is a count of checks done, kept exactly as
//! Kubernetes keeps it, since it decides which messages a user sees.

use std::collections::HashSet;
use std::mem;

use serde_json::{Map, Value};

use super::old::{Old, OldList};
use crate::codec::json;
use crate::field::{ErrorKind, Errors, FieldError, Path};
use crate::go_text::quote;
use crate::schema::{JsonType, Ref, Rules, Scalar, Shape};

/// Where a schema is: at a node, or inside a logical combination.
#[derive(Clone, Copy)]
enum View<'s> {
    Node(Ref<'s>),
    Rules(&'s Rules),
}

/// The type that a value must have.
#[derive(Clone, Copy)]
pub(super) enum Expected<'s> {
    Any,
    One(&'s JsonType),
    IntOrString,
}

/// How many alternatives fit, and the first that does, or else the one that comes closest.
struct Closest<'r> {
    rules: &'r Rules,
    matches: u64,
    valid: usize,
}

pub(super) struct Walk<'w> {
    prefix: Option<&'w Path<'w>>,
    errors: Errors,
    silent: bool,
    failed: bool,
    matches: u64,
}

/// Applies the rules at and below a node. `prefix` is put before the paths of errors, but not into their words.
pub(super) fn check(node: Ref<'_>, value: &Value, old: &Old<'_, '_>, prefix: Option<&Path<'_>>) -> Errors {
    let mut walk = Walk { prefix, errors: Errors::new(), silent: false, failed: false, matches: 0 };
    walk.node(View::Node(node), value, old, &Path::Root);
    let mut errors = Errors::new();
    // Two branches of a combination may complain of the same thing.
    let mut seen = HashSet::new();
    for error in walk.errors {
        if seen.insert((error.kind, error.field.clone(), error.detail.clone())) {
            errors.push(error);
        }
    }
    errors
}

impl<'s> View<'s> {
    fn rules(self) -> Option<&'s Rules> {
        match self {
            View::Node(node) => node.rules(),
            View::Rules(rules) => Some(rules),
        }
    }

    fn nullable(self) -> bool {
        match self {
            View::Node(node) => node.node().nullable,
            View::Rules(rules) => rules.nullable,
        }
    }

    fn expected(self) -> Expected<'s> {
        let json_type = match self {
            View::Rules(rules) => return rules.json_type.as_ref().map_or(Expected::Any, Expected::One),
            View::Node(node) => match node.shape() {
                Shape::Scalar(Scalar::IntOrString) => return Expected::IntOrString,
                Shape::Any => {
                    let json_type = node.rules().and_then(|rules| rules.json_type.as_ref());
                    return json_type.map_or(Expected::Any, Expected::One);
                }
                Shape::Scalar(Scalar::Bool) => &JsonType::Boolean,
                Shape::Scalar(Scalar::Int32 | Scalar::Int64) => &JsonType::Integer,
                Shape::Scalar(Scalar::Float64) => &JsonType::Number,
                Shape::Scalar(_) => &JsonType::String,
                Shape::List(_) => &JsonType::Array,
                Shape::Map(_) | Shape::Struct(_) => &JsonType::Object,
            },
        };
        Expected::One(json_type)
    }

    fn item(self) -> Option<View<'s>> {
        match self {
            View::Node(node) => node.element().map(View::Node),
            View::Rules(rules) => rules.items.as_deref().map(View::Rules),
        }
    }
}

impl Expected<'_> {
    fn has(self, wanted: &JsonType) -> bool {
        match self {
            Expected::Any => false,
            Expected::One(one) => one == wanted,
            Expected::IntOrString => matches!(wanted, JsonType::Integer | JsonType::String),
        }
    }

    fn names(&self) -> &str {
        match self {
            Expected::Any => "",
            Expected::One(one) => one.name(),
            Expected::IntOrString => "integer,string",
        }
    }
}

impl Walk<'_> {
    /// A value at its place; forgives what was wrong before and has not changed.
    fn node(&mut self, view: View<'_>, value: &Value, old: &Old<'_, '_>, path: &Path<'_>) {
        if matches!(view, View::Node(node) if node.is_built_in()) {
            return;
        }
        let mark = self.errors.len();
        let failed_before = mem::take(&mut self.failed);
        self.value(view, value, old, path);
        if self.failed && old.is_unchanged(value) {
            self.errors.truncate(mark);
            self.failed = false;
        }
        self.failed |= failed_before;
    }

    fn value(&mut self, view: View<'_>, value: &Value, old: &Old<'_, '_>, path: &Path<'_>) {
        let rules = view.rules();
        let expected = view.expected();
        let format = rules.and_then(|rules| rules.format.as_ref());
        if value.is_null() {
            if matches!(expected, Expected::Any) || view.nullable() {
                self.matches += 1;
            } else {
                self.wrong_type(path, expected.names(), "null");
            }
            self.listed(rules, value, path);
            return;
        }
        if !matches!(expected, Expected::Any) || format.is_some() {
            self.matches += 1;
            self.json_type(expected, format.map(super::Format::name), value, path);
        }
        self.matches += 2;
        if let Some(rules) = rules {
            self.combinations(rules, value, path);
        }
        match value {
            Value::String(text) => {
                self.matches += 1;
                self.text(rules, text, path);
            }
            Value::Number(number) => {
                self.matches += 2;
                self.number(rules, expected, number, path);
            }
            Value::Array(items) => {
                self.matches += 2;
                self.list(view, items, old, path);
            }
            _ => {}
        }
        self.matches += 1;
        self.listed(rules, value, path);
        if let Value::Object(object) = value {
            self.matches += 1;
            self.object(view, object, old, path);
        }
        self.matches += 1;
    }

    fn json_type(&mut self, expected: Expected<'_>, format: Option<&str>, value: &Value, path: &Path<'_>) {
        let (name, go_format) = match value {
            Value::Null => ("null", ""),
            Value::Bool(_) => ("boolean", ""),
            Value::Number(n) if n.is_i64() => ("integer", "int64"),
            Value::Number(_) => ("number", "float64"),
            Value::String(_) => ("string", ""),
            Value::Array(_) => ("array", ""),
            Value::Object(_) => ("object", ""),
        };
        let fits = match value {
            Value::Bool(_) => expected.has(&JsonType::Boolean),
            Value::String(_) => expected.has(&JsonType::String),
            Value::Array(_) => expected.has(&JsonType::Array),
            Value::Object(_) => expected.has(&JsonType::Object),
            Value::Number(n) => {
                expected.has(&JsonType::Number)
                    || expected.has(&JsonType::Integer)
                        && (n.is_i64() || n.as_f64().is_some_and(super::number::is_json_integer))
            }
            Value::Null => false,
        };
        let untyped_container = matches!(expected, Expected::Any) && (value.is_string() || value.is_array());
        if fits || untyped_container {
            self.matches += 1;
            return;
        }
        match format {
            Some(format) if !value.is_string() && !value.is_array() => self.wrong_type(path, format, go_format),
            _ => self.wrong_type(path, expected.names(), name),
        }
    }

    /// In the order and with the messages of Kubernetes: a failing `anyOf` or `oneOf` also shows the errors of the
    /// alternative that came closest.
    fn combinations(&mut self, rules: &Rules, value: &Value, path: &Path<'_>) {
        if let Some(closest) = self.closest(&rules.any_of, value, path, true) {
            if closest.valid == 0 {
                self.unplaced(|| format!("{} must validate at least one schema (anyOf)", quote(&path.to_string())));
            }
            self.take(closest, value, path);
        }
        if let Some(closest) = self.closest(&rules.one_of, value, path, false) {
            if closest.valid != 1 {
                self.unplaced(|| {
                    let path = quote(&path.to_string());
                    let found = match closest.valid {
                        0 => "Found none valid".to_owned(),
                        valid => format!("Found {valid} valid alternatives"),
                    };
                    format!("{path} must validate one and only one schema (oneOf). {found}")
                });
            }
            if closest.valid <= 1 {
                self.take(closest, value, path);
            }
        }
        let mut valid = 0;
        for all in &rules.all_of {
            valid += usize::from(self.branch(all, value, path));
        }
        if valid < rules.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            self.unplaced(|| format!("{} must validate all the schemas (allOf){none}", quote(&path.to_string())));
        }
        if let Some(not) = &rules.not
            && self.trial(not, value, path).0
        {
            self.unplaced(|| format!("{} must not validate the schema (not)", quote(&path.to_string())));
        }
    }

    /// Tries the alternatives. `None` if there are none.
    fn closest<'r>(
        &mut self,
        alternatives: &'r [Rules],
        value: &Value,
        path: &Path<'_>,
        stop_at_first: bool,
    ) -> Option<Closest<'r>> {
        let mut closest: Option<Closest<'r>> = None;
        for rules in alternatives {
            let (fits, matches) = self.trial(rules, value, path);
            match &mut closest {
                Some(closest) if closest.valid > 0 => closest.valid += usize::from(fits),
                Some(closest) if !fits && matches <= closest.matches => {}
                _ => closest = Some(Closest { rules, matches, valid: usize::from(fits) }),
            }
            if fits && stop_at_first {
                break;
            }
        }
        closest
    }

    /// Counts the chosen alternative; one that does not fit is walked again for its errors, if anybody wants them.
    fn take(&mut self, closest: Closest<'_>, value: &Value, path: &Path<'_>) {
        if closest.valid == 0 && !self.silent {
            self.branch(closest.rules, value, path);
        } else {
            self.matches += closest.matches;
        }
    }

    /// Does it fit, and how closely? Leaves no trace.
    fn trial(&mut self, rules: &Rules, value: &Value, path: &Path<'_>) -> (bool, u64) {
        let saved = (mem::replace(&mut self.silent, true), mem::take(&mut self.failed), mem::take(&mut self.matches));
        self.node(View::Rules(rules), value, &Old::Never, path);
        let outcome = (!self.failed, self.matches);
        (self.silent, self.failed, self.matches) = saved;
        outcome
    }

    /// A branch whose errors and closeness count. Says whether it fits.
    fn branch(&mut self, rules: &Rules, value: &Value, path: &Path<'_>) -> bool {
        let failed_before = mem::take(&mut self.failed);
        self.node(View::Rules(rules), value, &Old::Never, path);
        let fits = !self.failed;
        self.failed |= failed_before;
        fits
    }

    /// Only the first problem of length and pattern is told.
    fn text(&mut self, rules: Option<&Rules>, text: &str, path: &Path<'_>) {
        let Some(rules) = rules else { return };
        let longer_than = |most: i64| text.len() as i64 > most && text.chars().count() as i64 > most;
        let shorter_than = |least: i64| (text.len() as i64) < least || (text.chars().count() as i64) < least;
        if let Some(most) = rules.max_length.filter(|most| longer_than(*most)) {
            self.report(ErrorKind::TooLong, path, None, |_| too_long(most));
        } else if let Some(least) = rules.min_length.filter(|least| shorter_than(*least)) {
            self.report(ErrorKind::Invalid, path, Some(text.into()), |name| {
                format!("{name} in body should be at least {least} chars long")
            });
        } else if let Some(pattern) = &rules.pattern {
            match pattern.is_match(text) {
                Ok(true) => {}
                Ok(false) => self.report(ErrorKind::Invalid, path, Some(text.into()), |name| {
                    format!("{name} in body should match '{}'", pattern.source())
                }),
                Err(error) => self.report(ErrorKind::Invalid, path, Some(text.into()), |name| {
                    format!("{name} in body should match '{}, but pattern is invalid: {error}'", pattern.source())
                }),
            }
        }
        if let Some(format) = rules.format.as_ref().filter(|format| format.is_text()) {
            self.matches += 1;
            if !format.accepts(text) {
                self.wrong_type(path, format.name(), text);
            }
        }
    }

    fn list(&mut self, view: View<'_>, items: &[Value], old: &Old<'_, '_>, path: &Path<'_>) {
        if let Some(item_view) = view.item() {
            let before = OldList::new(old);
            for (index, item) in items.iter().enumerate() {
                self.node(item_view, item, &before.item(item), &path.index(index));
            }
        }
        let Some(rules) = view.rules() else { return };
        let length = items.len() as i64;
        if let Some(least) = rules.min_items.filter(|least| length < *least) {
            self.report(ErrorKind::Invalid, path, Some(length.into()), |name| {
                format!("{name} in body should have at least {least} items")
            });
        }
        if let Some(most) = rules.max_items.filter(|most| length > *most) {
            self.report(ErrorKind::TooMany, path, Some(length.into()), |_| too_many(most));
        }
    }

    fn object(&mut self, view: View<'_>, object: &Map<String, Value>, old: &Old<'_, '_>, path: &Path<'_>) {
        let rules = view.rules();
        let length = object.len() as i64;
        if let Some(least) = rules.and_then(|r| r.min_properties).filter(|least| length < *least) {
            self.report(ErrorKind::Invalid, path, Some(length.into()), |name| {
                format!("{name} in body should have at least {least} properties")
            });
        }
        if let Some(most) = rules.and_then(|r| r.max_properties).filter(|most| length > *most) {
            self.report(ErrorKind::TooMany, path, Some(length.into()), |_| too_many(most));
        }
        if let View::Node(node) = view {
            self.members(node, object, old, path);
        }
        let Some(rules) = rules else { return };
        for (name, property) in &rules.properties {
            if let Some(value) = object.get(&**name) {
                self.node(View::Rules(property), value, &Old::Never, &path.child(name));
            }
        }
        for name in rules.required.iter().filter(|name| !object.contains_key(&***name)) {
            self.report(ErrorKind::Required, &path.child(name), None, |_| String::new());
        }
    }

    fn members(&mut self, node: Ref<'_>, object: &Map<String, Value>, old: &Old<'_, '_>, path: &Path<'_>) {
        let closed = node.rules().is_some_and(|rules| rules.additional == Some(false));
        // Kubernetes writes a dot before the key of a map that is the whole value.
        let nameless = Path::Field(&Path::Root, "");
        let is_root = matches!(path, Path::Root);
        let parent = if is_root && matches!(node.shape(), Shape::Map(_)) { &nameless } else { path };
        for (name, value) in object {
            match node.property(name) {
                // Both versions have been converted to the same type, so these two always look unchanged.
                Some(child) if is_root && (name == "kind" || name == "apiVersion") => {
                    self.node(View::Node(child), value, &Old::Never, &parent.child(name));
                }
                Some(child) => self.node(View::Node(child), value, &Old::Key(old, name), &parent.child(name)),
                None if closed => self.report(ErrorKind::Invalid, path, Some(name.as_str().into()), |path| {
                    format!("{path}.{name} in body is a forbidden property")
                }),
                None => {}
            }
        }
    }

    /// One of the listed values?
    fn listed(&mut self, rules: Option<&Rules>, value: &Value, path: &Path<'_>) {
        let Some(rules) = rules.filter(|rules| !rules.values.is_empty()) else { return };
        let same = |allowed: &Value| match (value, allowed) {
            (Value::Null, _) => false,
            (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
            _ => value == allowed,
        };
        if !rules.values.iter().any(same) {
            self.report(ErrorKind::NotSupported, path, Some(value.clone()), |_| {
                let shown = |allowed: &Value| match allowed {
                    Value::String(text) => quote(text),
                    other => quote(&json::to_string(other)),
                };
                format!("supported values: {}", rules.values.iter().map(shown).collect::<Vec<_>>().join(", "))
            });
        }
    }

    fn wrong_type(&mut self, path: &Path<'_>, wanted: &str, found: &str) {
        self.report(ErrorKind::TypeInvalid, path, Some(found.into()), |name| {
            format!("{name} in body must be of type {wanted}: {}", quote(found))
        });
    }

    /// A problem that Kubernetes does not tie to a field.
    pub(super) fn unplaced(&mut self, detail: impl FnOnce() -> String) {
        self.failed = true;
        if self.silent || self.errors.is_full() {
            return;
        }
        let field = self.prefix.map_or_else(|| "<nil>".to_owned(), |prefix| prefix.to_string());
        self.errors.push(FieldError { kind: ErrorKind::Invalid, field, value: Some("".into()), detail: detail() });
    }

    pub(super) fn report(
        &mut self,
        kind: ErrorKind,
        path: &Path<'_>,
        value: Option<Value>,
        detail: impl FnOnce(&str) -> String,
    ) {
        self.failed = true;
        if self.silent || self.errors.is_full() {
            return;
        }
        let name = path.to_string();
        let below = name.strip_prefix('.').unwrap_or(&name);
        let field = match (self.prefix, below) {
            (None, "") => "<nil>".to_owned(),
            (None, below) => below.to_owned(),
            (Some(prefix), "") => prefix.to_string(),
            (Some(prefix), below) => format!("{prefix}.{below}"),
        };
        self.errors.push(FieldError { kind, field, value, detail: detail(&name) });
    }
}

fn too_long(most: i64) -> String {
    let unit = if most == 1 { "byte" } else { "bytes" };
    if most < 0 { "value is too long".to_owned() } else { format!("may not be more than {most} {unit}") }
}

fn too_many(most: i64) -> String {
    let unit = if most == 1 { "item" } else { "items" };
    if most < 0 { "has too many items".to_owned() } else { format!("must have at most {most} {unit}") }
}
