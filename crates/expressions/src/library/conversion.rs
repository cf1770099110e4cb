//! One type into another.

use object_model::go_text;
use object_model::time::{Duration, Time};

use super::standard::moment;
use crate::declarations::{Row, row};
use crate::evaluate::{Evaluated, Meter, failed, no_such_overload};
use crate::value::{LibraryValue, Value, duration_text, timestamp_text};

pub(crate) const ROWS: &[Row] = &[
    row("type", &["(A) type(A)"], |_, args| match args {
        [value] => Ok(Value::Type(value.type_name())),
        _ => no_such_overload(),
    }),
    row("dyn", &["(A) dyn"], |_, args| args.first().cloned().map_or_else(no_such_overload, Ok)),
    row("bool", &["(bool) bool", "(string) bool"], to_bool),
    row("bytes", &["(bytes) bytes", "(string) bytes"], to_bytes),
    row("double", &["(double) double", "(int) double", "(string) double", "(uint) double"], to_double),
    row("duration", &["(duration) duration", "(int) duration", "(string) duration"], to_duration),
    row(
        "int",
        &["(int) int", "(double) int", "(duration) int", "(string) int", "(timestamp) int", "(uint) int"],
        to_int,
    ),
    row(
        "string",
        &[
            "(string) string",
            "(bool) string",
            "(bytes) string",
            "(double) string",
            "(duration) string",
            "(int) string",
            "(timestamp) string",
            "(uint) string",
        ],
        to_text,
    ),
    row("timestamp", &["(timestamp) timestamp", "(int) timestamp", "(string) timestamp"], to_timestamp),
    row("uint", &["(uint) uint", "(double) uint", "(int) uint", "(string) uint"], to_uint),
];

fn unconvertible<'v>(value: &Value<'v>, to: &str) -> Evaluated<'v> {
    failed(format!("type conversion error from '{}' to '{to}'", value.type_name()))
}

fn to_bool<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    match args {
        [Value::Bool(truth)] => Ok(Value::Bool(*truth)),
        [value @ Value::String(text)] => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => unconvertible(value, "bool"),
        },
        _ => no_such_overload(),
    }
}

fn to_bytes<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    match args {
        [Value::Bytes(bytes)] => Ok(Value::Bytes(bytes.clone())),
        [Value::String(text)] => Ok(Value::Bytes(text.as_bytes().into())),
        _ => no_such_overload(),
    }
}

fn to_double<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    match args {
        [Value::Double(number)] => Ok(Value::Double(*number)),
        [Value::Int(number)] => Ok(Value::Double(*number as f64)),
        [Value::Uint(number)] => Ok(Value::Double(*number as f64)),
        [value @ Value::String(text)] => match text.parse() {
            Ok(number) => Ok(Value::Double(number)),
            Err(_) => unconvertible(value, "double"),
        },
        _ => no_such_overload(),
    }
}

fn to_duration<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    match args {
        [Value::Duration(duration)] => Ok(Value::Duration(*duration)),
        [Value::Int(nanos)] => Ok(Value::Duration(Duration::from_nanos(*nanos))),
        [value @ Value::String(text)] => match Duration::parse(text) {
            Ok(duration) => Ok(Value::Duration(duration)),
            Err(_) => unconvertible(value, "google.protobuf.Duration"),
        },
        _ => no_such_overload(),
    }
}

fn to_int<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    let overflow = || failed("integer overflow");
    match args {
        [Value::Int(number)] => Ok(Value::Int(*number)),
        [Value::Uint(number)] => i64::try_from(*number).map_or_else(|_| overflow(), |number| Ok(Value::Int(number))),
        [Value::Double(number)] if number.abs() < 9_223_372_036_854_775_807.0 => Ok(Value::Int(*number as i64)),
        [Value::Double(_)] => overflow(),
        [Value::Duration(duration)] => Ok(Value::Int(duration.nanos())),
        [Value::Timestamp(time)] => Ok(Value::Int(time.unix_seconds())),
        [value @ Value::String(text)] => match text.parse() {
            Ok(number) => Ok(Value::Int(number)),
            Err(_) => unconvertible(value, "int"),
        },
        _ => no_such_overload(),
    }
}

fn to_uint<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    let overflow = || failed("unsigned integer overflow");
    match args {
        [Value::Uint(number)] => Ok(Value::Uint(*number)),
        [Value::Int(number)] => u64::try_from(*number).map_or_else(|_| overflow(), |number| Ok(Value::Uint(number))),
        [Value::Double(number)] if *number >= 0.0 && *number < 18_446_744_073_709_551_615.0 => {
            Ok(Value::Uint(*number as u64))
        }
        [Value::Double(_)] => overflow(),
        [value @ Value::String(text)] => match text.parse() {
            Ok(number) if !text.starts_with('+') => Ok(Value::Uint(number)),
            _ => unconvertible(value, "uint"),
        },
        _ => no_such_overload(),
    }
}

fn to_timestamp<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    match args {
        [Value::Timestamp(time)] => Ok(Value::Timestamp(*time)),
        [Value::Int(seconds)] => moment(Time::from_unix(*seconds, 0)),
        [value @ Value::String(text)] => match Time::parse(text) {
            Ok(time) => moment(time),
            Err(_) => unconvertible(value, "google.protobuf.Timestamp"),
        },
        _ => no_such_overload(),
    }
}

fn to_text<'v>(_: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    match args {
        [Value::Bytes(bytes)] => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Value::text(text)),
            Err(_) => failed("invalid UTF-8 in bytes, cannot convert to string"),
        },
        [value] => text_of(value).map_or_else(no_such_overload, |text| Ok(Value::text(text))),
        _ => no_such_overload(),
    }
}

/// As text, where a conversion exists.
pub(crate) fn text_of(value: &Value<'_>) -> Option<String> {
    Some(match value {
        Value::String(text) => text.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => go_text::float(*number),
        Value::Timestamp(time) => timestamp_text(*time),
        Value::Duration(duration) => duration_text(*duration),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Type(name) => (*name).to_owned(),
        Value::Library(LibraryValue::Ip(address)) => address.to_string(),
        Value::Library(LibraryValue::Cidr(cidr)) => cidr.to_string(),
        _ => return None,
    })
}
