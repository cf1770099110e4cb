//! Fetching an image.

use std::{io::Write, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use hyper::{Method, StatusCode, body::Incoming, header};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{
    Descriptor, Hosts, Manifest, Progress, RegistryError, Watcher,
    client::{Ask, Client, document},
    media,
};
use crate::{
    images::{ImageStore, NewImage, Reference, architecture, content::Digest},
    locks::Locks,
    services::{AuthConfig, ServiceError},
};

/// How many layers are fetched at once.
const AT_ONCE: usize = 3;
/// How often the rest of a layer is asked for, and how long a registry may send nothing.
const TRIES: usize = 5;
const SILENCE: Duration = Duration::from_secs(60);
/// More layers than overlayfs can stack do not make a container.
const MOST_LAYERS: usize = 127;

/// Everything that fetching needs.
pub(crate) struct Puller {
    pub(crate) store: Arc<ImageStore>,
    pub(crate) hosts: Hosts,
    /// Two images that share a layer fetch it once.
    pub(crate) fetching: Arc<Locks>,
    pub(crate) watcher: Option<Watcher>,
}

impl Puller {
    /// Fetches what is missing of an image, and answers with its id.
    pub(crate) async fn pull(&self, name: &str, auth: Option<&AuthConfig>) -> Result<String, ServiceError> {
        let reference = Reference::parse(name).map_err(|error| RegistryError::from(error).of_image("pull", name))?;
        let full = reference.to_string();
        if reference.registry == super::LOCAL {
            let known = self.store.find(&full).map(|image| image.summary.id.clone());
            return known.ok_or_else(|| RegistryError::NotFound(full.clone()).of_image("pull", &full));
        }
        self.try_all(&reference, auth).await.map_err(|error| error.of_image("pull", &full))
    }

    /// Mirrors may lack an image that the registry has; the registry has the last word.
    async fn try_all(&self, reference: &Reference, auth: Option<&AuthConfig>) -> Result<String, RegistryError> {
        let endpoints = self.hosts.endpoints(&reference.registry);
        let last = endpoints.len().saturating_sub(1);
        for (index, endpoint) in endpoints.iter().enumerate() {
            let client = Client::new(endpoint, &self.hosts, auth.filter(|_| index == last));
            let result = match client {
                Ok(client) => self.take(&client, reference).await,
                Err(error) => Err(error),
            };
            match result {
                Err(error) if index < last => {
                    tracing::info!(endpoint, image = %reference, %error, "a mirror does not have an image");
                }
                result => return result,
            }
        }
        Err(RegistryError::NotFound(reference.to_string()))
    }

    async fn take(&self, client: &Client, reference: &Reference) -> Result<String, RegistryError> {
        let scope = format!("repository:{}:pull", reference.repository);
        let source = Source { client, reference, scope };
        let (top, body, kind) = source.manifest(&reference.version).await?;
        let (digest, body) = match platform(&kind, &body)? {
            None => (top.clone(), body),
            Some(fitting) => {
                let (digest, body, _) = source.manifest(&fitting.to_string()).await?;
                (digest, body)
            }
        };
        let manifest: Manifest = parse(&format!("the manifest {digest}"), &body)?;
        check(&digest, &manifest)?;
        let wanted = [&digest, &manifest.config.digest].into_iter().chain(manifest.layers.iter().map(|l| &l.digest));
        let _claim = self.store.claim(wanted.cloned().collect());
        let (store, text) = (self.store.clone(), body.clone());
        write(move || store.content().write(text.as_ref()).map(drop)).await?;
        self.fetch(&source, &manifest.config).await?;
        let fetches: Vec<_> = manifest.layers.iter().map(|layer| self.fetch(&source, layer)).collect();
        futures::stream::iter(fetches).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        let new = NewImage {
            config: manifest.config.digest.clone(),
            layers: manifest.layers.iter().map(|layer| layer.digest.clone()).collect(),
            tags: reference.digest().is_none().then(|| reference.to_string()).into_iter().collect(),
            digests: vec![format!("{}@{top}", reference.path())],
            manifest: Some(digest),
            made_from: None,
        };
        let store = self.store.clone();
        Ok(write(move || Ok(store.add(new))).await??)
    }

    /// Fetches one blob, unless it is here.
    async fn fetch(&self, source: &Source<'_>, blob: &Descriptor) -> Result<(), RegistryError> {
        let _fetching = self.fetching.lock(&blob.digest.to_string()).await;
        let tell = |done| {
            if let Some(watcher) = &self.watcher {
                watcher(Progress { digest: blob.digest.to_string(), done, total: blob.size });
            }
        };
        tell(0);
        if !self.store.content().has(&blob.digest) {
            let incoming = self.store.content().begin()?;
            let (chunks, receive) = mpsc::channel::<Bytes>(16);
            let (digest, size) = (blob.digest.clone(), blob.size);
            let writing = tokio::task::spawn_blocking(move || take(incoming, receive, &digest, size));
            let sent = source.download(blob, &chunks, &tell).await;
            drop(chunks);
            let written = writing.await.unwrap_or_else(|error| Err(std::io::Error::other(error).into()));
            sent.and(written)?;
        }
        tell(blob.size);
        Ok(())
    }
}

/// Runs work with files where it may wait.
async fn write<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, RegistryError> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.unwrap_or_else(|error| Err(std::io::Error::other(error)))?)
}

