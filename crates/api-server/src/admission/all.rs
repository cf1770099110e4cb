//! Every admission plugin, in Kubernetes' order.

use std::sync::Arc;

use super::{
    Chain, Plugin, Settings,
    always_pull_images::AlwaysPullImages,
    certificates::{CertificateSubjectRestriction, SignerRight},
    default_classes::DefaultClass,
    default_toleration_seconds::DefaultTolerationSeconds,
    deny_service_external_ips::DenyServiceExternalIps,
    event_rate_limit::EventRateLimit,
    extended_resource_toleration::ExtendedResourceToleration,
    limit_ranger::LimitRanger,
    namespace_lifecycle::NamespaceLifecycle,
    node_declared_features::NodeDeclaredFeatureValidator,
    node_restriction::NodeRestriction,
    owner_references::OwnerReferencesPermissionEnforcement,
    persistent_volume_claim_resize::PersistentVolumeClaimResize,
    pod_resize::PodResizeValidator,
    pod_security::PodSecurity,
    pod_toleration_restriction::PodTolerationRestriction,
    pod_topology_labels::PodTopologyLabels,
    priority::Priority,
    resource_quota::ResourceQuota,
    runtime_class::RuntimeClass,
    service_account::ServiceAccount,
    storage_object_in_use_protection::StorageObjectInUseProtection,
    taint_nodes_by_condition::TaintNodesByCondition,
    webhooks::Place,
};
use crate::{
    authorization::{
        Authorization,
        rbac::{Escalation, Rbac},
    },
    catalogue::Catalogue,
    clock::Clock,
    watch_cache::WatchCache,
};

/// When a plugin runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    On,
    ByFlag,
    /// On in Kubernetes, and without effect: it belongs to a feature that v1.36 has off.
    Idle,
    /// Off in Kubernetes, and not to be had here.
    Missing,
}

/// Kubernetes' list of v1.36. NodeRestriction, which it leaves to whoever sets up a cluster, is on: nodes are not trusted with
/// each other's objects.
pub const PLUGINS: &[(&str, State)] = &[
    ("AlwaysAdmit", State::Missing),
    ("NamespaceAutoProvision", State::Missing),
    ("NamespaceLifecycle", State::On),
    ("NamespaceExists", State::Missing),
    ("LimitPodHardAntiAffinityTopology", State::Missing),
    ("LimitRanger", State::On),
    ("ServiceAccount", State::On),
    ("NodeRestriction", State::On),
    ("TaintNodesByCondition", State::On),
    ("AlwaysPullImages", State::ByFlag),
    ("ImagePolicyWebhook", State::Missing),
    ("PodSecurity", State::On),
    ("PodNodeSelector", State::Missing),
    ("Priority", State::On),
    ("DefaultTolerationSeconds", State::On),
    ("PodTolerationRestriction", State::ByFlag),
    ("EventRateLimit", State::ByFlag),
    ("ExtendedResourceToleration", State::ByFlag),
    ("DefaultStorageClass", State::On),
    ("StorageObjectInUseProtection", State::On),
    ("PodGroupProtection", State::Idle),
    ("OwnerReferencesPermissionEnforcement", State::ByFlag),
    ("PersistentVolumeClaimResize", State::On),
    ("RuntimeClass", State::On),
    ("CertificateApproval", State::On),
    ("CertificateSigning", State::On),
    ("ClusterTrustBundleAttest", State::On),
    ("CertificateSubjectRestriction", State::On),
    ("DefaultIngressClass", State::On),
    ("DenyServiceExternalIPs", State::ByFlag),
    ("PodTopologyLabels", State::On),
    ("PodGroupWorkloadExists", State::Idle),
    ("NodeDeclaredFeatureValidator", State::On),
    ("JobValidation", State::Idle),
    ("PodResizeValidator", State::On),
    ("MutatingAdmissionPolicy", State::On),
    ("MutatingAdmissionWebhook", State::On),
    ("ValidatingAdmissionPolicy", State::On),
    ("ValidatingAdmissionWebhook", State::On),
    ("ResourceQuota", State::On),
    ("AlwaysDeny", State::Missing),
];

/// The chain of the plugins that are on.
pub fn plugins(
    cache: &Arc<WatchCache>,
    catalogue: &Arc<Catalogue>,
    clock: &Arc<dyn Clock>,
    authorization: &Arc<Authorization>,
    rbac: &Rbac,
    settings: &Settings,
) -> Chain {
    let all: Vec<Box<dyn Plugin>> = vec![
        Box::new(NamespaceLifecycle::new(cache)),
        Box::new(LimitRanger::new(cache)),
        Box::new(ServiceAccount::new(cache)),
        Box::new(NodeRestriction::new(cache, authorization)),
        Box::new(TaintNodesByCondition),
        Box::new(AlwaysPullImages),
        Box::new(PodSecurity::new(cache, settings.pod_security.clone())),
        Box::new(Priority::new(cache)),
        Box::new(DefaultTolerationSeconds),
        Box::new(PodTolerationRestriction::new(cache, settings.pod_tolerations.clone())),
        Box::new(EventRateLimit::new(&settings.event_rate_limit)),
        Box::new(ExtendedResourceToleration),
        Box::new(DefaultClass::of_storage(cache)),
        Box::new(StorageObjectInUseProtection),
        Box::new(OwnerReferencesPermissionEnforcement::new(authorization, catalogue)),
        Box::new(PersistentVolumeClaimResize::new(cache)),
        Box::new(RuntimeClass::new(cache)),
        Box::new(SignerRight::approve(authorization)),
        Box::new(SignerRight::sign(authorization)),
        Box::new(SignerRight::attest(authorization)),
        Box::new(CertificateSubjectRestriction),
        Box::new(DefaultClass::of_ingress(cache)),
        Box::new(DenyServiceExternalIps),
        Box::new(PodTopologyLabels::new(cache)),
        Box::new(NodeDeclaredFeatureValidator::new(cache)),
        Box::new(PodResizeValidator::new(cache)),
        Box::new(Place::MUTATING_POLICY),
        Box::new(Place::MUTATING_WEBHOOK),
        Box::new(Place::VALIDATING_POLICY),
        Box::new(Place::VALIDATING_WEBHOOK),
        Box::new(ResourceQuota::new(cache, clock, settings.resource_quota.clone())),
    ];
    let mut on: Vec<Box<dyn Plugin>> = all.into_iter().filter(|plugin| settings.is_on(plugin.name())).collect();
    // Not a plugin in Kubernetes, and never off. It changes nothing, and must see all that others have changed.
    on.push(Box::new(Escalation::new(rbac.clone(), authorization.clone())));
    Chain::new(on)
}
