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
    if full.split('/').any(str::is_empty) || full.chars().any(|c| c == '@') || tag == Some("") {
        return Err(bad());
    }
    Ok(match (digest, tag) {
        (Some(digest), _) => format!("{full}@{digest}"),
        (None, tag) => format!("{full}:{}", tag.unwrap_or("latest")),
    })
}
