//! Fields that an applied configuration would take from other managers.

use super::managed::Entry;
use super::set::{FieldPath, Set};
use crate::status::{Cause, Status, cause};

/// One field of one other manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// As messages name it: `"kubectl" using apps/v1`.
    pub manager: String,
    pub path: FieldPath,
}

/// All conflicts of an apply: manager by manager, in Kubernetes' order of managers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflicts {
    pub(super) fn new(mut found: Vec<(&Entry, Set)>) -> Self {
        found.sort_by_cached_key(|(entry, _)| entry.sort_text());
        let of_entry = |(entry, set): &(&Entry, Set)| {
            let manager = entry.to_string();
            set.paths().into_iter().map(move |path| Conflict { manager: manager.clone(), path }).collect::<Vec<_>>()
        };
        Conflicts(found.iter().flat_map(of_entry).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that are not about the fields of a set.
    pub(super) fn outside(self, fields: &Set) -> Self {
        Conflicts(self.0.into_iter().filter(|conflict| !fields.has(&conflict.path.0)).collect())
    }

    pub fn message(&self) -> String {
        if let [one] = self.0.as_slice() {
            return format!("Apply failed with 1 conflict: conflict with {}: {}", one.manager, one.path);
        }
        let mut lines = Vec::new();
        for group in self.0.chunk_by(|a, b| a.manager == b.manager) {
            lines.extend(group.first().map(|first| format!("conflicts with {}:", first.manager)));
            lines.extend(group.iter().map(|conflict| format!("- {}", conflict.path)));
        }
        format!("Apply failed with {} conflicts: {}", self.0.len(), lines.join("\n"))
    }

    pub fn status(&self) -> Status {
        let causes = self.0.iter().map(|conflict| Cause {
            reason: cause::FIELD_MANAGER_CONFLICT.into(),
            message: format!("conflict with {}", conflict.manager),
            field: conflict.path.to_string(),
        });
        Status::apply_conflict(causes.collect(), self.message())
    }
}
