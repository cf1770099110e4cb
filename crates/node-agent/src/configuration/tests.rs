use std::collections::BTreeMap;

use container_runtime::services::{LinuxContainerSecurityContext, NamespaceMode, SecurityProfile};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::fakes;

/// A pod with one container, and what a test says over it.
fn pod(spec: Value, container: Value) -> Pod {
    let mut whole = json!({
        "metadata": {"name": "web-0", "namespace": "ns", "uid": "u1", "labels": {"app": "web", "b": "x\"y"},
            "annotations": {"note": "long\nline"}},
        "spec": {"nodeName": "n1", "serviceAccountName": "robot", "containers": [{"name": "main", "image": "i"}]},
        "status": {"qosClass": "Burstable"},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        whole["spec"][key] = value.clone();
    }
    for (key, value) in container.as_object().into_iter().flatten() {
        whole["spec"]["containers"][0][key] = value.clone();
    }
    serde_json::from_value(whole).expect("a pod")
}

fn first(pod: &Pod) -> &Container {
    &pod.spec.as_ref().expect("a spec").containers[0]
}

fn machine(allocatable: &[(&str, &str)]) -> Machine {
    let amount = |amount: &str| k8s_openapi::apimachinery::pkg::api::resource::Quantity(amount.to_owned());
    let allocatable = allocatable.iter().map(|(name, has)| ((*name).to_owned(), amount(has))).collect();
    Machine { allocatable, memory: 0 }
}

fn sandbox_of(spec: Value) -> Result<PodSandboxConfig, ConfigError> {
    sandbox::sandbox(&fakes::settings("/agent".as_ref()), &pod(spec, json!({})), 3, &Machine::default())
}

fn context(spec: Value, container: Value, image: &Image) -> Result<LinuxContainerSecurityContext, ConfigError> {
    let pod = pod(spec, json!({"securityContext": container}));
    security::security_context("/agent".as_ref(), &pod, first(&pod), image)
}

#[tokio::test]
async fn a_sandbox_knows_its_pod() {
    let sandbox = sandbox_of(json!({
        "subdomain": "web", "setHostnameAsFQDN": true, "shareProcessNamespace": true,
        "securityContext": {"sysctls": [{"name": "kernel/shm_rmid_forced", "value": "1"}]},
        "containers": [{"name": "a", "securityContext": {"privileged": true},
            "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1"}, {"containerPort": 81}]}],
        "initContainers": [{"name": "side", "restartPolicy": "Always",
            "ports": [{"containerPort": 53, "hostPort": 53, "protocol": "UDP"}]}],
    }))
    .expect("a sandbox");
    assert_eq!(sandbox.metadata.attempt, 3);
    assert_eq!(sandbox.hostname, "web-0.web.ns.svc.cluster.local");
    assert_eq!(sandbox.log_directory, "/agent/logs/ns_web-0_u1");
    assert_eq!(sandbox.linux.cgroup_parent, "/kubepods/burstable/podu1");
    assert_eq!(sandbox.labels["app"], "web");
    assert_eq!(sandbox.labels[labels::POD_UID], "u1");
    assert_eq!(sandbox.linux.sysctls, BTreeMap::from([("kernel.shm_rmid_forced".into(), "1".into())]));
    assert!(sandbox.linux.security_context.privileged);
    assert_eq!(sandbox.linux.security_context.namespace_options.pid, NamespaceMode::Pod);
    let ports: Vec<_> =
        sandbox.port_mappings.iter().map(|p| (p.protocol.as_str(), p.host_ip.as_str(), p.host_port)).collect();
    assert_eq!(ports, [("TCP", "127.0.0.1", 8080), ("UDP", "", 53)]);
}

#[tokio::test]
async fn a_pod_on_the_nodes_namespaces_has_none_of_its_own() {
    let sandbox = sandbox_of(json!({"hostNetwork": true, "hostPID": true, "hostIPC": true, "hostname": "other"}));
    let sandbox = sandbox.expect("a sandbox");
    let namespaces = &sandbox.linux.security_context.namespace_options;
    assert_eq!([namespaces.network, namespaces.pid, namespaces.ipc], [NamespaceMode::Node; 3]);
    assert_eq!(sandbox.hostname, "");
    let own = sandbox_of(json!({"hostUsers": false})).expect("a sandbox").linux.security_context.namespace_options;
    assert_eq!((own.network, own.pid, own.userns), (NamespaceMode::Pod, NamespaceMode::Container, true));
}

