//! What a call costs: numbers that Kubernetes fixed, so that an expression which is within the limits there is so here.

use crate::ast::operator;
use crate::value::{LibraryValue, Value};

pub(crate) const SELECT: u64 = 1;
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;
pub(crate) const STRUCT: u64 = 40;
/// An authorization check, so dear that an expression can afford two.
const CHECK: u64 = 350_000;

const TRAVERSAL: f64 = 0.1;
const REGEX: f64 = 0.25;

/// How the cost of a function follows from its arguments and its result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    Fixed(u64),
    /// The first argument is read, so many times.
    Read(f64),
    /// As [`Rule::Read`] where text becomes bytes or the other way round; other conversions are free of it.
    Convert,
    /// The result is written.
    Write,
    /// Two values side by side, up to the end of the shorter.
    Compare,
    /// Equality: as [`Rule::Compare`], but the types of libraries have a fixed size.
    Equal,
    /// Both arguments are copied, if they are texts or bytes.
    Concatenate,
    /// A list is searched; a map looks up.
    Contains,
    Substring,
    Match,
    Validate,
    Selector,
    /// Everything in the first argument is visited.
    Visit,
    ListMade,
    Flatten,
    /// Every element of this argument is compared with every other.
    SelfCompare(usize),
    Sets(f64),
    IpParse,
    ContainsIp,
    ContainsCidr,
}

impl Rule {
    pub fn of(function: &str) -> Self {
        match function {
            "check" => Rule::Fixed(CHECK),
            "fieldSelector" | "labelSelector" => Rule::Selector,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => Rule::Visit,
            "url"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "jsonpatch.escapeKey"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver"
            | "startsWith"
            | "endsWith"
            | "strings.quote"
            | "format" => Rule::Read(TRAVERSAL),
            "replace" | "split" | "ip.isCanonical" => Rule::Read(2.0 * TRAVERSAL),
            "join" => Rule::Write,
            "find" | "findAll" | "matches" => Rule::Match,
            "ip" => Rule::IpParse,
            "containsIP" => Rule::ContainsIp,
            "containsCIDR" => Rule::ContainsCidr,
            "validate" => Rule::Validate,
            "contains" => Rule::Substring,
            "bytes" | "string" => Rule::Convert,
            "slice" | "lists.range" | "reverse" => Rule::ListMade,
            "flatten" => Rule::Flatten,
            "sort" | "distinct" => Rule::SelfCompare(0),
            operator::SORT_BY => Rule::SelfCompare(1),
            "sets.contains" | "sets.intersects" => Rule::Sets(1.0),
            "sets.equivalent" => Rule::Sets(2.0),
            operator::EQUALS | operator::NOT_EQUALS => Rule::Equal,
            operator::LESS | operator::LESS_EQUALS | operator::GREATER | operator::GREATER_EQUALS => Rule::Compare,
            operator::ADD => Rule::Concatenate,
            operator::IN => Rule::Contains,
            _ => Rule::Fixed(1),
        }
    }

