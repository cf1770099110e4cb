//! Which plugins run, and what they are told: `--enable-admission-plugins`, `--disable-admission-plugins` and
//! `--admission-control-config-file`, as kube-apiserver has them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use object_model::{codec::yaml, value::Fields};
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use super::{
    all::{PLUGINS, State},
    event_rate_limit, pod_security, pod_toleration_restriction, resource_quota,
};

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
    #[error("cannot read the admission configuration {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("the admission configuration {path} is not valid: {why}")]
    Invalid { path: PathBuf, why: String },
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
        let invalid = |why: String| BadSettings::Invalid { path: path.to_owned(), why };
        let document = read(path)?;
        let (version, kind) = (document.text("apiVersion"), document.text("kind"));
        if !matches!(version, "apiserver.config.k8s.io/v1" | "apiserver.config.k8s.io/v1alpha1")
            || kind != "AdmissionConfiguration"
        {
            return Err(invalid(format!("{version:?} {kind:?} is not an AdmissionConfiguration")));
        }
        for plugin in document.items("plugins") {
            let name = plugin.text("name");
            let content = match (plugin.field("configuration"), plugin.text("path")) {
                (Some(content), _) if !content.is_null() => content.clone(),
                (_, "") => continue,
                // Relative to the file that names it.
                (_, other) => read(&path.parent().unwrap_or(Path::new(".")).join(other))?,
            };
            self.configure(name, content)?;
        }
        Ok(())
    }

    fn configure(&mut self, plugin: &str, content: Value) -> Result<(), BadSettings> {
        match plugin {
            "PodSecurity" => {
                let raw: pod_security::RawConfiguration = parse(plugin, content)?;
                self.pod_security = raw.check().map_err(|problems| bad(plugin, &problems))?;
            }
            "PodTolerationRestriction" => self.pod_tolerations = parse(plugin, content)?,
            "EventRateLimit" => {
                self.event_rate_limit = parse(plugin, content)?;
                complain(plugin, self.event_rate_limit.problems())?;
            }
            "ResourceQuota" => self.resource_quota = parse(plugin, content)?,
            _ => return Err(bad(plugin, &["this plugin takes no configuration".to_owned()])),
        }
        Ok(())
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

fn read(path: &Path) -> Result<Value, BadSettings> {
    let bytes = fs::read(path).map_err(|source| BadSettings::Read { path: path.to_owned(), source })?;
    yaml::read(&bytes).map_err(|error| BadSettings::Invalid { path: path.to_owned(), why: error.to_string() })
}

fn parse<T: DeserializeOwned>(plugin: &str, content: Value) -> Result<T, BadSettings> {
    serde_json::from_value(content).map_err(|error| bad(plugin, &[error.to_string()]))
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
        fs::write(folder.path().join("events.yaml"), "limits: [{type: Server, qps: 5, burst: 10}]").expect("written");
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
        assert!(refused("kind: Pod").contains("is not an AdmissionConfiguration"));
        assert!(
            refused(&format!("{head}- {{name: Priority, configuration: {{a: 1}}}}")).contains("takes no configuration")
        );
        let bad = format!("{head}- {{name: PodSecurity, configuration: {{defaults: {{enforce: strict}}}}}}");
        assert!(refused(&bad).contains("must be one of privileged, baseline, restricted"), "{}", refused(&bad));
        assert!(refused(&format!("{head}- {{name: EventRateLimit, path: nowhere.yaml}}")).contains("cannot read"));
    }
}
