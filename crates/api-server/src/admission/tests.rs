//! What the small plugins do, on the objects of a cluster that stands still.

use std::sync::Arc;

use object_model::{meta::Meta, status::Status};
use serde_json::{Value, json};
use storage::{Durability, Lifetime, Operation as Change, Store, Transaction};
use storage_embedded::EmbeddedStore;
use tempfile::TempDir;

use super::{
    Attributes, Chain, Operation, Plugin, default_classes::DefaultClass, limit_ranger::LimitRanger,
    namespace_lifecycle::NamespaceLifecycle, node_declared_features::NodeDeclaredFeatureValidator,
    persistent_volume_claim_resize::PersistentVolumeClaimResize, pod_resize::PodResizeValidator,
    pod_topology_labels::PodTopologyLabels, priority::Priority, runtime_class::RuntimeClass,
    service_account::ServiceAccount, storage_object_in_use_protection::StorageObjectInUseProtection,
};
use crate::{
    builtin,
    catalogue::{Catalogue, Resource, Target, store_prefix},
    context::RequestContext,
    watch_cache::{WatchCache, encode_stored},
};

/// Some objects in a cache, and who asks.
pub struct World {
    pub cache: Arc<WatchCache>,
    pub context: RequestContext,
    catalogue: Catalogue,
    _folder: TempDir,
}

impl World {
    /// Each object with its group and the plural name of its resource.
    pub async fn of(objects: &[(&str, &str, Value)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let options = storage_embedded::Options::new(folder.path().join("state"));
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(options).expect("a store"));
        let puts = objects.iter().map(|(group, plural, object)| {
            let meta = Meta::of(object);
            let place = if meta.namespace().is_empty() { String::new() } else { format!("{}/", meta.namespace()) };
            let key = format!("{}{place}{}", store_prefix(group, plural), meta.name());
            let mut object = object.clone();
            object["apiVersion"] = "v1".into();
            Change::Put { key, value: encode_stored(&object), lifetime: Lifetime::Endless }
        });
        let operations: Vec<Change> = puts.collect();
        if !operations.is_empty() {
            let transaction = Transaction { compares: Vec::new(), operations, durability: Durability::Relaxed };
            store.commit(transaction).await.expect("stored");
        }
        let cache = Arc::new(WatchCache::new(store));
        let catalogue = Catalogue::new(builtin::groups(&cache));
        cache.load().await.expect("loaded");
        Self { cache, context: RequestContext::default(), catalogue, _folder: folder }
    }

    /// What a request in the namespace `ns` (or in none) for `group/resource[/subresource]` is about.
    pub fn asked(&self, path: &str, old: Option<&Value>) -> Asked {
        let mut parts = path.split('/');
        let [group, plural, subresource] = [(); 3].map(|()| parts.next().unwrap_or_default());
        let resource = self.catalogue.served().find(group, "v1", plural).expect("a resource").clone();
        let name = old.map(|old| Meta::of(old).name()).unwrap_or_default();
        Asked { resource, subresource: subresource.to_owned(), name: name.to_owned() }
    }

    /// Passes an object through a plugin, as it is changed by it.
    pub async fn admit(
        &self,
        plugin: impl Plugin + 'static,
        request: (Operation, &str),
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Value, Status> {
        let (chain, mut object) = (Chain::new(vec![Box::new(plugin)]), object.clone());
        let asked = self.asked(request.1, old);
        let target = asked.target();
        let attributes =
            Attributes { operation: request.0, target: &target, old, context: &self.context, dry_run: false };
        chain.mutate(&attributes, &mut object).await?;
        chain.validate(&attributes, &object).await?;
        Ok(object)
    }
}

/// What a request is about.
pub struct Asked {
    resource: Arc<Resource>,
    subresource: String,
    name: String,
}

impl Asked {
    pub fn target(&self) -> Target<'_> {
        let namespace = if self.resource.namespaced { "ns" } else { "" };
        Target { resource: &self.resource, subresource: &self.subresource, namespace, name: &self.name }
    }
}

const CREATE: Operation = Operation::Create;
const UPDATE: Operation = Operation::Update;
const PODS: (Operation, &str) = (CREATE, "/pods");

fn object(name: &str, content: Value) -> Value {
    let mut object = content;
    object["metadata"]["name"] = name.into();
    object
}

fn namespaced(name: &str, content: Value) -> Value {
    let mut object = object(name, content);
    object["metadata"]["namespace"] = "ns".into();
    object
}

