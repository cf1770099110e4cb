//! What can be said of constants without running anything: durations, moments, regular expressions and format strings
//! that are none, and literals that mix types.

use object_model::schema::validate::Pattern;
use object_model::time::{Duration, Time};

use crate::ast::{Expr, Kind, Literal};
use crate::checker::Checked;
use crate::library::strings::{Piece, complaint, pieces};
use crate::source::{Place, Problems};
use crate::types::{Type, equivalent};

pub(crate) fn check(root: &Expr, checked: &Checked, problems: &mut Problems<'_>) {
    let mut checker = Checker { checked, problems };
    checker.walk(root, false);
}

struct Checker<'c, 'p, 's> {
    checked: &'c Checked,
    problems: &'p mut Problems<'s>,
}

impl Checker<'_, '_, '_> {
    /// Within the arguments of `format`, literals may mix types.
    fn walk(&mut self, expr: &Expr, within_format: bool) {
        let mut is_format = within_format;
        match &expr.kind {
            Kind::Call { target, function, args } => {
                is_format |= function == "format";
                self.call(expr, target.as_deref(), function, args);
            }
            Kind::List { elements } if !within_format => {
                let types =
                    elements.iter().map(|element| (element.value.at, self.kind(&element.value, element.optional)));
                let types: Vec<_> = types.collect();
                self.alike(types);
            }
            Kind::Map { entries } if !within_format => {
                let keys: Vec<_> = entries.iter().map(|e| (e.key.at, self.kind(&e.key, false))).collect();
                let values: Vec<_> = entries.iter().map(|e| (e.value.at, self.kind(&e.value, e.optional))).collect();
                self.alike(keys);
                self.alike(values);
            }
            _ => {}
        }
        for part in expr.parts() {
            self.walk(part, is_format);
        }
    }

    fn kind(&self, expr: &Expr, optional: bool) -> Type {
        let kind = self.checked.types.get(&expr.id).cloned().unwrap_or(Type::Dyn);
        if optional { kind.unwrap_optional().0 } else { kind }
    }

    fn alike(&mut self, types: Vec<(usize, Type)>) {
        let Some((_, first)) = types.first() else { return };
        if let Some((at, other)) = types.iter().find(|(_, kind)| !equivalent(first, kind)) {
            self.problems.add(Place::At(*at), format!("expected type '{first}' but found '{other}'"));
        }
    }

    fn call(&mut self, expr: &Expr, target: Option<&Expr>, function: &str, args: &[Expr]) {
        let constant = |expr: Option<&Expr>| match expr.map(|expr| (&expr.kind, expr.at)) {
            Some((Kind::Literal(Literal::String(text)), at)) => Some((text.clone(), at)),
            _ => None,
        };
        let (argument, fits): (_, fn(&str) -> bool) = match (function, target) {
            ("duration", None) => (args.first(), |text| Duration::parse(text).is_ok()),
            ("timestamp", None) => (args.first(), |text| Time::parse(text).is_ok()),
            ("matches", Some(_)) => (args.first(), |text| Pattern::check(text).is_ok()),
            ("matches", None) => (args.get(1), |text| Pattern::check(text).is_ok()),
            ("format", Some(target)) => {
                if let (Some((text, _)), Some(Kind::List { elements })) =
                    (constant(Some(target)), args.first().map(|arg| &arg.kind))
                {
                    let values: Vec<&Expr> = elements.iter().map(|element| &element.value).collect();
                    self.format(expr, &text, &values);
                }
                return;
            }
            _ => return,
        };
        if let Some((text, at)) = constant(argument)
            && !fits(&text)
        {
            self.problems.add(Place::At(at), format!("invalid {function} argument"));
        }
    }

    fn format(&mut self, call: &Expr, text: &str, values: &[&Expr]) {
        let pieces = match pieces(text) {
            Ok(pieces) => pieces,
            Err(message) => return self.problems.add(Place::At(call.at), message),
        };
        let letters = pieces.iter().filter_map(|piece| match piece {
            Piece::Directive(letter, _) => Some(*letter),
            Piece::Text(_) => None,
        });
        let mut used = 0;
        for (i, letter) in letters.enumerate() {
            let Some(value) = values.get(i) else {
                return self.problems.add(Place::At(call.at), format!("index {i} out of range"));
            };
            used += 1;
            let kind = self.kind(value, false);
            if !takes(letter, &kind) {
                let message = format!("error during formatting: {}, was given {kind}", complaint(letter));
                return self.problems.add(Place::At(value.at), message);
            }
        }
        if values.len() > used {
            let message =
                format!("too many arguments supplied to string.format (expected {used}, got {})", values.len());
            self.problems.add(Place::At(call.at), message);
        }
    }
}

fn takes(letter: char, kind: &Type) -> bool {
    match letter {
        _ if kind.is_dyn() => true,
        's' => !matches!(kind, Type::Object(_) | Type::Library(_) | Type::Optional(_)),
        'b' => matches!(kind, Type::Int | Type::Uint | Type::Bool),
        'd' | 'o' => matches!(kind, Type::Int | Type::Uint),
        'f' | 'e' => matches!(kind, Type::Double | Type::String),
        _ => matches!(kind, Type::Int | Type::Uint | Type::String | Type::Bytes),
    }
}
