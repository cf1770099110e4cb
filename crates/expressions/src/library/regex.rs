//! Regular expressions in Go's syntax, in linear time and bounded memory.

use object_model::schema::validate::Pattern;

use crate::declarations::{Row, row};
use crate::evaluate::{Evaluated, Meter, failed, no_such_overload};
use crate::value::Value;

pub(crate) const ROWS: &[Row] = &[
    row("matches", &["string.(string) bool", "(string, string) bool"], |meter, args| run(meter, "matches", args)),
    row("find", &["string.(string) string"], |meter, args| run(meter, "find", args)),
    row("findAll", &["string.(string) list(string)", "string.(string, int) list(string)"], |meter, args| {
        run(meter, "findAll", args)
    }),
];

fn run<'v>(meter: &mut Meter, name: &str, args: &[Value<'v>]) -> Evaluated<'v> {
    match args.get(1) {
        Some(Value::String(text)) => {
            let pattern = meter.pattern(text);
            with_pattern(name, &pattern, args)
        }
        _ => no_such_overload(),
    }
}

/// The same with a pattern that is compiled already.
pub(crate) fn with_pattern<'v>(name: &str, pattern: &Pattern, args: &[Value<'v>]) -> Evaluated<'v> {
    let (text, limit) = match args {
        [Value::String(text), _] => (text, usize::MAX),
        [Value::String(text), _, Value::Int(limit)] => (text, usize::try_from(*limit).unwrap_or(usize::MAX)),
        _ => return no_such_overload(),
    };
    let result = match name {
        "matches" => pattern.is_match(text).map(Value::Bool),
        "find" => pattern.find_all(text, 1).map(|found| Value::text(found.first().copied().unwrap_or_default())),
        _ => pattern.find_all(text, limit).map(Value::texts),
    };
    result.or_else(|error| match name {
        "matches" => failed(error.to_string()),
        _ => failed(format!("Illegal regex: {error}")),
    })
}
