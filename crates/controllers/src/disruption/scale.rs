//! How many pods there should be: what those that control them were asked for.

use std::{collections::HashMap, sync::Arc};

use controller_runtime::{Informer, Key, adoption::controller_of};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, StatefulSet},
        core::v1::{Pod, ReplicationController},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource,
    api::{DynamicObject, GroupVersionKind},
    discovery,
};

/// What is known of those that control pods.
pub struct Scales {
    pub client: Client,
    pub sets: Informer<ReplicaSet>,
    pub deployments: Informer<Deployment>,
    pub stateful_sets: Informer<StatefulSet>,
    pub replication_controllers: Informer<ReplicationController>,
}

/// All that should be there, and the names of pods that nobody controls.
#[derive(Debug, Default)]
pub struct Scale {
    pub pods: i32,
    pub of_nobody: Vec<String>,
}

impl Scales {
    pub async fn synced_or_stopped(&self) {
        self.sets.synced_or_stopped().await;
        self.deployments.synced_or_stopped().await;
        self.stateful_sets.synced_or_stopped().await;
        self.replication_controllers.synced_or_stopped().await;
    }

    pub async fn of(&self, pods: &[Arc<Pod>]) -> Result<Scale, String> {
        let mut scale = Scale::default();
        // By what is asked: a Deployment counts once, however many sets it has.
        let (mut asked, mut seen) = (HashMap::new(), HashMap::new());
        for pod in pods {
            let name = pod.metadata.name.clone().unwrap_or_default();
            let Some(controller) = controller_of(&**pod) else {
                scale.of_nobody.push(name);
                continue;
            };
            if seen.insert(controller.uid.clone(), ()).is_some() {
                continue;
            }
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let (uid, replicas) = self
                .asked(namespace, controller)
                .await?
                .ok_or_else(|| format!("found no controllers for pod {name:?}"))?;
            asked.insert(uid, replicas);
        }
        scale.pods = asked.values().sum();
        Ok(scale)
    }

    /// The uid of what decides about the number, and the number.
    async fn asked(&self, namespace: &str, owner: &OwnerReference) -> Result<Option<(String, i32)>, String> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        Ok(match (group, owner.kind.as_str()) {
            ("apps" | "extensions", "ReplicaSet") => {
                let Some(set) = known(&self.sets, namespace, owner) else { return Ok(None) };
                match controller_of(&*set).filter(|owner| owner.kind == "Deployment") {
                    None => named(&*set, set.spec.as_ref().and_then(|spec| spec.replicas)),
                    Some(owner) => known(&self.deployments, namespace, owner)
                        .and_then(|found| named(&*found, found.spec.as_ref().and_then(|spec| spec.replicas))),
                }
            }
            ("apps", "StatefulSet") => known(&self.stateful_sets, namespace, owner)
                .and_then(|found| named(&*found, found.spec.as_ref().and_then(|spec| spec.replicas))),
            ("", "ReplicationController") => known(&self.replication_controllers, namespace, owner)
                .and_then(|found| named(&*found, found.spec.as_ref().and_then(|spec| spec.replicas))),
            _ => return self.of_anything(namespace, owner).await,
        })
    }

    /// Whatever else has a scale, by what the server says of it.
    async fn of_anything(&self, namespace: &str, owner: &OwnerReference) -> Result<Option<(String, i32)>, String> {
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let kind = GroupVersionKind::gvk(group, version, &owner.kind);
        let found = discovery::pinned_kind(&self.client, &kind).await;
        let (resource, capabilities) = found.map_err(|error| crate::words(&error))?;
        if !capabilities.subresources.iter().any(|(subresource, _)| subresource.plural == "scale") {
            let dot = if group.is_empty() { "" } else { "." };
            return Err(format!("{}{dot}{group} does not implement the scale subresource", resource.plural));
        }
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        match api.get_scale(&owner.name).await {
            Ok(scale) if scale.metadata.uid.as_ref() == Some(&owner.uid) => {
                Ok(Some((owner.uid.clone(), scale.spec.and_then(|spec| spec.replicas).unwrap_or(0))))
            }
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(crate::words(&error)),
        }
    }
}

fn known<K>(informer: &Informer<K>, namespace: &str, owner: &OwnerReference) -> Option<Arc<K>>
where
    K: Resource + Send + Sync + 'static,
{
    let found = informer.get(&Key::new(namespace, &owner.name));
    found.filter(|found| found.meta().uid.as_ref() == Some(&owner.uid))
}

fn named<K: Resource>(object: &K, replicas: Option<i32>) -> Option<(String, i32)> {
    Some((object.meta().uid.clone()?, replicas.unwrap_or(1)))
}
