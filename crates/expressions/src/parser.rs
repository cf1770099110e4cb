//! Tokens into a tree, by descent over the grammar of CEL.
//!
//! Problems are told in the words of the generated parser that Kubernetes uses, as far as users meet them: a token too
//! many is skipped, one that is missing is supplied, and after anything worse parsing stops.

use crate::ast::{Element, Entry, Expr, Field, Fold, Kind, Literal, MAX_DEPTH, MAX_NODES, operator};
use crate::lexer::{Lexeme, Token, tokens, unquote};
use crate::macros;
use crate::source::{Place, Problems};

/// Longer expressions are refused before they are read.
const MAX_CHARACTERS: usize = 100_000;
const MAX_NESTING: u16 = MAX_DEPTH;
const STARTS: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, \
                      BYTES, IDENTIFIER}";
/// Words that are kept for later versions of CEL and cannot name anything.
pub const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The binary operators, loosest first, with the function each stands for.
const BINARY: [(u8, &str, &str); 14] = [
    (1, "||", operator::OR),
    (2, "&&", operator::AND),
    (3, "==", operator::EQUALS),
    (3, "!=", operator::NOT_EQUALS),
    (3, "<", operator::LESS),
    (3, "<=", operator::LESS_EQUALS),
    (3, ">", operator::GREATER),
    (3, ">=", operator::GREATER_EQUALS),
    (3, "in", operator::IN),
    (4, "+", operator::ADD),
    (4, "-", operator::SUBTRACT),
    (5, "*", operator::MULTIPLY),
    (5, "/", operator::DIVIDE),
    (5, "%", operator::MODULO),
];

/// Which macros there are beside the standard ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dialect {
    /// `cel.bind`.
    pub bindings: bool,
}

pub(crate) struct Parser<'s, 'p> {
    text: &'s str,
    lexemes: Vec<Lexeme<'s>>,
    next: usize,
    pub problems: &'p mut Problems<'s>,
    pub dialect: Dialect,
    ids: u32,
    nesting: u16,
    /// Nothing more is read, and nothing more told.
    stopped: bool,
}

/// The tree of an expression. It means something only if no problem was told.
pub(crate) fn parse<'s>(text: &'s str, dialect: Dialect, problems: &mut Problems<'s>) -> Expr {
    let length = text.chars().count();
    if length > MAX_CHARACTERS {
        let message = format!("expression code point size exceeds limit: size: {length}, limit {MAX_CHARACTERS}");
        problems.add(Place::Nowhere, message);
        return Expr { id: 0, at: 0, depth: 0, kind: Kind::Broken };
    }
    let lexemes = tokens(text, problems);
    let mut parser = Parser { text, lexemes, next: 0, problems, dialect, ids: 0, nesting: 0, stopped: false };
    let expr = parser.expr();
    parser.end();
    expr
}

