//! Texts: the extended functions, formatting, and keys of JSON patches. Places count characters.

use std::fmt::Write;

use object_model::go_text;

use super::conversion::text_of;
use crate::EvaluationError;
use crate::declarations::{Row, row};
use crate::evaluate::{Evaluated, Meter, failed, no_such_overload};
use crate::value::Value;

pub(crate) const ROWS: &[Row] = &[
    row("charAt", &["string.(int) string"], |_, args| match args {
        [Value::String(text), Value::Int(at)] => match usize::try_from(*at) {
            Ok(place) if place <= text.chars().count() => {
                Ok(text.chars().nth(place).map_or_else(|| Value::text(""), |c| Value::text(c.to_string())))
            }
            _ => failed(format!("index out of range: {at}")),
        },
        _ => no_such_overload(),
    }),
    row("indexOf", &["string.(string) int", "string.(string, int) int"], |_, args| match args {
        [Value::String(text), Value::String(part)] => index_of(text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(from)] => index_of(text, part, *from),
        _ => no_such_overload(),
    }),
    row("lastIndexOf", &["string.(string) int", "string.(string, int) int"], |_, args| match args {
        [Value::String(text), Value::String(part)] => last_index_of(text, part, None),
        [Value::String(text), Value::String(part), Value::Int(from)] => last_index_of(text, part, Some(*from)),
        _ => no_such_overload(),
    }),
    row("lowerAscii", &["string.() string"], |_, args| one(args, str::to_ascii_lowercase)),
    row("upperAscii", &["string.() string"], |_, args| one(args, str::to_ascii_uppercase)),
    row("trim", &["string.() string"], |_, args| one(args, |text| text.trim().to_owned())),
    row("replace", &["string.(string, string) string", "string.(string, string, int) string"], replace),
    row("split", &["string.(string) list(string)", "string.(string, int) list(string)"], split),
    row("substring", &["string.(int) string", "string.(int, int) string"], |_, args| match args {
        [Value::String(text), Value::Int(start)] => substring(text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => substring(text, *start, Some(*end)),
        _ => no_such_overload(),
    }),
    row("join", &["list(string).() string", "list(string).(string) string"], join),
    row("strings.quote", &["(string) string"], |_, args| one(args, quoted)),
];

pub(crate) const FORMAT: &[Row] = &[row("format", &["string.(list(dyn)) string"], |meter, args| match args {
    [Value::String(text), Value::List(list)] => {
        let values: Vec<Value<'_>> = list.iter().collect();
        let mut out = String::new();
        format_into(meter, text, &values, &mut out)?;
        Ok(Value::text(out))
    }
    _ => no_such_overload(),
})];

pub(crate) const JSON_PATCH: &[Row] = &[row("jsonpatch.escapeKey", &["(string) string"], |_, args| {
    one(args, |text| text.replace('~', "~0").replace('/', "~1"))
})];

fn one<'v>(args: &[Value<'v>], change: impl Fn(&str) -> String) -> Evaluated<'v> {
    match args {
        [Value::String(text)] => Ok(Value::text(change(text))),
        _ => no_such_overload(),
    }
}

/// The byte at which a character starts, the end included.
fn byte_at(text: &str, place: usize) -> Option<usize> {
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(place)
}

fn index_of<'v>(text: &str, part: &str, from: i64) -> Evaluated<'v> {
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    let Ok(start) = usize::try_from(from) else { return failed(format!("index out of range: {from}")) };
    let found = byte_at(text, start).and_then(|start| Some(start + text.get(start..)?.find(part)?));
    Ok(Value::Int(found.map_or(-1, |at| text[..at].chars().count() as i64)))
}

fn last_index_of<'v>(text: &str, part: &str, from: Option<i64>) -> Evaluated<'v> {
    let count = text.chars().count() as i64;
    match from {
        None if part.is_empty() => return Ok(Value::Int(count)),
        Some(from) if part.is_empty() => return Ok(Value::Int(from)),
        Some(from) if from < 0 => return failed(format!("index out of range: {from}")),
        Some(from) if from >= count => return Ok(Value::Int(-1)),
        _ => {}
    }
    // It may start at `from` at the latest, so it ends so much later.
    let end = from.map_or(text.len(), |from| {
        let end = from as usize + part.chars().count();
        byte_at(text, end).unwrap_or(text.len())
    });
    let found = text[..end].rfind(part);
    Ok(Value::Int(found.map_or(-1, |at| text[..at].chars().count() as i64)))
}

fn replace<'v>(meter: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    let (text, old, new, count) = match args {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(count)] => (text, old, new, *count),
        _ => return no_such_overload(),
    };
    let places = if old.is_empty() { text.chars().count() + 1 } else { text.matches(&**old).count() };
    let replaced = usize::try_from(count).map_or(places, |count| count.min(places));
    meter.build(text.len().saturating_add(replaced.saturating_mul(new.len())))?;
    Ok(Value::text(text.replacen(&**old, new, replaced)))
}

