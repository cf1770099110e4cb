//! Field selectors: `spec.nodeName=a,status.phase!=Running`.

use std::fmt;

use crate::go_text::quote;

/// All terms must hold. None select everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

/// What one field must be, or must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    pub field: Box<str>,
    pub value: Box<str>,
    pub equal: bool,
}

/// Why a text is no field selector, in Kubernetes' words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFieldSelector {
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term { selector: String, term: String },
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    #[error("invalid field selector: unescaped character in value: {}", *.0 as u32)]
    Unescaped(char),
    /// Objects of the kind can only be selected by name and namespace.
    #[error("{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"", quote(.0))]
    Unknown(String),
    /// Objects of the kind can be selected by other fields too, but not by this one.
    #[error("field label not supported: {0}")]
    NotSupported(String),
}

impl FieldSelector {
    /// Reads the text form. The empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, BadFieldSelector> {
        let mut parts = split(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|p| !p.is_empty()) {
            let Some((field, equal, value)) = operator(part) else {
                return Err(BadFieldSelector::Term { selector: text.to_owned(), term: part.to_owned() });
            };
            let value = unescape(value)?;
            // A term such as `=` says nothing.
            if !(field.is_empty() && value.is_empty()) {
                terms.push(FieldTerm { field: field.into(), value: value.into(), equal });
            }
        }
        Ok(Self { terms })
    }

    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// The one value that a field must have, if the selector says so: what indexes are looked up by.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|t| t.equal && *t.field == *field).map(|t| &*t.value)
    }

    /// Refuses fields that objects of a kind cannot be selected by. Name and namespace are always known; `is_known`
    /// tells of others. A kind that has others words its refusal differently.
    pub fn check(&self, is_known: impl Fn(&str) -> bool, has_others: bool) -> Result<(), BadFieldSelector> {
        let unknown =
            |t: &&FieldTerm| !matches!(&*t.field, "metadata.name" | "metadata.namespace") && !is_known(&t.field);
        match self.terms.iter().find(unknown) {
            None => Ok(()),
            Some(term) if has_others => Err(BadFieldSelector::NotSupported(term.field.to_string())),
            Some(term) => Err(BadFieldSelector::Unknown(term.field.to_string())),
        }
    }

    /// Whether fields, read by name, are selected. An absent field is empty.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> &'a str) -> bool {
        self.terms.iter().all(|t| (*field(&t.field) == *t.value) == t.equal)
    }
}

/// At commas that are not escaped.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (i, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Field, whether it must be equal, and value: at the first operator.
fn operator(term: &str) -> Option<(&str, bool, &str)> {
    let at =
        term.char_indices().map(|(i, _)| i).find(|i| term[*i..].starts_with("!=") || term[*i..].starts_with('='))?;
    let (field, rest) = term.split_at(at);
    if let Some(value) = rest.strip_prefix("!=") {
        return Some((field, false, value));
    }
    let value = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?;
    Some((field, true, value))
}

fn unescape(value: &str) -> Result<String, BadFieldSelector> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(other) => return Err(BadFieldSelector::Escape(format!("\\{other}"))),
                None => return Err(BadFieldSelector::Escape("\\".to_owned())),
            },
            ',' | '=' => return Err(BadFieldSelector::Unescaped(c)),
            c => out.push(c),
        }
    }
    Ok(out)
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let operator = if term.equal { "=" } else { "!=" };
            write!(f, "{comma}{}{operator}", term.field)?;
            for c in term.value.chars() {
                if matches!(c, '\\' | ',' | '=') {
                    f.write_str("\\")?;
                }
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}