impl<'s> Parser<'s, '_> {
    fn peek(&self) -> Lexeme<'s> {
        self.peek_after(0)
    }

    fn peek_after(&self, count: usize) -> Lexeme<'s> {
        let end = Lexeme { token: Token::End, text: "<EOF>", at: self.text.len() };
        self.lexemes.get(self.next + count).copied().unwrap_or(end)
    }

    fn is(&self, sign: &str) -> bool {
        !self.stopped && matches!(self.peek().token, Token::Sign(found) if found == sign)
    }

    fn take(&mut self) -> Lexeme<'s> {
        let lexeme = self.peek();
        self.next += 1;
        lexeme
    }

    /// Takes the sign if it is next, and says where it was.
    fn accept(&mut self, sign: &str) -> Option<usize> {
        self.is(sign).then(|| self.take().at)
    }

    fn syntax(&mut self, at: usize, what: String) {
        if !self.stopped {
            self.problems.add(Place::At(at), format!("Syntax error: {what}"));
        }
    }

    /// Tells that something else was expected, and gives up.
    fn mismatched(&mut self, expected: &str) {
        let found = self.peek();
        self.syntax(found.at, format!("mismatched input '{}' expecting {expected}", found.text));
        self.stopped = true;
    }

    /// Takes the sign; one token too many or one too few is told and mended.
    fn expect(&mut self, sign: &str, may_follow: fn(&Lexeme<'_>) -> bool) {
        if self.stopped || self.accept(sign).is_some() {
            return;
        }
        let (found, after) = (self.peek(), self.peek_after(1));
        if found.token != Token::End && matches!(after.token, Token::Sign(text) if text == sign) {
            self.syntax(found.at, format!("extraneous input '{}' expecting '{sign}'", found.text));
            self.next += 2;
        } else if may_follow(&found) {
            self.syntax(found.at, format!("missing '{sign}' at '{}'", found.text));
        } else {
            self.mismatched(&format!("'{sign}'"));
        }
    }

    fn end(&mut self) {
        let found = self.peek();
        if self.stopped || found.token == Token::End {
            return;
        }
        let word = if self.peek_after(1).token == Token::End { "extraneous" } else { "mismatched" };
        self.syntax(found.at, format!("{word} input '{}' expecting <EOF>", found.text));
    }

    /// A node, unless the tree becomes too deep or too large.
    pub fn node(&mut self, at: usize, kind: Kind) -> Expr {
        let depth = kind.depth_of_parts().saturating_add(1);
        self.ids += 1;
        let id = self.ids;
        let broken = Expr { id, at, depth: 0, kind: Kind::Broken };
        if id >= MAX_NODES {
            self.give_up(format!("expression size limit exceeded: {MAX_NODES}"));
            return broken;
        }
        if depth > MAX_DEPTH {
            self.give_up("max recursion depth exceeded".to_owned());
            return broken;
        }
        Expr { id, at, depth, kind }
    }

    fn give_up(&mut self, message: String) {
        if !self.stopped {
            self.problems.add(Place::Nowhere, message);
        }
        self.stopped = true;
        self.next = self.lexemes.len();
    }

    pub fn broken(&mut self, at: usize, message: impl Into<String>) -> Expr {
        if !self.stopped {
            self.problems.add(Place::At(at), message);
        }
        self.node(at, Kind::Broken)
    }

    pub fn call(&mut self, at: usize, function: &str, args: Vec<Expr>) -> Expr {
        self.node(at, Kind::Call { target: None, function: function.to_owned(), args })
    }

    pub fn literal(&mut self, at: usize, literal: Literal) -> Expr {
        self.node(at, Kind::Literal(literal))
    }

    pub fn ident(&mut self, at: usize, name: &str) -> Expr {
        self.node(at, Kind::Ident(name.to_owned()))
    }

    pub fn list(&mut self, at: usize, values: Vec<Expr>) -> Expr {
        let elements = values.into_iter().map(|value| Element { value, optional: false }).collect();
        self.node(at, Kind::List { elements })
    }

    pub fn fold(&mut self, at: usize, fold: Fold) -> Expr {
        self.node(at, Kind::Fold(Box::new(fold)))
    }

    /// The same again under new ids, which is a node each.
    pub fn copy(&mut self, expr: &Expr) -> Expr {
        if self.stopped {
            return self.node(expr.at, Kind::Broken);
        }
        let kind = match &expr.kind {
            Kind::Broken | Kind::Literal(_) | Kind::Ident(_) => expr.kind.clone(),
            Kind::Select { operand, field, test } => {
                Kind::Select { operand: Box::new(self.copy(operand)), field: field.clone(), test: *test }
            }
            Kind::Call { target, function, args } => Kind::Call {
                target: target.as_ref().map(|target| Box::new(self.copy(target))),
                function: function.clone(),
                args: args.iter().map(|arg| self.copy(arg)).collect(),
            },
            Kind::List { elements } => {
                let copied = |e: &Element, p: &mut Self| Element { value: p.copy(&e.value), optional: e.optional };
                Kind::List { elements: elements.iter().map(|element| copied(element, self)).collect() }
            }
            Kind::Map { entries } => {
                let copied = |e: &Entry, p: &mut Self| Entry {
                    key: p.copy(&e.key),
                    value: p.copy(&e.value),
                    optional: e.optional,
                };
                Kind::Map { entries: entries.iter().map(|entry| copied(entry, self)).collect() }
            }
            Kind::Struct { name, fields } => {
                let copied = |f: &Field, p: &mut Self| Field { value: p.copy(&f.value), ..f.clone() };
                let fields = fields.iter().map(|field| copied(field, self)).collect();
                Kind::Struct { name: name.clone(), fields }
            }
            Kind::Fold(fold) => Kind::Fold(Box::new(Fold {
                range: self.copy(&fold.range),
                initial: self.copy(&fold.initial),
                condition: self.copy(&fold.condition),
                step: self.copy(&fold.step),
                result: self.copy(&fold.result),
                variable: fold.variable.clone(),
                second: fold.second.clone(),
                accumulator: fold.accumulator.clone(),
            })),
        };
        self.node(expr.at, kind)
    }

    fn expr(&mut self) -> Expr {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            self.give_up(format!("expression recursion limit exceeded: {MAX_NESTING}"));
        }
        let condition = self.binary(1);
        let expr = match self.accept("?") {
            None => condition,
            Some(at) => {
                let if_true = self.binary(1);
                self.expect(":", starts_expr);
                let if_false = self.expr();
                self.call(at, operator::CONDITIONAL, vec![condition, if_true, if_false])
            }
        };
        self.nesting -= 1;
        expr
    }

    /// Operators that bind at least so tightly. `&&` and `||` gather all their terms in one call.
    fn binary(&mut self, min: u8) -> Expr {
        let mut left = self.unary();
        // The call that further terms of the same operator join; one in parentheses is an operand like any other.
        let mut chain = None;
        loop {
            let sign = self.peek().token;
            let found = BINARY.iter().find(|(_, text, _)| sign == Token::Sign(text));
            let Some((level, _, function)) = found.filter(|(level, ..)| *level >= min && !self.stopped) else {
                return left;
            };
            let at = self.take().at;
            let right = self.binary(level + 1);
            let joins = *level <= 2 && chain == Some((*level, left.id));
            left = match left.kind {
                Kind::Call { ref mut args, .. } if joins => {
                    args.push(right);
                    let depth = left.kind.depth_of_parts() + 1;
                    Expr { depth, ..left }
                }
                _ => {
                    let call = self.call(at, function, vec![left, right]);
                    chain = Some((*level, call.id));
                    call
                }
            };
        }
    }

    fn unary(&mut self) -> Expr {
        let sign = if self.is("!") {
            "!"
        } else if self.is("-") {
            "-"
        } else {
            return self.member();
        };
        let at = self.peek().at;
        let mut count = 0;
        while self.is(sign) {
            // A minus right before a number belongs to it.
            if sign == "-" && matches!(self.peek_after(1).token, Token::Int | Token::Float) {
                break;
            }
            self.take();
            count += 1;
        }
        let operand = self.member();
        match (sign, count % 2) {
            (_, 0) => operand,
            ("!", _) => self.call(at, operator::NOT, vec![operand]),
            _ => self.call(at, operator::NEGATE, vec![operand]),
        }
    }

    fn member(&mut self) -> Expr {
        let mut expr = self.primary();
        while !self.stopped {
            expr = if let Some(at) = self.accept(".") {
                self.select(expr, at)
            } else if let Some(at) = self.accept("[") {
                let function = if self.accept("?").is_some() { operator::OPT_INDEX } else { operator::INDEX };
                let index = self.expr();
                self.expect("]", continues_expr);
                self.call(at, function, vec![expr, index])
            } else {
                break;
            };
        }
        expr
    }

    fn select(&mut self, operand: Expr, at: usize) -> Expr {
        let optional = self.accept("?").is_some();
        let name = self.peek();
        match name.token {
            Token::Identifier => {}
            Token::Escaped => return self.broken(name.at, "unsupported syntax: '`'"),
            Token::Sign("true" | "false" | "null") => {
                self.mismatched("IDENTIFIER");
                return operand;
            }
            _ => {
                let end = if name.token == Token::End { at + 1 } else { name.at + name.text.len() };
                let input = self.text.get(at..end).unwrap_or(".");
                self.syntax(name.at, format!("no viable alternative at input '{input}'"));
                self.stopped = true;
                return operand;
            }
        }
        self.take();
        if optional {
            let field = self.literal(name.at, Literal::String(name.text.to_owned()));
            return self.call(at, operator::OPT_SELECT, vec![operand, field]);
        }
        match self.accept("(") {
            Some(open) => {
                let args = self.arguments();
                macros::member_call(self, open, name.text, operand, args)
            }
            None => {
                let kind = Kind::Select { operand: Box::new(operand), field: name.text.to_owned(), test: false };
                self.node(at, kind)
            }
        }
    }

    fn arguments(&mut self) -> Vec<Expr> {
        let mut args = Vec::new();
        if self.accept(")").is_some() {
            return args;
        }
        loop {
            args.push(self.expr());
            if self.accept(",").is_none() {
                break;
            }
        }
        self.expect(")", continues_expr);
        args
    }

    fn primary(&mut self) -> Expr {
        if self.stopped {
            return Expr { id: 0, at: 0, depth: 0, kind: Kind::Broken };
        }
        let found = self.peek();
        match found.token {
            Token::Sign("(") => {
                self.take();
                let expr = self.expr();
                self.expect(")", continues_expr);
                expr
            }
            Token::Sign("[") => self.list_literal(),
            Token::Sign("{") => self.map_literal(),
            Token::Sign(".") if self.peek_after(1).token == Token::Identifier => {
                self.take();
                self.name(found.at, ".")
            }
            Token::Identifier => self.name(found.at, ""),
            _ => match self.constant() {
                Some(expr) => expr,
                None => self.nothing(STARTS),
            },
        }
    }

    /// No expression starts here: skips one token if that helps.
    fn nothing(&mut self, expected: &str) -> Expr {
        let found = self.peek();
        if found.token != Token::End && starts_expr(&self.peek_after(1)) {
            self.syntax(found.at, format!("extraneous input '{}' expecting {expected}", found.text));
            self.take();
            return self.primary();
        }
        self.syntax(found.at, format!("mismatched input '{}' expecting {expected}", found.text));
        // An operator goes on with what is right of it; after anything else nothing can be told any more.
        let is_operator = BINARY.iter().any(|(_, text, _)| found.token == Token::Sign(text));
        self.stopped |= !is_operator && found.token != Token::Sign("?");
        Expr { id: 0, at: found.at, depth: 0, kind: Kind::Broken }
    }

    /// A variable, a call, or a message under construction.
    fn name(&mut self, at: usize, dot: &str) -> Expr {
        let first = self.take();
        let mut ahead = 0;
        while self.peek_after(ahead).token == Token::Sign(".") && self.peek_after(ahead + 1).token == Token::Identifier
        {
            ahead += 2;
        }
        if self.peek_after(ahead).token == Token::Sign("{") {
            let rest: String = (0..ahead).map(|i| self.peek_after(i).text).collect();
            self.next += ahead;
            return self.message(format!("{dot}{}{rest}", first.text));
        }
        if RESERVED.contains(&first.text) {
            let broken = self.broken(at, format!("reserved identifier: {}", first.text));
            if self.accept("(").is_some() {
                self.arguments();
            }
            return broken;
        }
        let name = format!("{dot}{}", first.text);
        match self.accept("(") {
            Some(open) => {
                let args = self.arguments();
                macros::global_call(self, open, &name, args)
            }
            None => self.node(at, Kind::Ident(name)),
        }
    }

    fn list_literal(&mut self) -> Expr {
        let at = self.take().at;
        let mut elements = Vec::new();
        while !self.stopped && !self.is("]") {
            let optional = self.accept("?").is_some();
            elements.push(Element { value: self.expr(), optional });
            if self.accept(",").is_none() {
                break;
            }
        }
        self.expect("]", continues_expr);
        self.node(at, Kind::List { elements })
    }

    fn map_literal(&mut self) -> Expr {
        const EXPECTED: &str = "{'[', '{', '}', '(', '.', ',', '-', '!', '?', 'true', 'false', 'null', NUM_FLOAT, \
                                NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
        let at = self.take().at;
        let mut entries = Vec::new();
        while !self.stopped && !self.is("}") {
            let optional = self.accept("?").is_some();
            if entries.is_empty() && !optional && !starts_expr(&self.peek()) {
                self.mismatched(EXPECTED);
                break;
            }
            let key = self.expr();
            self.expect(":", starts_expr);
            let value = self.expr();
            entries.push(Entry { key, value, optional });
            if self.accept(",").is_none() {
                break;
            }
        }
        self.expect("}", continues_expr);
        self.node(at, Kind::Map { entries })
    }

    fn message(&mut self, name: String) -> Expr {
        let at = self.take().at;
        let mut fields = Vec::new();
        while !self.stopped && !self.is("}") {
            let optional = self.accept("?").is_some();
            let field = self.peek();
            match field.token {
                Token::Identifier => self.take(),
                Token::Escaped => return self.broken(field.at, "unsupported syntax: '`'"),
                _ => {
                    self.mismatched("{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}");
                    break;
                }
            };
            let colon = self.peek().at;
            self.expect(":", starts_expr);
            let value = self.expr();
            fields.push(Field { name: field.text.to_owned(), at: colon, value, optional });
            if self.accept(",").is_none() {
                break;
            }
        }
        self.expect("}", continues_expr);
        self.node(at, Kind::Struct { name, fields })
    }

    fn constant(&mut self) -> Option<Expr> {
        let minus = self.is("-");
        let found = if minus { self.peek_after(1) } else { self.peek() };
        let at = self.peek().at;
        let text = if minus { self.text.get(at..found.at + found.text.len())? } else { found.text };
        let text = if minus { format!("-{}", found.text).into() } else { std::borrow::Cow::Borrowed(text) };
        let literal = match found.token {
            Token::Int => integer(&text).map(Literal::Int).ok_or("invalid int literal"),
            Token::Float => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Literal::Double(number)),
                _ => Err("invalid double literal"),
            },
            _ if minus => return None,
            Token::Uint => unsigned(&text).map(Literal::Uint).ok_or("invalid uint literal"),
            Token::String => unquote(&text, false)
                .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "invalid UTF-8"))
                .map(Literal::String),
            Token::Bytes => unquote(&text[1..], true).map(Literal::Bytes),
            Token::Sign("true") => Ok(Literal::Bool(true)),
            Token::Sign("false") => Ok(Literal::Bool(false)),
            Token::Sign("null") => Ok(Literal::Null),
            _ => return None,
        };
        self.next += 1 + usize::from(minus);
        Some(match literal {
            Ok(literal) => self.literal(at, literal),
            Err(message) => self.broken(at, message),
        })
    }
}

fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (radix, digits) = digits.strip_prefix("0x").map_or((10, digits), |digits| (16, digits));
    let sign = if negative { "-" } else { "" };
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
}

fn unsigned(text: &str) -> Option<u64> {
    let digits = text.get(..text.len() - 1)?;
    match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    }
}

fn starts_expr(lexeme: &Lexeme<'_>) -> bool {
    match lexeme.token {
        Token::Sign(sign) => matches!(sign, "[" | "{" | "(" | "." | "-" | "!" | "true" | "false" | "null"),
        Token::Escaped | Token::End => false,
        _ => true,
    }
}

/// Can this stand right after a closed bracket?
fn continues_expr(lexeme: &Lexeme<'_>) -> bool {
    match lexeme.token {
        Token::Sign(sign) => !matches!(sign, "{" | "(" | "!" | "true" | "false" | "null"),
        token => token == Token::End,
    }
}
