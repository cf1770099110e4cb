//! A peer named by a kubeconfig file, as webhooks are configured in Kubernetes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use object_model::{codec::yaml, value::Fields};
use serde_json::Value;

use super::{Authorization, Credentials, Error, Peer, Trust};

pub fn read(path: &Path) -> Result<Peer, Error> {
    let text = fs::read(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
    let bad = |reason: String| Error::Unusable { what: path.display().to_string(), reason };
    let config = yaml::read(&text).map_err(|e| bad(e.to_string()))?;
    let named = |list: &str, name: &str| {
        let found = config.items(list).iter().find(|entry| entry.text("name") == name).cloned();
        found.ok_or_else(|| bad(format!("it has no entry {name:?} in {list}")))
    };
    // A webhook's file may have a single cluster and user without a context.
    let (cluster, user) = match config.text("current-context") {
        "" => {
            let only = |list: &str| match config.items(list) {
                [one] => Ok(one.text("name").to_owned()),
                _ => Err(bad("it has no current-context".into())),
            };
            (only("clusters")?, only("users").unwrap_or_default())
        }
        current => {
            let context = named("contexts", current)?;
            let name = |field: &str| context.text_at(&["context", field]).to_owned();
            (name("cluster"), name("user"))
        }
    };
    let file = File { path, folder: path.parent().unwrap_or(Path::new("")).to_owned() };
    let mut peer = file.cluster(&named("clusters", &cluster)?["cluster"])?;
    if !user.is_empty() {
        peer.credentials = file.user(&named("users", &user)?["user"])?;
    }
    Ok(peer)
}

struct File<'a> {
    path: &'a Path,
    folder: PathBuf,
}

impl File<'_> {
    fn cluster(&self, cluster: &Value) -> Result<Peer, Error> {
        if cluster.has("proxy-url") {
            return Err(self.unusable("proxy-url is not supported"));
        }
        let authorities = self.data(cluster, "certificate-authority")?;
        let trust = match (cluster.flag("insecure-skip-tls-verify"), authorities) {
            (Some(true), Some(_)) => {
                return Err(self.unusable("certificate-authority and insecure-skip-tls-verify exclude each other"));
            }
            (Some(true), None) => Trust::Anybody,
            (_, Some(pem)) => Trust::Authorities(pem),
            (_, None) => Trust::System,
        };
        let server_name = Some(cluster.text("tls-server-name").to_owned()).filter(|name| !name.is_empty());
        Ok(Peer { url: cluster.text("server").to_owned(), trust, server_name, credentials: Credentials::default() })
    }

    fn user(&self, user: &Value) -> Result<Credentials, Error> {
        for field in ["exec", "auth-provider", "as"] {
            if user.has(field) {
                return Err(self.unusable(&format!("{field} is not supported here")));
            }
        }
        let certificate = match (self.data(user, "client-certificate")?, self.data(user, "client-key")?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(self.unusable("client-certificate and client-key belong together")),
        };
        let authorization = if !user.text("tokenFile").is_empty() {
            Some(Authorization::BearerFile(self.folder.join(user.text("tokenFile"))))
        } else if !user.text("token").is_empty() {
            Some(Authorization::Bearer(user.text("token").to_owned()))
        } else if !user.text("username").is_empty() {
            let (user, password) = (user.text("username").to_owned(), user.text("password").to_owned());
            Some(Authorization::Basic { user, password })
        } else {
            None
        };
        Ok(Credentials { certificate, authorization })
    }

    /// What a field holds: in itself, encoded, or in the file it names.
    fn data(&self, entry: &Value, field: &str) -> Result<Option<Vec<u8>>, Error> {
        let inline = entry.text(&format!("{field}-data"));
        if !inline.is_empty() {
            let decoded = STANDARD.decode(inline);
            return decoded.map(Some).map_err(|e| self.unusable(&format!("{field}-data is not base64: {e}")));
        }
        if entry.text(field).is_empty() {
            return Ok(None);
        }
        let path = self.folder.join(entry.text(field));
        fs::read(&path).map(Some).map_err(|source| Error::File { path, source })
    }

    fn unusable(&self, reason: &str) -> Error {
        Error::Unusable { what: self.path.display().to_string(), reason: reason.to_owned() }
    }
}
