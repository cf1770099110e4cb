//! What counts, what fits, and how Kubernetes says that it does not.

use std::{collections::BTreeSet, sync::Arc};

use object_model::status::Status;
use serde_json::{Value, json};

use super::{
    Configuration,
    check::{Quota, check},
    kinds::{Counter, Kind},
    listed,
    scopes::Scope,
};
use crate::{
    admission::{Attributes, Operation, pod_resources::amounts, tests::World},
    clock::{Clock, SystemClock},
    watch_cache::Entry,
};

fn counter(world: &World) -> Counter {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    Counter::new(&world.cache, &clock)
}

fn quota(spec: Value, used: Option<Value>) -> Quota {
    let mut object = json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "ns"}, "spec": spec});
    object["status"] = match used {
        Some(used) => json!({"hard": object["spec"]["hard"], "used": used}),
        None => json!({"hard": object["spec"]["hard"]}),
    };
    let bytes = object.to_string();
    let entry = Entry::read("/registry/core/resourcequotas/ns/q", "ns/q", bytes.as_bytes(), Default::default(), &[]);
    Quota::of(Arc::new(entry.expect("a stored object")))
}

fn pod(spec: Value) -> Value {
    json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec})
}

fn containers(resources: Value) -> Value {
    pod(json!({"containers": [{"name": "a", "resources": resources}]}))
}

/// What a quota has used after a request, in the form of its status; null where it is not touched.
async fn after(
    world: &World,
    request: (Operation, &str),
    quota: Quota,
    configuration: &Configuration,
    object: &Value,
    old: Option<&Value>,
) -> Result<Value, Status> {
    let counter = counter(world);
    let asked = world.asked(request.1, old);
    let target = asked.target();
    let attributes = Attributes { operation: request.0, target: &target, old, context: &world.context, dry_run: false };
    let kind = Kind::of(&target.resource.group, &target.resource.plural).expect("counted");
    let (quotas, limited) = (std::slice::from_ref(&quota), &configuration.limited_resources);
    let charged = check(&counter, quotas, limited, &attributes, &kind, object)?;
    Ok(charged.first().map(|(_, used)| listed(used)).unwrap_or_default())
}

#[tokio::test]
async fn pods_count_by_what_they_ask_for() {
    let world = World::of(&[]).await;
    let counter = counter(&world);
    let rich = json!({
        "initContainers": [
            {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
            {"name": "i", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}},
        ],
        "containers": [{"name": "a", "resources": {
            "requests": {"cpu": "1", "memory": "1Gi", "example.com/gpu": "2", "hugepages-2Mi": "4Mi"},
            "limits": {"cpu": "2", "memory": "1Gi"},
        }}],
        "overhead": {"cpu": "50m"},
    });
    let used = counter.usage(&Kind::Pods, &pod(rich.clone()));
    let expected = json!({
        "count/pods": "1", "pods": "1", "cpu": "2150m", "requests.cpu": "2150m", "limits.cpu": "3050m",
        "memory": "1Gi", "requests.memory": "1Gi", "limits.memory": "1Gi", "requests.example.com/gpu": "2",
        "hugepages-2Mi": "4Mi", "requests.hugepages-2Mi": "4Mi",
    });
    assert_eq!(used, amounts(Some(&expected)));
    let mut done = pod(rich.clone());
    done["status"] = json!({"phase": "Succeeded"});
    assert_eq!(listed(&counter.usage(&Kind::Pods, &done)), json!({"count/pods": "1"}));
    let mut lost = pod(rich);
    lost["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z".into();
    lost["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    assert_eq!(listed(&counter.usage(&Kind::Pods, &lost)), json!({"count/pods": "1"}));
    let mut growing = containers(json!({"requests": {"cpu": "1"}}));
    growing["status"] = json!({"containerStatuses": [
        {"name": "a", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "2"}},
    ]});
    assert_eq!(listed(&counter.usage(&Kind::Pods, &growing))["cpu"], "3");
}

#[tokio::test]
async fn services_claims_and_everything_else() {
    let class = json!({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}});
    let world = World::of(&[("resource.k8s.io", "deviceclasses", class)]).await;
    let counter = counter(&world);
    let usage = |kind: &Kind, object: Value| listed(&counter.usage(kind, &object));
    let service = |kind: &str, allocates: bool| {
        json!({"spec": {"type": kind, "allocateLoadBalancerNodePorts": allocates,
            "ports": [{"port": 80, "nodePort": 30000}, {"port": 81}]}})
    };
    let counted = |nodes: &str, balancers: &str| json!({"count/services": "1", "services": "1", "services.nodeports": nodes, "services.loadbalancers": balancers});
    assert_eq!(usage(&Kind::Services, service("ClusterIP", true)), counted("0", "0"));
    assert_eq!(usage(&Kind::Services, service("NodePort", true)), counted("2", "0"));
    assert_eq!(usage(&Kind::Services, service("LoadBalancer", true)), counted("2", "1"));
    assert_eq!(usage(&Kind::Services, service("LoadBalancer", false)), counted("1", "1"));

    let claim = json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1500m"}}}});
    assert_eq!(
        usage(&Kind::VolumeClaims, claim),
        json!({
            "count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "2",
            "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
            "gold.storageclass.storage.k8s.io/requests.storage": "2",
        })
    );
    let devices = json!({"metadata": {"name": "c", "namespace": "ns"}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}},
        {"name": "s", "firstAvailable": [
            {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
            {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 3},
        ]},
    ]}}});
    assert_eq!(
        usage(&Kind::ResourceClaims, devices),
        json!({
            "count/resourceclaims.resource.k8s.io": "1", "gpu.deviceclass.resource.k8s.io/devices": "5",
            "requests.deviceclass.resource.kubernetes.io/gpu": "5", "requests.example.com/gpu": "5",
        })
    );
    let secrets = Kind::of("", "secrets").expect("counted");
    assert_eq!(usage(&secrets, json!({})), json!({"count/secrets": "1", "secrets": "1"}));
    assert_eq!(Kind::of("", "events"), None);
    assert_eq!(Kind::of("authorization.k8s.io", "localsubjectaccessreviews"), None);
}

