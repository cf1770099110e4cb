//! What one does with images, with a runtime around it or without one.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
};

use super::{ImageRecord, ImageStore};
use crate::{
    locks::Locks,
    registry::{Hosts, Puller, Pusher, Watcher},
    runtime::blocking,
    services::{AuthConfig, Result, ServiceError},
    snapshots::{Snapshots, chain_ids},
    state::{self, ContainerRecord, Folders},
};

/// The images of a folder, their snapshots, and the way to registries. Clones are the same.
#[derive(Clone)]
pub struct Images {
    pub(crate) store: Arc<ImageStore>,
    pub(crate) snapshots: Arc<Snapshots>,
    fetching: Arc<Locks>,
    /// One at a time unpacks a chain of layers.
    unpacking: Arc<Locks>,
    /// Held by those who are about to use images or look for their layers, and alone by those who remove one. Never for long: whoever
    /// waits to be alone keeps the others waiting.
    in_use: Arc<RwLock<()>>,
    registries: PathBuf,
    folders: Folders,
}

impl Images {
    /// One process at a time has a folder.
    pub fn open(root: &Path, registries: PathBuf) -> Result<Self> {
        let folders = Folders::create(root)?;
        Ok(Self {
            store: Arc::new(ImageStore::open(&folders.root)?),
            snapshots: Arc::new(Snapshots::new(folders.snapshots())),
            fetching: Arc::default(),
            unpacking: Arc::default(),
            in_use: Arc::default(),
            registries,
            folders,
        })
    }

    pub fn all(&self) -> Vec<Arc<ImageRecord>> {
        self.store.all()
    }

    pub fn find(&self, name: &str) -> Option<Arc<ImageRecord>> {
        self.store.find(name)
    }

    /// While this is held, no image is removed.
    pub(crate) fn using(&self) -> RwLockReadGuard<'_, ()> {
        self.in_use.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn hosts(&self, image: &str) -> Result<Hosts> {
        let unusable = |error| ServiceError::Internal(format!("cannot reach the registry of {image:?}: {error}"));
        Hosts::read(&self.registries).map_err(unusable)
    }

    /// Fetches an image and tells of the progress; its id.
    pub async fn pull(&self, image: &str, auth: Option<&AuthConfig>, watcher: Option<Watcher>) -> Result<String> {
        let (store, fetching) = (self.store.clone(), self.fetching.clone());
        Puller { store, hosts: self.hosts(image)?, fetching, watcher }.pull(image, auth).await
    }

    /// Sends an image to a registry under a name, and tells of the progress; the digest that it has there.
    pub async fn push(
        &self,
        image: &str,
        name: &str,
        auth: Option<&AuthConfig>,
        watcher: Option<Watcher>,
    ) -> Result<String> {
        let unknown = || ServiceError::NotFound(format!("image {image:?} is not here"));
        let record = self.find(image).ok_or_else(unknown)?;
        Pusher { store: self.store.clone(), hosts: self.hosts(name)?, watcher }.push(&record, name, auth).await
    }

    /// Takes the images of an archive as `docker save` or an OCI layout has them; their ids.
    pub async fn import(&self, archive: impl Into<PathBuf>) -> Result<Vec<String>> {
        let (store, archive) = (self.store.clone(), archive.into());
        blocking(move || Ok(store.import(&archive)?)).await
    }

    /// Unpacks those layers of an image that are not yet. Other images may be unpacked, used and removed meanwhile.
    pub(crate) async fn unpack(&self, image: &ImageRecord) -> Result<()> {
        let image = self.snapshots.keep(image);
        for (index, chain) in chain_ids(&image).into_iter().enumerate() {
            let alone = self.unpacking.lock(&chain.to_string()).await;
            let (images, image) = (self.clone(), image.clone());
            blocking(move || {
                // Until it is done, also if nobody waits for it any more.
                let _alone = alone;
                let known = {
                    let _using = images.using();
                    images.snapshots.has(&chain)?
                };
                if !known {
                    images.snapshots.unpack(&images.store, &image, index)?;
                }
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Removes an image that no container has; one that is not here is no error.
    pub async fn remove(&self, image: &str) -> Result<()> {
        let Some(image) = self.find(image) else { return Ok(()) };
        let images = self.clone();
        blocking(move || {
            // Its content goes when this does.
            let _content;
            {
                let _alone = images.in_use.write().unwrap_or_else(PoisonError::into_inner);
                for id in state::names(&images.folders.containers())? {
                    let record = images.folders.container(&id).join(state::CONTAINER);
                    let record = state::read::<ContainerRecord>(&record);
                    if record.is_ok_and(|record| record.has_image(&image.summary.id)) {
                        let text = format!("image {} is used by container {id}", image.summary.id);
                        return Err(ServiceError::FailedPrecondition(text));
                    }
                }
                _content = images.store.remove(&image)?;
                images.snapshots.set_aside_unused(&images.store)?;
            }
            Ok(images.snapshots.sweep()?)
        })
        .await
    }
}
