//! Sending an image.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::{Method, StatusCode, body::Frame, header};
use tokio::io::AsyncReadExt;

use super::{
    Descriptor, Hosts, Manifest, Progress, RegistryError, Watcher,
    client::{AnyBody, Ask, Client, absolute, document, encoded, full},
    media,
};
use crate::{
    images::{ImageRecord, ImageStore, Reference, content::Digest},
    services::{AuthConfig, ServiceError},
};

/// How many layers are sent at once.
const AT_ONCE: usize = 3;
/// How much of a file is read at a time.
const CHUNK: usize = 64 << 10;

pub(crate) struct Pusher {
    pub(crate) store: Arc<ImageStore>,
    pub(crate) hosts: Hosts,
    pub(crate) watcher: Option<Watcher>,
}

impl Pusher {
    /// Sends what a registry does not have of an image, under `name`; the digest that it has there.
    pub(crate) async fn push(
        &self,
        image: &ImageRecord,
        name: &str,
        auth: Option<&AuthConfig>,
    ) -> Result<String, ServiceError> {
        self.to(image, name, auth).await.map_err(|error| error.of_image("push", name))
    }

    async fn to(&self, image: &ImageRecord, name: &str, auth: Option<&AuthConfig>) -> Result<String, RegistryError> {
        let reference = Reference::parse(name)?;
        let endpoints = self.hosts.endpoints(&reference.registry);
        // Mirrors are for reading.
        let endpoint = endpoints.last().ok_or_else(|| RegistryError::NotFound(reference.registry.clone()))?;
        let client = Client::new(endpoint, &self.hosts, auth)?;
        let (text, manifest) = self.manifest(image)?;
        let scope = format!("repository:{}:pull,push", reference.repository);
        let target = Target { pusher: self, client: &client, repository: &reference.repository, scope: &scope };
        let blobs = manifest.layers.iter().chain([&manifest.config]);
        let uploads: Vec<_> = blobs.map(|blob| target.upload(blob)).collect();
        futures::stream::iter(uploads).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        let digest = Digest::of(&text);
        let version = reference.version.as_str();
        if reference.digest().is_some_and(|wanted| wanted != digest) {
            let error = format!("its digest is {digest}");
            return Err(RegistryError::Malformed { what: format!("the manifest for {reference}"), error });
        }
        let mut ask = Ask::new(Method::PUT, format!("/v2/{}/manifests/{version}", reference.repository), &scope)
            .with(header::CONTENT_TYPE, &manifest.media_type);
        ask.body = Some(Arc::new(move || full(text.clone())));
        expect(&client, &ask).await?;
        Ok(digest.to_string())
    }

    /// The manifest that the image came with, or one that is made for it.
    fn manifest(&self, image: &ImageRecord) -> Result<(Bytes, Manifest), RegistryError> {
        let damaged = |error: serde_json::Error| RegistryError::Malformed {
            what: format!("the manifest of {}", image.summary.id),
            error: error.to_string(),
        };
        let content = self.store.content();
        if let Some(digest) = &image.manifest {
            let text = content.read(digest)?;
            let mut manifest: Manifest = serde_json::from_slice(&text).map_err(damaged)?;
            if manifest.media_type.is_empty() {
                manifest.media_type = media::MANIFEST.into();
            }
            return Ok((text.into(), manifest));
        }
        let describe = |digest: &Digest, media_type: String| -> Result<Descriptor, RegistryError> {
            let size = content.size(digest)?;
            Ok(Descriptor { media_type, digest: digest.clone(), size, platform: None })
        };
        let config = Digest::parse(&image.summary.id)
            .map_err(|error| RegistryError::Malformed { what: image.summary.id.clone(), error })?;
        let layers = image.layers.iter().map(|layer| {
            let mut start = [0; 4];
            let length = std::io::Read::read(&mut content.file(&layer.digest)?, &mut start)?;
            let suffix = match start.get(..length).unwrap_or_default() {
                [0x1f, 0x8b, ..] => "+gzip",
                [0x28, 0xb5, 0x2f, 0xfd] => "+zstd",
                _ => "",
            };
            describe(&layer.digest, format!("{}{suffix}", media::LAYER))
        });
        let manifest = Manifest {
            schema_version: 2,
            media_type: media::MANIFEST.into(),
            layers: layers.collect::<Result<_, _>>()?,
            config: describe(&config, media::CONFIG.into())?,
        };
        let text = serde_json::to_vec(&manifest).map_err(damaged)?;
        Ok((text.into(), manifest))
    }
}