#[tokio::test]
async fn names_are_resolved_as_the_policy_says() {
    let dns = |spec: Value| sandbox_of(spec).expect("a sandbox").dns_config.expect("a resolver");
    let own = json!({"nameservers": ["1.2.3.4"], "searches": ["x.example"],
        "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]});
    let none = dns(json!({"dnsPolicy": "None", "dnsConfig": own}));
    assert_eq!((none.servers, none.searches), (vec!["1.2.3.4".to_owned()], vec!["x.example".to_owned()]));
    assert_eq!(none.options, ["ndots:2", "edns0"]);
    let first = dns(json!({"dnsPolicy": "ClusterFirst", "dnsConfig": own}));
    assert_eq!(first.servers, ["10.96.0.10", "1.2.3.4"]);
    assert_eq!(first.searches[..3], ["ns.svc.cluster.local", "svc.cluster.local", "cluster.local"]);
    assert_eq!(first.searches.last().map(String::as_str), Some("x.example"));
    assert_eq!(first.options, ["ndots:2", "edns0"]);
    assert_eq!(dns(json!({"dnsPolicy": "ClusterFirst"})).options, ["ndots:5"]);
    let on_host = json!({"dnsPolicy": "ClusterFirst", "hostNetwork": true});
    assert_eq!(dns(on_host), dns(json!({"dnsPolicy": "Default"})));
    let with_host = dns(json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true}));
    assert_eq!(with_host.servers, ["10.96.0.10"]);
}

#[test]
fn the_containers_word_counts_more_than_the_pods() {
    let image = Image { uid: Some(7), ..Image::default() };
    let of_pod = json!({"securityContext": {"runAsUser": 1, "runAsGroup": 2, "fsGroup": 3, "supplementalGroups": [4, 5],
        "supplementalGroupsPolicy": "Strict", "seccompProfile": {"type": "RuntimeDefault"}}});
    let context_of = |own| context(of_pod.clone(), own, &image).expect("a context");
    let plain = context_of(json!({}));
    assert_eq!((plain.run_as_user, plain.run_as_group), (Some(1), Some(2)));
    assert_eq!((plain.supplemental_groups, plain.supplemental_groups_strict), (vec![3, 4, 5], true));
    assert_eq!(plain.seccomp, SecurityProfile::RuntimeDefault);
    assert!(!plain.no_new_privs && !plain.readonly_rootfs);
    assert!(plain.masked_paths.contains(&"/proc/kcore".to_owned()) && plain.readonly_paths.len() == 5);
    let own = context_of(json!({
        "runAsUser": 9, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "procMount": "Unmasked",
        "seccompProfile": {"type": "Localhost", "localhostProfile": "p/a.json"},
        "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
    }));
    assert_eq!((own.run_as_user, own.run_as_group), (Some(9), Some(2)));
    assert!(own.no_new_privs && own.readonly_rootfs && own.masked_paths.is_empty() && own.readonly_paths.is_empty());
    assert_eq!(own.seccomp_localhost_ref, "/agent/seccomp/p/a.json");
    assert_eq!(
        (own.capabilities.add_capabilities, own.capabilities.drop_capabilities),
        (vec!["NET_ADMIN".into()], vec!["ALL".into()])
    );
    assert_eq!(context(json!({}), json!({}), &image).expect("a context").run_as_user, Some(7));
    let by_name = Image { username: "nobody".into(), ..Image::default() };
    assert_eq!(context(json!({}), json!({}), &by_name).expect("a context").run_as_username, "nobody");
}

#[test]
fn who_must_not_be_root_is_not() {
    let image = |uid: Option<i64>, name: &str| Image { uid, username: name.into(), ..Image::default() };
    let refused = |own: Value, image: Image| context(json!({}), own, &image).expect_err("it is refused").to_string();
    let place = "(pod: \"web-0_ns(u1)\", container: main)";
    let non_root = json!({"runAsNonRoot": true});
    for (own, image, why) in [
        (
            json!({"runAsNonRoot": true, "runAsUser": 0}),
            image(None, ""),
            "container's runAsUser breaks non-root policy",
        ),
        (non_root.clone(), image(Some(0), ""), "container has runAsNonRoot and image will run as root"),
        (non_root.clone(), image(None, ""), "container has runAsNonRoot and image will run as root"),
        (
            non_root.clone(),
            image(None, "web"),
            "container has runAsNonRoot and image has non-numeric user (web), cannot verify user is non-root",
        ),
    ] {
        assert_eq!(refused(own, image), format!("{why} {place}"));
    }
    for (own, image) in
        [(non_root, image(Some(5), "")), (json!({"runAsNonRoot": true, "runAsUser": 1}), image(Some(0), ""))]
    {
        context(json!({}), own, &image).expect("it may run");
    }
}

#[test]
fn profiles_that_are_named_must_be_applied() {
    for own in [
        json!({"seccompProfile": {"type": "Localhost"}}),
        json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}}),
    ] {
        context(json!({}), own, &Image::default()).expect_err("it is refused");
    }
    context(json!({}), json!({"appArmorProfile": {"type": "RuntimeDefault"}}), &Image::default()).expect("it may run");
}

