//! A pod with scheduling gates is not tried until all of them are gone.

use crate::{
    framework::{Event, Plugin, PreEnqueue, Rejection},
    pod::PodInfo,
};

pub struct SchedulingGates;

const NAME: &str = "SchedulingGates";

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Only a change of the pod itself does, and the queue sees that.
    fn helps(&self, _event: &Event<'_>, _pod: &PodInfo) -> bool {
        false
    }
}

impl PreEnqueue for SchedulingGates {
    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Rejection> {
        let gates = pod.spec().and_then(|spec| spec.scheduling_gates.as_deref()).unwrap_or(&[]);
        if gates.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = gates.iter().map(|gate| gate.name.as_str()).collect();
        Err(Rejection::for_good(NAME, format!("waiting for scheduling gates: [{}]", names.join(" "))))
    }
}
