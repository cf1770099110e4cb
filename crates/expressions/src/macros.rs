//! Calls that are short for a larger tree: `has`, `all`, `exists`, `map`, `filter`, `optMap`, `cel.bind` and their kin.
//!
//! Every macro over a range becomes a [`Fold`], so that checker and evaluator know one form only.

use crate::ast::{Entry, Expr, Fold, Kind, Literal, operator};
use crate::parser::Parser;

/// Hidden from expressions: no identifier can be spelled so.
const ACCUMULATOR: &str = "@result";
const UNUSED: &str = "#unused";
const SORTED: &str = "@__sortBy_input__";

/// `f(…)`.
pub(crate) fn global_call(p: &mut Parser<'_, '_>, at: usize, name: &str, mut args: Vec<Expr>) -> Expr {
    if name != "has" || args.len() != 1 {
        return p.call(at, name, args);
    }
    let argument = args.remove(0);
    match argument.kind {
        Kind::Select { operand, field, test: false } => p.node(at, Kind::Select { operand, field, test: true }),
        _ => p.broken(argument.at, "invalid argument to has() macro"),
    }
}

/// `target.f(…)`.
pub(crate) fn member_call(p: &mut Parser<'_, '_>, at: usize, name: &str, target: Expr, args: Vec<Expr>) -> Expr {
    let expanded = match (name, args.len()) {
        ("all" | "exists" | "exists_one" | "existsOne" | "filter", 2) | ("map", 2 | 3) => {
            one_variable(p, at, name, target, args)
        }
        ("all" | "exists" | "exists_one" | "existsOne", 3)
        | ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => two_variables(p, at, name, target, args),
        ("optMap" | "optFlatMap", 2) => optional(p, at, name, target, args),
        ("sortBy", 2) => sort_by(p, at, target, args),
        ("bind", 3) if p.dialect.bindings && matches!(&target.kind, Kind::Ident(name) if name == "cel") => {
            bind(p, at, args)
        }
        _ => {
            let kind = Kind::Call { target: Some(Box::new(target)), function: name.to_owned(), args };
            return p.node(at, kind);
        }
    };
    expanded.unwrap_or_else(|(at, message)| p.broken(at, message))
}

type Expanded = Result<Expr, (usize, String)>;

/// The name of a loop variable.
fn variable(expr: &Expr, otherwise: &str) -> Result<String, (usize, String)> {
    match &expr.kind {
        Kind::Ident(name) if name == "__result__" => {
            Err((expr.at, "iteration variable overwrites accumulator variable".to_owned()))
        }
        Kind::Ident(name) if !name.starts_with('.') => Ok(name.clone()),
        _ => Err((expr.at, otherwise.to_owned())),
    }
}

fn one_variable(p: &mut Parser<'_, '_>, at: usize, name: &str, range: Expr, args: Vec<Expr>) -> Expanded {
    let mut args = args.into_iter();
    let (Some(name_of), Some(first), last) = (args.next(), args.next(), args.next()) else {
        return Err((at, "missing arguments".to_owned()));
    };
    let variable = variable(&name_of, "argument is not an identifier")?;
    let kept = |p: &mut Parser<'_, '_>| p.ident(name_of.at, &variable);
    let loop_ = Loop { at, range, variable: variable.clone(), second: None };
    Ok(match (name, last) {
        ("filter", _) => {
            let element = kept(p);
            collect(p, loop_, Some(first), element)
        }
        ("map", Some(transform)) => collect(p, loop_, Some(first), transform),
        ("map", None) => collect(p, loop_, None, first),
        _ => quantifier(p, loop_, name, first),
    })
}

fn two_variables(p: &mut Parser<'_, '_>, at: usize, name: &str, range: Expr, args: Vec<Expr>) -> Expanded {
    let mut args = args.into_iter();
    let (Some(a), Some(b), Some(first), last) = (args.next(), args.next(), args.next(), args.next()) else {
        return Err((at, "missing arguments".to_owned()));
    };
    let one = variable(&a, "argument must be a simple name")?;
    let two = variable(&b, "argument must be a simple name")?;
    if one == two {
        return Err((b.at, format!("duplicate variable name: {one}")));
    }
    let (filter, transform) = match last {
        Some(last) => (Some(first), last),
        None => (None, first),
    };
    let loop_ = Loop { at, range, variable: one.clone(), second: Some(two) };
    Ok(match name {
        "transformList" => collect(p, loop_, filter, transform),
        "transformMap" => {
            let key = p.ident(a.at, &one);
            insert(p, loop_, filter, vec![key, transform])
        }
        "transformMapEntry" => insert(p, loop_, filter, vec![transform]),
        _ => quantifier(p, loop_, name, transform),
    })
}

/// What all folds of one macro call have in common.
struct Loop {
    at: usize,
    range: Expr,
    variable: String,
    second: Option<String>,
}

impl Loop {
    fn over(self, p: &mut Parser<'_, '_>, initial: Expr, condition: Expr, step: Expr, result: Expr) -> Expr {
        let Loop { at, range, variable, second } = self;
        let accumulator = ACCUMULATOR.to_owned();
        p.fold(at, Fold { range, variable, second, accumulator, initial, condition, step, result })
    }
}

