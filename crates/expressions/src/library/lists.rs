//! Lists: Kubernetes' own functions, the extended ones, sets, and the maps that macros build.

use std::cmp::Ordering;

use super::standard::{add, compare, equal};
use crate::EvaluationError;
use crate::ast::operator::{MAP_INSERT, SORT_BY};
use crate::declarations::{Row, row};
use crate::evaluate::{Evaluated, Meter, contains, failed, no_such_overload};
use crate::value::{List, Value};

/// `$list(T).() gives` for every type that has an order.
macro_rules! comparable {
    ($before:literal, $after:literal) => {
        &[
            concat!($before, "int", $after, "int"),
            concat!($before, "uint", $after, "uint"),
            concat!($before, "double", $after, "double"),
            concat!($before, "bool", $after, "bool"),
            concat!($before, "duration", $after, "duration"),
            concat!($before, "timestamp", $after, "timestamp"),
            concat!($before, "string", $after, "string"),
            concat!($before, "bytes", $after, "bytes"),
        ]
    };
}

pub(crate) const KUBERNETES: &[Row] = &[
    row(
        "isSorted",
        &[
            "list(int).() bool",
            "list(uint).() bool",
            "list(double).() bool",
            "list(bool).() bool",
            "list(duration).() bool",
            "list(timestamp).() bool",
            "list(string).() bool",
            "list(bytes).() bool",
        ],
        is_sorted,
    ),
    row(
        "sum",
        &["list(int).() int", "list(uint).() uint", "list(double).() double", "list(duration).() duration"],
        sum,
    ),
    row("max", comparable!("list(", ").() "), |_, args| extreme(args, "max", Ordering::Less)),
    row("min", comparable!("list(", ").() "), |_, args| extreme(args, "min", Ordering::Greater)),
    row("indexOf", &["list(A).(A) int"], |meter, args| index_of(meter, args, false)),
    row("lastIndexOf", &["list(A).(A) int"], |meter, args| index_of(meter, args, true)),
];

pub(crate) const ROWS: &[Row] = &[
    row("slice", &["list(T).(int, int) list(T)"], slice),
    row("flatten", &["list(list(T)).() list(T)", "list(dyn).(int) list(dyn)"], flatten),
    row(
        "sort",
        &[
            "list(int).() list(int)",
            "list(uint).() list(uint)",
            "list(double).() list(double)",
            "list(bool).() list(bool)",
            "list(duration).() list(duration)",
            "list(timestamp).() list(timestamp)",
            "list(string).() list(string)",
            "list(bytes).() list(bytes)",
        ],
        |_, args| match args {
            [Value::List(list)] => sorted(list, list),
            _ => no_such_overload(),
        },
    ),
    row(
        SORT_BY,
        &[
            "list(T).(list(int)) list(T)",
            "list(T).(list(uint)) list(T)",
            "list(T).(list(double)) list(T)",
            "list(T).(list(bool)) list(T)",
            "list(T).(list(duration)) list(T)",
            "list(T).(list(timestamp)) list(T)",
            "list(T).(list(string)) list(T)",
            "list(T).(list(bytes)) list(T)",
        ],
        |_, args| match args {
            [Value::List(list), Value::List(keys)] => sorted(list, keys),
            _ => no_such_overload(),
        },
    ),
    row("lists.range", &["(int) list(int)"], |meter, args| match args {
        [Value::Int(count)] => {
            let count = (*count).max(0);
            meter.build(usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(size_of::<Value<'_>>()))?;
            Ok(Value::list((0..count).map(Value::Int).collect()))
        }
        _ => no_such_overload(),
    }),
    row("reverse", &["list(T).() list(T)"], |_, args| match args {
        [Value::List(list)] => {
            let mut values: Vec<_> = list.iter().collect();
            values.reverse();
            Ok(Value::list(values))
        }
        _ => no_such_overload(),
    }),
    row("distinct", &["list(T).() list(T)"], distinct),
];

pub(crate) const SETS: &[Row] = &[
    row("sets.contains", &["(list(T), list(T)) bool"], |meter, args| match args {
        [Value::List(set), Value::List(part)] => Ok(Value::Bool(contains_all(meter, set, part)?)),
        _ => no_such_overload(),
    }),
    row("sets.equivalent", &["(list(T), list(T)) bool"], |meter, args| match args {
        [Value::List(a), Value::List(b)] => Ok(Value::Bool(contains_all(meter, a, b)? && contains_all(meter, b, a)?)),
        _ => no_such_overload(),
    }),
    row("sets.intersects", &["(list(T), list(T)) bool"], |meter, args| match args {
        [Value::List(a), Value::List(b)] => {
            for value in a.iter() {
                if matches!(contains(meter, b, &value)?, Value::Bool(true)) {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        _ => no_such_overload(),
    }),
];

/// The evaluator inserts in place.
pub(crate) const INSERT: &[Row] =
    &[row(MAP_INSERT, &["(map(K, V), K, V) map(K, V)", "(map(K, V), map(K, V)) map(K, V)"], |_, _| no_such_overload())];

fn is_sorted<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    let [Value::List(list)] = args else { return no_such_overload() };
    let mut before: Option<Value<'_>> = None;
    for value in list.iter() {
        if before.is_some_and(|before| compare(&before, &value) == Some(Ordering::Greater)) {
            return Ok(Value::Bool(false));
        }
        before = Some(value);
    }
    Ok(Value::Bool(true))
}

fn sum<'v>(meter: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    let [Value::List(list)] = args else { return no_such_overload() };
    let mut total: Option<Value<'v>> = None;
    for value in list.iter() {
        total = Some(match total {
            None if matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_)) => value,
            None => return no_such_overload(),
            Some(before) => add(meter, &[before, value])?,
        });
    }
    // The sum of nothing is a zero, of which kind only the type knows: an int for all that JSON can hold.
    Ok(total.unwrap_or(Value::Int(0)))
}

fn extreme<'v>(args: &[Value<'v>], name: &str, replaced_if: Ordering) -> Evaluated<'v> {
    let [Value::List(list)] = args else { return no_such_overload() };
    let mut best: Option<Value<'v>> = None;
    for value in list.iter() {
        let replaces = match &best {
            None => true,
            Some(best) => match compare(best, &value) {
                Some(order) => order == replaced_if,
                None => return no_such_overload(),
            },
        };
        if replaces {
            best = Some(value);
        }
    }
    best.map_or_else(|| failed(format!("{name} called on empty list")), Ok)
}

