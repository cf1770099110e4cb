//! Objects as bytes: JSON, YAML and Kubernetes protobuf, and their canonical form.
//!
//! What comes from outside is bounded: nesting by [`MAX_DEPTH`], and what YAML aliases expand to by a budget. So
//! walking a decoded value may recurse without a limit of its own.

use std::fmt;

use crate::go_text::quote;

pub mod canonical;
pub mod json;
pub mod protobuf;
pub mod yaml;

/// How deep lists and objects may be nested, in what is read and in what is stored. Kubernetes allows 10,000, on stacks
/// that grow; real objects stay below 60.
///
/// Here every walk over a value must fit on a thread's stack, and whatever is accepted must be read again by readers that
/// stop at 128 levels (`serde_json`), also when it stands some levels down in a list, a table, an event or a review.
pub const MAX_DEPTH: usize = 100;

/// Something that a strict reader refuses and a lenient one passes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StrictError {
    /// The path of a field that is there twice.
    Duplicate(String),
    /// The path of a field that the type does not have.
    Unknown(String),
    /// Something only YAML has, in the words of its reader.
    Yaml(String),
}

impl fmt::Display for StrictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StrictError::Duplicate(path) => write!(f, "duplicate field {}", quote(path)),
            StrictError::Unknown(path) => write!(f, "unknown field {}", quote(path)),
            StrictError::Yaml(message) => f.write_str(message),
        }
    }
}

/// What is wrong for strict readers, each thing once. Kubernetes stops counting at a hundred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StrictErrors(Vec<StrictError>);

impl StrictErrors {
    pub(crate) const MOST: usize = 100;

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, StrictError> {
        self.0.iter()
    }

    /// Is nothing more taken? Then a path need not be written out.
    pub fn is_full(&self) -> bool {
        self.len() >= Self::MOST
    }

    pub fn push(&mut self, error: StrictError) {
        self.insert(self.len(), error);
    }

    /// For readers that notice an outer problem after the inner ones.
    fn insert(&mut self, at: usize, error: StrictError) {
        if !self.is_full() && !self.0.contains(&error) {
            self.0.insert(at.min(self.len()), error);
        }
    }

    pub fn extend(&mut self, others: StrictErrors) {
        others.0.into_iter().for_each(|error| self.push(error));
    }
}

/// As Kubernetes words it in the refusal of a request.
impl fmt::Display for StrictErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.iter().map(StrictError::to_string).collect();
        write!(f, "strict decoding error: {}", words.join(", "))
    }
}
