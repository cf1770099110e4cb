//! What the node gives to pods: the limits of containers that have none of their own.

use std::path::Path;

use super::resources::Amounts;
use crate::node::facts::{self, Facts};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Machine {
    pub allocatable: Amounts,
    /// All of the memory, in bytes.
    pub memory: i64,
}

impl Machine {
    pub fn look(root: &Path) -> Self {
        let memory = facts::memory("MemTotal").and_then(|memory| i64::try_from(memory).ok());
        Self { allocatable: Facts::read(root).allocatable, memory: memory.unwrap_or(0) }
    }
}
