//! What a pod or a volume needs of other objects, and so what its node must be able to read.

use object_model::{meta::Meta, value::Fields};
use serde_json::Value;

/// A kind of object that a node may have to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Pod,
    Secret,
    ConfigMap,
    ServiceAccount,
    VolumeClaim,
    ResourceClaim,
}

/// Objects in the pod's own namespace that it refers to, by kind and name. One may be there several times.
pub fn of_pod(pod: &Value) -> Vec<(Kind, String)> {
    let spec = pod.field("spec").unwrap_or(&Value::Null);
    let mut found = Vec::new();
    let mut add = |kind: Kind, name: &str| {
        if !name.is_empty() {
            found.push((kind, name.to_owned()));
        }
    };
    add(Kind::ServiceAccount, spec.text("serviceAccountName"));
    spec.items("imagePullSecrets").iter().for_each(|secret| add(Kind::Secret, secret.text("name")));
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.items(list) {
            for from in container.items("envFrom") {
                add(Kind::Secret, from.text_at(&["secretRef", "name"]));
                add(Kind::ConfigMap, from.text_at(&["configMapRef", "name"]));
            }
            for env in container.items("env") {
                add(Kind::Secret, env.text_at(&["valueFrom", "secretKeyRef", "name"]));
                add(Kind::ConfigMap, env.text_at(&["valueFrom", "configMapKeyRef", "name"]));
            }
        }
    }
    for volume in spec.items("volumes") {
        for path in VOLUME_SECRETS {
            add(Kind::Secret, volume.text_at(path));
        }
        add(Kind::ConfigMap, volume.text_at(&["configMap", "name"]));
        for source in volume.object("projected").map(|p| p.items("sources")).unwrap_or_default() {
            add(Kind::Secret, source.text_at(&["secret", "name"]));
            add(Kind::ConfigMap, source.text_at(&["configMap", "name"]));
        }
        add(Kind::VolumeClaim, &volume_claim(pod, volume));
    }
    let status = pod.field("status").unwrap_or(&Value::Null);
    for claim in spec.items("resourceClaims") {
        let made = status.items("resourceClaimStatuses").iter().find(|made| made.text("name") == claim.text("name"));
        match claim.text("resourceClaimName") {
            // From a template, once it is made.
            "" => add(Kind::ResourceClaim, made.map(|made| made.text("resourceClaimName")).unwrap_or_default()),
            name => add(Kind::ResourceClaim, name),
        }
    }
    add(Kind::ResourceClaim, status.text_at(&["extendedResourceClaimStatus", "resourceClaimName"]));
    found
}

/// Where volumes name a secret in the pod's namespace.
const VOLUME_SECRETS: &[&[&str]] = &[
    &["secret", "secretName"],
    &["csi", "nodePublishSecretRef", "name"],
    &["azureFile", "secretName"],
    &["cephfs", "secretRef", "name"],
    &["cinder", "secretRef", "name"],
    &["flexVolume", "secretRef", "name"],
    &["rbd", "secretRef", "name"],
    &["scaleIO", "secretRef", "name"],
    &["iscsi", "secretRef", "name"],
    &["storageos", "secretRef", "name"],
];

/// The claim that a pod's volume is from: one that it names, or one that was made for it. Empty if there is none.
pub fn volume_claim(pod: &Value, volume: &Value) -> String {
    if volume.has("ephemeral") {
        return format!("{}-{}", Meta::of(pod).name(), volume.text("name"));
    }
    volume.text_at(&["persistentVolumeClaim", "claimName"]).to_owned()
}

/// Where volumes of the cluster name secrets that a node needs, and whether the namespace may be left out, which then is
/// that of the claim.
const PERSISTENT_SECRETS: &[(&[&str], bool)] = &[
    (&["csi", "nodePublishSecretRef"], false),
    (&["csi", "nodeStageSecretRef"], false),
    (&["csi", "nodeExpandSecretRef"], false),
    (&["cephfs", "secretRef"], true),
    (&["cinder", "secretRef"], false),
    (&["flexVolume", "secretRef"], true),
    (&["rbd", "secretRef"], true),
    (&["scaleIO", "secretRef"], true),
    (&["iscsi", "secretRef"], true),
    (&["storageos", "secretRef"], false),
];

/// The secrets that a node needs for a volume of the cluster, as `namespace/name`.
pub fn secrets_of_volume(volume: &Value) -> Vec<Box<str>> {
    let spec = volume.field("spec").unwrap_or(&Value::Null);
    let claimed = spec.text_at(&["claimRef", "namespace"]);
    let mut found = Vec::new();
    let mut add = |namespace: &str, name: &str, may_default: bool| {
        let namespace = if namespace.is_empty() && may_default { claimed } else { namespace };
        if !name.is_empty() {
            found.push(format!("{namespace}/{name}").into());
        }
    };
    if let Some(azure) = spec.object("azureFile") {
        add(azure.text("secretNamespace"), azure.text("secretName"), true);
    }
    for (path, may_default) in PERSISTENT_SECRETS {
        if let Some(secret) = spec.at(path) {
            add(secret.text("namespace"), secret.text("name"), *may_default);
        }
    }
    found
}
