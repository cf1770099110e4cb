//! A checked tree made ready to run: names become places, calls know their code and cost, constants are folded.

use std::sync::Arc;

use object_model::schema::validate::Pattern;

use super::Meter;
use super::cost::{LIST, Rule};
use crate::ast::{Expr, Fold, Kind, Literal, operator};
use crate::checker::{Checked, Name};
use crate::declarations::Function;
use crate::value::{Text, Value};

pub(crate) enum Node {
    Constant(Value<'static>),
    /// A variable of the environment. A name on its own costs one; in a branch or as an index it is free.
    Variable {
        name: Box<str>,
        free: bool,
    },
    /// A variable of a loop, by its place.
    Local {
        slot: usize,
        free: bool,
    },
    /// `how` is select, test or optional select. What is no name chain pays for becoming one.
    Select {
        operand: Box<Node>,
        field: Arc<str>,
        how: How,
        base: u64,
    },
    Index {
        operand: Box<Node>,
        key: Box<Node>,
        optional: bool,
        base: u64,
    },
    And(Vec<Node>),
    Or(Vec<Node>),
    Conditional(Box<[Node; 3]>),
    /// `or` and `orValue`: the second is looked at only if the first is empty.
    OrElse {
        optional: Box<Node>,
        otherwise: Box<Node>,
        unwrap: bool,
    },
    Call(Box<Call>),
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    Struct(Vec<(Arc<str>, Node, bool)>),
    /// Membership in a list of constants, which Kubernetes does not charge.
    OneOf {
        value: Box<Node>,
        list: Value<'static>,
    },
    /// One more element for the accumulating list, in place.
    Append {
        slot: usize,
        value: Box<Node>,
    },
    /// One more entry, or several, for the accumulating map, in place.
    Insert {
        slot: usize,
        args: Vec<Node>,
    },
    Fold(Box<FoldNode>),
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum How {
    Select,
    Test,
    Optional,
}

pub(crate) struct Call {
    pub function: &'static Function,
    pub member: bool,
    pub rule: Rule,
    pub args: Vec<Node>,
    /// A regular expression that is constant.
    pub pattern: Option<Arc<Pattern>>,
}

/// The accumulator is at `slot`, the variables follow.
pub(crate) struct FoldNode {
    pub slot: usize,
    pub range: Node,
    pub two: bool,
    pub initial: Node,
    pub condition: Node,
    pub step: Node,
    pub result: Node,
}

pub(crate) struct Planner<'c> {
    checked: &'c Checked,
    scopes: Vec<String>,
}

pub(crate) fn plan(expr: &Expr, checked: &Checked) -> Node {
    Planner { checked, scopes: Vec::new() }.node(expr)
}

impl Planner<'_> {
    fn node(&mut self, expr: &Expr) -> Node {
        match self.checked.names.get(&expr.id) {
            Some(Name::Variable(name)) => return Node::Variable { name: name.as_str().into(), free: false },
            Some(Name::Type(name)) => return Node::Constant(Value::Type(name)),
            None => {}
        }
        match &expr.kind {
            Kind::Broken => Node::Constant(Value::Null),
            Kind::Literal(literal) => Node::Constant(constant(literal)),
            Kind::Ident(name) => match self.scopes.iter().rposition(|scoped| scoped == name) {
                Some(slot) => Node::Local { slot, free: false },
                None => Node::Variable { name: name.as_str().into(), free: false },
            },
            Kind::Select { operand, field, test } => {
                self.select(operand, field, if *test { How::Test } else { How::Select })
            }
            Kind::Call { target, function, args } => self.call(expr, target.as_deref(), function, args),
            Kind::List { elements } => {
                let nodes = elements.iter().map(|element| (self.node(&element.value), element.optional)).collect();
                constant_list(nodes)
            }
            Kind::Map { entries } => {
                Node::Map(entries.iter().map(|e| (self.node(&e.key), self.node(&e.value), e.optional)).collect())
            }
            Kind::Struct { fields, .. } => {
                Node::Struct(fields.iter().map(|f| (f.name.as_str().into(), self.node(&f.value), f.optional)).collect())
            }
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    fn select(&mut self, operand: &Expr, field: &str, how: How) -> Node {
        let operand = self.node(operand);
        let base = u64::from(!operand.is_chain());
        Node::Select { operand: Box::new(operand), field: field.into(), how, base }
    }

    fn call(&mut self, expr: &Expr, target: Option<&Expr>, name: &str, args: &[Expr]) -> Node {
        match (name, args) {
            (operator::OPT_SELECT, [operand, Expr { kind: Kind::Literal(Literal::String(field)), .. }]) => {
                return self.select(operand, field, How::Optional);
            }
            (operator::INDEX | operator::OPT_INDEX, [operand, key]) => {
                let (operand, mut key) = (self.node(operand), self.node(key));
                key.set_free();
                let base = u64::from(!operand.is_chain());
                let optional = name == operator::OPT_INDEX;
                return Node::Index { operand: Box::new(operand), key: Box::new(key), optional, base };
            }
            (operator::AND, _) => return Node::And(args.iter().map(|arg| self.node(arg)).collect()),
            (operator::OR, _) => return Node::Or(args.iter().map(|arg| self.node(arg)).collect()),
            (operator::CONDITIONAL, [condition, if_true, if_false]) => {
                let mut nodes = [self.node(condition), self.node(if_true), self.node(if_false)];
                nodes[1..].iter_mut().for_each(Node::set_free);
                return Node::Conditional(Box::new(nodes));
            }
            (operator::IN, [value, list]) => {
                let (value, list) = (self.node(value), self.node(list));
                return match list {
                    Node::Constant(list @ Value::List(_)) => Node::OneOf { value: Box::new(value), list },
                    list => self.made(expr, vec![value, list]),
                };
            }
            (operator::MAP_INSERT, [_, rest @ ..]) if !self.scopes.is_empty() => {
                if let Some(slot) = self.accumulator(args) {
                    return Node::Insert { slot, args: rest.iter().map(|arg| self.node(arg)).collect() };
                }
            }
            (operator::ADD, [_, Expr { kind: Kind::List { elements }, .. }]) => {
                if let ([element], Some(slot)) = (elements.as_slice(), self.accumulator(args))
                    && !element.optional
                {
                    return Node::Append { slot, value: Box::new(self.node(&element.value)) };
                }
            }
            _ => {}
        }
        if let (Some(target), "or" | "orValue", [otherwise]) = (target, name, args) {
            let (optional, otherwise) = (Box::new(self.node(target)), Box::new(self.node(otherwise)));
            return Node::OrElse { optional, otherwise, unwrap: name == "orValue" };
        }
        let member = self.checked.functions.get(&expr.id).is_some_and(|(_, member)| *member);
        let target = target.filter(|_| member);
        let nodes = target.into_iter().chain(args).map(|arg| self.node(arg)).collect();
        self.made(expr, nodes)
    }

    /// The place of the accumulator, if that is the first argument. Its name cannot be written, so it is ours.
    fn accumulator(&self, args: &[Expr]) -> Option<usize> {
        match args.first().map(|arg| &arg.kind) {
            Some(Kind::Ident(name)) if name.starts_with('@') => self.scopes.iter().rposition(|scoped| scoped == name),
            _ => None,
        }
    }

    fn made(&self, expr: &Expr, args: Vec<Node>) -> Node {
        let Some((function, member)) = self.checked.functions.get(&expr.id).copied() else {
            return Node::Constant(Value::Null);
        };
        if let Some(folded) = conversion(function, &args) {
            return Node::Constant(folded);
        }
        let pattern = match (function.name, args.get(1)) {
            ("matches" | "find" | "findAll", Some(Node::Constant(Value::String(text)))) => {
                Some(Arc::new(Pattern::new(text)))
            }
            _ => None,
        };
        Node::Call(Box::new(Call { function, member, rule: Rule::of(function.name), args, pattern }))
    }

    fn fold(&mut self, fold: &Fold) -> Node {
        let range = self.node(&fold.range);
        let initial = self.node(&fold.initial);
        let slot = self.scopes.len();
        self.scopes.push(fold.accumulator.clone());
        self.scopes.push(fold.variable.clone());
        self.scopes.extend(fold.second.clone());
        let (condition, step) = (self.node(&fold.condition), self.node(&fold.step));
        self.scopes.truncate(slot + 1);
        let result = self.node(&fold.result);
        self.scopes.truncate(slot);
        let two = fold.second.is_some();
        Node::Fold(Box::new(FoldNode { slot, range, two, initial, condition, step, result }))
    }
}

impl Node {
    /// A name with selections and indexes, which is looked up in one go.
    fn is_chain(&self) -> bool {
        matches!(self, Node::Variable { .. } | Node::Local { .. } | Node::Select { .. } | Node::Index { .. })
    }

    /// The name at the start of a chain costs nothing here.
    fn set_free(&mut self) {
        match self {
            Node::Variable { free, .. } | Node::Local { free, .. } => *free = true,
            Node::Select { operand, base, .. } | Node::Index { operand, base, .. } => {
                *base = 0;
                operand.set_free();
            }
            _ => {}
        }
    }
}

fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(truth) => Value::Bool(*truth),
        Literal::Int(number) => Value::Int(*number),
        Literal::Uint(number) => Value::Uint(*number),
        Literal::Double(number) => Value::Double(*number),
        Literal::String(text) => Value::String(Text::Shared(text.as_str().into())),
        Literal::Bytes(bytes) => Value::Bytes(bytes.as_slice().into()),
    }
}

/// A list of constants is one itself, and costs nothing.
fn constant_list(nodes: Vec<(Node, bool)>) -> Node {
    let values: Option<Vec<Value<'static>>> = nodes
        .iter()
        .map(|(node, optional)| match node {
            Node::Constant(value) if !optional => Some(value.clone()),
            _ => None,
        })
        .collect();
    values.map_or(Node::List(nodes), |values| Node::Constant(Value::list(values)))
}

/// A conversion of a constant is done once.
fn conversion(function: &'static Function, args: &[Node]) -> Option<Value<'static>> {
    const FOLDED: [&str; 8] = ["bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"];
    let [Node::Constant(value)] = args else { return None };
    if !FOLDED.contains(&function.name) {
        return None;
    }
    let args = [value.clone()];
    let run = function.select(false, &args)?;
    run(&mut Meter::new(LIST), &args).ok()
}
