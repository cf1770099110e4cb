//! How registries are reached: mirrors, certificates and credentials, in the format of k3s's `registries.yaml`.
//!
//! ```yaml
//! mirrors:
//!   docker.io:
//!     endpoint: ["https://mirror.example.com", "http://10.0.0.5:5000"]
//! configs:
//!   mirror.example.com:
//!     auth: { username: me, password: secret }
//!     tls: { ca_file: /etc/ca.pem, insecure_skip_verify: false }
//! ```
//!
//! Mirrors are asked in order, and the registry itself after them. A registry on loopback is spoken to without encryption.

use std::{collections::BTreeMap, fs, io, net::IpAddr, path::Path, path::PathBuf};

use serde::Deserialize;

use super::RegistryError;
use crate::services::AuthConfig;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Hosts {
    mirrors: BTreeMap<String, Mirror>,
    configs: BTreeMap<String, HostConfig>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Mirror {
    endpoint: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HostConfig {
    auth: Auth,
    pub tls: Tls,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Auth {
    username: String,
    password: String,
    auth: String,
    identity_token: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Tls {
    pub ca_file: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    pub insecure_skip_verify: bool,
}

impl HostConfig {
    pub fn auth(&self) -> Option<AuthConfig> {
        let Auth { username, password, auth, identity_token } = self.auth.clone();
        let config = AuthConfig { username, password, auth, identity_token, ..Default::default() };
        (config != AuthConfig::default()).then_some(config)
    }
}

impl Hosts {
    /// A file that does not exist says nothing.
    pub fn read(file: &Path) -> Result<Self, RegistryError> {
        match fs::read(file) {
            Ok(text) => {
                Self::from_yaml(&text).map_err(|error| RegistryError::Hosts { file: file.display().to_string(), error })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(RegistryError::Hosts { file: file.display().to_string(), error: error.to_string() }),
        }
    }

    fn from_yaml(text: &[u8]) -> Result<Self, String> {
        let value = object_model::codec::yaml::read(text).map_err(|error| error.to_string())?;
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    /// The URLs under which a registry's images may be found, in the order in which they are tried.
    pub fn endpoints(&self, registry: &str) -> Vec<String> {
        let mirrors = self.mirrors.get(registry).or_else(|| self.mirrors.get("*"));
        let mut all: Vec<String> = mirrors.map(|mirror| mirror.endpoint.clone()).unwrap_or_default();
        for endpoint in &mut all {
            *endpoint = endpoint.trim_end_matches('/').to_owned();
        }
        all.push(match registry {
            "docker.io" => "https://registry-1.docker.io".into(),
            local if is_loopback(local) => format!("http://{local}"),
            other => format!("https://{other}"),
        });
        all
    }

    /// What is said about a host, as it is in a URL.
    pub fn config(&self, host: &str) -> HostConfig {
        let known = self.configs.get(host);
        // Docker's images come from a host with another name.
        let docker = (host == "registry-1.docker.io").then(|| self.configs.get("docker.io")).flatten();
        known.or(docker).cloned().unwrap_or_default()
    }
}

fn is_loopback(registry: &str) -> bool {
    let host = match registry.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => registry,
    };
    host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_before_the_registry() {
        let text = b"mirrors:\n  docker.io: {endpoint: ['http://a:5000/']}\n  '*': {endpoint: ['https://b']}\nconfigs:\n  b: {auth: {username: u, password: p}}\n";
        let hosts = Hosts::from_yaml(text).expect("it is read");
        assert_eq!(hosts.endpoints("docker.io"), ["http://a:5000", "https://registry-1.docker.io"]);
        assert_eq!(hosts.endpoints("quay.io"), ["https://b", "https://quay.io"]);
        assert_eq!(hosts.config("b").auth().map(|auth| auth.username).as_deref(), Some("u"));
        assert_eq!(hosts.config("a:5000").auth(), None);
        let none = Hosts::default();
        assert_eq!(none.endpoints("localhost:5000"), ["http://localhost:5000"]);
        assert_eq!(none.endpoints("127.0.0.1:5000"), ["http://127.0.0.1:5000"]);
        assert!(Hosts::from_yaml(b"mirrors: 1").is_err());
    }
}
