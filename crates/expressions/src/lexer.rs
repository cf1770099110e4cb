//! Text into tokens. What is no token is told and skipped.

use crate::source::{Place, Problems};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// An operator, bracket or keyword, by its text.
    Sign(&'static str),
    Identifier,
    /// In backticks.
    Escaped,
    Int,
    Uint,
    Float,
    String,
    Bytes,
    End,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lexeme<'s> {
    pub token: Token,
    pub text: &'s str,
    pub at: usize,
}

const SIGNS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "+", "*",
    "/", "%",
];
const KEYWORDS: [&str; 4] = ["in", "true", "false", "null"];

/// All tokens, the last of them the end.
pub(crate) fn tokens<'s>(text: &'s str, problems: &mut Problems<'_>) -> Vec<Lexeme<'s>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let blank = rest.len() - rest.trim_start_matches(['\t', ' ', '\r', '\n', '\u{c}']).len();
        if blank > 0 {
            at += blank;
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else {
            match token(rest) {
                Ok((token, length)) => {
                    found.push(Lexeme { token, text: &rest[..length], at });
                    at += length;
                }
                Err(length) => {
                    let shown = rest[..length].replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
                    problems.add(Place::At(at), format!("Syntax error: token recognition error at: '{shown}'"));
                    at += length;
                }
            }
        }
    }
    found.push(Lexeme { token: Token::End, text: "<EOF>", at: text.len() });
    found
}

/// The longest token at the start and its length, or how much is none.
fn token(rest: &str) -> Result<(Token, usize), usize> {
    let bytes = rest.as_bytes();
    let first = bytes[0];
    let quoted = quoted(rest);
    if let Some(Ok((token, length))) = quoted {
        return Ok((token, length));
    }
    if first.is_ascii_alphabetic() || first == b'_' {
        let length = bytes.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
        let keyword = KEYWORDS.iter().find(|keyword| **keyword == &rest[..length]);
        return Ok((keyword.map_or(Token::Identifier, |keyword| Token::Sign(keyword)), length));
    }
    if let Some(Err(length)) = quoted {
        return Err(length);
    }
    if first == b'`' {
        let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"_.-/ ".contains(b);
        let length = 1 + bytes[1..].iter().take_while(|b| allowed(b)).count();
        return match bytes.get(length) {
            Some(b'`') if length > 1 => Ok((Token::Escaped, length + 1)),
            _ => Err(with_next(rest, length)),
        };
    }
    if first.is_ascii_digit() || (first == b'.' && bytes.get(1).is_some_and(u8::is_ascii_digit)) {
        return Ok(number(bytes));
    }
    match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
        Some(sign) => Ok((Token::Sign(sign), sign.len())),
        // The start of a longer operator, with what does not continue it.
        None if b"=&|".contains(&first) => Err(with_next(rest, 1)),
        None => Err(with_next(rest, 0)),
    }
}

/// So many bytes and the character after them.
fn with_next(rest: &str, length: usize) -> usize {
    length + rest.get(length..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8)
}

fn number(bytes: &[u8]) -> (Token, usize) {
    let digits = |from: usize| bytes.iter().skip(from).take_while(|b| b.is_ascii_digit()).count();
    let is_unsigned = |at: usize| matches!(bytes.get(at), Some(b'u' | b'U'));
    let integer = |end: usize| if is_unsigned(end) { (Token::Uint, end + 1) } else { (Token::Int, end) };
    if bytes.starts_with(b"0x") {
        let length = bytes[2..].iter().take_while(|b| b.is_ascii_hexdigit()).count();
        return if length == 0 { (Token::Int, 1) } else { integer(2 + length) };
    }
    let whole = digits(0);
    let mut end = whole;
    if bytes.get(end) == Some(&b'.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            return (Token::Float, end + 1 + sign + exponent);
        }
    }
    if end > whole { (Token::Float, end) } else { integer(whole) }
}