fn split<'v>(meter: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    let (text, by, count) = match args {
        [Value::String(text), Value::String(by)] => (text, by, -1),
        [Value::String(text), Value::String(by), Value::Int(count)] => (text, by, *count),
        _ => return no_such_overload(),
    };
    if count == 0 {
        return Ok(Value::list(Vec::new()));
    }
    let limit = usize::try_from(count).unwrap_or(usize::MAX);
    let pieces = if by.is_empty() { text.chars().count() } else { text.matches(&**by).count() + 1 };
    meter.build(text.len() + pieces.min(limit) * size_of::<Value<'_>>())?;
    if !by.is_empty() {
        return Ok(Value::texts(text.splitn(limit, &**by)));
    }
    // Character by character, and what is left over in the last piece.
    let mut parts = Vec::new();
    let mut rest: &str = text;
    while let Some(c) = rest.chars().next() {
        let length = if parts.len() + 1 == limit { rest.len() } else { c.len_utf8() };
        let (piece, after) = rest.split_at(length);
        parts.push(piece);
        rest = after;
    }
    Ok(Value::texts(parts))
}

fn substring<'v>(text: &str, start: i64, end: Option<i64>) -> Evaluated<'v> {
    if let Some(end) = end.filter(|end| start > *end) {
        return failed(format!("invalid substring range. start: {start}, end: {end}"));
    }
    let place = |at: i64| match usize::try_from(at).ok().and_then(|at| byte_at(text, at)) {
        Some(byte) => Ok(byte),
        None => failed(format!("index out of range: {at}")),
    };
    let first = place(start)?;
    let last = end.map_or(Ok(text.len()), place)?;
    Ok(Value::text(&text[first..last]))
}

fn join<'v>(meter: &mut Meter, args: &[Value<'v>]) -> Evaluated<'v> {
    let (list, by) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(by)] => (list, &**by),
        _ => return no_such_overload(),
    };
    let mut joined = String::new();
    for (i, element) in list.iter().enumerate() {
        let Value::String(text) = element else {
            return failed(format!("join: invalid input: {}", element.type_name()));
        };
        meter.build(text.len() + by.len())?;
        if i > 0 {
            joined.push_str(by);
        }
        joined.push_str(&text);
    }
    Ok(Value::text(joined))
}

fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// One directive of a format string: its letter and how many digits it asks for.
pub(crate) enum Piece<'t> {
    Text(&'t str),
    Directive(char, Option<usize>),
}

/// The parts of a format string, or why it is none.
pub(crate) fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        found.push(Piece::Text(&rest[..at]));
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            found.push(Piece::Text("%"));
            rest = after;
            continue;
        }
        let mut precision = None;
        if let Some(after) = rest.strip_prefix('.') {
            let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            precision = after[..digits].parse::<usize>().ok().filter(|digits| *digits <= 1000);
            if precision.is_none() {
                let what = "could not parse formatting clause: error while parsing precision: ";
                return Err(format!("{what}error while converting precision to integer"));
            }
            rest = &after[digits..];
        }
        let Some(letter) = rest.chars().next() else { return Err("unexpected end of string".to_owned()) };
        if !"sdfebxXo".contains(letter) {
            let what = format!("unrecognized formatting clause \"{letter}\"");
            return Err(format!("could not parse formatting clause: {what}"));
        }
        found.push(Piece::Directive(letter, precision));
        rest = &rest[letter.len_utf8()..];
    }
    found.push(Piece::Text(rest));
    Ok(found)
}

