//! Expressions in CEL, as Kubernetes v1.36 uses them.
//!
//! Kubernetes calls this `apiserver/pkg/cel` and `cel-go`. An [`Environment`] says which variables, types and libraries
//! an expression may use; [`Environment::compile`] parses and type-checks it and tells everything that is wrong in the
//! words users know; a [`Program`] runs any number of times, from any thread, within a [`Budget`].
//!
//! Expressions come from strangers. Their length, depth and size are bounded when they are compiled; their cost, the
//! elements they visit and the bytes they build when they run; regular expressions take linear time. Nothing panics.
//!
//! What Kubernetes estimates of the cost of a rule before it is stored is not built yet; declared fields carry the sizes
//! that it starts from. This crate depends on the object model only and knows no concrete kind.

mod ast;
mod checker;
mod declarations;
mod environment;
mod evaluate;
mod lexer;
mod library;
mod literals;
mod macros;
mod parser;
mod source;
mod types;
mod value;

pub use environment::{Activation, Budget, COST_PER_CALL, Environment, EvaluationError, Library, Program, Resolve};
pub use library::authorizer::{Authorizer, Decision, Question, What};
pub use parser::RESERVED;
pub use source::CompileErrors;
pub use types::{LibraryType, ObjectField, ObjectType, Type};
pub use value::{LibraryValue, List, Map, Text, Value};

#[cfg(test)]
mod tests;