/// A string or bytes, where one starts here: its length, or where it breaks off.
fn quoted(rest: &str) -> Option<Result<(Token, usize), usize>> {
    let bytes = rest.as_bytes();
    let is_bytes = matches!(bytes[0], b'b' | b'B');
    let prefix = usize::from(is_bytes);
    let raw = matches!(bytes.get(prefix), Some(b'r' | b'R'));
    let start = prefix + usize::from(raw);
    let quote = *bytes.get(start).filter(|b| matches!(b, b'"' | b'\''))?;
    let token = if is_bytes { Token::Bytes } else { Token::String };
    let triple = [quote; 3];
    if bytes[start..].starts_with(&triple) {
        match content(rest, start + 3, &triple, raw) {
            Ok(end) => return Some(Ok((token, end))),
            // Two quotes are the empty string, and what follows is something else.
            Err(_) => return Some(Ok((token, start + 2))),
        }
    }
    Some(content(rest, start + 1, &[quote], raw).map(|end| (token, end)))
}

fn content(rest: &str, mut at: usize, close: &[u8], raw: bool) -> Result<usize, usize> {
    let bytes = rest.as_bytes();
    while let Some(byte) = bytes.get(at) {
        if bytes[at..].starts_with(close) {
            return Ok(at + close.len());
        }
        match byte {
            b'\\' if !raw => match escape(&bytes[at + 1..]) {
                Ok(length) => at += 1 + length,
                Err(length) => return Err(with_next(rest, floor(rest, at + 1 + length))),
            },
            b'\n' | b'\r' if close.len() == 1 => return Err(at + 1),
            _ => at += 1,
        }
    }
    Err(rest.len())
}

fn floor(rest: &str, mut at: usize) -> usize {
    at = at.min(rest.len());
    while !rest.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The length of an escape after its backslash, or where it goes wrong.
fn escape(bytes: &[u8]) -> Result<usize, usize> {
    let run = |skip: usize, want: usize, fits: fn(&u8) -> bool| {
        let have = bytes.iter().skip(skip).take(want).take_while(|b| fits(b)).count();
        if have == want { Ok(skip + want) } else { Err(skip + have) }
    };
    match bytes.first() {
        Some(b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`') => Ok(1),
        Some(b'x' | b'X') => run(1, 2, u8::is_ascii_hexdigit),
        Some(b'u') => run(1, 4, u8::is_ascii_hexdigit),
        Some(b'U') => run(1, 8, u8::is_ascii_hexdigit),
        Some(b'0'..=b'3') => run(1, 2, |b| matches!(b, b'0'..=b'7')),
        _ => Err(0),
    }
}

/// What a string or bytes token says.
pub(crate) fn unquote(text: &str, is_bytes: bool) -> Result<Vec<u8>, &'static str> {
    let raw = text.starts_with(['r', 'R']);
    let text = if raw { &text[1..] } else { text };
    let width = if text.len() >= 6 && (text.starts_with("\"\"\"") || text.starts_with("'''")) { 3 } else { 1 };
    let inner = &text[width..text.len() - width];
    if raw || !inner.contains('\\') {
        return Ok(inner.replace("\r\n", "\n").into_bytes());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(c) = characters.next() {
        if c == '\\' {
            unescape(&mut characters, is_bytes, &mut out)?;
        } else {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Ok(out)
}

fn unescape(characters: &mut std::str::Chars<'_>, is_bytes: bool, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let number = |text: &str, radix| u32::from_str_radix(text, radix).map_err(|_| "unable to unescape string");
    let mut take = |count: usize| characters.by_ref().take(count).collect::<String>();
    let kind = take(1);
    let code = match kind.as_str() {
        "a" => 0x07,
        "b" => 0x08,
        "f" => 0x0c,
        "n" => 0x0a,
        "r" => 0x0d,
        "t" => 0x09,
        "v" => 0x0b,
        "x" | "X" => number(&take(2), 16)?,
        "u" | "U" if is_bytes => return Err("unable to unescape string"),
        "u" => number(&take(4), 16)?,
        "U" => number(&take(8), 16)?,
        "0" | "1" | "2" | "3" => number(&format!("{kind}{}", take(2)), 8)?,
        _ => kind.chars().next().map_or(u32::from(b'\\'), u32::from),
    };
    if is_bytes && (matches!(kind.as_str(), "x" | "X" | "0" | "1" | "2" | "3")) {
        out.push(code as u8);
        return Ok(());
    }
    let c = char::from_u32(code).ok_or("invalid unicode code point")?;
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    Ok(())
}
