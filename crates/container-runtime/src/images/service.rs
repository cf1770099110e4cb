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
    snapshots::Snapshots,
    state::{self, ContainerRecord, Folders},
};

/// The images of a folder, their snapshots, and the way to registries. Clones are the same.
#[derive(Clone)]
pub struct Images {
    pub(crate) store: Arc<ImageStore>,
    pub(crate) snapshots: Arc<Snapshots>,
    fetching: Arc<Locks>,
    /// Held by those who are about to use images, and alone by those who remove one.
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

    /// Removes an image that no container has; one that is not here is no error.
    pub async fn remove(&self, image: &str) -> Result<()> {
        let Some(image) = self.find(image) else { return Ok(()) };
        let images = self.clone();
        blocking(move || {
            let _alone = images.in_use.write().unwrap_or_else(PoisonError::into_inner);
            for id in state::names(&images.folders.containers())? {
                let record = images.folders.container(&id).join(state::CONTAINER);
                let used = state::read::<ContainerRecord>(&record).is_ok_and(|used| used.has_image(&image.summary.id));
                if used {
                    let text = format!("image {} is used by container {id}", image.summary.id);
                    return Err(ServiceError::FailedPrecondition(text));
                }
            }
            images.store.remove(&image)?;
            images.snapshots.remove_unused(&images.store)?;
            Ok(())
        })
        .await
    }
}
