//! Levels, versions and modes: which policy holds in a namespace.

use std::fmt;

use object_model::{
    field::{Errors, Path},
    meta::TextMap,
    names,
};
use serde::Deserialize;

const LABELS: &str = "pod-security.kubernetes.io/";

/// How much pods may do, from everything to little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    #[default]
    Privileged,
    Baseline,
    Restricted,
}

/// The version of Kubernetes whose rules hold, by the number after `v1.`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    Minor(u32),
    #[default]
    Latest,
}

/// A level as some version of Kubernetes understands it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standard {
    pub level: Level,
    pub version: Version,
}

/// What holds in a namespace: what is refused, what is recorded, and what is warned of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub enforce: Standard,
    pub audit: Standard,
    pub warn: Standard,
}

impl Level {
    fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "privileged" => Ok(Level::Privileged),
            "baseline" => Ok(Level::Baseline),
            "restricted" => Ok(Level::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }
}

impl Version {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let minor = text.strip_prefix("v1.").filter(|digits| *digits == "0" || !digits.starts_with('0'));
        match (text, minor) {
            ("latest", _) => Ok(Version::Latest),
            (_, Some(minor)) if minor.bytes().all(|b| b.is_ascii_digit()) => {
                minor.parse().map(Version::Minor).map_err(|_| BAD_VERSION)
            }
            _ => Err(BAD_VERSION),
        }
    }
}

const BAD_VERSION: &str = "must be \"latest\" or \"v1.x\"";

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        })?;
        match self.version {
            Version::Latest => f.write_str(":latest"),
            Version::Minor(minor) => write!(f, ":v1.{minor}"),
        }
    }
}

impl Standard {
    /// Do both ask the same of pods?
    fn is_equivalent(&self, other: &Standard) -> bool {
        self == other || self.level == Level::Privileged && other.level == Level::Privileged
    }
}

impl Policy {
    /// The policy that the labels of a namespace ask for, and what is wrong with them. What cannot be read counts as
    /// restricted where it is enforced, and as privileged where it only warns or records.
    pub fn of(labels: TextMap<'_>, defaults: &Policy) -> (Policy, Errors) {
        let (mut policy, mut errors) = (*defaults, Errors::new());
        let mut refuse = |label: &str, value: &str, why: &str| {
            let root = Path::root();
            let metadata = root.child("metadata");
            let all = metadata.child("labels");
            errors.invalid(&all.key(label), value, why);
        };
        let [mut enforced, mut warned, mut warned_version] = [false; 3];
        let modes = [
            ("enforce", &mut policy.enforce, Level::Restricted),
            ("audit", &mut policy.audit, Level::Privileged),
            ("warn", &mut policy.warn, Level::Privileged),
        ];
        for (mode, standard, otherwise) in modes {
            let (level, version) = (format!("{LABELS}{mode}"), format!("{LABELS}{mode}-version"));
            if let Some(text) = labels.get(&level) {
                let parsed = Level::parse(text).map_err(|why| refuse(&level, text, why));
                enforced |= mode == "enforce" && parsed.is_ok();
                warned |= mode == "warn";
                standard.level = parsed.unwrap_or(otherwise);
            }
            if let Some(text) = labels.get(&version) {
                let parsed = Version::parse(text).map_err(|why| refuse(&version, text, why));
                warned_version |= mode == "warn";
                standard.version = parsed.unwrap_or_default();
            }
        }
        // Who enforces more than is warned of is warned of it as well.
        if !warned && enforced && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if !warned_version {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }

    pub fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|standard| standard.level == Level::Privileged)
    }

    pub fn is_equivalent(&self, other: &Policy) -> bool {
        self.enforce.is_equivalent(&other.enforce)
            && self.audit.is_equivalent(&other.audit)
            && self.warn.is_equivalent(&other.warn)
    }

    /// The modes that a namespace's labels name and that are not privileged, in short.
    pub fn named_by(&self, labels: TextMap<'_>) -> String {
        let modes = [("enforce", self.enforce), ("audit", self.audit), ("warn", self.warn)];
        let is_named = |mode: &str| {
            [mode.to_owned(), format!("{mode}-version")].iter().any(|m| labels.get(&format!("{LABELS}{m}")).is_some())
        };
        let named = modes.iter().filter(|(mode, standard)| standard.level != Level::Privileged && is_named(mode));
        named.map(|(mode, standard)| format!("{mode}={standard}")).collect::<Vec<_>>().join(", ")
    }
}

/// What holds where nothing is said, and who is exempt.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    pub defaults: Policy,
    pub exemptions: Exemptions,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Exemptions {
    pub usernames: Vec<String>,
    pub namespaces: Vec<String>,
    pub runtime_classes: Vec<String>,
}

/// A `PodSecurityConfiguration` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RawConfiguration {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    defaults: RawDefaults,
    exemptions: Exemptions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct RawDefaults {
    enforce: String,
    enforce_version: String,
    audit: String,
    audit_version: String,
    warn: String,
    warn_version: String,
}

/// What is wrong with a name.
type Check = fn(&str) -> Vec<String>;

impl RawConfiguration {
    /// The configuration, or everything that is wrong with it.
    pub fn check(self) -> Result<Configuration, Vec<String>> {
        let mut problems = Vec::new();
        let mut standard = |mode: &str, level: &str, version: &str| {
            let level = if level.is_empty() { Ok(Level::default()) } else { Level::parse(level) };
            let version = if version.is_empty() { Ok(Version::default()) } else { Version::parse(version) };
            for (field, why) in [(mode.to_owned(), level.err()), (format!("{mode}-version"), version.err())] {
                problems.extend(why.map(|why| format!("defaults.{field}: {why}")));
            }
            Standard { level: level.unwrap_or_default(), version: version.unwrap_or_default() }
        };
        let defaults = Policy {
            enforce: standard("enforce", &self.defaults.enforce, &self.defaults.enforce_version),
            audit: standard("audit", &self.defaults.audit, &self.defaults.audit_version),
            warn: standard("warn", &self.defaults.warn, &self.defaults.warn_version),
        };
        let exempt = &self.exemptions;
        let nameless: Check = |name| match name {
            "" => vec!["username must not be empty".to_owned()],
            _ => Vec::new(),
        };
        let lists: [(&str, &[String], Check); 3] = [
            ("namespaces", &exempt.namespaces, names::dns_label),
            ("runtimeClasses", &exempt.runtime_classes, names::dns_subdomain),
            ("usernames", &exempt.usernames, nameless),
        ];
        for (list, entries, check) in lists {
            for (i, entry) in entries.iter().enumerate() {
                let mut wrong = check(entry);
                if entries.iter().take(i).any(|earlier| earlier == entry) {
                    wrong.push(format!("Duplicate value: {entry:?}"));
                }
                problems.extend(wrong.into_iter().map(|why| format!("exemptions.{list}[{i}]: {why}")));
            }
        }
        match problems.is_empty() {
            true => Ok(Configuration { defaults, exemptions: self.exemptions }),
            false => Err(problems),
        }
    }
}
