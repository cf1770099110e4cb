//! Makes room for a pod by less important ones.

use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::{
    cycle::Search,
    framework::{Diagnosis, Event, Outcome, Plugin, PostFilter},
    pod::PodInfo,
    preemption,
};

pub struct DefaultPreemption {
    /// Gives all budgets there are.
    pub budgets: Box<dyn Fn() -> Vec<Arc<PodDisruptionBudget>> + Send + Sync>,
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        "DefaultPreemption"
    }

    /// Those who rejected the pod know what helps it.
    fn helps(&self, _event: &Event<'_>, _pod: &PodInfo) -> bool {
        false
    }
}

impl PostFilter for DefaultPreemption {
    fn post_filter(&self, search: Search<'_>, diagnosis: &Diagnosis) -> Outcome {
        match preemption::make_room(search, diagnosis, &(self.budgets)()) {
            Ok(room) => Outcome::Room { node: room.node, victims: room.victims },
            Err(none) => Outcome::Nothing { words: format!("preemption: {}", none.words), for_good: none.for_good },
        }
    }
}
