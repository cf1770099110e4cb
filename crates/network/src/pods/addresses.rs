//! Which pod of a node has which address.
//!
//! Invariants: no two pods have the same address; a pod keeps its address; an address that became free is given out again
//! only after all others. All of it is on disk before the address is used: a file per pod, and one that says which
//! address was the last given out.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::HostPort;
use crate::{Error, block::Block, links::fingerprint};

#[cfg(test)]
mod tests;

const LAST: &str = "last";

/// What is written down of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pod {
    pub id: String,
    pub address: Ipv4Addr,
    pub ports: Vec<HostPort>,
}

pub(super) struct Addresses {
    folder: PathBuf,
    block: Block,
    pods: HashMap<String, Pod>,
    taken: HashSet<Ipv4Addr>,
    last: Ipv4Addr,
}

impl Addresses {
    /// Reads what is written down in a folder. A file that was not finished was not used either, and is removed; so is one
    /// that cannot be read, since it takes a machine that loses its power to spoil one, and no pod survives that.
    pub fn open(folder: &Path, block: Block) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(failed(folder))?;
        let (mut pods, mut taken, mut last) = (HashMap::new(), HashSet::new(), block.first());
        for entry in fs::read_dir(folder).map_err(failed(folder))? {
            let path = entry.map_err(failed(folder))?.path();
            if path.extension().is_some_and(|ending| ending == "json") {
                let text = fs::read(&path).map_err(failed(&path))?;
                let Ok(pod) = serde_json::from_slice::<Pod>(&text) else {
                    tracing::warn!(file = %path.display(), "cut short by a failure of the machine, and removed");
                    fs::remove_file(&path).map_err(failed(&path))?;
                    continue;
                };
                taken.insert(pod.address);
                pods.insert(pod.id.clone(), pod);
            } else if path.file_name().is_some_and(|name| name == LAST) {
                let text = fs::read_to_string(&path).map_err(failed(&path))?;
                last = text.parse().ok().filter(|last| block.contains(*last)).unwrap_or(last);
            } else {
                fs::remove_file(&path).map_err(failed(&path))?;
            }
        }
        Ok(Self { folder: folder.to_owned(), block, pods, taken, last })
    }

    /// These are somebody else's, as long as this is open, unless a pod of ours has them.
    pub fn avoid(&mut self, others: impl IntoIterator<Item = Ipv4Addr>) {
        let block = self.block;
        let mut others: Vec<_> = others.into_iter().filter(|address| block.contains(*address)).collect();
        others.retain(|address| self.taken.insert(*address));
        if !others.is_empty() {
            tracing::warn!(addresses = ?others, "taken by pods of another cluster or of a lost folder");
        }
    }

    pub fn get(&self, id: &str) -> Option<&Pod> {
        self.pods.get(id)
    }

    pub fn all(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values()
    }

    /// The pod with its address, old or new, and these ports.
    pub fn take(&mut self, id: &str, ports: &[HostPort]) -> Result<Pod, Error> {
        let known = self.pods.get(id);
        if let Some(pod) = known.filter(|pod| pod.ports == ports) {
            return Ok(pod.clone());
        }
        let address = match known {
            Some(pod) => pod.address,
            None => {
                let next = self.next_free()?;
                self.write(LAST, next.to_string().as_bytes())?;
                self.last = next;
                next
            }
        };
        let pod = Pod { id: id.to_owned(), address, ports: ports.to_vec() };
        let text = serde_json::to_vec(&pod).map_err(|error| Error(error.to_string()))?;
        self.write(&file_name(id), &text)?;
        self.taken.insert(address);
        self.pods.insert(id.to_owned(), pod.clone());
        Ok(pod)
    }

    /// Forgets a pod. Its address is free, but the last in the row.
    pub fn give_back(&mut self, id: &str) -> Result<(), Error> {
        let path = self.folder.join(file_name(id));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&path)(error)),
            _ => {}
        }
        if let Some(pod) = self.pods.remove(id) {
            self.taken.remove(&pod.address);
        }
        Ok(())
    }

    /// The next address after the last one given out, around the block once. Its first and last address are nobody's.
    fn next_free(&self) -> Result<Ipv4Addr, Error> {
        let (first, end) = (u32::from(self.block.first()), u32::from(self.block.last()));
        let usable = (first + 1)..end;
        let after = u32::from(self.last) + 1;
        let mut row = (after..end).chain(usable).map(Ipv4Addr::from);
        row.find(|address| !self.taken.contains(address))
            .ok_or_else(|| Error(format!("all {} addresses of {} are taken by pods", self.taken.len(), self.block)))
    }

    /// Replaces a file whole.
    fn write(&self, name: &str, text: &[u8]) -> Result<(), Error> {
        let (path, new) = (self.folder.join(name), self.folder.join(format!("{name}.new")));
        fs::write(&new, text).map_err(failed(&new))?;
        fs::rename(&new, &path).map_err(failed(&path))
    }
}

/// Ids are the runtime's, but a file's name must not lead anywhere.
fn file_name(id: &str) -> String {
    let safe = id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if safe && id.len() <= 128 { format!("{id}.json") } else { format!("x{:016x}.json", fingerprint(id)) }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |error| Error(format!("{}: {error}", path.display()))
}
