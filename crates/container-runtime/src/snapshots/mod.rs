//! Unpacked layers: one folder for each chain of layers, read-only once it is complete, shared by all containers and images that
//! have the chain.
//!
//! The chain id of a layer names it together with everything below it (OCI image specification, config.md), since what a layer
//! deletes depends on that. A folder gets its name when it is complete. Names are short, because the kernel takes one page
//! of mount options for all layers of a container; the full id is inside.

mod unpack;

use std::{
    collections::BTreeSet,
    fs,
    io::{self, BufReader},
    path::{Path, PathBuf},
    sync::Mutex,
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

pub struct Snapshots {
    folder: PathBuf,
    /// One at a time unpacks or removes.
    changing: Mutex<()>,
}

/// The chain ids of an image's layers, the lowest first.
fn chain_ids(image: &ImageRecord) -> Vec<Digest> {
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
        Self { folder, changing: Mutex::new(()) }
    }

    /// Unpacks the layers of an image that are not yet; their folders relative to that of all, the topmost first.
    pub fn prepare(&self, images: &ImageStore, image: &ImageRecord) -> Result<Vec<String>, ImageError> {
        let chains = chain_ids(image);
        let _changing = locked(&self.changing);
        let mut lower: Vec<PathBuf> = Vec::new();
        for (chain, layer) in chains.iter().zip(&image.layers) {
            let folder = self.folder.join(name(chain));
            match fs::read_to_string(folder.join("chain")) {
                Ok(known) if known == chain.to_string() => {}
                Ok(known) => {
                    let error = format!("another chain, {known}, has the same name");
                    return Err(ImageError::Damaged { what: format!("the snapshot of {chain}"), error });
                }
                Err(_) => self.unpack(images, chain, layer, &lower)?,
            }
            lower.insert(0, folder.join("fs"));
        }
        if chains.is_empty() {
            // An overlay needs something below.
            return Ok(vec![self.empty()?]);
        }
        Ok(chains.iter().rev().map(|chain| format!("{}/fs", name(chain))).collect())
    }

    fn unpack(
        &self,
        images: &ImageStore,
        chain: &Digest,
        layer: &crate::images::Layer,
        lower: &[PathBuf],
    ) -> Result<(), ImageError> {
        let temporary = self.folder.join(format!("{INCOMPLETE}{}", name(chain)));
        remove_all(&temporary)?;
        fs::create_dir(&temporary)?;
        let content = BufReader::new(images.content().file(&layer.digest)?);
        let mut archive = Hashing::new(decompressed(content)?);
        let unpacked = unpack::unpack(&mut archive, &temporary.join("fs"), lower)
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
    pub fn prepare_readonly(&self, images: &ImageStore, image: &ImageRecord) -> Result<Vec<String>, ImageError> {
        let mut layers = self.prepare(images, image)?;
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

    /// Removes the folders that no image has.
    pub fn remove_unused(&self, images: &ImageStore) -> io::Result<()> {
        let _changing = locked(&self.changing);
        let images = images.all();
        let mut used: BTreeSet<String> = images.iter().flat_map(|image| chain_ids(image)).map(|id| name(&id)).collect();
        if !images.is_empty() {
            used.insert(EMPTY.to_owned());
        }
        for name in state::names(&self.folder)? {
            if used.contains(&name) {
                continue;
            }
            // What is half gone must not have the name of something whole.
            let gone = self.folder.join(format!("{INCOMPLETE}{}", name.trim_start_matches(INCOMPLETE)));
            if !name.starts_with(INCOMPLETE) {
                remove_all(&gone)?;
                fs::rename(self.folder.join(name), &gone)?;
            }
            remove_all(&gone)?;
        }
        Ok(())
    }
}

fn sync_file_system(folder: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(fs::File::open(folder)?)?)
}

#[cfg(test)]
mod tests;
