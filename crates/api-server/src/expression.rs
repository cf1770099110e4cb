//! Expressions of configuration files: compiled when the file is read, run with every request.

use std::fmt;
use std::sync::Arc;

use expressions::{Activation, Budget, Environment, Program, Type, Value};

/// An expression and its program.
#[derive(Clone)]
pub struct Expression {
    text: String,
    program: Arc<Program>,
}

impl Expression {
    /// Says what is wrong if it does not compile, or not to this type.
    pub fn compile(environment: &Environment, text: &str, wanted: Option<&Type>) -> Result<Self, String> {
        let invalid = |why: String| format!("Invalid value: {text:?}: {why}");
        let program = environment.compile(text).map_err(|errors| invalid(format!("compilation failed: {errors}")))?;
        match wanted {
            Some(wanted) if wanted != program.output() => Err(invalid(format!("must evaluate to {wanted}"))),
            _ => Ok(Self { text: text.to_owned(), program: Arc::new(program) }),
        }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Is this word anywhere in it?
    pub fn mentions(&self, word: &str) -> bool {
        self.text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()).any(|found| found == word)
    }

    pub fn evaluate<'v>(&self, activation: &Activation<'v>) -> Result<Value<'v>, String> {
        self.program.evaluate(activation, &mut Budget::default()).map_err(|error| error.to_string())
    }

    /// Of one that must be true or false.
    pub fn holds(&self, activation: &Activation<'_>) -> Result<bool, String> {
        match self.evaluate(activation)? {
            Value::Bool(truth) => Ok(truth),
            other => Err(format!("the result should be bool but is {}", other.type_name())),
        }
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({:?})", self.text)
    }
}

/// What it says is what it is.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}
