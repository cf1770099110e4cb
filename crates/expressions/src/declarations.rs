//! Functions and the types they take, declared by short signatures: `string.(int) string` is a member of a string,
//! `(A, list(A)) bool` a free function. Capital letters are open types.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::evaluate::Meter;
use crate::library;
use crate::types::{LibraryType, Type};
use crate::value::Value;
use crate::{EvaluationError, Library};

/// What computes a function. The receiver of a member is the first argument.
pub(crate) type Run = for<'m, 'v> fn(&'m mut Meter, &'m [Value<'v>]) -> Result<Value<'v>, EvaluationError>;

/// One line of a library's table: overloads that one piece of code serves.
pub(crate) struct Row {
    pub name: &'static str,
    pub signatures: &'static [&'static str],
    pub run: Run,
}

pub(crate) const fn row(name: &'static str, signatures: &'static [&'static str], run: Run) -> Row {
    Row { name, signatures, run }
}

#[derive(Debug)]
pub(crate) struct Overload {
    pub member: bool,
    pub takes: Vec<Type>,
    pub gives: Type,
    /// How many types it leaves open; they are numbered from zero.
    pub open: u32,
}

/// Overloads of one library that one piece of code serves.
pub(crate) struct Group {
    pub library: Library,
    pub overloads: Vec<Overload>,
    pub run: Run,
}

/// All overloads of one name.
pub(crate) struct Function {
    pub name: &'static str,
    pub groups: Vec<Group>,
}

/// Every function of every library.
pub(crate) static FUNCTIONS: LazyLock<HashMap<&'static str, Function>> = LazyLock::new(|| {
    let mut functions: HashMap<&'static str, Function> = HashMap::new();
    for (library, rows) in library::ALL {
        for row in rows.iter().flat_map(|rows| rows.iter()) {
            let function = functions.entry(row.name).or_insert_with(|| Function { name: row.name, groups: Vec::new() });
            let overloads = row.signatures.iter().map(|text| signature(text)).collect();
            function.groups.push(Group { library: *library, overloads, run: row.run });
        }
    }
    functions
});

impl Function {
    /// The code for these arguments, by what they are at run time.
    pub fn select(&self, member: bool, args: &[Value<'_>]) -> Option<Run> {
        if let [only] = self.groups.as_slice() {
            return Some(only.run);
        }
        let fits = |overload: &Overload| {
            overload.member == member
                && overload.takes.len() == args.len()
                && overload.takes.iter().zip(args).all(|(kind, value)| value.may_be(kind))
        };
        self.groups.iter().find(|group| group.overloads.iter().any(fits)).map(|group| group.run)
    }
}

/// Reads a signature of our own tables; a wrong one is a mistake that the tests of the tables find.
fn signature(text: &str) -> Overload {
    let mut reader = Reader { rest: text, letters: Vec::new() };
    let mut takes = Vec::new();
    let member = !reader.rest.starts_with('(');
    if member {
        takes.push(reader.kind());
        reader.skip('.');
    }
    reader.skip('(');
    while !reader.rest.starts_with(')') && !reader.rest.is_empty() {
        takes.push(reader.kind());
        reader.skip(',');
    }
    reader.skip(')');
    let gives = reader.kind();
    Overload { member, takes, gives, open: reader.letters.len() as u32 }
}

struct Reader<'t> {
    rest: &'t str,
    letters: Vec<&'t str>,
}

impl<'t> Reader<'t> {
    fn skip(&mut self, sign: char) {
        self.rest = self.rest.trim_start();
        self.rest = self.rest.strip_prefix(sign).unwrap_or(self.rest).trim_start();
    }

    fn kind(&mut self) -> Type {
        self.rest = self.rest.trim_start();
        let length = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(length);
        self.rest = rest;
        if name.len() == 1 {
            let number = self.letters.iter().position(|letter| *letter == name).unwrap_or_else(|| {
                self.letters.push(name);
                self.letters.len() - 1
            });
            return Type::Open(number as u32);
        }
        let mut parts = Vec::new();
        if matches!(name, "list" | "map" | "optional" | "type") {
            self.skip('(');
            parts.push(Arc::new(self.kind()));
            if name == "map" {
                self.skip(',');
                parts.push(Arc::new(self.kind()));
            }
            self.skip(')');
        }
        match (name, parts.as_slice()) {
            ("list", [of]) => Type::List(of.clone()),
            ("optional", [of]) => Type::Optional(of.clone()),
            ("type", [of]) => Type::Type(Some(of.clone())),
            ("map", [key, value]) => Type::Map(key.clone(), value.clone()),
            _ => named(name),
        }
    }
}

fn named(name: &str) -> Type {
    match name {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "URL" => Type::Library(LibraryType::Url),
        "IP" => Type::Library(LibraryType::Ip),
        "CIDR" => Type::Library(LibraryType::Cidr),
        "Quantity" => Type::Library(LibraryType::Quantity),
        "Semver" => Type::Library(LibraryType::Semver),
        "Format" => Type::Library(LibraryType::Format),
        "Authorizer" => Type::Library(LibraryType::Authorizer),
        "PathCheck" => Type::Library(LibraryType::PathCheck),
        "GroupCheck" => Type::Library(LibraryType::GroupCheck),
        "ResourceCheck" => Type::Library(LibraryType::ResourceCheck),
        "Decision" => Type::Library(LibraryType::Decision),
        _ => Type::Dyn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_says_what_it_means() {
        for function in FUNCTIONS.values() {
            for overload in function.groups.iter().flat_map(|group| &group.overloads) {
                assert!(overload.takes.len() <= 4, "{}", function.name);
            }
        }
        for (_, rows) in library::ALL {
            for text in rows.iter().flat_map(|rows| rows.iter()).flat_map(|row| row.signatures) {
                let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| word.len() > 1);
                let known = ["list", "map", "optional", "type", "dyn"];
                for word in words {
                    assert!(known.contains(&word) || !named(word).is_dyn(), "{text}: what is {word}?");
                }
            }
        }
    }
}
