//! Reading JSON, with the words that Go's reader has for what is wrong.

use serde_json::map::Entry;
use serde_json::{Map, Number, Value};
use thiserror::Error;

use crate::codec::{MAX_DEPTH, StrictError, StrictErrors};
use crate::field::Path;
use crate::go_text;

/// Why bytes are not JSON, or not JSON that can be held.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadJson {
    #[error("invalid character {found} {place}")]
    Character { found: String, place: &'static str, offset: usize },
    #[error("unexpected end of JSON input")]
    End,
    #[error("lists and objects are nested more than {MAX_DEPTH} levels deep")]
    Depth,
    #[error("json: cannot unmarshal number {0} into Go value of type float64")]
    Number(String),
}

/// Reads one value and nothing after it.
pub fn read(bytes: &[u8]) -> Result<Value, BadJson> {
    read_strict(bytes).map(|(value, _)| value)
}

/// The same, and every field that is there twice.
pub fn read_strict(bytes: &[u8]) -> Result<(Value, StrictErrors), BadJson> {
    Reader::new(bytes, StrictErrors::default()).whole()
}

/// All problems in the order in which a reader comes upon them: fields that are there twice, and these that its type does not
/// have, which somebody else has found in what was read.
pub fn in_order(bytes: &[u8], unknown: StrictErrors) -> Result<StrictErrors, BadJson> {
    let (_, mut problems) = Reader::new(bytes, unknown.clone()).whole()?;
    // Those that it was too much effort to look for.
    problems.extend(unknown);
    Ok(problems)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    problems: StrictErrors,
    /// Fields to be noted when they come.
    unknown: StrictErrors,
    /// How many bytes of paths may still be written out. The same one may come very often below a very long name.
    effort: usize,
    /// The first number too big for a float. Syntax errors further on go before it.
    number: Option<String>,
}

const EFFORT: usize = 4 << 20;