#[tokio::test]
async fn names_lead_to_what_they_count() {
    let world = World::of(&[]).await;
    let counter = counter(&world);
    let tracked = |name: &str| Kind::tracked_by(&counter, name);
    let other = |group: &str, resource: &str| Kind::Others { group: group.into(), resource: resource.into() };
    assert_eq!(tracked("limits.cpu"), BTreeSet::from([Kind::Pods]));
    assert_eq!(tracked("requests.example.com/gpu"), BTreeSet::from([Kind::Pods]));
    assert_eq!(tracked("gold.storageclass.storage.k8s.io/requests.storage"), BTreeSet::from([Kind::VolumeClaims]));
    assert_eq!(tracked("services.loadbalancers"), BTreeSet::from([Kind::Services]));
    assert_eq!(tracked("count/deployments.apps"), BTreeSet::from([other("apps", "deployments")]));
    assert_eq!(tracked("configmaps"), BTreeSet::from([other("", "configmaps")]));
    assert_eq!(tracked("x.deviceclass.resource.k8s.io/devices"), BTreeSet::from([Kind::ResourceClaims]));
    assert_eq!(tracked("unheard-of"), BTreeSet::new());
}

#[test]
fn scopes_choose_objects() {
    let matches = |scopes: Value, pod: &Value| {
        let quota = json!({"spec": scopes});
        Scope::of_quota(&quota).iter().all(|scope| scope.matches(&Kind::Pods, pod))
    };
    let plain = containers(json!({}));
    let sized = containers(json!({"requests": {"cpu": "1"}}));
    let ending = pod(json!({"activeDeadlineSeconds": 10}));
    let high = pod(json!({"priorityClassName": "high"}));
    let near = pod(json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "k", "namespaceSelector": {}},
    ]}}}));
    let one = |scope: &str| json!({"scopes": [scope]});
    for (scope, is, is_not) in [
        ("BestEffort", &plain, &sized),
        ("NotBestEffort", &sized, &plain),
        ("Terminating", &ending, &plain),
        ("NotTerminating", &plain, &ending),
        ("PriorityClass", &high, &plain),
        ("CrossNamespacePodAffinity", &near, &plain),
    ] {
        assert!(matches(one(scope), is) && !matches(one(scope), is_not), "{scope}");
    }
    let class = |operator: &str, values: &[&str]| {
        json!({"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": operator, "values": values},
        ]}})
    };
    assert!(matches(class("In", &["high", "low"]), &high) && !matches(class("In", &["low"]), &high));
    assert!(matches(class("NotIn", &["low"]), &high) && matches(class("NotIn", &["low"]), &plain));
    assert!(matches(class("DoesNotExist", &[]), &plain) && !matches(class("DoesNotExist", &[]), &high));
    let claim = json!({"spec": {"volumeAttributesClassName": "fast"}});
    let fast = json!({"spec": {"scopeSelector": {"matchExpressions": [
        {"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["fast"]},
    ]}}});
    assert!(Scope::of_quota(&fast).iter().all(|scope| scope.matches(&Kind::VolumeClaims, &claim)));
}

