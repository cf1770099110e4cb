//! Which type everything has, and which function every call means.

use std::collections::HashMap;

use crate::Environment;
use crate::ast::{Element, Entry, Expr, Field, Fold, Kind, Literal, operator};
use crate::declarations::{FUNCTIONS, Function};
use crate::source::{Place, Problems};
use crate::types::{Bindings, Type, most_general};
use crate::value::type_named;

/// Types can double with every nested literal; no honest one is made of so many.
const MAX_TYPE: usize = 10_000;

/// What the checker found out, by the id of a node.
#[derive(Default)]
pub(crate) struct Checked {
    pub types: HashMap<u32, Type>,
    /// Selections that are a declared name with dots, and names of types.
    pub names: HashMap<u32, Name>,
    /// Calls whose target is part of the function's name.
    pub functions: HashMap<u32, (&'static Function, bool)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Name {
    Variable(String),
    Type(&'static str),
}

pub(crate) struct Checker<'c, 's> {
    environment: &'c Environment,
    problems: &'c mut Problems<'s>,
    found: Checked,
    bindings: Bindings,
    open: u32,
    scopes: Vec<(String, Type)>,
}

/// Checks a tree that parsed without problems.
pub(crate) fn check<'s>(expr: &Expr, environment: &Environment, problems: &mut Problems<'s>) -> Checked {
    let found = Checked::default();
    let mut checker =
        Checker { environment, problems, found, bindings: Bindings::default(), open: 0, scopes: Vec::new() };
    checker.check(expr);
    let Checker { mut found, bindings, .. } = checker;
    for kind in found.types.values_mut() {
        *kind = bindings.resolve(kind, true);
    }
    found
}

impl Checker<'_, '_> {
    fn problem(&mut self, at: usize, message: String) {
        self.problems.add(Place::At(at), message);
    }

    fn undeclared(&mut self, at: usize, name: &str) -> Type {
        let name = name.strip_prefix('.').unwrap_or(name);
        self.problem(at, format!("undeclared reference to '{name}' (in container '')"));
        Type::Error
    }

    fn mismatch(&mut self, at: usize, expected: &Type, found: &Type) {
        self.problem(at, format!("expected type '{expected}' but found '{found}'"));
    }

    fn fresh(&mut self) -> Type {
        self.open += 1;
        Type::Open(self.open - 1)
    }

    fn check(&mut self, expr: &Expr) -> Type {
        let kind = match &expr.kind {
            Kind::Broken => Type::Error,
            Kind::Literal(literal) => literal_type(literal),
            Kind::Ident(name) => self.identifier(expr, name),
            Kind::Select { operand, field, test } => self.select(expr, operand, field, *test),
            Kind::Call { target: None, function, args } if function == operator::OPT_SELECT => {
                self.optional_select(expr, args)
            }
            Kind::Call { target, function, args } => self.call(expr, target.as_deref(), function, args),
            Kind::List { elements } => self.list(elements),
            Kind::Map { entries } => self.map(entries),
            Kind::Struct { name, fields } => self.message(expr, name, fields),
            Kind::Fold(fold) => self.fold(fold),
        };
        let kind = if kind.size(MAX_TYPE) < MAX_TYPE {
            kind
        } else {
            self.problem(expr.at, "type is too large".to_owned());
            Type::Error
        };
        self.found.types.insert(expr.id, kind.clone());
        kind
    }

    /// A variable or the name of a type.
    fn lookup(&mut self, expr: &Expr, name: &str) -> Option<Type> {
        let bare = name.strip_prefix('.').unwrap_or(name);
        if !name.starts_with('.')
            && let Some((_, kind)) = self.scopes.iter().rev().find(|(scoped, _)| scoped == name)
        {
            return Some(kind.clone());
        }
        if let Some(kind) = self.environment.variable(bare) {
            self.found.names.insert(expr.id, Name::Variable(bare.to_owned()));
            return Some(kind.clone());
        }
        let (name, kind) = type_named(bare)?;
        self.found.names.insert(expr.id, Name::Type(name));
        Some(Type::Type(Some(kind.into())))
    }

    fn identifier(&mut self, expr: &Expr, name: &str) -> Type {
        match self.lookup(expr, name) {
            Some(kind) => kind,
            None => self.undeclared(expr.at, name),
        }
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, test: bool) -> Type {
        if !test
            && let Some(name) = expr.qualified_name()
            && !self.is_scoped(&name)
            && let Some(kind) = self.lookup(expr, &name)
        {
            return kind;
        }
        let kind = self.field(expr, operand, field, false);
        if test { Type::Bool } else { self.bindings.resolve(&kind, false) }
    }