fn pod(spec: Value) -> Value {
    namespaced("p", json!({"spec": spec}))
}

#[tokio::test]
async fn what_plugins_do_not_handle_they_do_not_see() {
    struct Never;
    #[async_trait::async_trait]
    impl Plugin for Never {
        fn name(&self) -> &'static str {
            "Never"
        }
        fn handles(&self, request: &super::Request<'_>) -> bool {
            request.creates("", "pods")
        }
        async fn mutate(&self, _: &Attributes<'_>, _: &mut Value) -> Result<(), Status> {
            Err(Status::internal("seen"))
        }
    }
    let mut world = World::of(&[]).await;
    assert!(world.admit(Never, PODS, &pod(json!({})), None).await.is_err());
    for other in [(CREATE, "/configmaps"), (UPDATE, "/pods"), (CREATE, "/pods/binding"), (Operation::Delete, "/pods")] {
        assert!(world.admit(Never, other, &json!({}), None).await.is_ok(), "{other:?}");
    }
    world.context.admitted = true;
    assert!(world.admit(Never, PODS, &pod(json!({})), None).await.is_ok());
}

#[tokio::test]
async fn namespaces_must_be_there_and_stay() {
    let ending = object("ns", json!({"status": {"phase": "Terminating"}}));
    let world = World::of(&[("", "namespaces", ending)]).await;
    let plugin = || NamespaceLifecycle::new(&world.cache);
    let refused = world.admit(plugin(), (CREATE, "/configmaps"), &namespaced("c", json!({})), None).await;
    let refused = refused.expect_err("the namespace ends");
    assert_eq!(
        refused.message,
        "configmaps \"c\" is forbidden: unable to create new content in namespace ns because it is being terminated"
    );
    assert_eq!(refused.details.expect("details").causes[0].reason, "NamespaceTerminating");
    let old = namespaced("c", json!({}));
    assert!(world.admit(plugin(), (UPDATE, "/configmaps"), &old, Some(&old)).await.is_ok());
    let system = object("kube-system", json!({}));
    let kept = world.admit(plugin(), (Operation::Delete, "/namespaces"), &Value::Null, Some(&system)).await;
    assert_eq!(
        kept.expect_err("kept").message,
        "namespaces \"kube-system\" is forbidden: this namespace may not be deleted"
    );
    let empty = World::of(&[]).await;
    let missing = empty.admit(NamespaceLifecycle::new(&empty.cache), PODS, &pod(json!({})), None).await;
    assert_eq!(missing.expect_err("missing").code, 404);
}

#[tokio::test]
async fn limit_ranges_fill_in_and_refuse() {
    let range = namespaced(
        "l",
        json!({"spec": {"limits": [
            {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}, "max": {"cpu": "1"}},
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "3"}},
            {"type": "Pod", "max": {"cpu": "2"}},
        ]}}),
    );
    let world = World::of(&[("", "limitranges", range)]).await;
    let plugin = || LimitRanger::new(&world.cache);
    let container = |name: &str, resources: Value| json!({"name": name, "resources": resources});
    let filled = world.admit(plugin(), PODS, &pod(json!({"containers": [container("a", json!({}))]})), None).await;
    let filled = filled.expect("admitted");
    let resources = &filled["spec"]["containers"][0]["resources"];
    assert_eq!(resources, &json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}));
    assert_eq!(
        Meta::of(&filled).annotation("kubernetes.io/limit-ranger"),
        Some("LimitRanger plugin set: cpu request for container a; cpu limit for container a")
    );
    let large = json!({"limits": {"cpu": "1500m"}, "requests": {"cpu": "1500m"}});
    let pods = pod(json!({"containers": [container("a", large.clone()), container("b", large)]}));
    assert_eq!(
        world.admit(plugin(), PODS, &pods, None).await.expect_err("too large").message,
        "pods \"p\" is forbidden: [maximum cpu usage per Container is 1, but limit is 1500m, maximum cpu usage per Pod is 2, \
         but limit is 3]"
    );
    let steep = json!({"limits": {"cpu": "900m"}, "requests": {"cpu": "200m"}});
    let even = json!({"limits": {"cpu": "900m"}, "requests": {"cpu": "300m"}});
    let refused = world.admit(plugin(), PODS, &pod(json!({"containers": [container("a", steep.clone())]})), None).await;
    assert_eq!(
        refused.expect_err("too steep").message,
        "pods \"p\" is forbidden: cpu max limit to request ratio per Container is 3, but provided ratio is 4.500000"
    );
    let even = pod(json!({"containers": [container("a", even)]}));
    assert!(world.admit(plugin(), PODS, &even, None).await.is_ok());
    let resized = pod(json!({"containers": [container("a", steep)]}));
    assert!(world.admit(plugin(), (UPDATE, "/pods/resize"), &resized, Some(&even)).await.is_err());
    assert!(world.admit(plugin(), (UPDATE, "/pods"), &resized, Some(&even)).await.is_ok());
    let mut ending = even.clone();
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert!(world.admit(plugin(), (UPDATE, "/pods/resize"), &resized, Some(&ending)).await.is_ok());
}

