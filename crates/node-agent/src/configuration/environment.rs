//! A container's variables: those of `envFrom`, over them those of `env`, under both those of Services.

use std::{collections::BTreeMap, net::IpAddr, path::Path};

use container_runtime::services::KeyValue;
use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVarSource, FileKeySelector, Pod};

use super::{
    ConfigError, env_file,
    expansion::expand,
    fields::{field_for_variable, resource},
    machine::Machine,
    service_links::ServiceLinks,
};
use crate::{
    objects::{Missing, Objects},
    volumes,
};

/// Where the values of a container's variables come from.
pub(super) struct Sources<'a> {
    pub(super) pod: &'a Pod,
    pub(super) container: &'a Container,
    pub(super) pod_ips: &'a [IpAddr],
    pub(super) host_ips: &'a [IpAddr],
    pub(super) objects: &'a Objects,
    pub(super) machine: &'a Machine,
    pub(super) root: &'a Path,
}

type Variables = BTreeMap<String, String>;

impl Sources<'_> {
    pub(super) async fn environment(&self, services: &ServiceLinks) -> Result<Vec<KeyValue>, ConfigError> {
        let links = self.pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
        let mut all = services.variables(self.namespace(), links).await?;
        let own = self.own(&all).await?;
        all.extend(own);
        Ok(all.into_iter().map(|(key, value)| KeyValue { key, value }).collect())
    }

    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Without those of Services, which values may refer to.
    pub(super) async fn own(&self, services: &Variables) -> Result<Variables, ConfigError> {
        let mut own = Variables::new();
        for source in self.container.env_from.iter().flatten() {
            let prefix = source.prefix.as_deref().unwrap_or_default();
            let values = self.all_of(source).await?;
            own.extend(values.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value)));
        }
        for variable in self.container.env.iter().flatten() {
            let value = match (variable.value.as_deref().unwrap_or_default(), &variable.value_from) {
                ("", Some(source)) => self.by_source(source).await?,
                // A reference sees what is declared before it.
                (text, _) => Some(expand(text, |name| own.get(name).or_else(|| services.get(name)).cloned())),
            };
            if let Some(value) = value {
                own.insert(variable.name.clone(), value);
            }
        }
        Ok(own)
    }

    async fn all_of(&self, source: &EnvFromSource) -> Result<Variables, ConfigError> {
        if let Some(from) = &source.config_map_ref {
            let found = optional(self.objects.config_map(self.namespace(), &from.name).await, from.optional)?;
            return Ok(found.and_then(|map| map.data.clone()).unwrap_or_default());
        }
        if let Some(from) = &source.secret_ref {
            let found = optional(self.objects.secret(self.namespace(), &from.name).await, from.optional)?;
            let data = found.and_then(|secret| secret.data.clone()).unwrap_or_default();
            return Ok(data.into_iter().map(|(key, value)| (key, text(&value.0))).collect());
        }
        Ok(Variables::new())
    }

    /// `None` for what is optional and not there.
    async fn by_source(&self, source: &EnvVarSource) -> Result<Option<String>, ConfigError> {
        if let Some(selector) = &source.field_ref {
            return field_for_variable(self.pod, selector, self.pod_ips, self.host_ips).map(Some);
        }
        if let Some(selector) = &source.resource_field_ref {
            return resource(self.pod, Some(self.container), selector, self.machine).map(Some);
        }
        if let Some(from) = &source.config_map_key_ref {
            let found = optional(self.objects.config_map(self.namespace(), &from.name).await, from.optional)?;
            let value = found.as_ref().and_then(|map| map.data.as_ref()?.get(&from.key)).cloned();
            return self.present(value, from.optional, &from.key, "ConfigMap", &from.name);
        }
        if let Some(from) = &source.secret_key_ref {
            let found = optional(self.objects.secret(self.namespace(), &from.name).await, from.optional)?;
            let value = found.as_ref().and_then(|secret| secret.data.as_ref()?.get(&from.key));
            return self.present(value.map(|value| text(&value.0)), from.optional, &from.key, "Secret", &from.name);
        }
        if let Some(from) = &source.file_key_ref {
            return self.by_file(from).await;
        }
        Ok(Some(String::new()))
    }

    fn present(
        &self,
        value: Option<String>,
        may_be_missing: Option<bool>,
        key: &str,
        kind: &str,
        name: &str,
    ) -> Result<Option<String>, ConfigError> {
        match value {
            None if !may_be_missing.unwrap_or(false) => {
                Err(ConfigError(format!("couldn't find key {key} in {kind} {}/{name}", self.namespace())))
            }
            value => Ok(value),
        }
    }

    async fn by_file(&self, from: &FileKeySelector) -> Result<Option<String>, ConfigError> {
        let text =
            volumes::read_file(self.root, self.pod, &from.volume_name, &from.path).await.map_err(
                |error| match error {
                    volumes::ReadError::NoVolume => {
                        ConfigError(format!("cannot find the volume {:?} referenced by FileKeyRef", from.volume_name))
                    }
                    volumes::ReadError::File(why) => {
                        tracing::info!(
                            pod = super::named(self.pod),
                            path = from.path,
                            why,
                            "a file of variables cannot be read"
                        );
                        ConfigError("couldn't parse env file".into())
                    }
                },
            )?;
        let value = env_file::value_of(&text, &from.key).map_err(|why| {
            tracing::info!(pod = super::named(self.pod), path = from.path, why, "a file of variables is not one");
            ConfigError("couldn't parse env file".into())
        })?;
        match value {
            None if !from.optional.unwrap_or(false) => {
                Err(ConfigError(format!("environment variable key {:?} not found in file {:?}", from.key, from.path)))
            }
            value => Ok(value),
        }
    }
}

/// What is not found is no error where it may be missing.
fn optional<T>(found: Result<T, Missing>, may_be_missing: Option<bool>) -> Result<Option<T>, ConfigError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Missing::NotFound(_)) if may_be_missing.unwrap_or(false) => Ok(None),
        Err(missing) => Err(missing.into()),
    }
}

/// The runtime takes text only.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
