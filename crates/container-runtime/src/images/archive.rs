//! Archives of images: what `docker save` writes, and OCI layouts.
//!
//! An archive is read once, from its beginning to its end: each file is stored by its digest as it comes, and then its index says
//! what the files are. What turns out not to belong to an image is removed again.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufReader, Read},
    path::{Component, Path},
};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use serde::{Deserialize, de::DeserializeOwned};

use super::{Claim, ImageError, ImageStore, NewImage, Reference, content::Digest};

/// No index or manifest is larger than this.
const LARGEST_DOCUMENT: u64 = 4 << 20;

/// An entry of `manifest.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerManifest {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// A list of manifests (OCI image specification, image-index.md).
#[derive(Debug, Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    digest: Digest,
    #[serde(default)]
    media_type: String,
    platform: Option<Platform>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

/// A manifest (OCI image specification, manifest.md).
#[derive(Debug, Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

/// This machine's architecture, as images name it.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

/// The files of an archive by their paths.
type Files = BTreeMap<String, Digest>;

impl ImageStore {
    /// Takes the images of an archive; their ids.
    pub fn import(&self, archive: &Path) -> Result<Vec<String>, ImageError> {
        let file = BufReader::new(File::open(archive)?);
        let mut claim = self.claim(Vec::new());
        let files = self.store_files(decompressed(file)?, &mut claim)?;
        match (files.get("manifest.json"), files.get("index.json")) {
            (Some(manifest), _) => self.import_docker(&files, manifest),
            (None, Some(index)) => self.import_layout(index),
            (None, None) => Err(ImageError::NoManifest),
        }
    }

    fn store_files(&self, archive: impl Read, claim: &mut Claim<'_>) -> Result<Files, ImageError> {
        let mut files = Files::new();
        let mut links = Vec::new();
        let mut archive = tar::Archive::new(archive);
        for entry in archive.entries()? {
            let mut entry = entry?;
            let path = plain(&entry.path()?);
            match entry.header().entry_type() {
                kind if kind.is_file() => {
                    let digest = self.content.write(&mut entry)?;
                    claim.add(digest.clone());
                    files.insert(path, digest);
                }
                // Old archives have a layer once, and links to it where it is used again.
                kind if kind.is_symlink() || kind.is_hard_link() => {
                    if let Some(target) = entry.link_name()? {
                        let folder = if kind.is_symlink() { Path::new(&path).parent() } else { None };
                        links.push((path.clone(), plain(&folder.unwrap_or(Path::new("")).join(target))));
                    }
                }
                _ => {}
            }
        }
        for (path, target) in links {
            if let Some(digest) = files.get(&target).cloned() {
                files.insert(path, digest);
            }
        }
        Ok(files)
    }

    fn import_docker(&self, files: &Files, manifest: &Digest) -> Result<Vec<String>, ImageError> {
        let find = |path: &String| {
            files.get(&plain(Path::new(path))).cloned().ok_or_else(|| ImageError::Missing(path.clone()))
        };
        let manifests: Vec<DockerManifest> = self.document("manifest.json", manifest)?;
        manifests
            .iter()
            .map(|image| {
                self.add(NewImage {
                    config: find(&image.config)?,
                    layers: image.layers.iter().map(find).collect::<Result<_, _>>()?,
                    tags: image.repo_tags.clone().unwrap_or_default(),
                    digests: Vec::new(),
                    manifest: None,
                    made_from: None,
                })
            })
            .collect()
    }

    fn import_layout(&self, index: &Digest) -> Result<Vec<String>, ImageError> {
        let index: Index = self.document("index.json", index)?;
        index
            .manifests
            .iter()
            .map(|descriptor| {
                let names = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];
                let name = names.iter().find_map(|name| descriptor.annotations.get(*name)).cloned();
                let (digest, manifest) = self.manifest(descriptor)?;
                for needed in manifest.layers.iter().chain([&manifest.config]) {
                    if !self.content.has(&needed.digest) {
                        return Err(ImageError::Missing(needed.digest.to_string()));
                    }
                }
                // A bare tag, as some tools write it, names no image.
                let tags: Vec<String> = name.into_iter().filter(|name| name.contains(['/', ':'])).collect();
                let digests = tags.iter().map(|tag| Ok(format!("{}@{digest}", Reference::parse(tag)?.path())));
                self.add(NewImage {
                    digests: digests.collect::<Result<_, ImageError>>()?,
                    tags,
                    config: manifest.config.digest,
                    layers: manifest.layers.into_iter().map(|layer| layer.digest).collect(),
                    manifest: Some(digest),
                    made_from: None,
                })
            })
            .collect()
    }

    /// The manifest for this machine, which an index may have among others.
    fn manifest(&self, descriptor: &Descriptor) -> Result<(Digest, Manifest), ImageError> {
        let mut digest = descriptor.digest.clone();
        if descriptor.media_type.contains("index") || descriptor.media_type.contains("manifest.list") {
            let index: Index = self.document("an index", &digest)?;
            let fits = |manifest: &Descriptor| {
                manifest.platform.as_ref().is_none_or(|p| p.os == "linux" && p.architecture == architecture())
                    && self.content.has(&manifest.digest)
            };
            let found = index.manifests.into_iter().find(fits);
            digest = found.ok_or_else(|| ImageError::Platform(format!("linux/{}", architecture())))?.digest;
        }
        let manifest = self.document("a manifest", &digest)?;
        Ok((digest, manifest))
    }

    fn document<T: DeserializeOwned>(&self, what: &str, digest: &Digest) -> Result<T, ImageError> {
        if !self.content.has(digest) {
            return Err(ImageError::Missing(digest.to_string()));
        }
        let damaged = |error: String| ImageError::Damaged { what: what.to_owned(), error };
        if self.content.size(digest)? > LARGEST_DOCUMENT {
            return Err(damaged("it is too large".into()));
        }
        serde_json::from_slice(&self.content.read(digest)?).map_err(|error| damaged(error.to_string()))
    }
}

/// A path without `.`, `..` and a leading slash.
fn plain(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            Component::ParentDir => drop(parts.pop()),
            _ => {}
        }
    }
    parts.join("/")
}

/// Looks at the first bytes, and undoes gzip or zstd.
pub(crate) fn decompressed<'a>(mut source: impl std::io::BufRead + 'a) -> Result<Box<dyn Read + 'a>, ImageError> {
    let start = source.fill_buf()?;
    if start.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(flate2::bufread::MultiGzDecoder::new(source)));
    }
    if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Ok(Box::new(Frames { source: Some(source), frame: None }));
    }
    Ok(Box::new(source))
}

/// All frames of a zstd file, one after the other: tools write several, and some that hold nothing.
struct Frames<R: std::io::BufRead> {
    /// Between two frames.
    source: Option<R>,
    frame: Option<Box<StreamingDecoder<R, FrameDecoder>>>,
}

impl<R: std::io::BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let length = frame.read(buffer)?;
                if length > 0 || buffer.is_empty() {
                    return Ok(length);
                }
                self.source = self.frame.take().map(|frame| frame.into_parts().0);
            }
            let Some(mut source) = self.source.take() else { return Ok(0) };
            if source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            match StreamingDecoder::new(source) {
                Ok(frame) => self.frame = Some(Box::new(frame)),
                Err(error) => return Err(std::io::Error::other(error.to_string())),
            }
        }
    }
}
