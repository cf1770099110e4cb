//! Operators and the functions that CEL itself has.

use std::cmp::Ordering;
use std::sync::Arc;

use object_model::time::{Duration, Time};

use crate::EvaluationError;
use crate::ast::operator::*;
use crate::declarations::{Row, row};
use crate::evaluate::{Evaluated, Meter, contains, failed, no_such_overload};
use crate::value::{Key, LibraryValue, List, Map, Value};

const ORDERED: &[&str] = &[
    "(bool, bool) bool",
    "(int, int) bool",
    "(int, double) bool",
    "(int, uint) bool",
    "(uint, uint) bool",
    "(uint, double) bool",
    "(uint, int) bool",
    "(double, double) bool",
    "(double, int) bool",
    "(double, uint) bool",
    "(string, string) bool",
    "(bytes, bytes) bool",
    "(timestamp, timestamp) bool",
    "(duration, duration) bool",
];

pub(crate) const ROWS: &[Row] = &[
    row(CONDITIONAL, &["(bool, A, A) A"], unreachable),
    row(AND, &["(bool, bool) bool"], unreachable),
    row(OR, &["(bool, bool) bool"], unreachable),
    row(NOT_STRICTLY_FALSE, &["(bool) bool"], unreachable),
    row(INDEX, &["(list(A), int) A", "(map(A, B), A) B"], unreachable),
    row(NOT, &["(bool) bool"], not),
    row(NEGATE, &["(double) double", "(int) int"], negate),
    row(EQUALS, &["(A, A) bool"], |meter, args| equality(meter, args, true)),
    row(NOT_EQUALS, &["(A, A) bool"], |meter, args| equality(meter, args, false)),
    row(LESS, ORDERED, |_, args| ordered(args, |order| order == Ordering::Less)),
    row(LESS_EQUALS, ORDERED, |_, args| ordered(args, |order| order != Ordering::Greater)),
    row(GREATER, ORDERED, |_, args| ordered(args, |order| order == Ordering::Greater)),
    row(GREATER_EQUALS, ORDERED, |_, args| ordered(args, |order| order != Ordering::Less)),
    row(IN, &["(A, list(A)) bool", "(A, map(A, B)) bool"], is_in),
    row(
        ADD,
        &[
            "(bytes, bytes) bytes",
            "(double, double) double",
            "(duration, duration) duration",
            "(duration, timestamp) timestamp",
            "(timestamp, duration) timestamp",
            "(int, int) int",
            "(list(A), list(A)) list(A)",
            "(string, string) string",
            "(uint, uint) uint",
        ],
        add,
    ),
    row(
        SUBTRACT,
        &[
            "(double, double) double",
            "(duration, duration) duration",
            "(int, int) int",
            "(timestamp, duration) timestamp",
            "(timestamp, timestamp) duration",
            "(uint, uint) uint",
        ],
        subtract,
    ),
    row(MULTIPLY, &["(double, double) double", "(int, int) int", "(uint, uint) uint"], multiply),
    row(DIVIDE, &["(double, double) double", "(int, int) int", "(uint, uint) uint"], divide),
    row(MODULO, &["(int, int) int", "(uint, uint) uint"], modulo),
    row(
        "size",
        &[
            "(bytes) int",
            "bytes.() int",
            "(list(A)) int",
            "list(A).() int",
            "(map(A, B)) int",
            "map(A, B).() int",
            "(string) int",
            "string.() int",
        ],
        size,
    ),
    row("contains", &["string.(string) bool"], |_, args| texts(args, |a, b| a.contains(b))),
    row("startsWith", &["string.(string) bool"], |_, args| texts(args, |a, b| a.starts_with(b))),
    row("endsWith", &["string.(string) bool"], |_, args| texts(args, |a, b| a.ends_with(b))),
];

/// What the evaluator does itself, since not all arguments are always looked at.
fn unreachable<'v>(_: &mut Meter, _: &[Value<'v>]) -> Evaluated<'v> {
    no_such_overload()
}

fn not<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    match args {
        [Value::Bool(truth)] => Ok(Value::Bool(!truth)),
        _ => no_such_overload(),
    }
}

fn negate<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    match args {
        [Value::Int(number)] => int(number.checked_neg()),
        [Value::Double(number)] => Ok(Value::Double(-number)),
        _ => no_such_overload(),
    }
}

