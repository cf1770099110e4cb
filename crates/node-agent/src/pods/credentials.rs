//! The credentials of a pod for a registry: its imagePullSecrets.

use base64::{Engine, engine::general_purpose::STANDARD};
use container_runtime::services::AuthConfig;
use k8s_openapi::api::core::v1::{Pod, Secret};
use serde_json::Value;

use super::{containers::namespace, context::Context};

/// Those that are for the registry of an image, the most exact first. A secret that is missing is passed over.
pub async fn of(context: &Context, pod: &Pod, image: &str) -> Vec<AuthConfig> {
    let secrets = pod.spec.as_ref().and_then(|spec| spec.image_pull_secrets.as_deref()).unwrap_or_default();
    let mut found = Vec::new();
    for reference in secrets {
        match context.objects.secret(namespace(pod), &reference.name).await {
            Ok(secret) => found.extend(in_secret(&secret, image)),
            Err(error) => tracing::debug!(%error, secret = reference.name, "cannot read a pull secret"),
        }
    }
    found.sort_by_key(|(exactness, _)| std::cmp::Reverse(*exactness));
    found.into_iter().map(|(_, auth)| auth).collect()
}

/// With how much of the image's name each is for.
fn in_secret(secret: &Secret, image: &str) -> Vec<(usize, AuthConfig)> {
    let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.as_slice());
    let parsed = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or_default();
    let entries = match (data(".dockerconfigjson"), data(".dockercfg")) {
        (Some(bytes), _) => parsed(bytes)["auths"].take(),
        (None, Some(bytes)) => parsed(bytes),
        (None, None) => Value::Null,
    };
    let Value::Object(entries) = entries else { return Vec::new() };
    entries.into_iter().filter_map(|(server, entry)| Some((matched(&server, image)?, auth(&server, &entry)))).collect()
}

/// How many characters of `registry/path` a server's name matches; none if it is another's. `*.` stands for one label.
fn matched(server: &str, image: &str) -> Option<usize> {
    let server = server.strip_prefix("https://").or_else(|| server.strip_prefix("http://")).unwrap_or(server);
    let server = server.trim_end_matches('/');
    let server = server.strip_suffix("/v1").or_else(|| server.strip_suffix("/v2")).unwrap_or(server);
    let server = if server == "index.docker.io" { "docker.io" } else { server };
    let (host, path) = server.split_once('/').unwrap_or((server, ""));
    let (registry, repository) = image.split_once('/')?;
    let host_fits = match host.strip_prefix("*.") {
        Some(rest) => registry.split_once('.').is_some_and(|(_, of_registry)| of_registry == rest),
        None => host == registry,
    };
    let path_fits = path.is_empty()
        || repository.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ':', '@']));
    (host_fits && path_fits).then_some(server.len())
}

fn auth(server: &str, entry: &Value) -> AuthConfig {
    let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let mut auth = AuthConfig {
        username: text("username"),
        password: text("password"),
        identity_token: text("identitytoken"),
        registry_token: text("registrytoken"),
        server_address: server.to_owned(),
        auth: String::new(),
    };
    let decoded = STANDARD.decode(text("auth")).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    if let Some((username, password)) = decoded.as_deref().and_then(|decoded| decoded.split_once(':')) {
        auth.username = username.to_owned();
        auth.password = password.to_owned();
    }
    auth
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_is_for_its_registry_only() {
        let config = json!({"auths": {
            "https://index.docker.io/v1/": {"auth": STANDARD.encode("hub:word")},
            "registry.example.com:5000/team": {"username": "me", "password": "secret"},
            "*.example.org": {"username": "star", "password": "x"},
        }});
        let data = [(".dockerconfigjson".to_owned(), ByteString(config.to_string().into_bytes()))];
        let secret = Secret { data: Some(data.into()), ..Secret::default() };
        let user = |image: &str| in_secret(&secret, image).pop().map(|(_, auth)| auth.username);
        assert_eq!(user("docker.io/library/nginx:latest").as_deref(), Some("hub"));
        assert_eq!(user("registry.example.com:5000/team/app:1").as_deref(), Some("me"));
        assert_eq!(user("registry.example.com:5000/teams/app:1"), None);
        assert_eq!(user("a.example.org/app:1").as_deref(), Some("star"));
        assert_eq!(user("a.b.example.org/app:1"), None);
    }
}
