//! YAML as Kubernetes reads it: YAML 1.1 in the dialect of the reader that kubectl and kube-apiserver use, turned into
//! what JSON can hold.
//!
//! `yes`, `on` and `y` are true; `0777` is octal, `0b11` binary; underscores in numbers are ignored; dates stay text;
//! keys that are no text become text; `<<` merges; of a key that is there twice the last counts. What aliases expand
//! to is limited by [`ALIAS_BUDGET`], and nesting by [`MAX_DEPTH`](super::MAX_DEPTH).

use std::borrow::Cow;
use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use serde_json::map::Entry;
use serde_json::{Map, Value};
use thiserror::Error;

use super::{MAX_DEPTH, StrictError, StrictErrors, json};
use crate::go_text;
use crate::value::{depth, weight};
use resolve::Scalar;

mod lenient;
mod resolve;
mod split;
mod write;

pub use split::documents;
pub use write::write;

/// How much memory, in bytes and roughly, a document may spend on values that have anchors and on copies of them.
pub const ALIAS_BUDGET: usize = 16 << 20;

/// Why bytes are not YAML, or not YAML that JSON can hold.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadYaml {
    #[error("yaml: line {line}: {problem}")]
    Syntax { line: usize, column: usize, problem: String },
    #[error("yaml: the text is not UTF-8")]
    Encoding,
    #[error("yaml: line {0}: lists and objects are nested more than {MAX_DEPTH} levels deep")]
    Depth(usize),
    #[error("yaml: line {0}: anchor value contains itself")]
    Cycle(usize),
    #[error("yaml: document contains excessive aliasing")]
    Aliases,
    #[error("yaml: line {0}: map merge requires map or sequence of maps as the value")]
    Merge(usize),
    #[error("yaml: line {0}: invalid map key: only text, numbers and booleans can be keys")]
    Key(usize),
    #[error("yaml: line {line}: cannot decode {found} `{text}` as a {wanted}")]
    Tag { line: usize, found: &'static str, text: String, wanted: String },
    #[error("yaml: line {0}: !!binary value contains invalid base64 data")]
    Binary(usize),
    #[error("json: unsupported value: {0}")]
    Number(&'static str),
    #[error("invalid Yaml document separator: {0}")]
    Separator(String),
}

/// Reads the first document. One without content is null.
pub fn read(bytes: &[u8]) -> Result<Value, BadYaml> {
    read_strict(bytes).map(|(value, _)| value)
}

/// The same, and every key that is there twice. They are one error together, as Kubernetes tells them.
pub fn read_strict(bytes: &[u8]) -> Result<(Value, StrictErrors), BadYaml> {
    let mut text = Cow::Borrowed(std::str::from_utf8(bytes).map_err(|_| BadYaml::Encoding)?);
    let mut effort = lenient::Effort::ALLOWED;
    loop {
        match read_text(&text) {
            Err(error) => match lenient::mended(&text, &error, &mut effort) {
                Some(mended) => text = Cow::Owned(mended),
                None => return Err(error),
            },
            read => return read,
        }
    }
}

fn read_text(text: &str) -> Read<(Value, StrictErrors)> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
        budget: ALIAS_BUDGET,
        depth: 0,
        duplicates: Vec::new(),
    };
    let value = reader.document()?;
    let mut strict = StrictErrors::default();
    if !reader.duplicates.is_empty() {
        strict.push(StrictError::Yaml(format!("yaml: unmarshal errors:\n  {}", reader.duplicates.join("\n  "))));
    }
    Ok((value, strict))
}

/// Reads all documents of a manifest that have content. Each may be JSON.
pub fn read_all(bytes: &[u8]) -> Result<Vec<Value>, BadYaml> {
    let mut values = Vec::new();
    for document in documents(bytes) {
        let document = document?;
        let looks_like_json = document.trim_ascii_start().starts_with(b"{");
        let value = match looks_like_json.then(|| json::read(document)) {
            Some(Ok(value)) => value,
            _ => read(document)?,
        };
        if !value.is_null() {
            values.push(value);
        }
    }
    Ok(values)
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// By the parser's numbers. An anchor is there once its value is complete.
    anchors: HashMap<usize, Value>,
    budget: usize,
    depth: usize,
    /// Complaints about keys, in order.
    duplicates: Vec<String>,
}

type Read<T> = Result<T, BadYaml>;

enum Key {
    Merge,
    /// A name, and how it stands in complaints.
    Name(String, String),
}

enum Node {
    Scalar(Scalar),
    /// Decoded from base64.
    Binary(String),
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Read<(Event<'a>, Span)> {
        // After the end of the stream nobody asks.
        let nothing = (Event::StreamEnd, Span::default());
        self.parser.next_event().unwrap_or(Ok(nothing)).map_err(syntax)
    }

