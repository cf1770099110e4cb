//! Collects what every type and field of the API means, for `kubectl explain`.
//!
//! The texts are in the schemas of `k8s-openapi`. They are taken out of them while building and compressed, so that the
//! program carries a small file instead of the code that makes schemas.

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

use flate2::{Compression, write::DeflateEncoder};
use schemars::SchemaGenerator;
use serde_json::Value;

/// The texts of one type: its own under the empty name, the others by field.
type Texts = BTreeMap<String, String>;

macro_rules! enter {
    ($generator:ident: $($module:path { $($kind:ident),+ })+) => {$({
        use $module as module;
        $($generator.subschema_for::<module::$kind>();)+
    })+};
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let mut generator = SchemaGenerator::default();
    enter_kinds(&mut generator);
    let texts: BTreeMap<&String, Texts> =
        generator.definitions().iter().map(|(name, schema)| (name, texts(schema))).collect();
    let path = Path::new(&env::var("OUT_DIR")?).join("descriptions.json.deflate");
    let mut file = DeflateEncoder::new(BufWriter::new(File::create(path)?), Compression::best());
    serde_json::to_writer(&mut file, &texts)?;
    file.finish()?.flush()?;
    Ok(())
}

fn texts(schema: &Value) -> Texts {
    let text = |of: &Value| of["description"].as_str().map(str::to_owned);
    let fields = schema["properties"].as_object().into_iter().flatten();
    let fields = fields.filter_map(|(name, field)| Some((name.clone(), text(field)?)));
    text(schema).map(|own| (String::new(), own)).into_iter().chain(fields).collect()
}

/// Every kind that is served, which leads to every type.
#[rustfmt::skip]
fn enter_kinds(generator: &mut SchemaGenerator) {
    enter! { generator:
        k8s_openapi::api::admissionregistration::v1 {
            MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
            ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration
        }
        k8s_openapi::api::apps::v1 { ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet }
        k8s_openapi::api::authentication::v1 { SelfSubjectReview, TokenRequest, TokenReview }
        k8s_openapi::api::authorization::v1 {
            LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview
        }
        k8s_openapi::api::autoscaling::v1 { HorizontalPodAutoscaler, Scale }
        k8s_openapi::api::autoscaling::v2 { HorizontalPodAutoscaler }
        k8s_openapi::api::batch::v1 { CronJob, Job }
        k8s_openapi::api::certificates::v1 { CertificateSigningRequest }
        k8s_openapi::api::coordination::v1 { Lease }
        k8s_openapi::api::core::v1 {
            Binding, ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume,
            PersistentVolumeClaim, Pod, PodTemplate, ReplicationController, ResourceQuota, Secret, Service, ServiceAccount
        }
        k8s_openapi::api::discovery::v1 { EndpointSlice }
        k8s_openapi::api::events::v1 { Event }
        k8s_openapi::api::flowcontrol::v1 { FlowSchema, PriorityLevelConfiguration }
        k8s_openapi::api::networking::v1 { IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR }
        k8s_openapi::api::node::v1 { RuntimeClass }
        k8s_openapi::api::policy::v1 { Eviction, PodDisruptionBudget }
        k8s_openapi::api::rbac::v1 { ClusterRole, ClusterRoleBinding, Role, RoleBinding }
        k8s_openapi::api::resource::v1 { DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice }
        k8s_openapi::api::scheduling::v1 { PriorityClass }
        k8s_openapi::api::storage::v1 {
            CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass
        }
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 { CustomResourceDefinition }
        k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 { APIService }
        k8s_openapi::apimachinery::pkg::apis::meta::v1 {
            APIGroup, APIGroupList, APIResourceList, APIVersions, DeleteOptions, ListMeta, Patch, Status
        }
        k8s_openapi::apimachinery::pkg::version { Info }
    }
    generator.subschema_for::<k8s_openapi::apimachinery::pkg::apis::meta::v1::WatchEvent<()>>();
}
