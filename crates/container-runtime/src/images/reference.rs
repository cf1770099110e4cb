//! Names of images, in full.

use super::ImageError;

/// `nginx` is `docker.io/library/nginx:latest`; a digest takes the place of the tag.
pub fn normalize(name: &str) -> Result<String, ImageError> {
    let bad = || ImageError::Name(name.to_owned());
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "._-/:@+".contains(c);
    if name.is_empty() || !name.chars().all(is_fine) {
        return Err(bad());
    }
    let (path, digest) = match name.split_once('@') {
        Some((path, digest)) => (path, Some(digest)),
        None => (name, None),
    };
    let (path, tag) = match path.rsplit_once(':') {
        // A colon before a slash belongs to the port of the registry.
        Some((before, tag)) if !tag.contains('/') => (before, Some(tag)),
        _ => (path, None),
    };
    let is_registry = |part: &str| part.contains(['.', ':']) || part == "localhost";
    let full = match path.split_once('/') {
        Some((first, _)) if is_registry(first) => path.to_owned(),
        Some(_) => format!("docker.io/{path}"),
        None => format!("docker.io/library/{path}"),
    };
    // They become paths of URLs.
    if full.split('/').any(|part| matches!(part, "" | "." | "..")) || full.chars().any(|c| c == '@') || tag == Some("")
    {
        return Err(bad());
    }
    Ok(match (digest, tag) {
        (Some(digest), _) => format!("{full}@{digest}"),
        (None, tag) => format!("{full}:{}", tag.unwrap_or("latest")),
    })
}

/// A name in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Such as `docker.io` or `localhost:5000`.
    pub registry: String,
    /// Such as `library/nginx`.
    pub repository: String,
    /// A tag or a digest.
    pub version: String,
}

impl Reference {
    pub fn parse(name: &str) -> Result<Self, ImageError> {
        let full = normalize(name)?;
        let bad = || ImageError::Name(name.to_owned());
        let (path, version) = full.split_once('@').or_else(|| full.rsplit_once(':')).ok_or_else(bad)?;
        let (registry, repository) = path.split_once('/').ok_or_else(bad)?;
        if version.contains(':') {
            super::content::Digest::parse(version).map_err(|_| bad())?;
        }
        Ok(Self { registry: registry.into(), repository: repository.into(), version: version.into() })
    }

    /// The digest, if the version is one.
    pub fn digest(&self) -> Option<super::content::Digest> {
        super::content::Digest::parse(&self.version).ok()
    }

    /// The name without the version.
    pub fn path(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = if self.version.contains(':') { '@' } else { ':' };
        write!(f, "{}/{}{mark}{}", self.registry, self.repository, self.version)
    }
}