/// Writes what comes, and makes it content if it is what it should be.
fn take(
    mut incoming: crate::images::content::Incoming,
    mut receive: mpsc::Receiver<Bytes>,
    expected: &Digest,
    size: u64,
) -> Result<(), RegistryError> {
    let mut length = 0;
    while let Some(bytes) = receive.blocking_recv() {
        length += bytes.len() as u64;
        incoming.write_all(&bytes)?;
    }
    let found = incoming.digest();
    if length != size || found != *expected {
        let error = format!("it has {length} bytes of {size}, and the digest {found}");
        return Err(RegistryError::Malformed { what: format!("the blob {expected}"), error });
    }
    incoming.store()?;
    Ok(())
}

/// A repository at an endpoint.
struct Source<'a> {
    client: &'a Client,
    reference: &'a Reference,
    scope: String,
}

impl Source<'_> {
    /// A manifest or an index, with its digest and its type.
    async fn manifest(&self, version: &str) -> Result<(Digest, Bytes, String), RegistryError> {
        let path = format!("/v2/{}/manifests/{version}", self.reference.repository);
        let kinds = [media::INDEX, media::MANIFEST, media::DOCKER_LIST, media::DOCKER_MANIFEST];
        let ask = Ask::new(Method::GET, path, &self.scope).with(header::ACCEPT, &kinds.join(", "));
        let answer = self.client.send(&ask).await?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = document(answer, &self.client.endpoint).await?;
        if !status.is_success() {
            return Err(match RegistryError::refused(status, &body) {
                RegistryError::NotFound(_) => RegistryError::NotFound(self.reference.to_string()),
                other => other,
            });
        }
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(String::from);
        let digest = Digest::of(&body);
        let promised = if version.contains(':') { Some(version.to_owned()) } else { text("docker-content-digest") };
        if promised.as_ref().is_some_and(|promised| promised.starts_with("sha256:") && *promised != digest.to_string())
        {
            let what = format!("the manifest {}", promised.unwrap_or_default());
            return Err(RegistryError::Malformed { what, error: format!("its digest is {digest}") });
        }
        let declared: Value = parse(&format!("the manifest {digest}"), &body)?;
        let declared = declared.get("mediaType").and_then(Value::as_str).map(String::from);
        let kind = declared.or_else(|| text("content-type")).unwrap_or_default();
        Ok((digest, body, kind))
    }

    /// Sends a blob's bytes on as they come. A connection that breaks is no reason to begin again from the start.
    async fn download(
        &self,
        blob: &Descriptor,
        chunks: &mpsc::Sender<Bytes>,
        tell: &impl Fn(u64),
    ) -> Result<(), RegistryError> {
        let place = format!("/v2/{}/blobs/{}", self.reference.repository, blob.digest);
        let mut done = 0;
        let mut tried = 1;
        loop {
            match self.rest(&place, blob.size, &mut done, chunks, tell).await {
                Err(RegistryError::Unreachable { .. }) if tried < TRIES => tried += 1,
                result => return result,
            }
        }
    }

    async fn rest(
        &self,
        place: &str,
        size: u64,
        done: &mut u64,
        chunks: &mpsc::Sender<Bytes>,
        tell: &impl Fn(u64),
    ) -> Result<(), RegistryError> {
        let mut ask = Ask::new(Method::GET, place, &self.scope);
        if *done > 0 {
            ask = ask.with(header::RANGE, &format!("bytes={done}-"));
        }
        let answer = self.client.send(&ask).await?;
        // A server that does not know ranges begins again from the start.
        let mut skip = if answer.status() == StatusCode::PARTIAL_CONTENT { 0 } else { *done };
        if !answer.status().is_success() {
            let status = answer.status();
            return Err(RegistryError::refused(status, &document(answer, place).await?));
        }
        let mut body = answer.into_body();
        while let Some(mut bytes) = next(&mut body, place).await? {
            let skipped = skip.min(bytes.len() as u64);
            skip -= skipped;
            let bytes = bytes.split_off(skipped as usize);
            *done += bytes.len() as u64;
            if *done > size {
                let error = format!("it is longer than the {size} bytes of its manifest");
                return Err(RegistryError::Malformed { what: place.to_owned(), error });
            }
            if chunks.send(bytes).await.is_err() {
                // Whoever writes has failed, and tells why.
                return Ok(());
            }
            tell(*done);
        }
        if *done < size {
            return Err(RegistryError::Unreachable { url: place.into(), error: "the connection ended early".into() });
        }
        Ok(())
    }
}

