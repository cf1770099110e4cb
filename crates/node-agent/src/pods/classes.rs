//! The groups that the groups of pods are in, by their quality of service: pods that asked for processors get them before those
//! that did not, whatever those do.
//!
//! Guaranteed pods are in `/kubepods` itself, each with what it asked for; burstable ones together weigh what they asked for
//! together; best-effort ones get what is left. Several nodes on one machine share these groups: the last one to write counts.

use std::sync::Arc;

use container_runtime::{
    cgroups::{CgroupError, Layout},
    services::LinuxContainerResources,
};
use tokio_util::sync::CancellationToken;

use super::context::Context;
use crate::configuration::resources::{BEST_EFFORT, BURSTABLE, PODS, shares};

/// Keeps the weights of the classes up to date with what pods have claimed.
pub async fn keep_weighed(context: Arc<Context>, stop: CancellationToken) {
    let Some(layout) = context.settings.control_groups.clone() else { return };
    let mut changes = context.claims.changes();
    let mut last = None;
    loop {
        let burstable = context.claims.burstable_cpu();
        if last != Some(burstable) {
            let (layout, processors) = (layout.clone(), context.configuration.processors());
            match tokio::task::spawn_blocking(move || weigh(&layout, processors, burstable)).await {
                Ok(Ok(())) => last = Some(burstable),
                Ok(Err(error)) => tracing::warn!(%error, "cannot weigh the groups of pods"),
                Err(error) => tracing::warn!(%error, "cannot weigh the groups of pods"),
            }
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

/// In thousandths of a processor.
fn weigh(layout: &Layout, processors: i64, burstable: i64) -> Result<(), CgroupError> {
    for (path, milli_cpus) in [(PODS, processors), (BURSTABLE, burstable), (BEST_EFFORT, 0)] {
        let group = layout.group(path);
        group.create()?;
        group.set_limits(&LinuxContainerResources { cpu_shares: shares(milli_cpus), ..Default::default() })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_weigh_what_they_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        // As version 2 has it: the kernel would make these files.
        for path in ["", PODS, BURSTABLE, BEST_EFFORT] {
            let group = folder.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(&group).expect("a group");
            for file in ["cgroup.controllers", "cgroup.subtree_control", "cpu.weight"] {
                std::fs::write(group.join(file), "").expect("a file");
            }
        }
        weigh(&Layout::V2(folder.path().to_owned()), 2000, 1500).expect("they are weighed");
        let weight = |path: &str| {
            let file = folder.path().join(path.trim_start_matches('/')).join("cpu.weight");
            std::fs::read_to_string(file).expect("a weight").parse::<u64>().expect("a number")
        };
        assert_eq!(weight(BEST_EFFORT), 1);
        assert!(weight(BURSTABLE) > 100 && weight(PODS) > weight(BURSTABLE), "more than one processor, and all of two");
    }
}
