//! Which plugins run, and what they are told: `--enable-admission-plugins`, `--disable-admission-plugins` and
//! `--admission-control-config-file`, as kube-apiserver has them.

use std::path::Path;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use thiserror::Error;

use super::{
    all::{PLUGINS, State},
    event_rate_limit, pod_security, pod_toleration_restriction, resource_quota,
};
use crate::config_file::{ConfigError, Wanted};

const FILE: Wanted = Wanted {
    kind: "AdmissionConfiguration",
    api_versions: &["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1alpha1"],
};
const POD_SECURITY: Wanted = Wanted {
    kind: "PodSecurityConfiguration",
    api_versions: &[
        "pod-security.admission.config.k8s.io/v1",
        "pod-security.admission.config.k8s.io/v1beta1",
        "pod-security.admission.config.k8s.io/v1alpha1",
    ],
};
const POD_TOLERATIONS: Wanted =
    Wanted { kind: "Configuration", api_versions: &["podtolerationrestriction.admission.k8s.io/v1alpha1"] };
const EVENT_RATE_LIMIT: Wanted =
    Wanted { kind: "Configuration", api_versions: &["eventratelimit.admission.k8s.io/v1alpha1"] };
const RESOURCE_QUOTA: Wanted =
    Wanted { kind: "ResourceQuotaConfiguration", api_versions: &["apiserver.config.k8s.io/v1"] };
const OLD_RESOURCE_QUOTA: Wanted = Wanted {
    kind: "Configuration",
    api_versions: &["resourcequota.admission.k8s.io/v1beta1", "resourcequota.admission.k8s.io/v1alpha1"],
};

/// An `AdmissionConfiguration`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    plugins: Vec<Plugin>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plugin {
    name: String,
    /// Another file, relative to this one.
    #[serde(default)]
    path: String,
    /// What counts more than that file.
    #[serde(default)]
    configuration: Value,
}

/// What admission is told at its start. The default is Kubernetes'.
#[derive(Clone, Debug)]
pub struct Settings {
    plugins: Vec<&'static str>,
    pub(super) pod_security: pod_security::Configuration,
    pub(super) pod_tolerations: pod_toleration_restriction::Configuration,
    pub(super) event_rate_limit: event_rate_limit::Configuration,
    pub(super) resource_quota: resource_quota::Configuration,
}

