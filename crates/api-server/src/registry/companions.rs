//! What must be stored together with an object: addresses and ports of Services, and what is left of a quota.
//!
//! Companions are written, and removed, in the transaction of the object they belong to, so nothing can leak. Two writers
//! who choose the same address meet in the store: the later one is told, and chooses again.

use object_model::status::Status;
use serde_json::Value;
use storage::{Compare, Operation};

use tokio::sync::OwnedMutexGuard;

use crate::catalogue::Target;

/// Further conditions and changes for the transaction that writes an object.
#[derive(Debug, Default)]
pub struct Companions {
    pub compares: Vec<Compare>,
    pub operations: Vec<Operation>,
    /// Held until the transaction is over, so that writers who would only get in each other's way queue up.
    pub turn: Option<OwnedMutexGuard<()>>,
}

impl Companions {
    pub fn extend(&mut self, other: Companions) {
        self.compares.extend(other.compares);
        self.operations.extend(other.operations);
        self.turn = self.turn.take().or(other.turn);
    }
}

/// Keeps the companions of one resource.
pub trait Keeper: Send + Sync {
    /// May mutate: fills in what is allocated. Called before validation, with the cache up to date, and again when
    /// another writer was faster. A dry run is told apart, since Kubernetes checks less then.
    fn create(&self, target: &Target<'_>, object: &mut Value, dry_run: bool) -> Result<Companions, Status>;

    /// May mutate the new object.
    fn update(&self, target: &Target<'_>, object: &mut Value, old: &Value, dry_run: bool)
    -> Result<Companions, Status>;

    /// What goes with a deleted object.
    fn delete(&self, target: &Target<'_>, old: &Value) -> Companions;
}
