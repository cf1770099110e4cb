//! Who we are to a registry: what it asks for (RFC 9110, 11.6.1), and credentials as Docker keeps them.

use std::{fs, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::RegistryError;
use crate::services::AuthConfig;

/// What a registry asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    /// A token, from this place.
    Bearer {
        realm: String,
        service: String,
        scope: String,
    },
}

impl Challenge {
    /// Reads a `WWW-Authenticate` header.
    pub(super) fn parse(header: &str) -> Option<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let find = |name: &str| parameters(rest).into_iter().find(|(known, _)| known == name).map(|(_, value)| value);
        Some(Self::Bearer {
            realm: find("realm")?,
            service: find("service").unwrap_or_default(),
            scope: find("scope").unwrap_or_default(),
        })
    }
}

/// `name="value",name=value`; a value in quotes may have commas.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([' ', ',']).to_ascii_lowercase();
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        found.push((name, value.trim().to_owned()));
        rest = next;
    }
    found
}

/// Name and password, however they were given.
pub(super) fn basic(auth: &AuthConfig) -> Option<(String, String)> {
    if !auth.username.is_empty() {
        return Some((auth.username.clone(), auth.password.clone()));
    }
    let decoded = STANDARD.decode(auth.auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok())?;
    let (name, password) = decoded.split_once(':')?;
    Some((name.to_owned(), password.trim_end_matches('\0').to_owned()))
}

/// The header for a name and a password.
pub(super) fn basic_header((name, password): &(String, String)) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

/// The credentials for a registry in a file such as `~/.docker/config.json`.
pub fn from_docker_config(file: &Path, registry: &str) -> Result<Option<AuthConfig>, RegistryError> {
    let unreadable = |error: String| RegistryError::Hosts { file: file.display().to_string(), error };
    let text = fs::read(file).map_err(|error| unreadable(error.to_string()))?;
    let config: Value = serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))?;
    let hub = "https://index.docker.io/v1/";
    let names = |known: &str| {
        let host = known.trim_start_matches("https://").trim_start_matches("http://");
        host.split('/').next() == Some(registry) || (registry == "docker.io" && known == hub)
    };
    let auths = config.get("auths").and_then(Value::as_object);
    let entry = auths.and_then(|auths| auths.iter().find(|(known, _)| names(known))).map(|(_, entry)| entry);
    let text = |entry: &Value, field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(entry.map(|entry| AuthConfig {
        username: text(entry, "username"),
        password: text(entry, "password"),
        auth: text(entry, "auth"),
        identity_token: text(entry, "identitytoken"),
        registry_token: text(entry, "registrytoken"),
        server_address: registry.to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges() {
        let header = r#"Bearer realm="https://auth.example.com/token",service="r",scope="repository:a/b:pull,push""#;
        let Some(Challenge::Bearer { realm, service, scope }) = Challenge::parse(header) else { panic!("{header}") };
        assert_eq!((realm.as_str(), service.as_str()), ("https://auth.example.com/token", "r"));
        assert_eq!(scope, "repository:a/b:pull,push");
        assert_eq!(Challenge::parse("basic realm=x"), Some(Challenge::Basic));
        assert_eq!(Challenge::parse("Negotiate"), None);
        assert_eq!(Challenge::parse("Bearer service=r"), None);
    }

    #[test]
    fn credentials() {
        let given = AuthConfig { auth: STANDARD.encode("me:se:cret"), ..Default::default() };
        assert_eq!(basic(&given), Some(("me".into(), "se:cret".into())));
        assert_eq!(basic(&AuthConfig::default()), None);
        let file = tempfile::NamedTempFile::new().expect("a file");
        let text = r#"{"auths": {"https://index.docker.io/v1/": {"auth": "eDp5"}, "a:5000": {"username": "u"}}}"#;
        fs::write(file.path(), text).expect("it is written");
        let found = |registry: &str| from_docker_config(file.path(), registry).expect("it is read");
        assert_eq!(found("docker.io").as_ref().and_then(basic), Some(("x".into(), "y".into())));
        assert_eq!(found("a:5000").map(|auth| auth.username).as_deref(), Some("u"));
        assert_eq!(found("quay.io"), None);
    }
}
