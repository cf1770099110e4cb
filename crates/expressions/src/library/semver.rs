//! Semantic versions.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::EvaluationError;
use crate::declarations::{Row, row};
use crate::evaluate::{Evaluated, failed, no_such_overload};
use crate::value::{LibraryValue, Value};

#[derive(Debug)]
pub struct Version {
    numbers: [u64; 3],
    before_release: Vec<Part>,
}

/// A part of what comes before a release. Numbers come before names.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Name(String),
}

pub(crate) const ROWS: &[Row] = &[
    row("semver", &["(string) Semver", "(string, bool) Semver"], |_, args| match parsed(args)? {
        Ok(version) => Ok(Value::Library(LibraryValue::Semver(Arc::new(version)))),
        Err(why) => failed(why),
    }),
    row("isSemver", &["(string) bool", "(string, bool) bool"], |_, args| Ok(Value::Bool(parsed(args)?.is_ok()))),
    row("major", &["Semver.() int"], |_, args| number(args, 0)),
    row("minor", &["Semver.() int"], |_, args| number(args, 1)),
    row("patch", &["Semver.() int"], |_, args| number(args, 2)),
    row("isGreaterThan", &["Semver.(Semver) bool"], |_, args| {
        order(args).map(|order| Value::Bool(order == Ordering::Greater))
    }),
    row("isLessThan", &["Semver.(Semver) bool"], |_, args| {
        order(args).map(|order| Value::Bool(order == Ordering::Less))
    }),
    row("compareTo", &["Semver.(Semver) int"], |_, args| order(args).map(|order| Value::Int(order as i64))),
];

impl Version {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
        let (numbers, before) = text.split_once('-').map_or((text, None), |(text, before)| (text, Some(before)));
        let parts: Vec<&str> = numbers.split('.').collect();
        let [major, minor, patch] = parts.as_slice() else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let read = |name: &str, text: &str| {
            if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
                return Err(format!("Invalid character(s) found in {name} number {text:?}"));
            }
            if text.len() > 1 && text.starts_with('0') {
                return Err(format!("{} number must not contain leading zeroes {text:?}", capitalised(name)));
            }
            text.parse::<u64>().map_err(|_| format!("Invalid character(s) found in {name} number {text:?}"))
        };
        let numbers = [read("major", major)?, read("minor", minor)?, read("patch", patch)?];
        let before_release = before.map(|before| before.split('.').map(part).collect()).unwrap_or(Ok(Vec::new()))?;
        let allowed = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        for part in build.into_iter().flat_map(|build| build.split('.')) {
            if part.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !allowed(part) {
                return Err(format!("Invalid character(s) found in build meta data {part:?}"));
            }
        }
        Ok(Self { numbers, before_release })
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (&*self.before_release, &*other.before_release) {
            ([], []) => Ordering::Equal,
            ([], _) => Ordering::Greater,
            (_, []) => Ordering::Less,
            (a, b) => a.cmp(b),
        })
    }
}

fn capitalised(name: &str) -> String {
    let mut characters = name.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

fn part(text: &str) -> Result<Part, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {text:?}"));
        }
        return text.parse().map(Part::Number).map_err(|_| format!("Invalid prerelease {text:?}"));
    }
    if text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        Ok(Part::Name(text.to_owned()))
    } else {
        Err(format!("Invalid character(s) found in prerelease {text:?}"))
    }
}

/// With a `v` and zeros in front removed, and what is missing added.
fn normalized(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
    for part in parts.iter_mut().filter(|part| part.len() > 1) {
        let cut = part.trim_start_matches('0');
        *part = if cut.starts_with(|c: char| c.is_ascii_digit()) { cut.to_owned() } else { format!("0{cut}") };
    }
    if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        return Err("short version cannot contain PreRelease/Build meta data".to_owned());
    }
    parts.resize(parts.len().max(3), "0".to_owned());
    Ok(parts.join("."))
}

fn parsed(args: &[Value<'_>]) -> Result<Result<Version, String>, EvaluationError> {
    match args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => Ok(Version::parse(text)),
        [Value::String(text), Value::Bool(true)] => Ok(normalized(text).and_then(|text| Version::parse(&text))),
        _ => no_such_overload(),
    }
}

fn number<'v>(args: &[Value<'v>], place: usize) -> Evaluated<'v> {
    match args {
        [Value::Library(LibraryValue::Semver(version))] => Ok(Value::Int(version.numbers[place] as i64)),
        _ => no_such_overload(),
    }
}

fn order(args: &[Value<'_>]) -> Result<Ordering, EvaluationError> {
    match args {
        [Value::Library(LibraryValue::Semver(a)), Value::Library(LibraryValue::Semver(b))] => Ok(a.compare(b)),
        _ => no_such_overload(),
    }
}
