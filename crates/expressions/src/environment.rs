//! What expressions of one kind may use, and the way from text to result.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

use crate::evaluate::plan::{self, Node};
use crate::evaluate::{Evaluator, failed};
use crate::parser::{Dialect, parse};
use crate::source::{CompileErrors, Problems};
use crate::types::{ObjectType, Type};
use crate::value::Value;
use crate::{checker, literals};

/// What one evaluation may cost.
pub const COST_PER_CALL: u64 = 1_000_000;

/// Functions that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Library {
    Standard,
    Optionals,
    Strings,
    Lists,
    Sets,
    TwoVariables,
    Regex,
    Urls,
    Network,
    Quantity,
    Semver,
    Format,
    Authorizer,
    /// `jsonpatch.escapeKey`, for policies that change objects.
    JsonPatch,
    /// `cel.bind`, for selectors of devices.
    Bindings,
}

/// Why an evaluation has no result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EvaluationError {
    /// The expression itself failed.
    #[error("{0}")]
    Failed(Arc<str>),
    /// It cost more than one evaluation may.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// All evaluations of one budget together cost more than it allows.
    #[error("validation failed due to running out of cost budget, no further validation rules will be run")]
    Budget,
}

/// Variables, types to construct, and libraries. Cheap to clone and to extend.
#[derive(Clone)]
pub struct Environment {
    variables: BTreeMap<String, Type>,
    objects: BTreeMap<String, Arc<ObjectType>>,
    libraries: u32,
    /// `Object` and `Object.…` can be constructed with any fields, and `JSONPatch` with its own.
    mutations: bool,
}

/// An expression ready to run, any number of times and from any thread.
pub struct Program {
    node: Node,
    output: Type,
}

/// The variables of one evaluation.
#[derive(Default)]
pub struct Activation<'v> {
    values: Vec<(&'v str, Value<'v>)>,
    resolve: Option<&'v Resolve<'v>>,
}

/// Finds the value of a variable when it is first needed.
pub type Resolve<'v> = dyn Fn(&str) -> Option<Result<Value<'v>, EvaluationError>> + 'v;

/// What several evaluations may cost together.
#[derive(Clone, Debug)]
pub struct Budget {
    left: u64,
}

impl Environment {
    /// The libraries that Kubernetes v1.36 gives to every expression, and no variables.
    pub fn kubernetes() -> Self {
        let own = [Library::JsonPatch, Library::Bindings];
        let libraries = own.iter().fold(u32::MAX, |all, library| all & !(1 << *library as u32));
        Self { variables: BTreeMap::new(), objects: BTreeMap::new(), libraries, mutations: false }
    }

    pub fn with_library(mut self, library: Library) -> Self {
        self.libraries |= 1 << library as u32;
        self
    }

    /// Declares a variable. Its name may have dots: it then comes before a field of that name.
    pub fn with_variable(mut self, name: &str, kind: Type) -> Self {
        self.variables.insert(name.to_owned(), kind);
        self
    }

    /// Declares an object type that expressions can construct.
    pub fn with_object(mut self, object: Arc<ObjectType>) -> Self {
        self.objects.insert(object.name.clone(), object);
        self
    }

    /// Lets expressions construct `Object{…}`, its parts `Object.spec{…}`, and `JSONPatch{…}`.
    pub fn with_mutations(mut self) -> Self {
        self.mutations = true;
        self.with_library(Library::JsonPatch).with_object(ObjectType::new(
            "JSONPatch",
            [("op", Type::String), ("path", Type::String), ("from", Type::String), ("value", Type::Dyn)],
        ))
    }

    pub(crate) fn has(&self, library: Library) -> bool {
        self.libraries & (1 << library as u32) != 0
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&Type> {
        self.variables.get(name)
    }

    pub(crate) fn object_type(&self, name: &str) -> Option<Arc<ObjectType>> {
        if self.mutations && (name == "Object" || name.starts_with("Object.")) {
            return Some(Arc::new(ObjectType { name: name.to_owned(), fields: BTreeMap::new(), open: true }));
        }
        self.objects.get(name).cloned()
    }

    /// Parses and checks an expression. All that is wrong is told at once.
    pub fn compile(&self, text: &str) -> Result<Program, CompileErrors> {
        let mut problems = Problems::new(text);
        let expr = parse(text, Dialect { bindings: self.has(Library::Bindings) }, &mut problems);
        problems.finish()?;
        let mut problems = Problems::new(text);
        let checked = checker::check(&expr, self, &mut problems);
        if problems.is_empty() {
            literals::check(&expr, &checked, &mut problems);
        }
        problems.finish()?;
        let output = checked.types.get(&expr.id).cloned().unwrap_or(Type::Dyn);
        Ok(Program { node: plan::plan(&expr, &checked), output })
    }
}

impl Program {
    /// The type of the result, as far as it is known.
    pub fn output(&self) -> &Type {
        &self.output
    }

    /// Runs it. What it costs is taken from the budget, also if it fails.
    pub fn evaluate<'v>(&self, activation: &Activation<'v>, budget: &mut Budget) -> Result<Value<'v>, EvaluationError> {
        let limit = budget.left.min(COST_PER_CALL);
        let mut evaluator = Evaluator::new(activation, limit);
        let result = evaluator.run(&self.node);
        let cost = evaluator.meter.cost();
        let left = budget.left;
        budget.left = left.saturating_sub(cost);
        match result {
            Err(EvaluationError::CostLimit) if left <= COST_PER_CALL && cost > left => Err(EvaluationError::Budget),
            result => result,
        }
    }
}

impl<'v> Activation<'v> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with(mut self, name: &'v str, value: Value<'v>) -> Self {
        self.values.push((name, value));
        self
    }

    /// Asks this for variables that are not given.
    pub fn with_resolver(mut self, resolve: &'v Resolve<'v>) -> Self {
        self.resolve = Some(resolve);
        self
    }

    pub(crate) fn get(&self, name: &str) -> Result<Value<'v>, EvaluationError> {
        if let Some((_, value)) = self.values.iter().find(|(given, _)| *given == name) {
            return Ok(value.clone());
        }
        let found = self.resolve.and_then(|resolve| resolve(name));
        found.unwrap_or_else(|| failed(format!("no such attribute(s): {name}")))
    }
}

impl Budget {
    pub fn new(cost: u64) -> Self {
        Self { left: cost }
    }

    /// What is left of it.
    pub fn left(&self) -> u64 {
        self.left
    }
}

/// Enough for one evaluation.
impl Default for Budget {
    fn default() -> Self {
        Self::new(COST_PER_CALL.saturating_mul(2))
    }
}
