//! What YAML 1.1 allows and the YAML 1.2 scanner refuses: a tab after a colon, and unindented lines within brackets
//! and quotes.
//!
//! Whitespace means nothing in these places, so the text is rewritten there and read again.

use super::BadYaml;

/// How many bytes may be read again before a complaint stands.
pub(super) const EFFORT: usize = 8 << 20;

pub(super) fn mended(text: &str, error: &BadYaml, effort: &mut usize) -> Option<String> {
    let BadYaml::Syntax { line, column, problem } = error else { return None };
    let start = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum::<usize>();
    let (before, rest) = text.split_at_checked(start)?;
    let at = rest.char_indices().nth(*column).map_or(rest.len(), |(at, _)| at);
    let mended = match problem.as_str() {
        "invalid indentation" | "invalid indentation in flow construct" => format!("{before}{}{rest}", deep(before)),
        "invalid indentation in quoted scalar" => {
            let (before, rest) = text.split_at(start + at);
            let (quoted, after) = rest.split_at(quoted_length(rest)?);
            format!("{before}{}{after}", quoted.replace('\n', &format!("\n{}", deep(before))))
        }
        "':' must be followed by a valid YAML whitespace" => {
            let (key, value) = rest.split_at(at);
            let colon = key.trim_end_matches([' ', '\t']);
            format!("{before}{colon}{}{value}", " ".repeat(key.len() - colon.len()))
        }
        _ => return None,
    };
    *effort = effort.checked_sub(mended.len())?;
    (mended != text).then_some(mended)
}

/// More spaces than any line before has.
fn deep(before: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    " ".repeat(before.lines().map(indent).max().unwrap_or(0) + 1)
}

/// Up to and with the closing quote.
fn quoted_length(text: &str) -> Option<usize> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if quote == '"' => drop(chars.next()),
            c if c != quote => {}
            '\'' if chars.peek().is_some_and(|(_, c)| *c == '\'') => drop(chars.next()),
            _ => return Some(at + 1),
        }
    }
    None
}
