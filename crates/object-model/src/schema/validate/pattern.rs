//! Regular expressions as Kubernetes means them: Go's syntax, run by the `regex` crate.
//!
//! Both engines take linear time; their syntaxes differ at the edges. [`translate`] reads Go's and writes the crate's:
//! `\d \s \w \b` mean ASCII, classes have no set operations, a brace that is no repetition is itself, `\Q…\E` and octal
//! escapes exist, and repetition is limited to a thousand. What Go refuses is refused here, in Go's words.

use std::fmt;
use std::sync::OnceLock;

use regex::bytes::{Regex, RegexBuilder};

/// Memory that one compiled expression may take.
const SIZE_LIMIT: usize = 4 << 20;
/// Repetition of one part, and of nested parts multiplied.
const MAX_REPEAT: u32 = 1000;

/// A pattern of a schema, compiled when it is first used.
pub struct Pattern {
    source: Box<str>,
    compiled: OnceLock<Result<Regex, PatternError>>,
}

/// Why a pattern is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {what}{}", part.as_ref().map(|p| format!(": `{p}`")).unwrap_or_default())]
pub struct PatternError {
    what: &'static str,
    part: Option<String>,
}

impl Pattern {
    pub fn new(source: &str) -> Self {
        Self { source: source.into(), compiled: OnceLock::new() }
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn is_match(&self, text: &str) -> Result<bool, &PatternError> {
        let compiled = self.compiled.get_or_init(|| compile(&self.source));
        compiled.as_ref().map(|regex| regex.is_match(text.as_bytes()))
    }

    /// What of the text matches, from left to right, but no more than so many.
    pub fn find_all<'t>(&self, text: &'t str, limit: usize) -> Result<Vec<&'t str>, &PatternError> {
        let compiled = self.compiled.get_or_init(|| compile(&self.source));
        let found = compiled.as_ref()?.find_iter(text.as_bytes()).take(limit);
        Ok(found.filter_map(|found| text.get(found.range())).collect())
    }

    /// Is it an expression at all? Compiles and forgets, so that a schema that is only checked holds no automata.
    pub fn check(source: &str) -> Result<(), PatternError> {
        compile(source).map(drop)
    }
}

impl Clone for Pattern {
    fn clone(&self) -> Self {
        Self::new(&self.source)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.source)
    }
}

fn compile(source: &str) -> Result<Regex, PatternError> {
    let translated = translate(source)?;
    let built = RegexBuilder::new(&translated).size_limit(SIZE_LIMIT).dfa_size_limit(SIZE_LIMIT).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => PatternError { what: "expression too large", part: None },
        // The crate agrees with Go on what is left, or nests less deeply.
        _ => PatternError { what: "invalid or too deeply nested expression", part: Some(source.to_owned()) },
    })
}

/// Go's syntax in, the crate's syntax out.
fn translate(source: &str) -> Result<String, PatternError> {
    let mut t = Translator { source, at: 0, out: String::with_capacity(source.len() + 16) };
    t.run()?;
    Ok(t.out)
}

struct Translator<'s> {
    source: &'s str,
    at: usize,
    out: String,
}

/// What a repetition operator would apply to.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    Nothing,
    /// An expression, and how often its content may already be repeated.
    Atom(u32),
    /// A repetition, which started here.
    Repeated(usize),
}

