//! What was found out about single nodes, by shape.

use std::sync::Arc;

use crate::{
    framework::{Framework, Rejection},
    pod::Shape,
    snapshot::NodeInfo,
};

/// Shapes whose verdicts are kept. Pods of a rollout have one shape, and a few rollouts are on their way at once.
const SHAPES: usize = 16;

#[derive(Default)]
pub struct Verdicts {
    /// The one used last comes last.
    shapes: Vec<OfShape>,
}

struct OfShape {
    shape: Arc<Shape>,
    nodes: Vec<Option<Verdict>>,
}

struct Verdict {
    generation: u64,
    /// By how much each [`Framework::node_scores`] likes the node.
    outcome: Result<Box<[i64]>, Arc<Rejection>>,
}

impl Verdicts {
    /// Whether a node will do by itself.
    pub fn judge(
        &mut self,
        framework: &Framework,
        shape: &Arc<Shape>,
        slot: usize,
        node: &NodeInfo,
    ) -> Result<(), Arc<Rejection>> {
        let of_shape = self.of(shape);
        if of_shape.nodes.len() <= slot {
            of_shape.nodes.resize_with(slot + 1, || None);
        }
        let kept = &mut of_shape.nodes[slot];
        let verdict = match kept {
            Some(verdict) if verdict.generation == node.generation() => verdict,
            _ => kept.insert(Verdict { generation: node.generation(), outcome: judge(framework, shape, node) }),
        };
        verdict.outcome.as_ref().map(drop).map_err(Arc::clone)
    }

    /// The weighted sum of the scores of nodes that were found to do.
    pub fn scores(&mut self, framework: &Framework, shape: &Arc<Shape>, slots: &[usize]) -> Vec<i64> {
        let of_shape = self.of(shape);
        let (mut totals, mut scores) = (vec![0; slots.len()], vec![0; slots.len()]);
        for (at, (weight, plugin)) in framework.node_scores.iter().enumerate() {
            if !plugin.applies(shape) {
                continue;
            }
            for (score, slot) in scores.iter_mut().zip(slots) {
                let outcome = of_shape.nodes.get(*slot).and_then(Option::as_ref).map(|verdict| &verdict.outcome);
                *score = match outcome {
                    Some(Ok(scores)) => scores.get(at).copied().unwrap_or(0),
                    _ => 0,
                };
            }
            plugin.normalize(&mut scores);
            totals.iter_mut().zip(&scores).for_each(|(total, score)| *total += weight * score);
        }
        totals
    }

    fn of(&mut self, shape: &Arc<Shape>) -> &mut OfShape {
        let last = self.shapes.len().wrapping_sub(1);
        match self.shapes.iter().rposition(|known| Arc::ptr_eq(&known.shape, shape)) {
            Some(at) if at == last => {}
            Some(at) => {
                let known = self.shapes.remove(at);
                self.shapes.push(known);
            }
            None => {
                if self.shapes.len() >= SHAPES {
                    self.shapes.remove(0);
                }
                self.shapes.push(OfShape { shape: shape.clone(), nodes: Vec::new() });
            }
        }
        let last = self.shapes.len() - 1;
        &mut self.shapes[last]
    }
}

fn judge(framework: &Framework, shape: &Shape, node: &NodeInfo) -> Result<Box<[i64]>, Arc<Rejection>> {
    framework.node_filters.iter().try_for_each(|plugin| plugin.filter(shape, node)).map_err(Arc::new)?;
    let score = |(_, plugin): &(i64, Arc<dyn crate::framework::NodeScore>)| {
        if plugin.applies(shape) { plugin.score(shape, node) } else { 0 }
    };
    Ok(framework.node_scores.iter().map(score).collect())
}