async fn next(body: &mut Incoming, url: &str) -> Result<Option<Bytes>, RegistryError> {
    let broken = |error: String| RegistryError::Unreachable { url: url.to_owned(), error };
    loop {
        match tokio::time::timeout(SILENCE, body.frame()).await {
            Ok(None) => return Ok(None),
            Ok(Some(Ok(frame))) => {
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
            Ok(Some(Err(error))) => return Err(broken(error.to_string())),
            Err(_) => return Err(broken(format!("nothing came for {} s", SILENCE.as_secs()))),
        }
    }
}

fn parse<T: serde::de::DeserializeOwned>(what: &str, body: &[u8]) -> Result<T, RegistryError> {
    serde_json::from_slice(body)
        .map_err(|error| RegistryError::Malformed { what: what.into(), error: error.to_string() })
}

/// The manifest for this machine, where the document is an index of several.
fn platform(kind: &str, body: &[u8]) -> Result<Option<Digest>, RegistryError> {
    #[derive(serde::Deserialize)]
    struct Index {
        manifests: Vec<Descriptor>,
    }
    let value: Value = parse("the manifest", body)?;
    if value.get("schemaVersion").and_then(Value::as_u64) == Some(1) {
        let error = "it is of schema version 1, which is no longer in use".into();
        return Err(RegistryError::Malformed { what: "the manifest".into(), error });
    }
    if !kind.starts_with(media::INDEX) && !kind.starts_with(media::DOCKER_LIST) && value.get("manifests").is_none() {
        return Ok(None);
    }
    let index: Index = parse("the index", body)?;
    let fits = |manifest: &&Descriptor| {
        manifest.platform.as_ref().is_some_and(|p| p.os == "linux" && p.architecture == architecture())
    };
    if let Some(found) = index.manifests.iter().find(fits) {
        return Ok(Some(found.digest.clone()));
    }
    let name = |manifest: &Descriptor| manifest.platform.as_ref().map(|p| format!("{}/{}", p.os, p.architecture));
    let has: Vec<String> = index.manifests.iter().filter_map(name).collect();
    Err(RegistryError::Platform(has.join(", ")))
}

fn check(digest: &Digest, manifest: &Manifest) -> Result<(), RegistryError> {
    let what = || format!("the manifest {digest}");
    if manifest.layers.len() > MOST_LAYERS {
        let error = format!("it has {} layers; {MOST_LAYERS} can be stacked", manifest.layers.len());
        return Err(RegistryError::Malformed { what: what(), error });
    }
    if manifest.config.size > super::client::LARGEST_DOCUMENT as u64 {
        return Err(RegistryError::Malformed { what: what(), error: "its configuration is too large".into() });
    }
    Ok(())
}