fn quantifier(p: &mut Parser<'_, '_>, loop_: Loop, name: &str, predicate: Expr) -> Expr {
    let at = loop_.at;
    let accumulated = |p: &mut Parser<'_, '_>| p.ident(at, ACCUMULATOR);
    let (before, again) = (accumulated(p), accumulated(p));
    match name {
        "all" | "exists" => {
            let all = name == "all";
            let initial = p.literal(at, Literal::Bool(all));
            let tested = if all { before } else { p.call(at, operator::NOT, vec![before]) };
            let condition = p.call(at, operator::NOT_STRICTLY_FALSE, vec![tested]);
            let step = p.call(at, if all { operator::AND } else { operator::OR }, vec![again, predicate]);
            let result = accumulated(p);
            loop_.over(p, initial, condition, step, result)
        }
        _ => {
            let initial = p.literal(at, Literal::Int(0));
            let condition = p.literal(at, Literal::Bool(true));
            let one = p.literal(at, Literal::Int(1));
            let more = p.call(at, operator::ADD, vec![before, one]);
            let step = p.call(at, operator::CONDITIONAL, vec![predicate, more, again]);
            let (counted, one) = (accumulated(p), p.literal(at, Literal::Int(1)));
            let result = p.call(at, operator::EQUALS, vec![counted, one]);
            loop_.over(p, initial, condition, step, result)
        }
    }
}

/// A list of what the transformation makes of every element that passes the filter.
fn collect(p: &mut Parser<'_, '_>, loop_: Loop, filter: Option<Expr>, transform: Expr) -> Expr {
    let at = loop_.at;
    let initial = p.list(at, Vec::new());
    let (before, one) = (p.ident(at, ACCUMULATOR), p.list(at, vec![transform]));
    let step = p.call(at, operator::ADD, vec![before, one]);
    accumulate(p, loop_, filter, initial, step)
}

/// A map with what the transformation makes of every element that passes the filter.
fn insert(p: &mut Parser<'_, '_>, loop_: Loop, filter: Option<Expr>, inserted: Vec<Expr>) -> Expr {
    let at = loop_.at;
    let initial = p.node(at, Kind::Map { entries: Vec::<Entry>::new() });
    let mut args = vec![p.ident(at, ACCUMULATOR)];
    args.extend(inserted);
    let step = p.call(at, operator::MAP_INSERT, args);
    accumulate(p, loop_, filter, initial, step)
}

fn accumulate(p: &mut Parser<'_, '_>, loop_: Loop, filter: Option<Expr>, initial: Expr, step: Expr) -> Expr {
    let at = loop_.at;
    let condition = p.literal(at, Literal::Bool(true));
    let step = match filter {
        None => step,
        Some(filter) => {
            let same = p.ident(at, ACCUMULATOR);
            p.call(at, operator::CONDITIONAL, vec![filter, step, same])
        }
    };
    let result = p.ident(at, ACCUMULATOR);
    loop_.over(p, initial, condition, step, result)
}

/// A name for a value: a fold over nothing whose accumulator is the name.
fn named(p: &mut Parser<'_, '_>, at: usize, name: String, value: Expr, body: Expr) -> Expr {
    let range = p.list(at, Vec::new());
    let condition = p.literal(at, Literal::Bool(false));
    let step = p.ident(at, &name);
    let variable = UNUSED.to_owned();
    p.fold(at, Fold { range, variable, second: None, accumulator: name, initial: value, condition, step, result: body })
}

fn bind(p: &mut Parser<'_, '_>, at: usize, args: Vec<Expr>) -> Expanded {
    let mut args = args.into_iter();
    let (Some(name), Some(value), Some(body)) = (args.next(), args.next(), args.next()) else {
        return Err((at, "missing arguments".to_owned()));
    };
    match name.kind {
        Kind::Ident(name) if !name.starts_with('.') => Ok(named(p, at, name, value, body)),
        _ => Err((name.at, "cel.bind() variable names must be simple identifiers".to_owned())),
    }
}

fn optional(p: &mut Parser<'_, '_>, at: usize, name: &str, target: Expr, args: Vec<Expr>) -> Expanded {
    let mut args = args.into_iter();
    let (Some(variable), Some(body)) = (args.next(), args.next()) else {
        return Err((at, "missing arguments".to_owned()));
    };
    let Kind::Ident(bound) = variable.kind else {
        return Err((variable.at, format!("{name}() variable name must be a simple identifier")));
    };
    let member = |p: &mut Parser<'_, '_>, target: Expr, function: &str| {
        let kind = Kind::Call { target: Some(Box::new(target)), function: function.to_owned(), args: Vec::new() };
        p.node(at, kind)
    };
    let again = p.copy(&target);
    let has_value = member(p, target, "hasValue");
    let value = member(p, again, "value");
    let mut mapped = named(p, at, bound, value, body);
    if name == "optMap" {
        mapped = p.call(at, "optional.of", vec![mapped]);
    }
    let none = p.call(at, "optional.none", Vec::new());
    Ok(p.call(at, operator::CONDITIONAL, vec![has_value, mapped, none]))
}

fn sort_by(p: &mut Parser<'_, '_>, at: usize, target: Expr, args: Vec<Expr>) -> Expanded {
    let sortable = matches!(
        target.kind,
        Kind::List { .. } | Kind::Select { .. } | Kind::Ident(_) | Kind::Fold(_) | Kind::Call { .. } | Kind::Broken
    );
    if !sortable {
        let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err((target.at, message.to_owned()));
    }
    let (of_keys, of_values) = (p.ident(at, SORTED), p.ident(at, SORTED));
    let keys = one_variable(p, at, "map", of_keys, args)?;
    let kind =
        Kind::Call { target: Some(Box::new(of_values)), function: operator::SORT_BY.to_owned(), args: vec![keys] };
    let sorted = p.node(at, kind);
    Ok(named(p, at, SORTED.to_owned(), target, sorted))
}
