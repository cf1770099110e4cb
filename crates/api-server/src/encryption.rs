//! Which resources are encrypted at rest, as an EncryptionConfiguration says it, and keeping the store that way.
//!
//! Kubernetes' file format, so that files move between the two. Ferry makes such a file with a key of its own at the first
//! start. Whatever the store holds in another form than the configuration asks for is rewritten in the background.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use object_model::field::{Errors, Path as Field};
use ring::rand::{SecureRandom, SystemRandom};
use serde::Deserialize;
use storage::encryption::{Cipher, Encrypted, Form, Key, Rule, Rules};

use crate::{
    catalogue::store_prefix,
    config_file::{ConfigError, Wanted},
    serving::authority::{self, write_private},
    watch_cache::ROOT,
};

const KIND: Wanted = Wanted { kind: "EncryptionConfiguration", api_versions: &["apiserver.config.k8s.io/v1"] };
/// How often the file is looked at.
const RELOAD_EVERY: Duration = Duration::from_secs(10);
const EVENTS: &str = "events are stored in the core group: say events";
const ACROSS: &str = "encrypting the same resource across groups is not supported";
const STAR: &str = "say '*.' for all resources of the core group or '*.*' for all resources";
const OVERLAP: &str =
    "resources that overlap, such as secrets and '*.', do not go into one list: one would mask the other";
const PROVIDERS: &str = "exactly one of aesgcm, aescbc, secretbox and identity is needed";
const KMS: &str = "kms is not supported by Ferry: use aesgcm, aescbc, secretbox or identity";

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Configuration {
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(default)]
    resources: Vec<Resources>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resources {
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    providers: Vec<Provider>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Provider {
    aesgcm: Option<Keys>,
    aescbc: Option<Keys>,
    secretbox: Option<Keys>,
    identity: Option<serde_json::Map<String, serde_json::Value>>,
    kms: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default)]
    keys: Vec<NamedKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedKey {
    #[serde(default)]
    name: String,
    #[serde(default)]
    secret: String,
}

/// Reads the rules from a file.
pub fn read(path: &Path) -> Result<Rules, ConfigError> {
    let configuration: Configuration = KIND.read(path)?;
    let mut errors = Errors::new();
    let rules = rules(&configuration, &mut errors);
    KIND.check(path, &errors)?;
    Ok(rules)
}

/// Makes a file that encrypts Secrets under a new key, unless it is there already. Only its owner can read it.
pub fn make_default(path: &Path) -> Result<(), authority::Error> {
    if path.exists() {
        return Ok(());
    }
    let mut random = [0; 36];
    let failed = |_| authority::Error::Unusable { path: path.to_owned(), reason: "no random numbers".into() };
    SystemRandom::new().fill(&mut random).map_err(failed)?;
    let (name, secret) = random.split_at(4);
    // No two files have a key of the same name, so that a value says which file it needs.
    let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    let secret = STANDARD.encode(secret);
    let text = format!(
        "# Made by ferry at the first start. Whoever loses this file loses the Secrets of the cluster.
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm:
      keys:
      - name: key-{name}
        secret: {secret}
  # What was written before encryption was turned on can be read.
  - identity: {{}}
"
    );
    write_private(path, &text)
}

fn rules(configuration: &Configuration, errors: &mut Errors) -> Rules {
    let root = Field::root();
    let root = root.child("resources");
    if configuration.resources.is_empty() {
        errors.required(&root, "at least one entry is required");
    }
    let rules = configuration.resources.iter().enumerate().map(|(i, entry)| {
        let at = root.index(i);
        Rule {
            prefixes: prefixes(&entry.resources, &at.child("resources"), errors),
            forms: forms(&entry.providers, &at.child("providers"), errors),
        }
    });
    Rules::new(rules.collect())
}

