//! The text form of label selectors: a scanner and a parser with one token of foresight.

use super::label::{BadSelector, Operator, Requirement, check_key};
use crate::field::{Errors, Path};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Word,
    /// `in` or `notin`, which are words where a key or value is expected.
    In,
    NotIn,
    Open,
    Close,
    Comma,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    Unknown,
    End,
}

/// All requirements of a selector, in the order of the text.
pub fn requirements(text: &str) -> Result<Vec<Requirement>, BadSelector> {
    let mut parser = Parser { rest: text };
    let mut all = Vec::new();
    loop {
        match parser.peek_word() {
            (Token::Word | Token::Not, _) => {
                let requirement =
                    parser.requirement().map_err(|e| BadSelector(format!("unable to parse requirement: {}", e.0)))?;
                all.push(requirement);
            }
            (Token::End, _) => return Ok(all),
            (_, found) => return Err(expected(found, "!, identifier, or 'end of string'")),
        }
        match parser.next_word() {
            (Token::End, _) => return Ok(all),
            (Token::Comma, _) => match parser.peek_word() {
                (Token::Word | Token::Not, _) => {}
                (_, found) => return Err(expected(found, "identifier after ','")),
            },
            (_, found) => return Err(expected(found, "',' or 'end of string'")),
        }
    }
}

fn expected(found: &str, wanted: &str) -> BadSelector {
    BadSelector(format!("found '{found}', expected: {wanted}"))
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn requirement(&mut self) -> Result<Requirement, BadSelector> {
        let mut absent = false;
        let mut token = self.next_word();
        if token.0 == Token::Not {
            absent = true;
            token = self.next_word();
        }
        let (Token::Word, key) = token else { return Err(expected(token.1, "identifier")) };
        let mut errors = Errors::new();
        check_key(key, &Path::root(), &mut errors);
        if let Some(error) = errors.iter().next() {
            // Kubernetes names no field here, and prints its absence.
            return Err(BadSelector(format!("<nil>: {}", error.body())));
        }
        if matches!(self.peek_word().0, Token::End | Token::Comma) {
            let operator = if absent { Operator::DoesNotExist } else { Operator::Exists };
            return Requirement::new(key, operator, Vec::new());
        }
        if absent {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.list()?,
            _ => vec![self.value()?],
        };
        Requirement::new(key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, BadSelector> {
        let (token, found) = self.next();
        Ok(match token {
            Token::In => Operator::In,
            Token::NotIn => Operator::NotIn,
            Token::Equals => Operator::Equals,
            Token::DoubleEquals => Operator::DoubleEquals,
            Token::NotEquals => Operator::NotEquals,
            Token::Greater => Operator::GreaterThan,
            Token::Less => Operator::LessThan,
            _ => return Err(expected(found, "in, notin, =, ==, !=, gt, lt")),
        })
    }

    /// One value, which may be empty.
    fn value(&mut self) -> Result<Box<str>, BadSelector> {
        if matches!(self.peek_word().0, Token::End | Token::Comma) {
            return Ok(Box::default());
        }
        match self.next_word() {
            (Token::Word, value) => Ok(value.into()),
            (_, found) => Err(expected(found, "identifier")),
        }
    }

    /// Values in parentheses. A value that is left out between commas is the empty one.
    fn list(&mut self) -> Result<Vec<Box<str>>, BadSelector> {
        match self.next_word() {
            (Token::Open, _) => {}
            (_, found) => return Err(BadSelector(format!("found '{found}' expected: '('"))),
        }
        let mut values: Vec<Box<str>> = Vec::new();
        match self.peek_word() {
            (Token::Close, _) => {
                self.next_word();
                return Ok(vec![Box::default()]);
            }
            (Token::Word | Token::Comma, _) => {}
            (_, found) => return Err(expected(found, "',', ')' or identifier")),
        }
        loop {
            match self.next_word() {
                (Token::Word, value) => {
                    values.push(value.into());
                    match self.peek_word() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => break,
                        (_, found) => return Err(expected(found, "',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    let next = self.peek_word().0;
                    if values.is_empty() || matches!(next, Token::Close | Token::Comma) {
                        values.push(Box::default());
                    }
                    if next == Token::Close {
                        break;
                    }
                }
                (_, found) => return Err(expected(found, "',', or identifier")),
            }
        }
        self.next_word();
        Ok(values)
    }

    /// The next token where `in` and `notin` are words like others.
    fn next_word(&mut self) -> (Token, &'a str) {
        match self.next() {
            (Token::In | Token::NotIn, text) => (Token::Word, text),
            other => other,
        }
    }

    fn peek_word(&self) -> (Token, &'a str) {
        Parser { rest: self.rest }.next_word()
    }

    fn next(&mut self) -> (Token, &'a str) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let Some(first) = self.rest.chars().next() else { return (Token::End, "") };
        let is_special = |c: char| matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<');
        if is_special(first) {
            let (token, length) = match self.rest.as_bytes() {
                [b'=', b'=', ..] => (Token::DoubleEquals, 2),
                [b'!', b'=', ..] => (Token::NotEquals, 2),
                [b'=', ..] => (Token::Equals, 1),
                [b'!', ..] => (Token::Not, 1),
                [b'(', ..] => (Token::Open, 1),
                [b')', ..] => (Token::Close, 1),
                [b',', ..] => (Token::Comma, 1),
                [b'>', ..] => (Token::Greater, 1),
                [b'<', ..] => (Token::Less, 1),
                _ => (Token::Unknown, 1),
            };
            return (token, self.take(length));
        }
        let ends = |c: char| is_special(c) || matches!(c, ' ' | '\t' | '\r' | '\n' | '\0');
        let length = self.rest.find(ends).unwrap_or(self.rest.len());
        if length == 0 {
            // A zero byte ends the text, as in Kubernetes.
            self.rest = "";
            return (Token::End, "");
        }
        match self.take(length) {
            word @ "in" => (Token::In, word),
            word @ "notin" => (Token::NotIn, word),
            word => (Token::Word, word),
        }
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }
}
