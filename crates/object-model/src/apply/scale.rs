//! Owners of the number of replicas, as the `scale` subresource sees them.
//!
//! A Scale has no managers of its own: those of its parent who own the replicas are shown in its terms, and what an
//! update or apply of the Scale makes of them is brought back.

use super::managed::{Entry, Managed};
use super::set::{FieldPath, Set};

const SCALE_VERSION: &str = "autoscaling/v1";

/// Where each version of the parent has its replicas; a custom resource may have them in some versions only.
pub struct ScaleMapping<'a> {
    /// The version of the parent that the request is about.
    pub api_version: &'a str,
    pub replicas: &'a [(&'a str, Option<FieldPath>)],
}

impl ScaleMapping<'_> {
    fn path(&self, api_version: &str) -> Option<Option<&FieldPath>> {
        self.replicas.iter().find(|(version, _)| *version == api_version).map(|(_, path)| path.as_ref())
    }

    /// The parent's managers that own its replicas, as managers of a Scale.
    pub fn to_scale(&self, parent: &Managed) -> Managed {
        let owns = |entry: &&Entry| self.path(&entry.api_version).flatten().is_some_and(|p| entry.fields().has(&p.0));
        let shown = |entry: &Entry| Entry::new(entry.manager.clone(), SCALE_VERSION, replicas(), entry.time.clone());
        let mut out = Managed::default();
        parent.entries.iter().filter(owns).for_each(|entry| out.put(shown(entry)));
        out
    }

    /// The parent's managers after a write of its Scale: who is no longer among the Scale's has lost the replicas.
    pub fn to_parent(&self, parent: Managed, scale: &Managed) -> Managed {
        let mut from_scale: Vec<&Entry> = scale.entries.iter().collect();
        let mut out = Managed::default();
        for mut entry in parent.entries {
            // Managers of versions that are gone go too.
            let Some(path) = self.path(&entry.api_version) else { continue };
            if let Some(path) = path.filter(|path| entry.fields().has(&path.0)) {
                match from_scale.iter().position(|e| e.manager == entry.manager) {
                    Some(at) => {
                        from_scale.remove(at);
                    }
                    None => entry.set_fields(entry.fields().difference(&single(path))),
                }
            }
            if !entry.fields().is_empty() {
                out.put(entry);
            }
        }
        let path = self.path(self.api_version).flatten();
        for entry in from_scale.into_iter().filter(|entry| entry.fields().intersects(&replicas())) {
            if let Some(path) = path {
                // Kubernetes tells no time of those who came to own the replicas here.
                out.put(Entry::new(entry.manager.clone(), self.api_version, single(path), None));
            }
        }
        out
    }
}

fn replicas() -> Set {
    Set::of_fields(&[&["spec", "replicas"]])
}

fn single(path: &FieldPath) -> Set {
    let mut set = Set::new();
    set.insert(path.0.iter().cloned());
    set
}