/// Where the resources are in the store.
fn prefixes(resources: &[String], at: &Field<'_>, errors: &mut Errors) -> Vec<String> {
    if resources.is_empty() {
        errors.required(at, "at least one resource is required");
    }
    let mut prefixes = Vec::with_capacity(resources.len());
    for (i, text) in resources.iter().enumerate() {
        let at = at.index(i);
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        match (resource, group) {
            _ if text.chars().any(char::is_uppercase) => {
                errors.invalid(&at, text.as_str(), "resource name should not contain capital letters");
            }
            ("*", "") if !text.contains('.') => errors.invalid(&at, "*", STAR),
            (_, "events.k8s.io") => errors.invalid(&at, text.as_str(), EVENTS),
            ("*", "*") => prefixes.push(ROOT.to_owned()),
            (_, "*") => errors.invalid(&at, text.as_str(), ACROSS),
            ("*", group) => prefixes.push(store_prefix(group, "").trim_end_matches('/').to_owned() + "/"),
            (resource, group) => prefixes.push(store_prefix(group, resource)),
        }
    }
    let masked = |(i, a): (usize, &String)| prefixes.iter().enumerate().any(|(j, b)| i != j && a.starts_with(b));
    if prefixes.iter().enumerate().any(masked) {
        errors.invalid(at, resources.to_vec(), OVERLAP);
    }
    prefixes
}

fn forms(providers: &[Provider], at: &Field<'_>, errors: &mut Errors) -> Vec<Form> {
    if providers.is_empty() {
        errors.required(at, "at least one provider is required");
    }
    let mut forms = Vec::new();
    let mut names = BTreeSet::new();
    for (i, provider) in providers.iter().enumerate() {
        let at = at.index(i);
        let Provider { aesgcm, aescbc, secretbox, identity, kms } = provider;
        if kms.is_some() {
            errors.forbidden(&at.child("kms"), KMS);
            continue;
        }
        match (aesgcm, aescbc, secretbox, identity) {
            (Some(keys), None, None, None) => sealed(Cipher::AesGcm, keys, &at, &mut names, errors, &mut forms),
            (None, Some(keys), None, None) => sealed(Cipher::AesCbc, keys, &at, &mut names, errors, &mut forms),
            (None, None, Some(keys), None) => sealed(Cipher::Secretbox, keys, &at, &mut names, errors, &mut forms),
            (None, None, None, Some(_)) => forms.push(Form::Plain),
            _ => errors.forbidden(&at, PROVIDERS),
        }
    }
    forms
}

fn sealed<'a>(
    cipher: Cipher,
    keys: &'a Keys,
    at: &Field<'_>,
    names: &mut BTreeSet<(String, &'a str)>,
    errors: &mut Errors,
    forms: &mut Vec<Form>,
) {
    let provider = cipher.to_string();
    let at = at.child(&provider);
    let at = at.child("keys");
    if keys.keys.is_empty() {
        errors.required(&at, "at least one key is required");
    }
    for (i, key) in keys.keys.iter().enumerate() {
        let at = at.index(i);
        if !names.insert((cipher.to_string(), &key.name)) {
            errors.duplicate(&at.child("name"), key.name.as_str());
        }
        // What the file has for a secret is never shown.
        let Ok(bytes) = STANDARD.decode(&key.secret) else {
            errors.invalid(&at.child("secret"), "REDACTED", "secrets must be base64 encoded");
            continue;
        };
        match Key::new(cipher, key.name.as_str(), &bytes) {
            Ok(key) => forms.push(Form::Sealed(key)),
            Err(error) => errors.forbidden(&at, error.to_string()),
        }
    }
}

/// Brings everything in the store into the form that the configuration asks for, now and, with `reload`, whenever the
/// file has changed. A file that cannot be used leaves everything as it was.
pub async fn keep(store: Arc<Encrypted>, file: PathBuf, reload: bool) {
    if store.has_read_stale() {
        rewrite(&store).await;
    }
    if !reload {
        return;
    }
    let mut known = fs::read(&file).ok();
    loop {
        tokio::time::sleep(RELOAD_EVERY).await;
        let found = fs::read(&file).ok();
        if found.is_none() || found == known {
            continue;
        }
        known = found;
        match read(&file) {
            Ok(rules) => {
                store.replace(rules);
                tracing::info!(file = %file.display(), "the encryption configuration has changed");
                rewrite(&store).await;
            }
            Err(error) => tracing::error!(%error, "the encryption configuration is not used"),
        }
    }
}

