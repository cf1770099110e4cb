//! The kubeconfig with which the person who started the cluster administers it.

use std::{fs, io, net::SocketAddr, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};

use super::authority::{Authority, Error, write_private};

/// By this a kubeconfig is known as one of ours: kubectl writes its fields in another order.
const BEGINNING: &str = "apiVersion: v1
kind: Config
current-context: ferry
clusters:
- name: ferry
  cluster:
";

/// May a kubeconfig be written here? Nothing of value is lost if there is none, an empty one, or one that was written here.
pub fn is_ours(path: &Path) -> bool {
    match fs::read_to_string(path) {
        Ok(text) => text.trim().is_empty() || text.starts_with(BEGINNING),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Writes a kubeconfig for the administrator, readable by its owner only.
pub fn write_admin(path: &Path, authority: &Authority, server: SocketAddr) -> Result<(), Error> {
    write(path, authority, server, "ferry-admin", "system:masters")
}

/// The same for anybody.
pub fn write(path: &Path, authority: &Authority, server: SocketAddr, user: &str, group: &str) -> Result<(), Error> {
    let leaf = authority.client(user, group)?;
    let data = |pem: &str| STANDARD.encode(pem);
    let text = format!(
        "{BEGINNING}    server: https://{server}
    certificate-authority-data: {}
users:
- name: {user}
  user:
    client-certificate-data: {}
    client-key-data: {}
contexts:
- name: ferry
  context:
    cluster: ferry
    user: {user}
",
        data(authority.certificate_pem()),
        data(&leaf.certificate_pem),
        data(&leaf.key_pem),
    );
    if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|source| Error::File { path: folder.to_owned(), source })?;
    }
    write_private(path, &text)
}
