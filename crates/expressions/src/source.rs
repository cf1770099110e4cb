//! The text of an expression, and what is wrong with it.
//!
//! Problems are shown as users of Kubernetes know them: `ERROR: <input>:line:column: what`, the line, and a mark under
//! the place. Columns count characters, from one.

use std::fmt;

/// Problems beyond these are only counted.
const MAX_PROBLEMS: usize = 100;
/// Longer lines are not shown.
const MAX_SNIPPET: usize = 16_384;

/// Where in the text, in bytes; nowhere for what concerns the whole expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    At(usize),
    Nowhere,
}

/// Why an expression does not compile: everything that is wrong, in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileErrors {
    problems: Vec<Problem>,
    more: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    line: i64,
    /// From zero.
    column: i64,
    message: String,
    snippet: Option<String>,
}

impl std::error::Error for CompileErrors {}

impl CompileErrors {
    /// The bare messages, without place and line.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.problems.iter().map(|problem| problem.message.as_str())
    }
}

impl fmt::Display for CompileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "ERROR: <input>:{}:{}: {}", problem.line, problem.column + 1, problem.message)?;
            if let Some(snippet) = &problem.snippet {
                write!(f, "\n | {snippet}\n | ")?;
                mark(f, snippet, problem.column)?;
            }
        }
        if self.more > 0 {
            write!(f, "\n{} more errors were truncated", self.more)?;
        }
        Ok(())
    }
}

/// Dots up to the place and a caret there; both are wide under wide characters.
fn mark(f: &mut fmt::Formatter<'_>, snippet: &str, column: i64) -> fmt::Result {
    let mut characters = snippet.chars();
    for c in characters.by_ref().take(column.max(0) as usize) {
        f.write_str(if c.len_utf8() > 1 { "\u{ff0e}" } else { "." })?;
    }
    f.write_str(if characters.next().is_some_and(|c| c.len_utf8() > 1) { "\u{ff3e}" } else { "^" })
}

/// Collects problems of one text.
pub(crate) struct Problems<'s> {
    text: &'s str,
    found: Vec<Problem>,
    count: usize,
}

impl<'s> Problems<'s> {
    pub fn new(text: &'s str) -> Self {
        Self { text, found: Vec::new(), count: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn add(&mut self, place: Place, message: impl Into<String>) {
        self.count += 1;
        if self.count > MAX_PROBLEMS {
            return;
        }
        let (line, column, snippet) = self.locate(place);
        self.found.push(Problem { line, column, message: message.into(), snippet });
    }

    fn locate(&self, place: Place) -> (i64, i64, Option<String>) {
        let Place::At(offset) = place else { return (-1, -1, None) };
        if self.text.is_empty() {
            return (1, -1, None);
        }
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().unwrap_or("").chars().count();
        let snippet = self.text.split('\n').nth(line).filter(|text| text.len() <= MAX_SNIPPET);
        (line as i64 + 1, column as i64, snippet.map(|text| text.replace('\t', " ")))
    }

    pub fn finish(mut self) -> Result<(), CompileErrors> {
        if self.count == 0 {
            return Ok(());
        }
        self.found.sort_by_key(|problem| (problem.line, problem.column));
        Err(CompileErrors { problems: self.found, more: self.count.saturating_sub(MAX_PROBLEMS) })
    }
}
