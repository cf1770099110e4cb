//! Whose images are whose: one that was fetched with somebody's credentials is for pods that have them, too, and not for whoever
//! else is on the node. Images that this agent did not fetch are for everybody.
//!
//! What is known is in a file, so that a start of the agent does not open what was closed. Credentials are kept as digests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use container_runtime::{images::content::Digest, services::AuthConfig};
use serde::{Deserialize, Serialize};

const FILE: &str = "image-access.json";

/// Who may use an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Access {
    /// It was fetched without credentials.
    Anyone,
    /// Whoever has one of these.
    Holders(BTreeSet<String>),
}

pub struct ImageAccess {
    file: PathBuf,
    /// By the images' ids.
    known: Mutex<BTreeMap<String, Access>>,
}

impl ImageAccess {
    /// Reads what is known.
    pub fn open(root: &Path) -> Self {
        let file = root.join(FILE);
        let known = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        };
        let known = known.unwrap_or_else(|error| {
            let file = file.display();
            tracing::error!(%file, %error, "images that were fetched with credentials are for everybody until fetched again");
            BTreeMap::new()
        });
        Self { file, known: Mutex::new(known) }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Access>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether only holders of certain credentials may use an image.
    pub fn is_closed(&self, id: &str) -> bool {
        matches!(self.known().get(id), Some(Access::Holders(_)))
    }

    pub fn has_one(&self, id: &str, credentials: &[AuthConfig]) -> bool {
        match self.known().get(id) {
            Some(Access::Holders(holders)) => credentials.iter().any(|auth| holders.contains(&digest(auth))),
            Some(Access::Anyone) | None => true,
        }
    }

    /// An image was fetched with these credentials.
    pub fn fetched(&self, id: &str, with: Option<&AuthConfig>) -> io::Result<()> {
        let mut known = self.known();
        let now = match (known.get(id), with) {
            (Some(Access::Anyone), _) | (_, None) => Access::Anyone,
            (before, Some(auth)) => {
                let mut holders = match before {
                    Some(Access::Holders(holders)) => holders.clone(),
                    _ => BTreeSet::new(),
                };
                holders.insert(digest(auth));
                Access::Holders(holders)
            }
        };
        if known.get(id) == Some(&now) {
            return Ok(());
        }
        known.insert(id.to_owned(), now);
        self.write(&known)
    }

    /// Only these images are left.
    pub fn keep(&self, ids: &[&str]) -> io::Result<()> {
        let mut known = self.known();
        let before = known.len();
        known.retain(|id, _| ids.contains(&id.as_str()));
        if known.len() == before { Ok(()) } else { self.write(&known) }
    }

    fn write(&self, known: &BTreeMap<String, Access>) -> io::Result<()> {
        let new = self.file.with_extension("new");
        if let Some(folder) = self.file.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut written = fs::File::create(&new)?;
        written.write_all(&serde_json::to_vec(known)?)?;
        // It must not be there without its content after a loss of power.
        written.sync_all()?;
        fs::rename(new, &self.file)
    }
}

fn digest(auth: &AuthConfig) -> String {
    let AuthConfig { username, password, auth, identity_token, registry_token, server_address } = auth;
    let parts = [username, password, auth, identity_token, registry_token, server_address];
    // With their lengths, so that no two lists of parts read the same.
    let text: String = parts.iter().map(|part| format!("{}:{part}", part.len())).collect();
    Digest::of(text.as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_fetched_with_credentials_is_for_those_who_have_them() {
        let root = tempfile::tempdir().expect("a folder");
        let open = || ImageAccess::open(root.path());
        let auth = |password: &str| AuthConfig { password: password.into(), ..AuthConfig::default() };
        let access = open();
        assert!(access.has_one("preloaded", &[]), "nobody has fetched it");
        access.fetched("public", None).expect("it is written");
        access.fetched("public", Some(&auth("a"))).expect("it is written");
        access.fetched("private", Some(&auth("a"))).expect("it is written");
        access.fetched("private", Some(&auth("b"))).expect("it is written");
        for access in [access, open()] {
            assert!(access.has_one("public", &[]) && !access.is_closed("public"));
            assert!(access.is_closed("private") && !access.has_one("private", &[auth("c")]));
            assert!(access.has_one("private", &[auth("c"), auth("a")]) && access.has_one("private", &[auth("b")]));
        }
        let access = open();
        access.keep(&["public"]).expect("it is written");
        assert!(!open().is_closed("private"));
        fs::write(root.path().join(FILE), "{").expect("a broken file");
        assert!(open().has_one("public", &[]), "the agent starts nevertheless");
    }
}
