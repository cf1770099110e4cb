//! Configuration files: YAML or JSON objects with a kind, read strictly.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use object_model::{codec::yaml, field::Errors};
use serde::de::DeserializeOwned;
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("{path} is not a usable {kind}:\n  {}", problems.join("\n  "))]
    Unusable { path: PathBuf, kind: &'static str, problems: Vec<String> },
}

/// What a file must be.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub kind: &'static str,
    pub api_versions: &'static [&'static str],
}

impl Wanted {
    /// The object in the file. Fields that the kind does not have are refused: a misspelt one must not go unnoticed.
    pub fn read<T: DeserializeOwned>(self, path: &Path) -> Result<T, ConfigError> {
        let bytes = fs::read(path).map_err(|source| ConfigError::File { path: path.to_owned(), source })?;
        self.parse(path, &bytes)
    }

    pub fn parse<T: DeserializeOwned>(self, path: &Path, bytes: &[u8]) -> Result<T, ConfigError> {
        let value = yaml::read(bytes).map_err(|error| self.unusable(path, [error.to_string()]))?;
        self.take(path, value)
    }

    /// What was found in the file.
    pub fn take<T: DeserializeOwned>(self, path: &Path, value: Value) -> Result<T, ConfigError> {
        let said = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, api_version) = (said("kind"), said("apiVersion"));
        if kind != self.kind || !self.api_versions.contains(&&*api_version) {
            let problem = format!(
                "it says kind {kind:?} of apiVersion {api_version:?}; wanted is {:?} of {}",
                self.kind,
                self.api_versions.join(" or ")
            );
            return Err(self.unusable(path, [problem]));
        }
        serde_json::from_value(value).map_err(|error| self.unusable(path, [error.to_string()]))
    }

    /// The refusal, if there are problems.
    pub fn check(self, path: &Path, errors: &Errors) -> Result<(), ConfigError> {
        if errors.is_empty() { Ok(()) } else { Err(self.unusable(path, errors.iter().map(ToString::to_string))) }
    }

    fn unusable(self, path: &Path, problems: impl IntoIterator<Item = String>) -> ConfigError {
        ConfigError::Unusable { path: path.to_owned(), kind: self.kind, problems: problems.into_iter().collect() }
    }
}
