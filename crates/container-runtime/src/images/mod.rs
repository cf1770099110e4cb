//! Images: what they are, and the store that has them.
//!
//! Content is kept by its digest and never changes ([`content`]). An image is the record of a configuration and its layers, under
//! the digest of the configuration; names point to it. A record is written when all of its content is there, so an image that is
//! listed is complete.

mod archive;
mod claims;
pub mod content;
mod executable;
mod reference;
mod service;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::{runtime::locked, services, state};
use content::{ContentStore, Digest};

pub(crate) use archive::{architecture, decompressed};
pub use claims::Claim;
pub use reference::{Reference, normalize};
pub use service::Images;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the archive has no images: it has neither manifest.json nor index.json")]
    NoManifest,
    #[error("the archive says that it has {0}, and has not")]
    Missing(String),
    #[error("{what} is damaged: {error}")]
    Damaged { what: String, error: String },
    #[error("{what} should have the digest {expected}, and has {found}")]
    Digest { what: String, expected: String, found: String },
    #[error("the archive has no image for {0}")]
    Platform(String),
    #[error("{0:?} is not the name of an image")]
    Name(String),
}

impl From<ImageError> for services::ServiceError {
    fn from(error: ImageError) -> Self {
        Self::Internal(error.to_string())
    }
}

/// The part of an image's configuration that running it needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    pub user: String,
    pub env: Vec<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    pub working_dir: String,
    pub stop_signal: String,
}

/// The record of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    pub summary: services::Image,
    pub config: ImageConfig,
    /// The lowest first.
    pub layers: Vec<Layer>,
    /// The manifest that it came with from a registry.
    #[serde(default)]
    pub manifest: Option<Digest>,
    /// The file that the image was made from, as it was then.
    #[serde(default)]
    pub made_from: Option<String>,
}

impl ImageRecord {
    /// Everything that must be there for the image to be.
    pub fn content(&self) -> impl Iterator<Item = Digest> {
        let config = Digest::parse(&self.summary.id).ok();
        self.layers.iter().map(|layer| layer.digest.clone()).chain(config).chain(self.manifest.clone())
    }
}

/// An image whose content is stored.
#[derive(Debug)]
pub(crate) struct NewImage {
    pub(crate) config: Digest,
    /// The lowest first.
    pub(crate) layers: Vec<Digest>,
    /// Names that until now may have meant another.
    pub(crate) tags: Vec<String>,
    /// Names with digests.
    pub(crate) digests: Vec<String>,
    pub(crate) manifest: Option<Digest>,
    pub(crate) made_from: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// As stored, compressed or not.
    pub digest: Digest,
    /// Of the archive itself, never compressed.
    pub diff_id: Digest,
}

