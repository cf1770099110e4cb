//! Which objects a pod refers to.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, Pod, Volume};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    ConfigMap,
    Secret,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Reference {
    pub(super) kind: Kind,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Every object whose content the pod or its images need.
pub(super) fn references(pod: &Pod) -> HashSet<Reference> {
    let Some(spec) = &pod.spec else { return HashSet::new() };
    let mut names = Names::default();
    for secret in spec.image_pull_secrets.iter().flatten() {
        names.secret(&secret.name);
    }
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        names.of_environment(&container.env, &container.env_from);
    }
    for container in spec.ephemeral_containers.iter().flatten() {
        names.of_environment(&container.env, &container.env_from);
    }
    for volume in spec.volumes.iter().flatten() {
        names.of_volume(volume);
    }
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let named = |(kind, name): (Kind, String)| Reference { kind, namespace: namespace.clone(), name };
    names.0.into_iter().filter(|(_, name)| !name.is_empty()).map(named).collect()
}

#[derive(Default)]
struct Names(HashSet<(Kind, String)>);

impl Names {
    fn config_map(&mut self, name: &str) {
        self.0.insert((Kind::ConfigMap, name.to_owned()));
    }

    fn secret(&mut self, name: &str) {
        self.0.insert((Kind::Secret, name.to_owned()));
    }

    fn of_environment(&mut self, variables: &Option<Vec<EnvVar>>, sources: &Option<Vec<EnvFromSource>>) {
        for source in sources.iter().flatten() {
            source.config_map_ref.iter().for_each(|from| self.config_map(&from.name));
            source.secret_ref.iter().for_each(|from| self.secret(&from.name));
        }
        for source in variables.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
            source.config_map_key_ref.iter().for_each(|from| self.config_map(&from.name));
            source.secret_key_ref.iter().for_each(|from| self.secret(&from.name));
        }
    }

    fn of_volume(&mut self, volume: &Volume) {
        volume.config_map.iter().for_each(|from| self.config_map(&from.name));
        volume.secret.iter().filter_map(|from| from.secret_name.as_deref()).for_each(|name| self.secret(name));
        for source in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
            source.config_map.iter().for_each(|from| self.config_map(&from.name));
            source.secret.iter().for_each(|from| self.secret(&from.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_places_that_name_an_object_are_found() {
        let pod = json!({"metadata": {"namespace": "ns"}, "spec": {
            "imagePullSecrets": [{"name": "s-pull"}],
            "containers": [{"name": "a", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s-env", "key": "k"}}}]}],
            "initContainers": [{"name": "b", "envFrom": [{"configMapRef": {"name": "c-from"}}, {"secretRef": {"name": "s-from"}}]}],
            "ephemeralContainers": [{"name": "c", "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c-env", "key": "k"}}}]}],
            "volumes": [
                {"name": "1", "configMap": {"name": "c-volume"}},
                {"name": "2", "secret": {"secretName": "s-volume"}},
                {"name": "3", "projected": {"sources": [{"secret": {"name": "s-projected"}}, {"configMap": {"name": "c-projected"}}]}},
                {"name": "4", "emptyDir": {}},
            ],
        }});
        let found = references(&serde_json::from_value(pod).expect("a pod"));
        let mut names: Vec<(bool, &str)> = found.iter().map(|r| (r.kind == Kind::Secret, r.name.as_str())).collect();
        names.sort();
        assert!(found.iter().all(|reference| reference.namespace == "ns"));
        assert_eq!(
            names,
            [
                (false, "c-env"),
                (false, "c-from"),
                (false, "c-projected"),
                (false, "c-volume"),
                (true, "s-env"),
                (true, "s-from"),
                (true, "s-projected"),
                (true, "s-pull"),
                (true, "s-volume"),
            ]
        );
    }
}
