//! What YAML 1.1 allows and the YAML 1.2 scanner refuses: a tab after a colon, and unindented lines within brackets
//! and quotes.
//!
//! Whitespace means nothing in these places, so the text is rewritten there and read again.

use super::BadYaml;

/// What may be spent on reading again before a complaint stands.
pub(super) struct Effort {
    bytes: usize,
    times: usize,
    /// Where the last complaint was: one at the same place again means that mending does not help.
    last: (usize, usize),
}

impl Effort {
    pub const ALLOWED: Effort = Effort { bytes: 16 << 20, times: 1000, last: (0, 0) };

    fn spend(&mut self, bytes: usize, at: (usize, usize)) -> Option<()> {
        self.bytes = self.bytes.checked_sub(bytes)?;
        self.times = self.times.checked_sub(1)?;
        let is_new = at != self.last;
        self.last = at;
        is_new.then_some(())
    }
}

pub(super) fn mended(text: &str, error: &BadYaml, effort: &mut Effort) -> Option<String> {
    let BadYaml::Syntax { line, column, problem } = error else { return None };
    let start = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum::<usize>();
    // Reading goes as far as the complaint; copying the rest is much cheaper.
    effort.spend(start + text.len() / 8, (*line, *column))?;
    let (before, rest) = text.split_at_checked(start)?;
    let at = rest.char_indices().nth(*column).map_or(rest.len(), |(at, _)| at);
    Some(match problem.as_str() {
        "invalid indentation" | "invalid indentation in flow construct" => format!("{before}{}{rest}", deep(before)),
        "invalid indentation in quoted scalar" => {
            let (before, rest) = text.split_at(start + at);
            let (quoted, after) = rest.split_at(quoted_length(rest)?);
            let indented = quoted.replace("\r\n", "\n").replace(['\n', '\r'], &format!("\n{}", deep(before)));
            format!("{before}{indented}{after}")
        }
        "':' must be followed by a valid YAML whitespace" => {
            let (key, value) = rest.split_at(at);
            let colon = key.trim_end_matches([' ', '\t']);
            format!("{before}{colon}{}{value}", " ".repeat(key.len() - colon.len()))
        }
        _ => return None,
    })
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
