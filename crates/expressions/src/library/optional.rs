//! Values that may be missing.

use crate::ast::operator::{INDEX, OPT_INDEX};
use crate::declarations::{Row, row};
use crate::evaluate::{Evaluated, Meter, failed, no_such_overload};
use crate::value::Value;

pub(crate) const ROWS: &[Row] = &[
    row("optional.of", &["(V) optional(V)"], |_, args| match args {
        [value] => Ok(Value::some(value.clone())),
        _ => no_such_overload(),
    }),
    row("optional.ofNonZeroValue", &["(V) optional(V)"], |_, args| match args {
        [value] if is_zero(value) => Ok(Value::Optional(None)),
        [value] => Ok(Value::some(value.clone())),
        _ => no_such_overload(),
    }),
    row("optional.none", &["() optional(V)"], |_, _| Ok(Value::Optional(None))),
    row("optional.unwrap", &["(list(optional(V))) list(V)"], unwrap),
    row("unwrapOpt", &["list(optional(V)).() list(V)"], unwrap),
    row("value", &["optional(V).() V"], |_, args| match args {
        [Value::Optional(Some(value))] => Ok((**value).clone()),
        [Value::Optional(None)] => failed("optional.none() dereference"),
        _ => no_such_overload(),
    }),
    row("hasValue", &["optional(V).() bool"], |_, args| match args {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => no_such_overload(),
    }),
    row("or", &["optional(V).(optional(V)) optional(V)"], |_, _| no_such_overload()),
    row("orValue", &["optional(V).(V) V"], |_, _| no_such_overload()),
    row("first", &["list(V).() optional(V)"], |_, args| match args {
        [Value::List(list)] => Ok(Value::Optional(list.get(0).map(Into::into))),
        _ => no_such_overload(),
    }),
    row("last", &["list(V).() optional(V)"], |_, args| match args {
        [Value::List(list)] => Ok(Value::Optional(list.len().checked_sub(1).and_then(|i| list.get(i)).map(Into::into))),
        _ => no_such_overload(),
    }),
    row(
        OPT_INDEX,
        &[
            "(list(V), int) optional(V)",
            "(optional(list(V)), int) optional(V)",
            "(map(K, V), K) optional(V)",
            "(optional(map(K, V)), K) optional(V)",
        ],
        |_, _| no_such_overload(),
    ),
    row(INDEX, &["(optional(list(V)), int) optional(V)", "(optional(map(K, V)), K) optional(V)"], |_, _| {
        no_such_overload()
    }),
];

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Optional(None) => true,
        Value::Bool(truth) => !truth,
        Value::Int(number) => *number == 0,
        Value::Uint(number) => *number == 0,
        Value::Double(number) => *number == 0.0,
        Value::Duration(length) => length.nanos() == 0,
        Value::Timestamp(time) => time.is_zero(),
        other => other.size() == Some(0),
    }
}

fn unwrap<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    let [Value::List(list)] = args else { return no_such_overload() };
    let mut values = Vec::new();
    for value in list.iter() {
        match value {
            Value::Optional(inner) => values.extend(inner.map(|inner| (*inner).clone())),
            other => return failed(format!("value {} is not optional", other.type_name())),
        }
    }
    Ok(Value::list(values))
}