#[tokio::test]
async fn accounts_are_set_and_lend_only_their_secrets() {
    let strict = namespaced(
        "strict",
        json!({
            "metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
            "secrets": [{"name": "own"}],
            "imagePullSecrets": [{"name": "pull"}],
        }),
    );
    let world =
        World::of(&[("", "serviceaccounts", namespaced("default", json!({}))), ("", "serviceaccounts", strict)]).await;
    let plugin = || ServiceAccount::new(&world.cache);
    let plain = pod(json!({"containers": [{"name": "a"}]}));
    let set = world.admit(plugin(), PODS, &plain, None).await.expect("admitted");
    assert_eq!(set["spec"]["serviceAccountName"], "default");
    let mount = &set["spec"]["containers"][0]["volumeMounts"][0];
    assert_eq!(mount["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
    assert_eq!(mount["name"], set["spec"]["volumes"][0]["name"]);
    let with = |spec: Value| {
        let mut spec = spec;
        spec["serviceAccountName"] = "strict".into();
        spec["automountServiceAccountToken"] = false.into();
        pod(spec)
    };
    let own = with(json!({"containers": [{"name": "a"}], "volumes": [{"name": "v", "secret": {"secretName": "own"}}]}));
    let own = world.admit(plugin(), PODS, &own, None).await.expect("admitted");
    assert_eq!(own["spec"]["imagePullSecrets"], json!([{"name": "pull"}]));
    let cases = [
        (
            json!({"volumes": [{"name": "v", "secret": {"secretName": "x"}}]}),
            "volume with secret.secretName=\"x\" is not allowed because service account strict does not reference that secret",
        ),
        (
            json!({"initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "x"}}]}]}),
            "init container i with envFrom referencing secret.secretName=\"x\" is not allowed because service account strict \
             does not reference that secret",
        ),
        (
            json!({"containers": [{"name": "c", "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "x"}}}]}]}),
            "container c with envVar E referencing secret.secretName=\"x\" is not allowed because service account strict \
             does not reference that secret",
        ),
        (
            json!({"imagePullSecrets": [{"name": "own"}]}),
            "imagePullSecrets[0].name=\"own\" is not allowed because service account strict does not reference that \
             imagePullSecret",
        ),
    ];
    for (spec, why) in cases {
        let refused = world.admit(plugin(), PODS, &with(spec), None).await.expect_err(why);
        assert_eq!(refused.message, format!("pods \"p\" is forbidden: {why}"));
    }
    let debugged = with(json!({"ephemeralContainers": [{"name": "e", "envFrom": [{"secretRef": {"name": "x"}}]}]}));
    let refused = world.admit(plugin(), (UPDATE, "/pods/ephemeralcontainers"), &debugged, Some(&own)).await;
    assert_eq!(refused.expect_err("refused").code, 500);
    let unknown = pod(json!({"serviceAccountName": "x"}));
    assert_eq!(
        world.admit(plugin(), PODS, &unknown, None).await.expect_err("unknown").message,
        "pods \"p\" is forbidden: error looking up service account ns/x: serviceaccount \"x\" not found"
    );
}

/// Whatever would hand a secret to a pod that its node made from a file.
#[tokio::test]
async fn mirrors_have_no_secrets() {
    let world = World::of(&[]).await;
    let mirror = |volume: Value| {
        let mut mirror = pod(json!({"containers": [{"name": "a"}], "volumes": [volume]}));
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        mirror
    };
    let admit = |volume: Value| {
        let (mirror, plugin, world) = (mirror(volume), ServiceAccount::new(&world.cache), &world);
        async move { world.admit(plugin, PODS, &mirror, None).await }
    };
    for volume in [
        json!({"secret": {"secretName": "x"}}),
        json!({"projected": {"sources": [{"downwardAPI": {}}, {"secret": {"name": "x"}}]}}),
        json!({"csi": {"driver": "d", "nodePublishSecretRef": {"name": "x"}}}),
        json!({"azureFile": {"secretName": "x", "shareName": "s"}}),
        json!({"iscsi": {"secretRef": {"name": "x"}}}),
    ] {
        let refused = admit(volume.clone()).await.expect_err("a secret");
        let why = "pods \"p\" is forbidden: a mirror pod may not reference secrets";
        assert_eq!(refused.message, why, "{volume}");
    }
    let token = json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}});
    let refused = admit(token).await.expect_err("a token");
    assert!(refused.message.ends_with("may not use ServiceAccountToken volume projections"), "{}", refused.message);
    admit(json!({"csi": {"driver": "d"}})).await.expect("admitted");
}

#[tokio::test]
async fn priorities_come_from_classes() {
    let class = |name: &str, value: i64, default: bool| {
        ("scheduling.k8s.io", "priorityclasses", object(name, json!({"value": value, "globalDefault": default})))
    };
    let world = World::of(&[class("high", 1000, false), class("usual", 7, true)]).await;
    let plugin = || Priority::new(&world.cache);
    let priority = |spec: Value| {
        let (pod, plugin) = (pod(spec), plugin());
        let world = &world;
        async move { world.admit(plugin, PODS, &pod, None).await.map(|pod| pod["spec"].clone()) }
    };
    let usual = priority(json!({})).await.expect("admitted");
    assert_eq!((&usual["priority"], &usual["priorityClassName"]), (&json!(7), &json!("usual")));
    let high = priority(json!({"priorityClassName": "high"})).await.expect("admitted");
    assert_eq!(high["priority"], 1000);
    let cases = [
        (json!({"priorityClassName": "x"}), "no PriorityClass with name x was found"),
        (
            json!({"priority": 3}),
            "the integer value of priority (3) must not be provided in pod spec; priority admission controller computed 7 \
             from the given PriorityClass name",
        ),
    ];
    for (spec, why) in cases {
        assert_eq!(priority(spec).await.expect_err(why).message, format!("pods \"p\" is forbidden: {why}"));
    }
    let old = pod(json!({"priority": 1000, "preemptionPolicy": "Never"}));
    let kept = world.admit(plugin(), (UPDATE, "/pods"), &pod(json!({})), Some(&old)).await.expect("admitted");
    assert_eq!(kept["spec"], old["spec"]);
    let second = object("second", json!({"value": 1, "globalDefault": true}));
    let request = (CREATE, "scheduling.k8s.io/priorityclasses");
    assert_eq!(
        world.admit(plugin(), request, &second, None).await.expect_err("a second default").message,
        "priorityclasses.scheduling.k8s.io \"second\" is forbidden: PriorityClass usual is already marked as default. Only one \
         default can exist"
    );
    let itself = object("usual", json!({"value": 7, "globalDefault": true}));
    let request = (UPDATE, "scheduling.k8s.io/priorityclasses");
    assert!(world.admit(plugin(), request, &itself, Some(&itself)).await.is_ok());
}

#[tokio::test]
async fn runtimes_cost_and_choose() {
    let class = object(
        "vm",
        json!({
            "handler": "vm",
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]},
        }),
    );
    let world = World::of(&[("node.k8s.io", "runtimeclasses", class)]).await;
    let admit = |spec: Value| {
        let (pod, plugin, world) = (pod(spec), RuntimeClass::new(&world.cache), &world);
        async move { world.admit(plugin, PODS, &pod, None).await.map(|pod| pod["spec"].clone()) }
    };
    let spec = admit(json!({"runtimeClassName": "vm", "nodeSelector": {"a": "b"}})).await.expect("admitted");
    assert_eq!(spec["overhead"], json!({"cpu": "250m"}));
    assert_eq!(spec["nodeSelector"], json!({"a": "b", "vm": "yes"}));
    assert_eq!(spec["tolerations"], json!([{"key": "vm", "operator": "Exists"}]));
    let cases = [
        (json!({"runtimeClassName": "x"}), "pod rejected: RuntimeClass \"x\" not found"),
        (
            json!({"runtimeClassName": "vm", "overhead": {"cpu": "1"}}),
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            json!({"overhead": {"cpu": "1"}}),
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
        (
            json!({"runtimeClassName": "vm", "nodeSelector": {"vm": "no"}}),
            "conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no",
        ),
    ];
    for (spec, why) in cases {
        assert_eq!(admit(spec).await.expect_err(why).message, format!("pods \"p\" is forbidden: {why}"));
    }
    assert!(admit(json!({"runtimeClassName": "vm", "overhead": {"cpu": "0.25"}})).await.is_ok());
}

#[tokio::test]
async fn claims_get_the_newest_default_class_and_grow_where_they_may() {
    let class = |name: &str, second: u32, grows: bool| {
        let content = json!({
            "metadata": {
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            },
            "allowVolumeExpansion": grows,
        });
        ("storage.k8s.io", "storageclasses", object(name, content))
    };
    let world = World::of(&[class("a", 1, true), class("b", 2, false), class("c", 2, true)]).await;
    let claim = |spec: Value| namespaced("c", json!({"spec": spec, "status": {"phase": "Bound"}}));
    let create = (CREATE, "/persistentvolumeclaims");
    let set = world.admit(DefaultClass::of_storage(&world.cache), create, &claim(json!({})), None).await;
    assert_eq!(set.expect("admitted")["spec"]["storageClassName"], "b");
    let named = claim(json!({"storageClassName": ""}));
    let same = world.admit(DefaultClass::of_storage(&world.cache), create, &named, None).await;
    assert_eq!(same.expect("admitted"), named);
    let kept = world.admit(StorageObjectInUseProtection, create, &named, None).await.expect("admitted");
    assert_eq!(kept["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));

    let sized = |class: &str, size: &str| {
        claim(json!({"storageClassName": class, "resources": {"requests": {"storage": size}}}))
    };
    let grow = |class: &'static str| {
        let (plugin, world) = (PersistentVolumeClaimResize::new(&world.cache), &world);
        async move {
            let update = (UPDATE, "/persistentvolumeclaims");
            world.admit(plugin, update, &sized(class, "2Gi"), Some(&sized(class, "1Gi"))).await
        }
    };
    assert!(grow("a").await.is_ok());
    assert_eq!(
        grow("b").await.expect_err("fixed").message,
        "persistentvolumeclaims \"c\" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that \
         provisions the pvc must support resize"
    );
}

#[tokio::test]
async fn nodes_label_pods_and_bound_them() {
    let content = json!({
        "metadata": {"labels": {"topology.kubernetes.io/zone": "z", "other": "x", "kubernetes.io/os": "linux"}},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}, "declaredFeatures": []},
    });
    let world = World::of(&[("", "nodes", object("n", content))]).await;
    let binding = namespaced("p", json!({"target": {"kind": "Node", "name": "n"}}));
    let bound = world.admit(PodTopologyLabels::new(&world.cache), (CREATE, "/pods/binding"), &binding, None).await;
    assert_eq!(bound.expect("admitted")["metadata"]["labels"], json!({"topology.kubernetes.io/zone": "z"}));

    let running = |generation: i64, cpu: &str, whole: Value| {
        let mut pod = pod(json!({
            "nodeName": "n", "resources": whole,
            "containers": [{"name": "a", "resources": {"requests": {"cpu": cpu, "memory": "2Gi"}}}],
        }));
        pod["metadata"]["generation"] = generation.into();
        pod
    };
    let (old, new) = (running(1, "1", json!({})), running(2, "2500m", json!({})));
    let resize = (UPDATE, "/pods/resize");
    let refused = world.admit(PodResizeValidator::new(&world.cache), resize, &new, Some(&old)).await;
    let refused = refused.expect_err("too large");
    assert_eq!(
        refused.message,
        "pods \"p\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 2500, allocatable: 2000; \
         memory, requested: 2147483648, allocatable: 1073741824"
    );
    assert_eq!(refused.details.expect("details").causes[0].reason, "NodeCapacity");
    let whole = running(2, "1", json!({"requests": {"cpu": "1"}}));
    let refused = world.admit(NodeDeclaredFeatureValidator::new(&world.cache), resize, &whole, Some(&old)).await;
    assert_eq!(
        refused.expect_err("not declared").message,
        "pods \"p\" is forbidden: pod update requires features InPlacePodLevelResourcesVerticalScaling which are not available \
         on node \"n\""
    );
}
