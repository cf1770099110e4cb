//! The two kinds that ask for a number of pods: ReplicaSets, and ReplicationControllers from before there were any.

use std::fmt::Debug;

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus},
        core::v1::{
            PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
        },
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};

/// What is asked for.
pub struct Wanted<'a> {
    pub replicas: i32,
    pub min_ready_seconds: i32,
    pub selector: LabelSelector,
    pub template: Option<&'a PodTemplateSpec>,
}

pub trait Replicating:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Kubernetes' name of the controller.
    const NAME: &'static str;
    /// Who it acts as, and who it says it is.
    const ACCOUNT: &'static str;

    fn wanted(&self) -> Option<Wanted<'_>>;

    /// The status in the form of the kind that says more.
    fn status(&self) -> Option<ReplicaSetStatus>;

    /// The same object with another status, as far as the kind can say it.
    fn with_status(&self, status: ReplicaSetStatus) -> Self;
}

impl Replicating for ReplicaSet {
    const NAME: &'static str = "replicaset-controller";
    const ACCOUNT: &'static str = "replicaset-controller";

    fn wanted(&self) -> Option<Wanted<'_>> {
        let spec = self.spec.as_ref()?;
        Some(Wanted {
            replicas: spec.replicas.unwrap_or(1),
            min_ready_seconds: spec.min_ready_seconds.unwrap_or(0),
            selector: spec.selector.clone(),
            template: spec.template.as_ref(),
        })
    }

    fn status(&self) -> Option<ReplicaSetStatus> {
        self.status.clone()
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        Self { status: Some(status), ..self.clone() }
    }
}

impl Replicating for ReplicationController {
    const NAME: &'static str = "replicationcontroller-controller";
    const ACCOUNT: &'static str = "replication-controller";

    fn wanted(&self) -> Option<Wanted<'_>> {
        let spec = self.spec.as_ref()?;
        // An empty one would select everything.
        let labels = spec.selector.clone().filter(|selector| !selector.is_empty())?;
        Some(Wanted {
            replicas: spec.replicas.unwrap_or(1),
            min_ready_seconds: spec.min_ready_seconds.unwrap_or(0),
            selector: LabelSelector { match_labels: Some(labels), match_expressions: None },
            template: spec.template.as_ref(),
        })
    }

    fn status(&self) -> Option<ReplicaSetStatus> {
        let status = self.status.clone()?;
        let condition = |condition: ReplicationControllerCondition| ReplicaSetCondition {
            type_: condition.type_,
            status: condition.status,
            reason: condition.reason,
            message: condition.message,
            last_transition_time: condition.last_transition_time,
        };
        Some(ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            terminating_replicas: None,
            observed_generation: status.observed_generation,
            conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
        })
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        let condition = |condition: ReplicaSetCondition| ReplicationControllerCondition {
            type_: condition.type_,
            status: condition.status,
            reason: condition.reason,
            message: condition.message,
            last_transition_time: condition.last_transition_time,
        };
        let status = ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            observed_generation: status.observed_generation,
            conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
        };
        Self { status: Some(status), ..self.clone() }
    }
}
