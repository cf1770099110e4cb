//! Quantities of resources.

use std::cmp::Ordering;

use object_model::quantity::{Format, Quantity};

use crate::EvaluationError;
use crate::declarations::{Row, row};
use crate::evaluate::{Evaluated, failed, no_such_overload};
use crate::value::{LibraryValue, Value};

pub(crate) const ROWS: &[Row] = &[
    row("quantity", &["(string) Quantity"], |_, args| match args {
        [Value::String(text)] => match Quantity::parse(text) {
            Ok(quantity) => Ok(Value::Library(LibraryValue::Quantity(quantity))),
            Err(why) => failed(why.to_string()),
        },
        _ => no_such_overload(),
    }),
    row("isQuantity", &["(string) bool"], |_, args| match args {
        [Value::String(text)] => Ok(Value::Bool(Quantity::parse(text).is_ok())),
        _ => no_such_overload(),
    }),
    row("sign", &["(Quantity) int"], |_, args| one(args).map(|quantity| Value::Int(quantity.sign().into()))),
    row("isInteger", &["Quantity.() bool"], |_, args| {
        one(args).map(|quantity| Value::Bool(quantity.as_i64().is_some()))
    }),
    row("asInteger", &["Quantity.() int"], |_, args| match one(args)?.as_i64() {
        Some(number) => Ok(Value::Int(number)),
        None => failed("cannot convert value to integer"),
    }),
    row("asApproximateFloat", &["Quantity.() double"], |_, args| {
        one(args).map(|quantity| Value::Double(quantity.as_f64()))
    }),
    row("isGreaterThan", &["Quantity.(Quantity) bool"], |_, args| two(args).map(|(a, b)| Value::Bool(a > b))),
    row("isLessThan", &["Quantity.(Quantity) bool"], |_, args| two(args).map(|(a, b)| Value::Bool(a < b))),
    row("compareTo", &["Quantity.(Quantity) int"], |_, args| {
        two(args).map(|(a, b)| {
            Value::Int(match a.cmp(&b) {
                Ordering::Less => -1,
                Ordering::Equal => 0,
                Ordering::Greater => 1,
            })
        })
    }),
    row("add", &["Quantity.(Quantity) Quantity", "Quantity.(int) Quantity"], |_, args| {
        changed(args, |quantity, other| quantity.add(other))
    }),
    row("sub", &["Quantity.(Quantity) Quantity", "Quantity.(int) Quantity"], |_, args| {
        changed(args, |quantity, other| quantity.sub(other))
    }),
];

fn one(args: &[Value<'_>]) -> Result<Quantity, EvaluationError> {
    match args {
        [Value::Library(LibraryValue::Quantity(quantity))] => Ok(*quantity),
        _ => no_such_overload(),
    }
}

/// A quantity, and another or a whole number.
fn two(args: &[Value<'_>]) -> Result<(Quantity, Quantity), EvaluationError> {
    match args {
        [a, Value::Int(number)] => Ok((one(std::slice::from_ref(a))?, Quantity::new(*number, Format::DecimalSi))),
        [a, b] => Ok((one(std::slice::from_ref(a))?, one(std::slice::from_ref(b))?)),
        _ => no_such_overload(),
    }
}

fn changed<'v>(args: &[Value<'v>], change: fn(&mut Quantity, &Quantity)) -> Evaluated<'v> {
    let (mut quantity, other) = two(args)?;
    change(&mut quantity, &other);
    Ok(Value::Library(LibraryValue::Quantity(quantity)))
}