fn texts<'v>(args: &[Value<'v>], holds: fn(&str, &str) -> bool) -> Evaluated<'v> {
    match args {
        [Value::String(a), Value::String(b)] => Ok(Value::Bool(holds(a, b))),
        _ => no_such_overload(),
    }
}

fn size<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    match args {
        [value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))] => {
            Ok(Value::Int(value.size().unwrap_or(0) as i64))
        }
        _ => no_such_overload(),
    }
}

fn equality<'v>(meter: &mut Meter, args: &[Value<'v>], wanted: bool) -> Evaluated<'v> {
    match args {
        [a, b] => Ok(Value::Bool(equal(meter, a, b)? == wanted)),
        _ => no_such_overload(),
    }
}

/// Are two values the same? Numbers are compared across their types, and nothing else is.
pub(crate) fn equal(meter: &mut Meter, a: &Value<'_>, b: &Value<'_>) -> Result<bool, EvaluationError> {
    meter.work()?;
    Ok(match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(a), Value::String(b)) => **a == **b,
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::List(a), Value::List(b)) => equal_lists(meter, a, b)?,
        (Value::Map(a), Value::Map(b)) => equal_maps(meter, a, b)?,
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => equal(meter, a, b)?,
        (Value::Library(a), Value::Library(b)) => same(a, b),
        _ => numbers(a, b) == Some(Ordering::Equal),
    })
}

fn equal_lists(meter: &mut Meter, a: &List<'_>, b: &List<'_>) -> Result<bool, EvaluationError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    if a.is(b) {
        return Ok(true);
    }
    for (a, b) in a.iter().zip(b.iter()) {
        if !equal(meter, &a, &b)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps(meter: &mut Meter, a: &Map<'_>, b: &Map<'_>) -> Result<bool, EvaluationError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (key, value) in a.iter() {
        match b.get(&key) {
            Some(other) if equal(meter, &value, &other)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn same(a: &LibraryValue, b: &LibraryValue) -> bool {
    match (a, b) {
        (LibraryValue::Url(a), LibraryValue::Url(b)) => a == b,
        (LibraryValue::Ip(a), LibraryValue::Ip(b)) => a == b,
        (LibraryValue::Cidr(a), LibraryValue::Cidr(b)) => a == b,
        (LibraryValue::Quantity(a), LibraryValue::Quantity(b)) => a == b,
        (LibraryValue::Semver(a), LibraryValue::Semver(b)) => a.compare(b) == Ordering::Equal,
        (LibraryValue::Format(a), LibraryValue::Format(b)) => a.name == b.name,
        (LibraryValue::PathCheck(a), LibraryValue::PathCheck(b)) => Arc::ptr_eq(a, b),
        (LibraryValue::GroupCheck(a), LibraryValue::GroupCheck(b)) => Arc::ptr_eq(a, b),
        (LibraryValue::ResourceCheck(a), LibraryValue::ResourceCheck(b)) => Arc::ptr_eq(a, b),
        (LibraryValue::Decision(a), LibraryValue::Decision(b)) => Arc::ptr_eq(a, b),
        _ => false,
    }
}

fn numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    let whole = |value: &Value<'_>| match value {
        Value::Int(number) => Some(i128::from(*number)),
        Value::Uint(number) => Some(i128::from(*number)),
        _ => None,
    };
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), b) => with_whole(*a, whole(b)?),
        (a, Value::Double(b)) => with_whole(*b, whole(a)?).map(Ordering::reverse),
        _ => Some(whole(a)?.cmp(&whole(b)?)),
    }
}

/// Exactly, where a conversion to a double would round.
fn with_whole(double: f64, whole: i128) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    if double.abs() > 1e20 {
        return Some(if double > 0.0 { Ordering::Greater } else { Ordering::Less });
    }
    let cut = double.trunc() as i128;
    Some(cut.cmp(&whole).then_with(|| double.fract().partial_cmp(&0.0).unwrap_or(Ordering::Equal)))
}

/// How two values of one kind stand to each other; none if they do not.
pub(crate) fn compare(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    Some(match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => (**a).cmp(&**b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::Duration(a), Value::Duration(b)) => a.nanos().cmp(&b.nanos()),
        _ => return numbers(a, b),
    })
}

fn ordered<'v>(args: &[Value<'v>], holds: fn(Ordering) -> bool) -> Evaluated<'v> {
    let [a, b] = args else { return no_such_overload() };
    match compare(a, b) {
        Some(order) => Ok(Value::Bool(holds(order))),
        None if matches!((a, b), (Value::Double(_), _) | (_, Value::Double(_))) => {
            failed("NaN values cannot be ordered")
        }
        None => no_such_overload(),
    }
}