async fn rewrite(store: &Encrypted) {
    match store.rewrite(ROOT).await {
        Ok(done) => {
            tracing::info!(
                seen = done.seen,
                rewritten = done.rewritten,
                "values have been brought under the first key"
            );
            for error in done.unreadable {
                tracing::error!(%error, "a value was left as it is");
            }
        }
        Err(error) => tracing::error!(%error, "values could not be rewritten; this is tried again at the next start"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> String {
        let parsed: Result<Configuration, _> = KIND.parse(Path::new("file"), text.as_bytes());
        match parsed {
            Ok(configuration) => {
                let mut errors = Errors::new();
                rules(&configuration, &mut errors);
                errors.iter().map(|e| format!("{e}\n")).collect()
            }
            Err(error) => error.to_string(),
        }
    }

    fn with(resources: &str, providers: &str) -> String {
        format!(
            "{{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, \
             resources: [{{resources: [{resources}], providers: [{providers}]}}]}}"
        )
    }

    const KEY: &str = "{name: a, secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=}";

    #[test]
    fn what_kubernetes_accepts_is_accepted() {
        for resources in ["secrets", "secrets, configmaps, '*.apps'", "'*.*'", "'*.'", "pandas.awesome.bears.example"] {
            for providers in [
                format!("{{aesgcm: {{keys: [{KEY}]}}}}, {{identity: {{}}}}"),
                format!("{{secretbox: {{keys: [{KEY}]}}}}, {{aescbc: {{keys: [{KEY}]}}}}"),
                "{identity: {}}".to_owned(),
            ] {
                assert_eq!(problems(&with(resources, &providers)), "", "{resources} {providers}");
            }
        }
    }

    #[test]
    fn mistakes_are_told_by_their_place() {
        let identity = "{identity: {}}";
        for (text, wanted) in [
            (with("secrets", "{kms: {name: a}}"), "providers[0].kms: Forbidden: kms is not supported"),
            (with("secrets", "{aesgcm: {keys: []}}"), "aesgcm.keys: Required"),
            (with("secrets", "{aesgcm: {keys: [{name: a, secret: '?'}]}}"), "\"REDACTED\": secrets must be base64"),
            (with("secrets", "{aesgcm: {keys: [{name: a, secret: YWJj}]}}"), "aesgcm wants 16 or 32"),
            (with("secrets", &format!("{{aesgcm: {{keys: [{KEY}, {KEY}]}}}}")), "keys[1].name: Duplicate"),
            (with("secrets", "{aesgcm: {keys: []}, identity: {}}"), "exactly one"),
            (with("secrets", "{rot13: {}}"), "rot13"),
            (with("'*'", identity), "resources[0].resources[0]: Invalid value: \"*\""),
            (with("Secrets", identity), "capital letters"),
            (with("secrets.*", identity), "across groups"),
            (with("'*.events.k8s.io'", identity), "say events"),
            (with("secrets, '*.'", identity), "overlap"),
            (with("", identity), "at least one resource"),
            (with("secrets", ""), "at least one provider"),
            ("{kind: Pod, apiVersion: v1}".to_owned(), "wanted is \"EncryptionConfiguration\""),
        ] {
            assert!(problems(&text).contains(wanted), "{text}\n{}", problems(&text));
        }
    }

    #[test]
    fn the_default_is_usable_private_and_stays() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("encryption.yaml");
        make_default(&file).expect("made");
        assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
        read(&file).expect("usable");
        let first = fs::read(&file).expect("text");
        make_default(&file).expect("there already");
        assert_eq!(fs::read(&file).expect("text"), first);
    }
}