fn index_of<'v>(meter: &mut Meter, args: &[Value<'v>], last: bool) -> Evaluated<'v> {
    let [Value::List(list), wanted] = args else { return no_such_overload() };
    let mut found = -1;
    for (i, value) in list.iter().enumerate() {
        if equal(meter, &value, wanted)? {
            found = i as i64;
            if !last {
                break;
            }
        }
    }
    Ok(Value::Int(found))
}

fn slice<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else { return no_such_overload() };
    let what = format!("cannot slice({start}, {end})");
    let (Ok(first), Ok(last)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return failed(format!("{what}, negative indexes not supported"));
    };
    if first > last {
        return failed(format!("{what}, start index must be less than or equal to end index"));
    }
    if list.len() < last {
        return failed(format!("{what}, list is length {}", list.len()));
    }
    Ok(Value::list((first..last).filter_map(|i| list.get(i)).collect()))
}

fn flatten<'v>(meter: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    fn into<'v>(
        meter: &mut Meter,
        list: &List<'v>,
        depth: i64,
        out: &mut Vec<Value<'v>>,
    ) -> Result<(), EvaluationError> {
        for value in list.iter() {
            meter.work()?;
            match value {
                Value::List(inner) if depth > 0 => into(meter, &inner, depth - 1, out)?,
                other => {
                    meter.build(size_of::<Value<'_>>())?;
                    out.push(other);
                }
            }
        }
        Ok(())
    }
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(_), Value::Int(depth)] if *depth < 0 => return failed("level must be non-negative"),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return no_such_overload(),
    };
    let mut out = Vec::new();
    into(meter, list, depth, &mut out)?;
    Ok(Value::list(out))
}

fn sorted<'v>(list: &List<'v>, keys: &List<'v>) -> Evaluated<'v> {
    if list.len() != keys.len() {
        return failed(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            list.len(),
            keys.len()
        ));
    }
    let mut pairs: Vec<(Value<'v>, Value<'v>)> = keys.iter().zip(list.iter()).collect();
    if let Some((first, _)) = pairs.first() {
        if compare(first, first).is_none() && !matches!(first, Value::Double(_)) {
            return failed("list elements must be comparable");
        }
        if pairs.iter().any(|(key, _)| key.type_name() != first.type_name()) {
            return failed("list elements must have the same type");
        }
    }
    // What is not a number compares with nothing; a sort wants every pair to.
    let is_nan = |value: &Value<'_>| matches!(value, Value::Double(number) if number.is_nan());
    pairs.sort_by(|(a, _), (b, _)| is_nan(a).cmp(&is_nan(b)).then(compare(a, b).unwrap_or(Ordering::Equal)));
    Ok(Value::list(pairs.into_iter().map(|(_, value)| value).collect()))
}

fn distinct<'v>(meter: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    let [Value::List(list)] = args else { return no_such_overload() };
    let mut kept: Vec<Value<'v>> = Vec::new();
    'values: for value in list.iter() {
        for other in &kept {
            if equal(meter, other, &value)? {
                continue 'values;
            }
        }
        kept.push(value);
    }
    Ok(Value::list(kept))
}

fn contains_all(meter: &mut Meter, set: &List<'_>, part: &List<'_>) -> Result<bool, EvaluationError> {
    for value in part.iter() {
        if !matches!(contains(meter, set, &value)?, Value::Bool(true)) {
            return Ok(false);
        }
    }
    Ok(true)
}