fn is_in<'v>(meter: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    match args {
        [value, Value::List(list)] => contains(meter, list, value),
        [value, Value::Map(map)] => Ok(Value::Bool(map.get(value).is_some())),
        _ => no_such_overload(),
    }
}

fn int<'v>(number: Option<i64>) -> Evaluated<'v> {
    number.map_or_else(|| failed("integer overflow"), |number| Ok(Value::Int(number)))
}

fn uint<'v>(number: Option<u64>) -> Evaluated<'v> {
    number.map_or_else(|| failed("unsigned integer overflow"), |number| Ok(Value::Uint(number)))
}

fn length<'v>(nanos: Option<i64>) -> Evaluated<'v> {
    nanos.map_or_else(|| failed("duration overflow"), |nanos| Ok(Value::Duration(Duration::from_nanos(nanos))))
}

/// The moments that CEL knows: the years 1 to 9999.
pub(crate) fn moment<'v>(time: Time) -> Evaluated<'v> {
    if (-62_135_596_800..=253_402_300_799).contains(&time.unix_seconds()) {
        Ok(Value::Timestamp(time))
    } else {
        failed("timestamp overflow")
    }
}

pub(crate) fn add<'v>(meter: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    match args {
        [Value::Int(a), Value::Int(b)] => int(a.checked_add(*b)),
        [Value::Uint(a), Value::Uint(b)] => uint(a.checked_add(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a + b)),
        [Value::String(a), Value::String(b)] => {
            meter.build(a.len() + b.len())?;
            Ok(Value::text([&**a, &**b].concat()))
        }
        [Value::Bytes(a), Value::Bytes(b)] => {
            meter.build(a.len() + b.len())?;
            Ok(Value::Bytes([&**a, &**b].concat().into()))
        }
        [Value::List(a), Value::List(b)] => {
            meter.build((a.len() + b.len()) * size_of::<Value<'_>>())?;
            Ok(Value::list(a.iter().chain(b.iter()).collect()))
        }
        [Value::Duration(a), Value::Duration(b)] => length(a.nanos().checked_add(b.nanos())),
        [Value::Timestamp(time), Value::Duration(by)] | [Value::Duration(by), Value::Timestamp(time)] => {
            moment(time.plus(*by))
        }
        _ => no_such_overload(),
    }
}

fn subtract<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    match args {
        [Value::Int(a), Value::Int(b)] => int(a.checked_sub(*b)),
        [Value::Uint(a), Value::Uint(b)] => uint(a.checked_sub(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a - b)),
        [Value::Duration(a), Value::Duration(b)] => length(a.nanos().checked_sub(b.nanos())),
        [Value::Timestamp(time), Value::Duration(by)] => match by.nanos().checked_neg() {
            Some(nanos) => moment(time.plus(Duration::from_nanos(nanos))),
            None => failed("timestamp overflow"),
        },
        [Value::Timestamp(a), Value::Timestamp(b)] => match a.since(*b) {
            saturated if matches!(saturated.nanos(), i64::MIN | i64::MAX) => failed("duration overflow"),
            length => Ok(Value::Duration(length)),
        },
        _ => no_such_overload(),
    }
}

fn multiply<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    match args {
        [Value::Int(a), Value::Int(b)] => int(a.checked_mul(*b)),
        [Value::Uint(a), Value::Uint(b)] => uint(a.checked_mul(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a * b)),
        _ => no_such_overload(),
    }
}

fn divide<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => failed("division by zero"),
        [Value::Int(a), Value::Int(b)] => int(a.checked_div(*b)),
        [Value::Uint(a), Value::Uint(b)] => uint(a.checked_div(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a / b)),
        _ => no_such_overload(),
    }
}

fn modulo<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => failed("modulus by zero"),
        [Value::Int(a), Value::Int(b)] => int(a.checked_rem(*b)),
        [Value::Uint(a), Value::Uint(b)] => uint(a.checked_rem(*b)),
        _ => no_such_overload(),
    }
}

/// The key of a map built by a function.
pub(crate) fn text_key(text: &str) -> (Key, Value<'static>) {
    let shared: Arc<str> = text.into();
    (Key::String(shared.clone()), Value::text(shared))
}