    /// Is the first part a loop variable? Then the rest are its fields.
    fn is_scoped(&self, name: &str) -> bool {
        let first = name.split('.').next().unwrap_or(name);
        self.scopes.iter().any(|(scoped, _)| scoped == first)
    }

    fn optional_select(&mut self, expr: &Expr, args: &[Expr]) -> Type {
        let [operand, Expr { kind: Kind::Literal(Literal::String(field)), .. }] = args else {
            self.problem(expr.at, "unsupported optional field selection: incorrect signature.".to_owned());
            return Type::Error;
        };
        let kind = self.field(expr, operand, field, true);
        self.bindings.resolve(&kind, false)
    }

    fn field(&mut self, expr: &Expr, operand: &Expr, field: &str, optional: bool) -> Type {
        let kind = self.check(operand);
        let (target, was_optional) = self.bindings.resolve(&kind, false).unwrap_optional();
        let result = match &target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) => match object.field(field) {
                Some(kind) => kind,
                None => {
                    self.problem(expr.at, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Library(library) if library.is_object() => {
                self.problem(expr.at, format!("unexpected failed resolution of '{}'", library.name()));
                Type::Error
            }
            Type::Open(_) => {
                self.bindings.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    self.problem(expr.at, format!("type '{other}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if was_optional || optional { Type::optional(result) } else { result }
    }

    fn call(&mut self, expr: &Expr, target: Option<&Expr>, name: &str, args: &[Expr]) -> Type {
        let arg_types: Vec<Type> = args.iter().map(|arg| self.check(arg)).collect();
        let Some(target) = target else {
            let bare = name.strip_prefix('.').unwrap_or(name);
            return match self.function(bare) {
                Some(function) => self.resolve(expr, function, None, args, arg_types),
                None => self.undeclared(expr.at, name),
            };
        };
        if let Some(prefix) = target.qualified_name()
            && !self.is_scoped(&prefix)
            && let Some(function) = self.function(&format!("{}.{name}", prefix.strip_prefix('.').unwrap_or(&prefix)))
        {
            return self.resolve(expr, function, None, args, arg_types);
        }
        let target = self.check(target);
        match self.function(name) {
            Some(function) => self.resolve(expr, function, Some(target), args, arg_types),
            None => self.undeclared(expr.at, name),
        }
    }

    /// A function of which some overload belongs to a library of the environment.
    fn function(&self, name: &str) -> Option<&'static Function> {
        let function = FUNCTIONS.get(name)?;
        function.groups.iter().any(|group| self.environment.has(group.library)).then_some(function)
    }

    fn resolve(
        &mut self,
        expr: &Expr,
        function: &'static Function,
        target: Option<Type>,
        args: &[Expr],
        arg_types: Vec<Type>,
    ) -> Type {
        let member = target.is_some();
        self.found.functions.insert(expr.id, (function, member));
        if matches!(function.name, operator::AND | operator::OR) {
            return self.logic(args, &arg_types);
        }
        let types: Vec<Type> = target.into_iter().chain(arg_types).collect();
        let mut result: Option<Type> = None;
        let groups = function.groups.iter().filter(|group| self.environment.has(group.library));
        for overload in groups.flat_map(|group| &group.overloads).filter(|overload| overload.member == member) {
            let base = self.open;
            let takes: Vec<Type> = overload.takes.iter().map(|kind| numbered_from(kind, base)).collect();
            if overload.takes.len() != types.len() {
                continue;
            }
            self.open += overload.open;
            if self.bindings.all_assignable(&types, &takes) {
                let gives = self.bindings.resolve(&numbered_from(&overload.gives, base), false);
                result = Some(match result {
                    None => gives,
                    Some(before) if before.is_dyn() || before == gives => before,
                    Some(_) => Type::Dyn,
                });
            }
        }
        result.unwrap_or_else(|| {
            let shown: Vec<String> = types.iter().map(|kind| self.bindings.resolve(kind, true).to_string()).collect();
            let signature = match shown.split_first() {
                Some((target, args)) if member => format!("{target}.({})", args.join(", ")),
                _ => format!("({})", shown.join(", ")),
            };
            let message = format!("found no matching overload for '{}' applied to '{signature}'", function.name);
            self.problem(expr.at, message);
            Type::Error
        })
    }

    /// The terms of `&&` and `||`, each of which must be a truth value.
    fn logic(&mut self, args: &[Expr], types: &[Type]) -> Type {
        let mut result = Type::Bool;
        for (arg, kind) in args.iter().zip(types) {
            if !self.bindings.assignable(kind, &Type::Bool) {
                self.mismatch(arg.at, &Type::Bool, kind);
                result = Type::Error;
            }
        }
        result
    }

    /// The type of an element that may be optional.
    fn element(&mut self, value: &Expr, optional: bool) -> Type {
        let kind = self.check(value);
        if !optional {
            return kind;
        }
        let (inner, was_optional) = kind.unwrap_optional();
        if !was_optional && !inner.is_dyn() {
            self.mismatch(value.at, &Type::optional(inner.clone()), &inner);
        }
        inner
    }

    fn join(&mut self, at: usize, before: Option<Type>, kind: Type) -> Type {
        let Some(before) = before else { return kind };
        if self.bindings.assignable(&before, &kind) {
            return most_general(&before, &kind);
        }
        self.mismatch(at, &before, &kind);
        Type::Error
    }

    fn list(&mut self, elements: &[Element]) -> Type {
        let mut joined = None;
        for element in elements {
            let kind = self.element(&element.value, element.optional);
            joined = Some(self.join(element.value.at, joined, kind));
        }
        Type::list(joined.unwrap_or_else(|| self.fresh()))
    }

    fn map(&mut self, entries: &[Entry]) -> Type {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            let kind = self.check(&entry.key);
            keys = Some(self.join(entry.key.at, keys, kind));
            let kind = self.element(&entry.value, entry.optional);
            values = Some(self.join(entry.value.at, values, kind));
        }
        match (keys, values) {
            (Some(keys), Some(values)) => Type::map(keys, values),
            _ => Type::map(self.fresh(), self.fresh()),
        }
    }

    fn message(&mut self, expr: &Expr, name: &str, fields: &[Field]) -> Type {
        let bare = name.strip_prefix('.').unwrap_or(name);
        let Some(object) = self.environment.object_type(bare) else {
            return match self.lookup(expr, bare) {
                None => self.undeclared(expr.at, name),
                Some(Type::Type(Some(kind))) => {
                    self.problem(expr.at, format!("'{kind}' is not a message type"));
                    Type::Error
                }
                Some(kind) => {
                    self.problem(expr.at, format!("'{kind}' is not a type"));
                    Type::Error
                }
            };
        };
        for field in fields {
            let given = self.element(&field.value, field.optional);
            let Some(declared) = object.field(&field.name) else {
                self.problem(field.at, format!("undefined field '{}'", field.name));
                continue;
            };
            if !self.bindings.assignable(&declared, &given) {
                let name = &field.name;
                let message = format!("expected type of field '{name}' is '{declared}' but provided type is '{given}'");
                self.problem(field.at, message);
            }
        }
        Type::Object(object)
    }

    fn fold(&mut self, fold: &Fold) -> Type {
        let range = self.check(&fold.range);
        let accumulated = self.check(&fold.initial);
        let range = self.bindings.resolve(&range, false);
        let two = fold.second.is_some();
        let (first, second) = match &range {
            Type::List(of) if two => (Type::Int, (**of).clone()),
            Type::List(of) => ((**of).clone(), Type::Error),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Open(_) => {
                self.bindings.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.problem(fold.range.at, message);
                (Type::Error, Type::Error)
            }
        };
        let depth = self.scopes.len();
        self.scopes.push((fold.accumulator.clone(), accumulated.clone()));
        self.scopes.push((fold.variable.clone(), first));
        self.scopes.extend(fold.second.clone().map(|name| (name, second)));
        let condition = self.check(&fold.condition);
        self.assert(&fold.condition, &Type::Bool, &condition);
        let step = self.check(&fold.step);
        self.assert(&fold.step, &accumulated, &step);
        self.scopes.truncate(depth + 1);
        let result = self.check(&fold.result);
        self.scopes.truncate(depth);
        self.bindings.resolve(&result, false)
    }

    fn assert(&mut self, expr: &Expr, expected: &Type, found: &Type) {
        if !self.bindings.assignable(expected, found) {
            self.mismatch(expr.at, expected, found);
        }
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// The open types of an overload under new numbers.
fn numbered_from(kind: &Type, base: u32) -> Type {
    match kind {
        Type::Open(number) => Type::Open(base + number),
        Type::List(of) => Type::list(numbered_from(of, base)),
        Type::Optional(of) => Type::optional(numbered_from(of, base)),
        Type::Map(key, value) => Type::map(numbered_from(key, base), numbered_from(value, base)),
        Type::Type(Some(of)) => Type::Type(Some(numbered_from(of, base).into())),
        other => other.clone(),
    }
}