#[derive(Debug, Error)]
pub enum BadSettings {
    #[error("there is no admission plugin {name:?}\nhint: --{flag} knows {known}")]
    Unknown { flag: &'static str, name: String, known: String },
    #[error("the admission plugin {0} of Kubernetes is not part of this version of ferry")]
    Missing(&'static str),
    #[error("the admission plugin {0} is both enabled and disabled")]
    Both(&'static str),
    #[error(transparent)]
    File(#[from] ConfigError),
    #[error("the configuration of the admission plugin {plugin} is not valid: {why}")]
    Plugin { plugin: String, why: String },
}

impl Default for Settings {
    fn default() -> Self {
        let on = PLUGINS.iter().filter(|(_, state)| *state == State::On);
        Self {
            plugins: on.map(|(name, _)| *name).collect(),
            pod_security: Default::default(),
            pod_tolerations: Default::default(),
            event_rate_limit: Default::default(),
            resource_quota: Default::default(),
        }
    }
}

impl Settings {
    pub fn read(enable: &[String], disable: &[String], file: Option<&Path>) -> Result<Self, BadSettings> {
        let enable = known("enable-admission-plugins", enable)?;
        let disable = known("disable-admission-plugins", disable)?;
        if let Some((name, _)) = enable.iter().find(|plugin| disable.contains(plugin)) {
            return Err(BadSettings::Both(name));
        }
        if let Some((name, _)) = enable.iter().find(|(_, state)| *state == State::Missing) {
            return Err(BadSettings::Missing(name));
        }
        let runs = |plugin: &&(&'static str, State)| match plugin.1 {
            State::On => !disable.contains(plugin),
            State::ByFlag => enable.contains(plugin),
            State::Idle | State::Missing => false,
        };
        let plugins = PLUGINS.iter().filter(runs).map(|(name, _)| *name).collect();
        let mut settings = Self { plugins, ..Self::default() };
        if let Some(path) = file {
            settings.read_file(path)?;
        }
        if settings.is_on("EventRateLimit") {
            complain("EventRateLimit", settings.event_rate_limit.problems())?;
        }
        Ok(settings)
    }

    pub fn is_on(&self, plugin: &str) -> bool {
        self.plugins.contains(&plugin)
    }

    fn read_file(&mut self, path: &Path) -> Result<(), BadSettings> {
        let file: File = FILE.read(path)?;
        for Plugin { name, path: other, configuration } in file.plugins {
            match (configuration, other.as_str()) {
                (Value::Null, "") => {}
                (Value::Null, other) => {
                    let other = path.parent().unwrap_or(Path::new(".")).join(other);
                    self.configure(&name, Source::File(&other))?;
                }
                (configuration, _) => self.configure(&name, Source::Within(path, &configuration))?,
            }
        }
        Ok(())
    }

    fn configure(&mut self, plugin: &str, from: Source<'_>) -> Result<(), BadSettings> {
        match plugin {
            "PodSecurity" => {
                let raw: pod_security::RawConfiguration = from.take(POD_SECURITY)?;
                self.pod_security = raw.check().map_err(|problems| bad(plugin, &problems))?;
            }
            "PodTolerationRestriction" => self.pod_tolerations = from.take(POD_TOLERATIONS)?,
            "EventRateLimit" => {
                self.event_rate_limit = from.take(EVENT_RATE_LIMIT)?;
                complain(plugin, self.event_rate_limit.problems())?;
            }
            "ResourceQuota" => {
                self.resource_quota = from.take(OLD_RESOURCE_QUOTA).or_else(|_| from.take(RESOURCE_QUOTA))?;
            }
            _ => return Err(bad(plugin, &["this plugin takes no configuration".to_owned()])),
        }
        Ok(())
    }
}

/// Where the configuration of a plugin is.
#[derive(Clone, Copy)]
enum Source<'a> {
    File(&'a Path),
    Within(&'a Path, &'a Value),
}

impl Source<'_> {
    fn take<T: DeserializeOwned>(self, wanted: Wanted) -> Result<T, ConfigError> {
        match self {
            Self::File(path) => wanted.read(path),
            Self::Within(path, value) => wanted.take(path, value.clone()),
        }
    }
}

/// The plugins of these names.
fn known(flag: &'static str, names: &[String]) -> Result<Vec<&'static (&'static str, State)>, BadSettings> {
    let find = |name: &String| {
        PLUGINS.iter().find(|(known, _)| known == name).ok_or_else(|| {
            let known: Vec<&str> = PLUGINS.iter().map(|(name, _)| *name).collect();
            BadSettings::Unknown { flag, name: name.clone(), known: known.join(", ") }
        })
    };
    names.iter().filter(|name| !name.is_empty()).map(find).collect()
}

fn complain(plugin: &str, problems: Vec<String>) -> Result<(), BadSettings> {
    if problems.is_empty() { Ok(()) } else { Err(bad(plugin, &problems)) }
}

fn bad(plugin: &str, problems: &[String]) -> BadSettings {
    BadSettings::Plugin { plugin: plugin.to_owned(), why: problems.join("; ") }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{BadSettings, Settings};

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn flags_turn_plugins_on_and_off() {
        let settings = Settings::read(&names(&["AlwaysPullImages"]), &names(&["Priority"]), None).expect("valid");
        assert!(settings.is_on("AlwaysPullImages") && settings.is_on("PodSecurity"));
        assert!(!settings.is_on("Priority") && !settings.is_on("PodTolerationRestriction"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let read = |on: &[&str], off: &[&str]| Settings::read(&names(on), &names(off), None).expect_err("refused");
        assert!(read(&["Prioritty"], &[]).to_string().starts_with("there is no admission plugin \"Prioritty\""));
        assert!(matches!(read(&["ImagePolicyWebhook"], &[]), BadSettings::Missing("ImagePolicyWebhook")));
        assert!(matches!(read(&["Priority"], &["Priority"]), BadSettings::Both("Priority")));
        assert!(read(&["EventRateLimit"], &[]).to_string().contains("limits: must not be empty"));
    }

    #[test]
    fn a_file_configures_plugins() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("admission.yaml");
        let write = |text: &str| fs::write(&path, text).expect("written");
        let events = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n\
                      limits: [{type: Server, qps: 5, burst: 10}]";
        fs::write(folder.path().join("events.yaml"), events).expect("written");
        write(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n\
             - {name: EventRateLimit, path: events.yaml}\n\
             - name: PodSecurity\n  configuration:\n    apiVersion: pod-security.admission.config.k8s.io/v1\n    \
             kind: PodSecurityConfiguration\n    defaults: {enforce: baseline}\n    \
             exemptions: {namespaces: [kube-system]}\n",
        );
        Settings::read(&names(&["EventRateLimit"]), &[], Some(&path)).expect("valid");
        let refused = |text: &str| {
            write(text);
            Settings::read(&[], &[], Some(&path)).expect_err("refused").to_string()
        };
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n";
        assert!(refused("kind: Pod").contains("wanted is \"AdmissionConfiguration\""));
        assert!(refused(&format!("{head}- {{name: PodSecurity, configuraton: {{}}}}")).contains("`configuraton`"));
        assert!(refused(&format!("{head}- {{name: PodSecurity}}\nplugin: []")).contains("unknown field `plugin`"));
        assert!(
            refused(&format!("{head}- {{name: Priority, configuration: {{a: 1}}}}")).contains("takes no configuration")
        );
        let pod_security = "apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration";
        let nothing = format!("{head}- {{name: PodSecurity, configuration: {{kind: Pod}}}}");
        assert!(refused(&nothing).contains("wanted is \"PodSecurityConfiguration\""));
        let bad =
            format!("{head}- {{name: PodSecurity, configuration: {{{pod_security}, defaults: {{enforce: strict}}}}}}");
        assert!(refused(&bad).contains("must be one of privileged, baseline, restricted"), "{}", refused(&bad));
        assert!(refused(&format!("{head}- {{name: EventRateLimit, path: nowhere.yaml}}")).contains("cannot read"));
    }
}
