//! Every controller there is, by Kubernetes' names, and every one that is missing.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::ReplicationController};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    Setting, bootstrap_signer, cron_job, daemon_set, deployment, disruption, endpoint_slice_mirroring, endpoint_slices,
    endpoints, ephemeral_volumes, garbage_collector, job, namespace, node_ipam, node_lifecycle, pod_garbage_collector,
    replica_set, root_ca, service_accounts, service_cidrs, stateful_set, storage_protection, taint_eviction,
    token_cleaner, ttl, ttl_after_finished,
};

/// Runs until it is told to stop.
type Run = fn(Arc<Setting>, CancellationToken) -> BoxFuture<'static, ()>;

/// The controllers there are.
pub const CONTROLLERS: &[(&str, Run)] = &[
    ("namespace-controller", |setting, stop| namespace::run(setting, stop).boxed()),
    ("garbage-collector-controller", |setting, stop| garbage_collector::run(setting, stop).boxed()),
    ("serviceaccount-controller", |setting, stop| service_accounts::run(setting, stop).boxed()),
    ("root-ca-certificate-publisher-controller", |setting, stop| root_ca::run(setting, stop).boxed()),
    ("deployment-controller", |setting, stop| deployment::run(setting, stop).boxed()),
    ("replicaset-controller", |setting, stop| replica_set::run::<ReplicaSet>(setting, stop).boxed()),
    ("replicationcontroller-controller", |setting, stop| {
        replica_set::run::<ReplicationController>(setting, stop).boxed()
    }),
    ("daemonset-controller", |setting, stop| daemon_set::run(setting, stop).boxed()),
    ("statefulset-controller", |setting, stop| stateful_set::run(setting, stop).boxed()),
    ("job-controller", |setting, stop| job::run(setting, stop).boxed()),
    ("cronjob-controller", |setting, stop| cron_job::run(setting, stop).boxed()),
    ("ttl-after-finished-controller", |setting, stop| ttl_after_finished::run(setting, stop).boxed()),
    ("endpoints-controller", |setting, stop| endpoints::run(setting, stop).boxed()),
    ("endpointslice-controller", |setting, stop| endpoint_slices::run(setting, stop).boxed()),
    ("endpointslice-mirroring-controller", |setting, stop| endpoint_slice_mirroring::run(setting, stop).boxed()),
    ("disruption-controller", |setting, stop| disruption::run(setting, stop).boxed()),
    ("pod-garbage-collector-controller", |setting, stop| pod_garbage_collector::run(setting, stop).boxed()),
    ("node-lifecycle-controller", |setting, stop| node_lifecycle::run(setting, stop).boxed()),
    ("taint-eviction-controller", |setting, stop| taint_eviction::run(setting, stop).boxed()),
    ("ttl-controller", |setting, stop| ttl::run(setting, stop).boxed()),
    ("bootstrap-signer-controller", |setting, stop| bootstrap_signer::run(setting, stop).boxed()),
    ("token-cleaner-controller", |setting, stop| token_cleaner::run(setting, stop).boxed()),
    ("service-cidr-controller", |setting, stop| service_cidrs::run(setting, stop).boxed()),
    ("persistentvolumeclaim-protection-controller", |setting, stop| {
        storage_protection::claims_stay(setting, stop).boxed()
    }),
    ("persistentvolume-protection-controller", |setting, stop| storage_protection::volumes_stay(setting, stop).boxed()),
    ("volumeattributesclass-protection-controller", |setting, stop| {
        storage_protection::classes_stay(setting, stop).boxed()
    }),
    ("ephemeral-volume-controller", |setting, stop| ephemeral_volumes::run(setting, stop).boxed()),
    ("node-ipam-controller", |setting, stop| node_ipam::run(setting, stop).boxed()),
];

/// Controllers of Kubernetes that run inside the API server here, because they are part of what it promises.
pub const IN_THE_API_SERVER: &[&str] = &[
    "serviceaccount-token-controller",
    "resourcequota-controller",
    "certificatesigningrequest-signing-controller",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "clusterrole-aggregation-controller",
];

/// Controllers of Kubernetes that do not exist here yet.
pub const MISSING: &[&str] = &[
    "horizontal-pod-autoscaler-controller",
    "podcertificaterequest-cleaner-controller",
    "device-taint-eviction-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-expander-controller",
    "podgroup-protection-controller",
    "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    "storageversion-garbage-collector-controller",
    "resourceclaim-controller",
    "resourcepoolstatusrequest-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    "validatingadmissionpolicy-status-controller",
    "storage-version-migrator-controller",
    "selinux-warning-controller",
];

/// Runs all controllers until they are told to stop, and waits for what is in work. Who drops this drops that as well.
pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let start = |(name, run): &(&str, Run)| {
        tracing::debug!(controller = name, "starting");
        run(setting.clone(), stop.clone())
    };
    let mut running: JoinSet<()> = CONTROLLERS.iter().map(start).collect();
    while let Some(ended) = running.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a controller has ended badly");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// How many controllers Kubernetes v1.36 has, by the names that its `--controllers` knows.
    const OF_KUBERNETES: usize = 49;

    #[test]
    fn every_controller_of_kubernetes_is_named_once() {
        let there = CONTROLLERS.iter().map(|(name, _)| *name);
        let all: Vec<&str> = there.chain(IN_THE_API_SERVER.iter().chain(MISSING).copied()).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "one is named twice");
        assert_eq!(all.len(), OF_KUBERNETES);
    }
}