#[tokio::test]
async fn what_fits_is_charged_and_what_does_not_is_refused() {
    let world = World::of(&[]).await;
    let none = Configuration::default();
    let create = (Operation::Create, "/pods");
    let limits = || json!({"hard": {"pods": "2", "requests.cpu": "1", "requests.memory": "1Gi"}});
    let used = |cpu: &str| Some(json!({"pods": "1", "requests.cpu": cpu, "requests.memory": "0"}));
    let sized = containers(json!({"requests": {"cpu": "500m", "memory": "1Mi"}}));
    let charged = after(&world, create, quota(limits(), used("500m")), &none, &sized, None).await.expect("fits");
    assert_eq!(charged, json!({"pods": "2", "requests.cpu": "1", "requests.memory": "1Mi"}));
    let refused = after(&world, create, quota(limits(), used("600m")), &none, &sized, None).await;
    assert_eq!(
        refused.expect_err("too much").message,
        "pods \"p\" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: \
         requests.cpu=1"
    );
    let silent = containers(json!({}));
    let refused = after(&world, create, quota(limits(), used("0")), &none, &silent, None).await;
    assert_eq!(
        refused.expect_err("silent").message,
        "pods \"p\" is forbidden: failed quota: q: must specify requests.cpu for: a; requests.memory for: a"
    );
    let refused = after(&world, create, quota(limits(), None), &none, &sized, None).await;
    assert_eq!(
        refused.expect_err("not counted yet").message,
        "pods \"p\" is forbidden: status unknown for quota: q, resources: pods,requests.cpu,requests.memory"
    );
    let scoped = json!({"hard": {"pods": "0"}, "scopes": ["BestEffort"]});
    let untouched = after(&world, create, quota(scoped, Some(json!({"pods": "0"}))), &none, &sized, None).await;
    assert_eq!(untouched.expect("not in scope"), Value::Null);
}

#[tokio::test]
async fn updates_are_charged_what_they_add() {
    let world = World::of(&[]).await;
    let none = Configuration::default();
    let old = containers(json!({"requests": {"cpu": "1"}}));
    let new = containers(json!({"requests": {"cpu": "1500m"}}));
    let limits = || quota(json!({"hard": {"pods": "1", "cpu": "2"}}), Some(json!({"pods": "1", "cpu": "1"})));
    let resize = (Operation::Update, "/pods/resize");
    let charged = after(&world, resize, limits(), &none, &new, Some(&old)).await.expect("fits");
    assert_eq!(charged, json!({"pods": "1", "cpu": "1500m"}));
    let smaller = after(&world, resize, limits(), &none, &old, Some(&new)).await.expect("nothing to charge");
    assert_eq!(smaller, Value::Null);
    // A pod that comes under the quota only now is charged in full.
    let scoped = json!({"hard": {"pods": "1"}, "scopes": ["Terminating"]});
    let mut ending = old.clone();
    ending["spec"]["activeDeadlineSeconds"] = 5.into();
    let full = quota(scoped, Some(json!({"pods": "1"})));
    assert!(after(&world, (Operation::Update, "/pods"), full, &none, &ending, Some(&old)).await.is_err());
}

#[tokio::test]
async fn some_things_need_a_quota() {
    let world = World::of(&[]).await;
    let configuration: Configuration = serde_json::from_value(json!({"limitedResources": [
        {"resource": "pods", "matchContains": ["requests.cpu"]},
        {"resource": "pods", "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]},
    ]}))
    .expect("valid");
    let create = (Operation::Create, "/pods");
    let counts = || quota(json!({"hard": {"pods": "9"}}), Some(json!({"pods": "0"})));
    let sized = containers(json!({"requests": {"cpu": "1"}}));
    let refused = after(&world, create, counts(), &configuration, &sized, None).await.expect_err("not covered");
    assert_eq!(refused.message, "pods \"p\" is forbidden: insufficient quota to consume: requests.cpu");
    let mut high = containers(json!({}));
    high["spec"]["priorityClassName"] = "high".into();
    let refused = after(&world, create, counts(), &configuration, &high, None).await.expect_err("not covered");
    assert_eq!(refused.message, "insufficient quota to match these scopes: [{PriorityClass In [high]}]");
    let spec = json!({"hard": {"pods": "9"}, "scopes": ["PriorityClass"]});
    let covered = after(&world, create, quota(spec, Some(json!({"pods": "0"}))), &configuration, &high, None).await;
    assert_eq!(covered.expect("covered"), json!({"pods": "1"}));
}