    fn document(&mut self) -> Read<Value> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(Value::Null),
                Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
                event => {
                    let value = self.node(event, span)?;
                    // Whatever follows must still be well-formed up to the document's end.
                    self.next()?;
                    return Ok(value);
                }
            }
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span) -> Read<Value> {
        let line = span.start.line();
        let (value, anchor) = match event {
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).ok_or(BadYaml::Cycle(line))?;
                if self.depth + depth(value) > MAX_DEPTH {
                    return Err(BadYaml::Depth(line));
                }
                return spend(&mut self.budget, value);
            }
            Event::Scalar(text, style, anchor, tag) => match scalar(&text, style, tag.as_deref(), line)? {
                Node::Scalar(scalar) => (scalar.into_value(text)?, anchor),
                Node::Binary(text) => (Value::String(text), anchor),
            },
            Event::SequenceStart(anchor, _) => (self.nested(line, Self::sequence)?, anchor),
            Event::MappingStart(anchor, _) => (self.nested(line, Self::mapping)?, anchor),
            _ => (Value::Null, 0),
        };
        if anchor != 0 {
            let copy = spend(&mut self.budget, &value)?;
            self.anchors.insert(anchor, copy);
        }
        Ok(value)
    }

    fn nested(&mut self, line: usize, read: fn(&mut Self) -> Read<Value>) -> Read<Value> {
        if self.depth == MAX_DEPTH {
            return Err(BadYaml::Depth(line));
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn sequence(&mut self) -> Read<Value> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd | Event::StreamEnd, _) => return Ok(Value::Array(items)),
                (event, span) => items.push(self.node(event, span)?),
            }
        }
    }

    fn mapping(&mut self) -> Read<Value> {
        let mut map = Map::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd | Event::StreamEnd) {
                return Ok(Value::Object(map));
            }
            let key = self.key(event, span)?;
            let (event, span) = self.next()?;
            let line = span.start.line();
            let value = self.node(event, span)?;
            match key {
                Key::Merge => self.merge(&mut map, value, line)?,
                Key::Name(name, shown) => self.set(&mut map, name, value, &shown, line),
            }
        }
    }

    fn key(&mut self, event: Event<'a>, span: Span) -> Read<Key> {
        let line = span.start.line();
        if is_merge(&event) {
            return Ok(Key::Merge);
        }
        // A number as a key is printed from the number itself, not from what JSON makes of it.
        let text = match &event {
            Event::Scalar(text, style, 0, tag) => match scalar(text, *style, tag.as_deref(), line)? {
                Node::Scalar(scalar) => scalar.key(text).map(|key| (key, scalar == Scalar::Text)),
                Node::Binary(text) => Some((text, true)),
            },
            _ => match self.node(event, span)? {
                Value::String(text) => Some((text, true)),
                other @ (Value::Bool(_) | Value::Number(_)) => Some((other.to_string(), false)),
                _ => None,
            },
        };
        let (name, is_text) = text.ok_or(BadYaml::Key(line))?;
        let shown = if is_text { go_text::quote(&name) } else { name.clone() };
        Ok(Key::Name(name, shown))
    }

    /// `<<`: an object, or several of which the first counts most.
    fn merge(&mut self, map: &mut Map<String, Value>, value: Value, line: usize) -> Read<()> {
        let parts = match value {
            Value::Array(parts) => parts,
            part => vec![part],
        };
        for part in parts.into_iter().rev() {
            let Value::Object(part) = part else { return Err(BadYaml::Merge(line)) };
            for (key, value) in part {
                let shown = go_text::quote(&key);
                self.set(map, key, value, &shown, line);
            }
        }
        Ok(())
    }

    fn set(&mut self, map: &mut Map<String, Value>, key: String, value: Value, shown: &str, line: usize) {
        match map.entry(key) {
            Entry::Vacant(entry) => drop(entry.insert(value)),
            Entry::Occupied(mut entry) => {
                self.duplicates.push(format!("line {line}: key {shown} already set in map"));
                entry.insert(value);
            }
        }
    }
}

fn syntax(error: ScanError) -> BadYaml {
    let at = error.marker();
    BadYaml::Syntax { line: at.line(), column: at.col(), problem: error.info().to_owned() }
}

/// A copy, as long as the budget lasts.
fn spend(budget: &mut usize, value: &Value) -> Read<Value> {
    *budget = budget.checked_sub(weight(value)).ok_or(BadYaml::Aliases)?;
    Ok(value.clone())
}

fn is_merge(event: &Event<'_>) -> bool {
    match event {
        Event::Scalar(text, style, _, tag) if text == "<<" => match tag {
            None => *style == ScalarStyle::Plain,
            Some(tag) => tag.is_yaml_core_schema() && tag.suffix == "merge",
        },
        _ => false,
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, line: usize) -> Read<Node> {
    let core = tag.filter(|tag| tag.is_yaml_core_schema()).map(|tag| tag.suffix.as_str());
    let scalar = match (core, tag) {
        (None, None) if style == ScalarStyle::Plain => resolve::plain(text),
        // Tags of other families say nothing to Kubernetes.
        (None, _) | (Some("str" | "timestamp" | "merge"), _) => Scalar::Text,
        (Some("binary"), _) => return resolve::binary(text).map(Node::Binary).ok_or(BadYaml::Binary(line)),
        (Some(wanted), _) => {
            let found = resolve::plain(text);
            resolve::tagged(found, wanted).ok_or_else(|| BadYaml::Tag {
                line,
                found: found.tag(),
                text: text.to_owned(),
                wanted: format!("!!{wanted}"),
            })?
        }
    };
    Ok(Node::Scalar(scalar))
}

#[cfg(test)]
mod tests;
