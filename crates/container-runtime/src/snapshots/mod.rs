//! Unpacked layers: one folder for each chain of layers, read-only once it is complete, shared by all containers and images that
//! have the chain.
//!
//! The chain id of a layer names it together with everything below it (OCI image specification, config.md), since what a layer
//! deletes depends on that. A folder gets its name when it is complete. Names are short, because the kernel takes one page
//! of mount options for all layers of a container; the full id is inside.
//!
//! Unpacking and removing take long, so neither excludes the other or the use of what is there. [`Images`] sees to it that a chain is
//! unpacked by one at a time, and that nobody looks for folders while unused ones lose their names.
//!
//! [`Images`]: crate::images::Images

mod unpack;

use std::{
    collections::BTreeSet,
    fs,
    io::{self, BufReader},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
};

use crate::{
    images::{
        ImageError, ImageRecord, ImageStore,
        content::{Digest, Hashing},
        decompressed,
    },
    removal::remove_all,
    runtime::locked,
    state,
};

/// Enough digits to tell chains apart, few enough for 127 layers in one page.
const NAME_LENGTH: usize = 20;

/// The folder of the layer that has nothing, which images without layers have, too.
const EMPTY: &str = "empty";

/// Begins the names of folders that are not complete.
const INCOMPLETE: &str = "new-";

/// Begins the names of folders that are being removed: what is half gone must not have the name of something whole.
const GONE: &str = "gone-";

pub struct Snapshots {
    folder: PathBuf,
    /// Whose layers are being unpacked.
    kept: Mutex<Vec<Weak<ImageRecord>>>,
    /// One at a time removes.
    sweeping: Mutex<()>,
}

/// The chain ids of an image's layers, the lowest first.
pub(crate) fn chain_ids(image: &ImageRecord) -> Vec<Digest> {
    let mut ids: Vec<Digest> = Vec::new();
    for layer in &image.layers {
        ids.push(match ids.last() {
            None => layer.diff_id.clone(),
            Some(below) => Digest::of(format!("{below} {}", layer.diff_id).as_bytes()),
        });
    }
    ids
}

fn name(chain: &Digest) -> String {
    chain.hex().chars().take(NAME_LENGTH).collect()
}

impl Snapshots {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, kept: Mutex::default(), sweeping: Mutex::default() }
    }

    /// Whether a chain is unpacked.
    pub(crate) fn has(&self, chain: &Digest) -> Result<bool, ImageError> {
        match fs::read_to_string(self.folder.join(name(chain)).join("chain")) {
            Ok(known) if known == chain.to_string() => Ok(true),
            Ok(known) => {
                let error = format!("another chain, {known}, has the same name");
                Err(ImageError::Damaged { what: format!("the snapshot of {chain}"), error })
            }
            Err(_) => Ok(false),
        }
    }

    /// Whether all layers of an image are unpacked.
    pub(crate) fn has_all(&self, image: &ImageRecord) -> Result<bool, ImageError> {
        chain_ids(image).iter().try_fold(true, |all, chain| Ok(all && self.has(chain)?))
    }

    /// The folders of an image's layers, relative to that of all, the topmost first.
    pub(crate) fn layers(&self, image: &ImageRecord) -> io::Result<Vec<String>> {
        if image.layers.is_empty() {
            // An overlay needs something below.
            return Ok(vec![self.empty()?]);
        }
        Ok(chain_ids(image).iter().rev().map(|chain| format!("{}/fs", name(chain))).collect())
    }

    /// An image whose layers stay for as long as this lives, also if the image is removed meanwhile.
    pub(crate) fn keep(&self, image: &ImageRecord) -> Arc<ImageRecord> {
        let image = Arc::new(image.clone());
        let mut kept = locked(&self.kept);
        kept.retain(|image| image.strong_count() > 0);
        kept.push(Arc::downgrade(&image));
        image
    }

    /// Unpacks a layer of an image that is kept; those below it are unpacked.
    pub(crate) fn unpack(&self, images: &ImageStore, image: &ImageRecord, index: usize) -> Result<(), ImageError> {
        let chains = chain_ids(image);
        let (Some(chain), Some(layer)) = (chains.get(index), image.layers.get(index)) else { return Ok(()) };
        let lower = chains.iter().take(index).rev().map(|chain| self.folder.join(name(chain)).join("fs"));
        let lower: Vec<PathBuf> = lower.collect();
        let temporary = self.folder.join(format!("{INCOMPLETE}{}", name(chain)));
        remove_all(&temporary)?;
        fs::create_dir(&temporary)?;
        let content = BufReader::new(images.content().file(&layer.digest)?);
        let mut archive = Hashing::new(decompressed(content)?);
        let unpacked = unpack::unpack(&mut archive, &temporary.join("fs"), &lower)
            .map_err(|error| ImageError::Damaged {
                what: format!("the layer {}", layer.digest),
                error: error.to_string(),
            })
            .and_then(|()| Ok(archive.finish()?))
            .and_then(|found| {
                if found == layer.diff_id {
                    return Ok(());
                }
                let what = format!("the layer {}, unpacked,", layer.digest);
                Err(ImageError::Digest { what, expected: layer.diff_id.to_string(), found: found.to_string() })
            })
            .and_then(|()| Ok(fs::write(temporary.join("chain"), chain.to_string())?))
            .and_then(|()| {
                // Complete means durable: the name must not be there without the files after a loss of power.
                sync_file_system(&temporary)?;
                Ok(fs::rename(&temporary, self.folder.join(name(chain)))?)
            });
        if unpacked.is_err() {
            let _ = remove_all(&temporary);
        }
        unpacked
    }

    /// The layers of an image to look at, and not to write: an overlay without a writable folder needs two others.
    pub(crate) fn layers_readonly(&self, image: &ImageRecord) -> io::Result<Vec<String>> {
        let mut layers = self.layers(image)?;
        layers.push(self.empty()?);
        layers.dedup();
        if layers.len() == 1 {
            fs::create_dir_all(self.folder.join(EMPTY).join("above"))?;
            layers.insert(0, format!("{EMPTY}/above"));
        }
        Ok(layers)
    }

    /// A layer that has nothing.
    fn empty(&self) -> io::Result<String> {
        fs::create_dir_all(self.folder.join(EMPTY).join("fs"))?;
        Ok(format!("{EMPTY}/fs"))
    }

    /// Takes their names from the folders that no image has. Nobody may look for folders meanwhile.
    pub(crate) fn set_aside_unused(&self, images: &ImageStore) -> io::Result<()> {
        let found = state::names(&self.folder)?;
        let mut images = images.all();
        images.extend(locked(&self.kept).iter().filter_map(Weak::upgrade));
        let mut used: BTreeSet<String> = images.iter().flat_map(|image| chain_ids(image)).map(|id| name(&id)).collect();
        if !images.is_empty() {
            used.insert(EMPTY.to_owned());
        }
        let is_used = |name: &String| used.contains(name.trim_start_matches(INCOMPLETE)) || name.starts_with(GONE);
        for name in found.iter().filter(|name| !is_used(name)) {
            fs::rename(self.folder.join(name), self.folder.join(format!("{GONE}{}", state::new_id()?)))?;
        }
        Ok(())
    }

    /// Removes what was set aside, now or before a crash.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        let _sweeping = locked(&self.sweeping);
        let names = state::names(&self.folder)?;
        names.iter().filter(|name| name.starts_with(GONE)).try_for_each(|name| remove_all(&self.folder.join(name)))
    }
}

fn sync_file_system(folder: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(fs::File::open(folder)?)?)
}

#[cfg(test)]
mod tests;