/// A configuration as images have it (OCI image specification, config.md).
#[derive(Debug, Deserialize)]
struct ConfigFile {
    #[serde(default)]
    config: Option<ConfigFields>,
    rootfs: RootFs,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ConfigFields {
    user: Option<String>,
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
    stop_signal: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RootFs {
    diff_ids: Vec<Digest>,
}

pub struct ImageStore {
    records: PathBuf,
    content: ContentStore,
    images: Mutex<BTreeMap<String, Arc<ImageRecord>>>,
    /// How often content is claimed by who is about to use it.
    claims: Mutex<BTreeMap<Digest, usize>>,
    /// One process at a time has the folder.
    _lock: fs::File,
}

impl ImageStore {
    pub fn open(root: &Path) -> io::Result<Self> {
        let lock = fs::File::options().create(true).truncate(false).write(true).open(root.join("lock"))?;
        // A lock of this kind is not passed on to children, which may outlive this process for a moment.
        if rustix::fs::fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let text = format!("another process has the images in {}", root.display());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        let records = root.join("images");
        let content = ContentStore::open(&root.join("content"))?;
        let mut images = BTreeMap::new();
        for name in state::names(&records)?.iter().filter(|name| name.ends_with(".json")) {
            let file = records.join(name);
            let reason = match state::read::<ImageRecord>(&file) {
                Ok(record) if record.content().all(|digest| content.has(&digest)) => {
                    images.insert(record.summary.id.clone(), Arc::new(record));
                    continue;
                }
                Ok(_) => "some of its content is missing".to_owned(),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => error.to_string(),
                Err(error) => return Err(error),
            };
            // A loss of power has left it so. It can be fetched again, which nobody would do as long as it seems to be here.
            tracing::warn!(image = name, reason, "an image is forgotten");
            fs::remove_file(file)?;
        }
        let used: BTreeSet<Digest> = images.values().flat_map(|image| image.content()).collect();
        // What was fetched for an image that never came to be.
        for digest in content.all()?.iter().filter(|digest| !used.contains(digest)) {
            content.remove(digest)?;
        }
        Ok(Self { records, content, images: Mutex::new(images), claims: Mutex::default(), _lock: lock })
    }

    pub fn content(&self) -> &ContentStore {
        &self.content
    }

    pub fn all(&self) -> Vec<Arc<ImageRecord>> {
        locked(&self.images).values().cloned().collect()
    }

    /// By name, by name with digest, by id, or by the beginning of an id.
    pub fn find(&self, name: &str) -> Option<Arc<ImageRecord>> {
        let images = locked(&self.images);
        if let Some(image) = images.get(name).or_else(|| images.get(&format!("sha256:{name}"))) {
            return Some(image.clone());
        }
        let full = normalize(name).ok()?;
        let named = |image: &&Arc<ImageRecord>| {
            image.summary.repo_tags.contains(&full) || image.summary.repo_digests.contains(&full)
        };
        images.values().find(named).cloned()
    }

    /// Records an image.
    pub(crate) fn add(&self, new: NewImage) -> Result<String, ImageError> {
        let NewImage { config, layers, tags, digests, manifest, made_from } = new;
        let text = self.content.read(&config)?;
        let damaged = |error: String| ImageError::Damaged { what: format!("the configuration {config}"), error };
        let file: ConfigFile = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if file.rootfs.diff_ids.len() != layers.len() {
            return Err(damaged(format!("it names {} layers of {}", file.rootfs.diff_ids.len(), layers.len())));
        }
        let fields = file.config.unwrap_or_default();
        let mut size = text.len() as u64;
        for layer in &layers {
            size += self.content.size(layer)?;
        }
        let layers = layers.into_iter().zip(file.rootfs.diff_ids).map(|(digest, diff_id)| Layer { digest, diff_id });
        let tags = tags.iter().map(|tag| normalize(tag)).collect::<Result<Vec<_>, _>>()?;
        let user = fields.user.unwrap_or_default();
        let name = user.split(':').next().unwrap_or_default();
        let uid = name.parse().ok();
        let mut summary = services::Image {
            id: config.to_string(),
            repo_digests: Vec::new(),
            size,
            uid,
            username: if uid.is_none() { name.to_owned() } else { String::new() },
            // What cannot be fetched again stays.
            pinned: made_from.is_some(),
            repo_tags: Vec::new(),
        };
        let mut images = locked(&self.images);
        if let Some(known) = images.get(&summary.id) {
            summary.repo_tags = known.summary.repo_tags.clone();
            summary.repo_digests = known.summary.repo_digests.clone();
            summary.pinned |= known.summary.pinned;
        }
        for tag in &tags {
            push_new(&mut summary.repo_tags, tag.clone());
        }
        for digest in digests {
            push_new(&mut summary.repo_digests, digest);
        }
        let known = images.get(&summary.id);
        let record = ImageRecord {
            config: ImageConfig {
                user,
                env: fields.env.unwrap_or_default(),
                entrypoint: fields.entrypoint.unwrap_or_default(),
                cmd: fields.cmd.unwrap_or_default(),
                working_dir: fields.working_dir.unwrap_or_default(),
                stop_signal: fields.stop_signal.unwrap_or_default(),
            },
            layers: layers.collect(),
            manifest: manifest.or_else(|| known?.manifest.clone()),
            made_from: made_from.or_else(|| known?.made_from.clone()),
            summary,
        };
        let id = record.summary.id.clone();
        self.write(&record)?;
        for other in images.values_mut().filter(|image| image.summary.id != id) {
            if other.summary.repo_tags.iter().any(|tag| tags.contains(tag)) {
                let mut without = ImageRecord::clone(other);
                without.summary.repo_tags.retain(|tag| !tags.contains(tag));
                without.summary.pinned &= !without.summary.repo_tags.is_empty();
                self.write(&without)?;
                *other = Arc::new(without);
            }
        }
        images.insert(id.clone(), Arc::new(record));
        Ok(id)
    }

    fn write(&self, record: &ImageRecord) -> io::Result<()> {
        state::write(&self.file(&record.summary.id), record)
    }

    fn file(&self, id: &str) -> PathBuf {
        self.records.join(format!("{}.json", id.trim_start_matches("sha256:")))
    }

    /// Removes an image. What no other image has of its content goes with the claim.
    pub fn remove(&self, image: &ImageRecord) -> io::Result<Claim<'_>> {
        let claim = self.claim(image.content().collect());
        let mut images = locked(&self.images);
        fs::remove_file(self.file(&image.summary.id))?;
        images.remove(&image.summary.id);
        Ok(claim)
    }
}

fn push_new(list: &mut Vec<String>, entry: String) {
    if !list.contains(&entry) {
        list.push(entry);
    }
}

#[cfg(test)]
mod tests;