#[test]
fn limits_become_numbers_of_the_kernel() {
    let of = |spec: Value, resources: Value| {
        let pod = pod(spec, json!({"resources": resources}));
        let machine = Machine { memory: 16 << 30, ..machine(&[("hugepages-1Gi", "2Gi"), ("hugepages-2Mi", "0")]) };
        resources::container(&pod, first(&pod), &machine)
    };
    let both = of(
        json!({}),
        json!({"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"cpu": "1500m", "memory": "4Gi"}}),
    );
    assert_eq!((both.cpu_shares, both.cpu_quota, both.cpu_period), (256, 150_000, 100_000));
    assert_eq!((both.memory_limit_in_bytes, both.memory_swap_limit_in_bytes), (4 << 30, 4 << 30));
    assert_eq!(both.oom_score_adj, 1000 - 1000 / 16);
    assert_eq!(both.unified.get("memory.oom.group").map(String::as_str), Some("1"));
    let limit_only = of(json!({}), json!({"limits": {"cpu": "2"}}));
    assert_eq!((limit_only.cpu_shares, limit_only.memory_limit_in_bytes), (2048, 0));
    let none = of(json!({}), json!({}));
    assert_eq!((none.cpu_shares, none.cpu_quota, none.oom_score_adj), (2, 0, 999));
    let of_pod = of(json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}), json!({}));
    assert_eq!((of_pod.cpu_quota, of_pod.memory_limit_in_bytes), (100_000, 1 << 30));
    let critical = of(json!({"priorityClassName": "system-node-critical"}), json!({}));
    assert_eq!(critical.oom_score_adj, -997);
    let pages = of(json!({}), json!({"limits": {"hugepages-2Mi": "4Mi"}})).hugepage_limits;
    assert_eq!(pages, BTreeMap::from([("1GB".to_owned(), 0), ("2MB".to_owned(), 4 << 20)]));
}

#[tokio::test]
async fn a_container_is_told_apart_and_its_words_expanded() {
    let settings = fakes::settings("/agent".as_ref());
    let objects = Arc::new(Objects::new(settings.client.clone(), mpsc::unbounded_channel().0));
    let configuration = Configuration::new(settings, objects);
    let pod = pod(
        json!({"terminationGracePeriodSeconds": 7}),
        json!({"command": ["sh", "-c", "echo $(A) $(B) $$(A)"], "args": ["$(A)"], "workingDir": "/w", "tty": true, "stdin": true,
            "lifecycle": {"stopSignal": "SIGUSR1"}, "terminationMessagePath": "/m"}),
    );
    let environment = vec![KeyValue { key: "A".into(), value: "one".into() }];
    let image = Image { id: "sha256:1".into(), ..Image::default() };
    let config = configuration.container(&pod, first(&pod), &image, environment, Vec::new(), 2).expect("a container");
    assert_eq!(config.command, ["sh", "-c", "echo one $(B) $(A)"]);
    assert_eq!(config.args, ["one"]);
    assert_eq!((config.log_path.as_str(), config.working_dir.as_str()), ("main/2.log", "/w"));
    assert_eq!(
        (config.metadata.attempt, config.image.as_str(), config.stop_signal.as_str()),
        (2, "sha256:1", "SIGUSR1")
    );
    assert_eq!(config.labels[labels::CONTAINER_NAME], "main");
    assert_eq!(config.labels[labels::POD_NAMESPACE], "ns");
    assert_eq!(config.annotations["io.kubernetes.pod.terminationGracePeriod"], "7");
    let mut with_device = pod.clone();
    let spec = with_device.spec.as_mut().expect("a spec");
    spec.containers[0].volume_devices =
        Some(vec![k8s_openapi::api::core::v1::VolumeDevice { name: "d".into(), device_path: "/dev/x".into() }]);
    configuration
        .container(&with_device, first(&with_device), &image, Vec::new(), Vec::new(), 0)
        .expect_err("there are no block volumes");
}