/// Sends a request, and takes nothing but success for an answer.
async fn expect(client: &Client, ask: &Ask) -> Result<hyper::HeaderMap, RegistryError> {
    let answer = client.send(ask).await?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    if !status.is_success() {
        return Err(RegistryError::refused(status, &document(answer, &ask.target).await?));
    }
    Ok(headers)
}

struct Target<'a> {
    pusher: &'a Pusher,
    client: &'a Client,
    repository: &'a str,
    scope: &'a str,
}

impl Target<'_> {
    async fn upload(&self, blob: &Descriptor) -> Result<(), RegistryError> {
        let tell = |done| {
            if let Some(watcher) = &self.pusher.watcher {
                watcher(Progress { digest: blob.digest.to_string(), done, total: blob.size });
            }
        };
        tell(0);
        let path = format!("/v2/{}/blobs/{}", self.repository, blob.digest);
        let known = self.client.send(&Ask::new(Method::HEAD, path, self.scope)).await?;
        if known.status() != StatusCode::OK {
            let begin = Ask::new(Method::POST, format!("/v2/{}/blobs/uploads/", self.repository), self.scope);
            let headers = expect(self.client, &begin).await?;
            let place = headers.get(header::LOCATION).and_then(|value| value.to_str().ok()).ok_or_else(|| {
                RegistryError::Malformed { what: "the beginning of an upload".into(), error: "no Location".into() }
            })?;
            let place = absolute(&self.client.endpoint, place);
            let mark = if place.contains('?') { '&' } else { '?' };
            let place = format!("{place}{mark}digest={}", encoded(&blob.digest.to_string()));
            let mut ask = Ask::new(Method::PUT, place, self.scope)
                .with(header::CONTENT_TYPE, "application/octet-stream")
                .with(header::CONTENT_LENGTH, &blob.size.to_string());
            let file = self.pusher.store.content().path(&blob.digest);
            let (watcher, digest, total) = (self.pusher.watcher.clone(), blob.digest.to_string(), blob.size);
            ask.body = Some(Arc::new(move || {
                let (watcher, digest) = (watcher.clone(), digest.clone());
                file_body(file.clone(), move |done| {
                    if let Some(watcher) = &watcher {
                        watcher(Progress { digest: digest.clone(), done, total });
                    }
                })
            }));
            expect(self.client, &ask).await?;
        }
        tell(blob.size);
        Ok(())
    }
}

/// A file as the body of a request, read as it is sent.
fn file_body(path: std::path::PathBuf, tell: impl Fn(u64) + Send + Sync + 'static) -> AnyBody {
    let begin = (None::<tokio::fs::File>, 0u64, path, tell);
    let chunks = futures::stream::try_unfold(begin, |(file, done, path, tell)| async move {
        let mut file = match file {
            Some(file) => file,
            None => tokio::fs::File::open(&path).await?,
        };
        let mut chunk = vec![0; CHUNK];
        let length = file.read(&mut chunk).await?;
        if length == 0 {
            return Ok(None);
        }
        chunk.truncate(length);
        let done = done + length as u64;
        tell(done);
        Ok(Some((Frame::data(Bytes::from(chunk)), (Some(file), done, path, tell))))
    });
    BodyExt::boxed_unsync(StreamBody::new(chunks))
}