type Read<T> = Result<T, BadJson>;

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], unknown: StrictErrors) -> Self {
        Self { bytes, at: 0, depth: 0, problems: StrictErrors::default(), unknown, effort: EFFORT, number: None }
    }

    fn whole(mut self) -> Read<(Value, StrictErrors)> {
        self.skip_space();
        let value = self.value(&Path::root())?;
        self.skip_space();
        if self.at < self.bytes.len() {
            return Err(self.unexpected("after top-level value"));
        }
        match self.number {
            Some(number) => Err(BadJson::Number(number)),
            None => Ok((value, self.problems)),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    /// Between tokens: the end of the input is just that.
    fn unexpected(&self, place: &'static str) -> BadJson {
        if self.at < self.bytes.len() { self.unexpected_within(place) } else { BadJson::End }
    }

    /// Inside a token: Go takes the end of the input for a space there.
    fn unexpected_within(&self, place: &'static str) -> BadJson {
        let found = match self.peek().unwrap_or(b' ') {
            b'\'' => "'\\''".to_owned(),
            b'"' => "'\"'".to_owned(),
            byte => {
                let quoted = go_text::quote(char::from(byte).encode_utf8(&mut [0; 2]));
                format!("'{}'", quoted.trim_matches('"'))
            }
        };
        BadJson::Character { found, place, offset: self.at }
    }

    fn value(&mut self, path: &Path<'_>) -> Read<Value> {
        match self.peek() {
            Some(b'{') => self.nested(|reader| reader.object(path)),
            Some(b'[') => self.nested(|reader| reader.array(path)),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal(TRUE).map(|()| Value::Bool(true)),
            Some(b'f') => self.literal(FALSE).map(|()| Value::Bool(false)),
            Some(b'n') => self.literal(NULL).map(|()| Value::Null),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Read<Value>) -> Read<Value> {
        if self.depth == MAX_DEPTH {
            return Err(BadJson::Depth);
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn object(&mut self, path: &Path<'_>) -> Read<Value> {
        let mut map = Map::new();
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(map));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let key = self.string()?;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            self.skip_space();
            self.unknown(&path.child(&key));
            let seen = self.problems.len();
            let value = self.value(&path.child(&key))?;
            match map.entry(key) {
                Entry::Vacant(entry) => drop(entry.insert(value)),
                Entry::Occupied(mut entry) => {
                    self.duplicate(seen, &path.child(entry.key()));
                    entry.insert(value);
                }
            }
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
        self.at += 1;
        Ok(Value::Object(map))
    }

    /// Notes a field that is there again, before the problems found inside of it.
    fn duplicate(&mut self, at: usize, field: &Path<'_>) {
        if let Some(field) = self.written(field) {
            self.problems.insert(at, StrictError::Duplicate(field));
        }
    }

    /// Notes a field if it is one that was asked for.
    fn unknown(&mut self, field: &Path<'_>) {
        if self.unknown.is_empty() {
            return;
        }
        if let Some(problem) = self.written(field).map(StrictError::Unknown)
            && self.unknown.iter().any(|sought| *sought == problem)
        {
            self.problems.push(problem);
        }
    }

    fn written(&mut self, field: &Path<'_>) -> Option<String> {
        if self.problems.is_full() || self.effort == 0 {
            return None;
        }
        let field = field.to_string();
        self.effort = self.effort.saturating_sub(field.len());
        Some(field)
    }

    fn array(&mut self, path: &Path<'_>) -> Read<Value> {
        let mut items = Vec::new();
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        loop {
            self.skip_space();
            let value = self.value(&path.index(items.len()))?;
            items.push(value);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.unexpected("after array element")),
            }
        }
        self.at += 1;
        Ok(Value::Array(items))
    }

    /// The text is known by its first letter; each further one has a message of its own.
    fn literal(&mut self, rest: &[(u8, &'static str)]) -> Read<()> {
        self.at += 1;
        for (letter, place) in rest {
            if self.peek() != Some(*letter) {
                return Err(self.unexpected_within(place));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn digits(&mut self, place: &'static str) -> Read<()> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.unexpected_within(place));
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Read<Value> {
        let start = self.at;
        let mut whole = true;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits("in numeric literal")?,
        }
        if self.peek() == Some(b'.') {
            (self.at, whole) = (self.at + 1, false);
            self.digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            (self.at, whole) = (self.at + 1, false);
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        // Only ASCII went by.
        let text = std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or_default();
        if whole && let Ok(integer) = text.parse::<i64>() {
            return Ok(integer.into());
        }
        match text.parse().ok().and_then(Number::from_f64) {
            Some(float) => Ok(Value::Number(float)),
            None => {
                self.number.get_or_insert_with(|| text.to_owned());
                Ok(Value::Null)
            }
        }
    }

    fn string(&mut self) -> Read<String> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let plain = self.bytes[self.at..].iter().position(|b| ENDS_PLAIN[usize::from(*b)]);
            let Some(length) = plain else {
                self.at = self.bytes.len();
                return Err(BadJson::End);
            };
            let end = self.at + length;
            push_lossy(&mut text, &self.bytes[self.at..end]);
            self.at = end;
            match self.bytes[end] {
                b'"' => break,
                b'\\' => text.push(self.escape()?),
                _ => return Err(self.unexpected_within("in string literal")),
            }
        }
        self.at += 1;
        Ok(text)
    }

    fn escape(&mut self) -> Read<char> {
        self.at += 1;
        let c = match self.peek() {
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(c @ (b'"' | b'\\' | b'/')) => c.into(),
            Some(b'u') => {
                self.at += 1;
                return self.surrogates();
            }
            _ => return Err(self.unexpected_within("in string escape code")),
        };
        self.at += 1;
        Ok(c)
    }

    /// One `\u` escape, or two that make one character together.
    fn surrogates(&mut self) -> Read<char> {
        let first = self.hex()?;
        if let Some(c) = char::from_u32(first) {
            return Ok(c);
        }
        let start = self.at;
        if first < 0xdc00 && self.bytes[self.at..].starts_with(b"\\u") {
            self.at += 2;
            let second = self.hex()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
        self.at = start;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex(&mut self) -> Read<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|b| char::from(b).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.unexpected_within("in \\u hexadecimal character escape"))?;
            self.at += 1;
        }
        Ok(code)
    }
}

/// One replacement character for each byte that is no UTF-8, as Go has it.
fn push_lossy(text: &mut String, bytes: &[u8]) {
    if let Ok(valid) = std::str::from_utf8(bytes) {
        return text.push_str(valid);
    }
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
}

/// The bytes that cannot stand for themselves in a string.
const ENDS_PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table
};

const TRUE: &[(u8, &str)] = &[
    (b'r', "in literal true (expecting 'r')"),
    (b'u', "in literal true (expecting 'u')"),
    (b'e', "in literal true (expecting 'e')"),
];
const FALSE: &[(u8, &str)] = &[
    (b'a', "in literal false (expecting 'a')"),
    (b'l', "in literal false (expecting 'l')"),
    (b's', "in literal false (expecting 's')"),
    (b'e', "in literal false (expecting 'e')"),
];
const NULL: &[(u8, &str)] = &[
    (b'u', "in literal null (expecting 'u')"),
    (b'l', "in literal null (expecting 'l')"),
    (b'l', "in literal null (expecting 'l')"),
];
