//! Parts of the cluster by a label of nodes: the nodes with the same value of it are one part.

use std::collections::HashMap;

use super::NodeInfo;

/// The part of a node without the label.
const NOWHERE: u32 = u32::MAX;

/// The parts that one label makes, numbered from zero.
#[derive(Clone, Default)]
pub struct Domains {
    of_node: Vec<u32>,
    numbers: HashMap<String, u32>,
}

impl Domains {
    pub(super) fn new(label: &str, nodes: &[NodeInfo]) -> Self {
        let mut domains = Self::default();
        for (slot, node) in nodes.iter().enumerate() {
            domains.set(slot, node.labels().get(label));
        }
        domains
    }

    pub(super) fn set(&mut self, slot: usize, value: Option<&String>) {
        if self.of_node.len() <= slot {
            self.of_node.resize(slot + 1, NOWHERE);
        }
        self.of_node[slot] = match value {
            None => NOWHERE,
            Some(value) => match self.numbers.get(value) {
                Some(number) => *number,
                None => {
                    let number = self.numbers.len() as u32;
                    self.numbers.insert(value.clone(), number);
                    number
                }
            },
        };
    }

    /// Whether more values were ever seen than nodes can have: time to number them anew.
    pub(super) fn is_worn(&self) -> bool {
        self.numbers.len() > 2 * self.of_node.len() + 16
    }

    /// The part a node is in, if it has the label.
    pub fn of(&self, slot: usize) -> Option<usize> {
        self.of_node.get(slot).filter(|number| **number != NOWHERE).map(|number| *number as usize)
    }

    /// How many numbers there are.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Sums what nodes have, part by part.
    pub fn sum(&self, per_node: &[u32]) -> Vec<u32> {
        let mut sums = vec![0; self.count()];
        for (number, count) in self.of_node.iter().zip(per_node) {
            if let Some(sum) = sums.get_mut(*number as usize) {
                *sum += count;
            }
        }
        sums
    }
}