impl<'s> Translator<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.at += text.len();
        }
        found
    }

    fn error<T>(&self, what: &'static str, from: usize) -> Result<T, PatternError> {
        Err(PatternError { what, part: Some(self.source[from..self.at].to_owned()) })
    }

    fn run(&mut self) -> Result<(), PatternError> {
        // For each open group the largest repetition inside it so far; the last entry is the current level.
        let mut most = vec![1u32];
        let mut before = Before::Nothing;
        while let Some(c) = self.peek() {
            let start = self.at;
            if let Some(repeat) = self.repetition()? {
                before = self.repeat(start, before, repeat, &mut most)?;
                continue;
            }
            self.next();
            before = match c {
                '(' => {
                    if self.open_group(start)? {
                        most.push(1);
                    }
                    Before::Nothing
                }
                ')' => {
                    let inner = most.pop().unwrap_or(1);
                    let Some(outer) = most.last_mut() else {
                        return Err(PatternError { what: "unexpected )", part: Some(self.source.to_owned()) });
                    };
                    *outer = (*outer).max(inner);
                    self.out.push(')');
                    Before::Atom(inner)
                }
                '|' => {
                    self.out.push('|');
                    Before::Nothing
                }
                '[' => {
                    self.class(start)?;
                    Before::Atom(1)
                }
                '\\' => {
                    let length = self.out.len();
                    self.escape(start)?;
                    // An empty quotation leaves what stood before it.
                    if self.out.len() == length { before } else { Before::Atom(1) }
                }
                '^' | '$' | '.' => {
                    self.out.push(c);
                    Before::Atom(1)
                }
                _ => {
                    self.literal(c);
                    Before::Atom(1)
                }
            };
        }
        if most.len() > 1 {
            return Err(PatternError { what: "missing closing )", part: Some(self.source.to_owned()) });
        }
        Ok(())
    }

    /// Reads `*`, `+`, `?` or a counted repetition and says how often at most; leaves anything else.
    fn repetition(&mut self) -> Result<Option<u32>, PatternError> {
        let start = self.at;
        match self.peek() {
            Some('*' | '+' | '?') => {
                self.next();
                Ok(Some(1))
            }
            Some('{') => {
                let Some((min, max, length)) = counts(self.rest()) else { return Ok(None) };
                self.at += length;
                match (min, max) {
                    (Some(min), Some(max)) if min <= max && max <= MAX_REPEAT => Ok(Some(max.max(1))),
                    (Some(min), None) if min <= MAX_REPEAT => Ok(Some(min.max(1))),
                    _ => self.error("invalid repeat count", start),
                }
            }
            _ => Ok(None),
        }
    }

    fn repeat(&mut self, start: usize, before: Before, times: u32, most: &mut [u32]) -> Result<Before, PatternError> {
        self.eat("?");
        let inner = match before {
            Before::Nothing => return self.error("missing argument to repetition operator", start),
            Before::Repeated(first) => return self.error("invalid nested repetition operator", first),
            Before::Atom(inner) => inner,
        };
        let total = inner.saturating_mul(times);
        if total > MAX_REPEAT {
            return self.error("invalid repeat count", start);
        }
        if let Some(level) = most.last_mut() {
            *level = (*level).max(total);
        }
        self.out.push_str(&self.source[start..self.at]);
        Ok(Before::Repeated(start))
    }

    /// After `(`: writes the group's opening and says whether a group was opened, which `(?i)` does not.
    fn open_group(&mut self, start: usize) -> Result<bool, PatternError> {
        if !self.eat("?") {
            self.out.push('(');
            return Ok(true);
        }
        if self.eat("P<") || self.eat("<") {
            if self.rest().starts_with(['=', '!']) {
                return self.error("invalid or unsupported Perl syntax", start);
            }
            let name_at = self.at;
            let Some(end) = self.rest().find('>') else {
                self.at = self.source.len();
                return self.error("invalid named capture", start);
            };
            self.at += end + 1;
            let name = &self.source[name_at..name_at + end];
            if name.is_empty() || !name.chars().all(|c| c == '_' || c.is_alphanumeric()) {
                return self.error("invalid named capture", start);
            }
            // Names play no part in matching, and the crate is stricter about them.
            self.out.push('(');
            return Ok(true);
        }
        self.out.push_str("(?");
        let mut negated = false;
        let mut any = false;
        loop {
            match self.next() {
                Some(c @ ('i' | 'm' | 's' | 'U')) => {
                    any = true;
                    self.out.push(c);
                }
                Some('-') if !negated => {
                    negated = true;
                    any = false;
                    self.out.push('-');
                }
                Some(c @ (':' | ')')) if any || !negated => {
                    if c == ')' && self.out.ends_with("(?") {
                        // `(?)` sets nothing; the crate has no such group.
                        self.out.truncate(self.out.len() - 2);
                        return Ok(false);
                    }
                    self.out.push(c);
                    return Ok(c == ':');
                }
                _ => return self.error("invalid or unsupported Perl syntax", start),
            }
        }
    }

    fn escape(&mut self, start: usize) -> Result<(), PatternError> {
        if self.eat("Q") {
            let text = self.rest();
            let end = text.find("\\E");
            for c in text[..end.unwrap_or(text.len())].chars() {
                self.literal(c);
            }
            self.at += end.map_or(text.len(), |end| end + 2);
            return Ok(());
        }
        match self.peek() {
            Some('A') => self.write_escape("\\A"),
            Some('z') => self.write_escape("\\z"),
            Some('b') => self.write_escape("(?-u:\\b)"),
            Some('B') => self.write_escape("(?-u:\\B)"),
            _ => {
                if let Some(members) = self.perl_class(start)? {
                    self.out.push('[');
                    self.out.push_str(&members);
                    self.out.push(']');
                } else {
                    let c = self.escaped_char(start)?;
                    self.literal(c);
                }
            }
        }
        Ok(())
    }

    fn write_escape(&mut self, text: &str) {
        self.next();
        self.out.push_str(text);
    }

    /// After a backslash: `\d`, `\pL` and their kin, as members of a class.
    fn perl_class(&mut self, start: usize) -> Result<Option<String>, PatternError> {
        let members = match self.peek() {
            Some('d') => "0-9",
            Some('D') => "[^0-9]",
            Some('s') => "\\t\\n\\x0C\\r ",
            Some('S') => "[^\\t\\n\\x0C\\r ]",
            Some('w') => "0-9A-Za-z_",
            Some('W') => "[^0-9A-Za-z_]",
            Some('p' | 'P') => return self.unicode_class(start).map(Some),
            _ => return Ok(None),
        };
        self.next();
        Ok(Some(members.to_owned()))
    }

    fn unicode_class(&mut self, start: usize) -> Result<String, PatternError> {
        let mut negated = self.next() == Some('P');
        let name = match self.next() {
            Some('{') => {
                let at = self.at;
                let Some(end) = self.rest().find('}') else {
                    self.at = self.source.len();
                    return self.error("invalid character class range", start);
                };
                self.at += end + 1;
                &self.source[at..at + end]
            }
            Some(c) => &self.source[self.at - c.len_utf8()..self.at],
            None => return self.error("invalid character class range", start),
        };
        let name = name.strip_prefix('^').inspect(|_| negated = !negated).unwrap_or(name);
        let class = format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' });
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_- ".contains(c));
        if !plain || Regex::new(&class).is_err() {
            return self.error("invalid character class range", start);
        }
        Ok(class)
    }

    /// After a backslash: one character.
    fn escaped_char(&mut self, start: usize) -> Result<char, PatternError> {
        let Some(c) = self.next() else {
            return Err(PatternError { what: "trailing backslash at end of expression", part: Some(String::new()) });
        };
        let code = match c {
            // A single digit would be a back reference, which neither engine has.
            '1'..='7' if !self.peek().is_some_and(|c| c.is_digit(8)) => None,
            '0'..='7' => {
                let digits =
                    self.source[self.at - 1..].bytes().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
                let octal = &self.source[self.at - 1..self.at - 1 + digits];
                self.at += digits - 1;
                u32::from_str_radix(octal, 8).ok()
            }
            'x' => self.hex(),
            'a' => Some(7),
            'f' => Some(12),
            'n' => Some(10),
            'r' => Some(13),
            't' => Some(9),
            'v' => Some(11),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(u32::from(c)),
            _ => None,
        };
        match code.and_then(char::from_u32) {
            Some(c) => Ok(c),
            None => self.error("invalid escape sequence", start),
        }
    }

    /// After `\x`: two digits or any number in braces, where reading stops after the first character that is wrong.
    fn hex(&mut self) -> Option<u32> {
        if !self.eat("{") {
            let (high, low) = (self.next()?, self.next()?);
            return Some(high.to_digit(16)? * 16 + low.to_digit(16)?);
        }
        let mut code = None;
        loop {
            let c = self.next()?;
            match c.to_digit(16) {
                Some(digit) => code = Some(code.unwrap_or(0u32).checked_mul(16)? + digit),
                None => return code.filter(|_| c == '}'),
            }
        }
    }

    /// After `[`.
    fn class(&mut self, start: usize) -> Result<(), PatternError> {
        self.out.push('[');
        if self.eat("^") {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            match self.peek() {
                None => {
                    self.at = self.source.len();
                    return self.error("missing closing ]", start);
                }
                Some(']') if !first => break,
                Some(_) => self.class_member(start)?,
            }
            first = false;
        }
        self.next();
        self.out.push(']');
        Ok(())
    }

    fn class_member(&mut self, class_start: usize) -> Result<(), PatternError> {
        let start = self.at;
        if let Some(end) = self.rest().strip_prefix("[:").and_then(|rest| rest.find(":]")) {
            self.at += end + 4;
            let name = &self.source[start..self.at];
            if Regex::new(&format!("[{name}]")).is_err()
                || !name[2..].starts_with(|c: char| c == '^' || c.is_ascii_lowercase())
            {
                return self.error("invalid character class range", start);
            }
            self.out.push_str(name);
            return Ok(());
        }
        if self.rest().starts_with('\\') {
            self.next();
            if let Some(members) = self.perl_class(start)? {
                self.out.push_str(&members);
                return Ok(());
            }
            self.at = start;
        }
        let low = self.class_char(class_start)?;
        // A dash before the closing bracket stands for itself.
        let range = self.rest().starts_with('-') && !self.rest().starts_with("-]") && self.rest().len() > 1;
        if !range {
            self.literal(low);
            return Ok(());
        }
        self.next();
        let high = self.class_char(class_start)?;
        if high < low {
            return self.error("invalid character class range", start);
        }
        self.literal(low);
        self.out.push('-');
        self.literal(high);
        Ok(())
    }

    fn class_char(&mut self, class_start: usize) -> Result<char, PatternError> {
        let start = self.at;
        match self.next() {
            Some('\\') => self.escaped_char(start),
            Some(c) => Ok(c),
            None => self.error("missing closing ]", class_start),
        }
    }

    fn literal(&mut self, c: char) {
        if c.is_ascii_punctuation() && c != '<' && c != '>' && c != '_' {
            self.out.push('\\');
        }
        self.out.push(c);
    }
}

/// Reads `{n}`, `{n,}` or `{n,m}`: the counts and the length. A number too large to be one is `None`.
fn counts(text: &str) -> Option<(Option<u32>, Option<u32>, usize)> {
    let inside = &text[1..text.find('}')?];
    let number = |digits: &str| -> Option<Option<u32>> {
        let plain = !digits.is_empty()
            && digits.bytes().all(|b| b.is_ascii_digit())
            && (digits.len() == 1 || !digits.starts_with('0'));
        plain.then(|| digits.parse().ok())
    };
    let (min, max) = match inside.split_once(',') {
        None => {
            let exact = number(inside)?;
            (exact, exact)
        }
        Some((min, "")) => (number(min)?, None),
        // Too large a maximum must not read as an open end.
        Some((min, max)) => (number(min)?, Some(number(max)?.unwrap_or(u32::MAX))),
    };
    Some((min, max, inside.len() + 2))
}

#[cfg(test)]
mod tests;