fn format_into(meter: &mut Meter, text: &str, values: &[Value<'_>], out: &mut String) -> Result<(), EvaluationError> {
    let pieces = match pieces(text) {
        Ok(pieces) => pieces,
        Err(message) => return failed(message),
    };
    let mut next = 0;
    for piece in pieces {
        let (letter, precision) = match piece {
            Piece::Text(text) => {
                out.push_str(text);
                continue;
            }
            Piece::Directive(letter, precision) => (letter, precision),
        };
        let Some(value) = values.get(next) else { return failed(format!("index {next} out of range")) };
        next += 1;
        let before = out.len();
        match letter {
            's' => show(meter, value, out, false)?,
            _ => match directive(letter, precision.unwrap_or(6), value) {
                Ok(text) => out.push_str(&text),
                Err(what) => {
                    return failed(format!("error during formatting: {what}, was given {}", value.type_name()));
                }
            },
        }
        meter.build(out.len() - before)?;
    }
    Ok(())
}

/// What takes only some types, and the complaint if it is none of them.
pub(crate) fn directive(letter: char, precision: usize, value: &Value<'_>) -> Result<String, &'static str> {
    match (letter, value) {
        ('d', Value::Int(number)) => Ok(number.to_string()),
        ('d', Value::Uint(number)) => Ok(number.to_string()),
        ('f', Value::Double(number)) => Ok(double(*number, || format!("{number:.precision$}"))),
        ('e', Value::Double(number)) => Ok(double(*number, || exponent(*number, precision))),
        ('f' | 'e', Value::String(text)) if matches!(&**text, "NaN" | "Infinity" | "-Infinity") => Ok(text.to_string()),
        ('b', Value::Bool(truth)) => Ok(u8::from(*truth).to_string()),
        ('b', Value::Uint(number)) => Ok(format!("{number:b}")),
        ('o', Value::Uint(number)) => Ok(format!("{number:o}")),
        ('x', Value::Uint(number)) => Ok(format!("{number:x}")),
        ('X', Value::Uint(number)) => Ok(format!("{number:X}")),
        ('b' | 'o' | 'x' | 'X', Value::Int(number)) => {
            let sign = if *number < 0 { "-" } else { "" };
            let size = Value::Uint(number.unsigned_abs());
            directive(letter, precision, &size).map(|digits| format!("{sign}{digits}"))
        }
        ('x' | 'X', Value::String(text)) => Ok(hex(text.as_bytes(), letter)),
        ('x' | 'X', Value::Bytes(bytes)) => Ok(hex(bytes, letter)),
        _ => Err(complaint(letter)),
    }
}

/// What a directive says to a value of the wrong type.
pub(crate) fn complaint(letter: char) -> &'static str {
    match letter {
        'b' => "only integers and bools can be formatted as binary",
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'o' => "octal clause can only be used on integers",
        'x' | 'X' => "only integers, byte buffers, and strings can be formatted as hex",
        _ => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, \
             and timestamps"
        }
    }
}

fn double(number: f64, finite: impl Fn() -> String) -> String {
    match number {
        _ if number.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "\u{221e}".to_owned(),
        f64::NEG_INFINITY => "-\u{221e}".to_owned(),
        _ => finite(),
    }
}

/// Scientific, as the en_US locale writes it: `1.5×10⁰³`, in the form that Go's printer gives.
fn exponent(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, power) = power.strip_prefix('-').map_or(("", power), |power| ("\u{207b}", power));
    let raised: String = format!("{power:0>2}").chars().map(raise).collect();
    format!("{digits}\u{2009}\u{d7}\u{2009}10{sign}{raised}")
}

fn raise(digit: char) -> char {
    match digit {
        '1' => '\u{b9}',
        '2' => '\u{b2}',
        '3' => '\u{b3}',
        digit => char::from_u32(0x2070 + digit.to_digit(10).unwrap_or(0)).unwrap_or(digit),
    }
}

fn hex(bytes: &[u8], letter: char) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let written = if letter == 'x' { write!(out, "{byte:02x}") } else { write!(out, "{byte:02X}") };
        debug_assert!(written.is_ok(), "writing to a String");
        out
    })
}

/// `%s` of anything; within lists and maps texts are quoted.
fn show(meter: &mut Meter, value: &Value<'_>, out: &mut String, nested: bool) -> Result<(), EvaluationError> {
    meter.work()?;
    match value {
        Value::Null => out.push_str("null"),
        Value::String(text) if nested => out.push_str(&go_text::quote(text)),
        Value::Bytes(_) if nested => {
            out.push('b');
            out.push_str(&go_text::quote(&text_of(value).unwrap_or_default()));
        }
        Value::Double(number) if nested && number.is_finite() => write!(out, "{number:.6}").unwrap_or_default(),
        Value::Timestamp(_) if nested => {
            write!(out, "timestamp({})", go_text::quote(&text_of(value).unwrap_or_default())).unwrap_or_default();
        }
        Value::Duration(_) if nested => {
            write!(out, "duration({})", go_text::quote(&text_of(value).unwrap_or_default())).unwrap_or_default();
        }
        Value::List(list) => {
            out.push('[');
            for (i, element) in list.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                show(meter, &element, out, true)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for (key, value) in map.iter() {
                let (mut name, mut text) = (String::new(), String::new());
                show(meter, &key, &mut name, true)?;
                show(meter, &value, &mut text, true)?;
                entries.push((name, text));
            }
            entries.sort();
            let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}:{value}")).collect();
            write!(out, "{{{}}}", entries.join(", ")).unwrap_or_default();
        }
        Value::Optional(_) | Value::Library(_) => {
            let message = format!("error during formatting: {}, was given {}", complaint('s'), value.type_name());
            return failed(message);
        }
        other => out.push_str(&text_of(other).unwrap_or_default()),
    }
    Ok(())
}