/// The variables of a container against a server that has what `answers` has.
async fn variables(container: Value) -> Result<BTreeMap<String, String>, ConfigError> {
    let answer = |request: http::Request<bytes::Bytes>| async move {
        let object = match request.uri().path() {
            "/api/v1/namespaces/ns/configmaps/c" => {
                json!({"metadata": {"name": "c"}, "data": {"k": "v", "a.b": "dots"}})
            }
            "/api/v1/namespaces/ns/secrets/s" => json!({"metadata": {"name": "s"}, "data": {"k": "dmFsdWU="}}),
            _ => {
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound",
                "code": 404, "message": "not found"})
            }
        };
        let status = if object["kind"] == "Status" { 404 } else { 200 };
        http::Response::builder().status(status).body(object.to_string()).expect("an answer")
    };
    let client = controller_runtime::transport::in_process(answer, "kubelet").expect("a client");
    let objects = Objects::new(client, mpsc::unbounded_channel().0);
    let pod = pod(json!({}), container);
    let machine = machine(&[("cpu", "4"), ("memory", "8Gi"), ("ephemeral-storage", "1Gi")]);
    let sources = environment::Sources {
        pod: &pod,
        container: first(&pod),
        pod_ips: &["10.1.0.5".parse().expect("an address"), "fd00::5".parse().expect("an address")],
        host_ips: &["10.0.0.1".parse().expect("an address")],
        objects: &objects,
        machine: &machine,
        root: "/agent".as_ref(),
    };
    sources.own(&BTreeMap::from([("KUBERNETES_SERVICE_HOST".to_owned(), "10.96.0.1".to_owned())])).await
}

#[tokio::test]
async fn values_see_what_is_declared_before_them() {
    let found = variables(json!({"env": [
        {"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$(C)-$(KUBERNETES_SERVICE_HOST)"}, {"name": "C", "value": "$$(A)"},
        {"name": "A", "value": "2"},
    ]}))
    .await
    .expect("variables");
    let expected = [("A", "2"), ("B", "1-$(C)-10.96.0.1"), ("C", "$(A)")];
    assert_eq!(found, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
}

#[tokio::test]
async fn fields_of_the_pod_become_variables() {
    for (path, value) in [
        ("metadata.name", "web-0"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u1"),
        ("metadata.labels['app']", "web"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['note']", "long\nline"),
        ("metadata.labels", "app=\"web\"\nb=\"x\\\"y\""),
        ("metadata.annotations", "note=\"long\\nline\""),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "robot"),
        ("status.podIP", "10.1.0.5"),
        ("status.podIPs", "10.1.0.5,fd00::5"),
        ("status.hostIP", "10.0.0.1"),
        ("status.hostIPs", "10.0.0.1"),
    ] {
        let found = variables(json!({"env": [{"name": "F", "valueFrom": {"fieldRef": {"fieldPath": path}}}]})).await;
        assert_eq!(found.expect("a variable")["F"], value, "{path}");
    }
    let unknown = json!({"env": [{"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "spec.other"}}}]});
    assert_eq!(variables(unknown).await.expect_err("unknown").to_string(), "unsupported fieldPath: spec.other");
}

#[tokio::test]
async fn resources_are_counted_in_their_divisor() {
    for (resource, divisor, value) in [
        ("requests.cpu", "0", "1"),
        ("requests.cpu", "1m", "250"),
        ("limits.memory", "1Mi", "64"),
        ("limits.memory", "0", "67108864"),
        ("requests.memory", "1", "0"),
        ("limits.cpu", "1", "4"),
        ("limits.ephemeral-storage", "1Gi", "1"),
    ] {
        let from = json!({"resourceFieldRef": {"resource": resource, "divisor": divisor}});
        let found = variables(json!({
            "resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "64Mi"}},
            "env": [{"name": "R", "valueFrom": from}],
        }));
        assert_eq!(found.await.expect("a variable")["R"], value, "{resource} in {divisor}");
    }
}

#[tokio::test]
async fn objects_become_variables_or_say_what_is_missing() {
    let found = variables(json!({
        "envFrom": [{"prefix": "p_", "configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}},
            {"configMapRef": {"name": "none", "optional": true}}],
        "env": [
            {"name": "M", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "O", "valueFrom": {"secretKeyRef": {"name": "s", "key": "none", "optional": true}}},
        ],
    }))
    .await
    .expect("variables");
    let expected = [("M", "v"), ("S", "value"), ("k", "value"), ("p_a.b", "dots"), ("p_k", "v")];
    assert_eq!(found, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    for (from, why) in [
        (json!({"configMapKeyRef": {"name": "none", "key": "k"}}), "configmap \"none\" not found"),
        (json!({"secretKeyRef": {"name": "none", "key": "k"}}), "secret \"none\" not found"),
        (json!({"configMapKeyRef": {"name": "c", "key": "x"}}), "couldn't find key x in ConfigMap ns/c"),
        (json!({"secretKeyRef": {"name": "s", "key": "x"}}), "couldn't find key x in Secret ns/s"),
        (
            json!({"fileKeyRef": {"volumeName": "none", "path": "f", "key": "k"}}),
            "cannot find the volume \"none\" referenced by FileKeyRef",
        ),
    ] {
        let refused = variables(json!({"env": [{"name": "X", "valueFrom": from}]})).await;
        assert_eq!(refused.expect_err("it is missing").to_string(), why);
    }
}