    pub fn cost(self, args: &[Value<'_>], result: &Value<'_>) -> u64 {
        let size_of = |index: usize| args.get(index).map_or(1, size);
        let read = |index: usize, factor: f64| ceil(size_of(index), factor);
        match self {
            Rule::Fixed(cost) => cost,
            Rule::Read(factor) => read(0, factor),
            Rule::Convert => match (args.first(), result) {
                (Some(Value::String(_)), Value::Bytes(_)) | (Some(Value::Bytes(_)), Value::String(_)) => {
                    read(0, TRAVERSAL)
                }
                _ => 1,
            },
            Rule::Write => ceil(size(result), 2.0 * TRAVERSAL),
            Rule::Compare => match args.first() {
                Some(Value::String(_) | Value::Bytes(_)) => ceil(size_of(0).min(size_of(1)), TRAVERSAL),
                _ => 1,
            },
            Rule::Equal => match args.first() {
                Some(Value::Library(_)) => 1,
                _ => ceil(size_of(0).min(size_of(1)), TRAVERSAL),
            },
            Rule::Concatenate => match args.first() {
                Some(Value::String(_) | Value::Bytes(_)) => ceil(size_of(0) + size_of(1), TRAVERSAL),
                _ => 1,
            },
            Rule::Contains => {
                if let Some(Value::List(list)) = args.get(1) {
                    list.len() as u64
                } else {
                    1
                }
            }
            Rule::Substring => read(0, TRAVERSAL) * read(1, TRAVERSAL),
            Rule::Match => ceil(1 + size_of(0), TRAVERSAL) * read(1, REGEX),
            Rule::Validate => match args.first() {
                Some(Value::Library(LibraryValue::Format(format))) => {
                    ceil(1 + size_of(1), TRAVERSAL) * ceil(format.regex_size, REGEX)
                }
                _ => 1,
            },
            Rule::Selector => LIST + read(1, TRAVERSAL) + ceil(size_of(1), 0.5) * (LIST + STRUCT),
            Rule::Visit => args.first().map_or(0, visit),
            Rule::ListMade => made(size(result) as f64),
            Rule::Flatten => {
                let depth = if let Some(Value::Int(depth)) = args.get(1) { *depth as f64 } else { 1.0 };
                made(size_of(0) as f64 * depth)
            }
            Rule::SelfCompare(index) => {
                let texts = match args.get(index) {
                    Some(Value::List(list)) => matches!(list.get(0), Some(Value::String(_) | Value::Bytes(_))),
                    _ => false,
                };
                let factor = if texts { 2.0 + TRAVERSAL } else { 2.0 };
                made(size_of(index) as f64 * size_of(index) as f64 * factor)
            }
            Rule::Sets(factor) => 1 + (size_of(0) as f64 * size_of(1) as f64 * factor) as u64,
            Rule::IpParse => {
                if let Some(Value::String(_)) = args.first() {
                    read(0, TRAVERSAL)
                } else {
                    1
                }
            }
            Rule::ContainsIp => ceil(2 * size_of(0), TRAVERSAL) + parsed(args),
            Rule::ContainsCidr => ceil(2 * size_of(0), TRAVERSAL) + read(0, TRAVERSAL) + 1 + parsed(args),
        }
    }
}

/// An address given as text is read first.
fn parsed(args: &[Value<'_>]) -> u64 {
    match args.get(1) {
        Some(Value::String(text)) => ceil(text.chars().count() as u64, TRAVERSAL),
        _ => 0,
    }
}

fn ceil(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

fn made(cost: f64) -> u64 {
    (cost as u64).saturating_add(1 + LIST)
}

fn size(value: &Value<'_>) -> u64 {
    match value {
        Value::Optional(Some(value)) => size(value),
        other => other.size().unwrap_or(1),
    }
}

/// Lists within lists can be shared many times over: beyond this, what is visited is not counted on.
const MAX_VISIT: u64 = 10_000_000;

fn visit(value: &Value<'_>) -> u64 {
    fn add(value: &Value<'_>, total: &mut u64, visited: &mut u64) {
        *visited += 1;
        if *visited > MAX_VISIT {
            *total = u64::MAX;
            return;
        }
        let read = |length: usize| (length as f64 * TRAVERSAL) as u64;
        match value {
            Value::String(text) => *total = total.saturating_add(read(text.len())),
            Value::Bytes(bytes) => *total = total.saturating_add(read(bytes.len())),
            Value::List(list) => list.iter().for_each(|value| add(&value, total, visited)),
            Value::Map(map) => map.iter().for_each(|(key, value)| {
                add(&key, total, visited);
                add(&value, total, visited);
            }),
            _ => *total = total.saturating_add(1),
        }
    }
    let (mut total, mut visited) = (0, 0);
    add(value, &mut total, &mut visited);
    total
}
