//! kubectl, looking: every form of get, explain with descriptions, describe of many kinds, what there is.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::json;

use super::{configmap, deployment, kubectl::Kubectl};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gets() {
    let Some(kubectl) = Kubectl::new().await else { return };
    let k = |arguments: &str| kubectl.run(arguments);
    for (name, tier, size) in [("a", "web", "2"), ("b", "db", "1")] {
        let mut object = configmap(name);
        object["metadata"]["labels"] = json!({"tier": tier});
        object["data"]["size"] = size.into();
        kubectl.write("c.json", &object);
        k("create -f c.json");
    }
    let lines = |text: String| -> Vec<Vec<String>> {
        text.lines().map(|line| line.split_whitespace().map(String::from).collect()).collect()
    };
    let shown = lines(k("get configmaps"));
    assert_eq!(
        (&shown[0][..], &shown[1][..2]),
        (&["NAME", "DATA", "AGE"].map(String::from)[..], &["a", "2"].map(String::from)[..])
    );
    let sorted = k("get configmaps --sort-by={.data.size} -o name");
    assert_eq!(sorted, "configmap/b\nconfigmap/a");
    let columns = lines(k("get configmaps -L tier --no-headers"));
    assert_eq!((&*columns[0][3], &*columns[1][3]), ("web", "db"));
    assert!(k("get configmap a --show-labels").contains("tier=web"));
    assert!(k("get configmap a --show-kind --no-headers").starts_with("configmap/a"));
    assert_eq!(k("get configmaps -o go-template={{range.items}}{{.metadata.name}},{{end}}"), "a,b,");
    assert_eq!(k("get configmaps -o jsonpath={.items[?(@.data.size==\"1\")].metadata.name}"), "b");
    assert_eq!(k("get configmaps -o custom-columns=N:.metadata.name --no-headers"), "a\nb");
    assert!(k("get configmap a -o yaml").contains("kind: ConfigMap"));
    assert!(k("get configmap a -o json").contains("\"kind\": \"ConfigMap\""));
    assert!(k("get configmaps,services -A -o wide").contains("service/kubernetes"));
    assert_eq!(k("get configmaps --chunk-size=1 -o name"), "configmap/a\nconfigmap/b");
    assert!(k("get all").contains("service/kubernetes"));
    assert!(k("get --raw /api/v1/namespaces/default/configmaps/a").contains("\"tier\":\"web\""));
    assert!(k("get cs --no-headers").contains("Healthy"));
    assert!(k("get events").is_empty());

    // A watch tells what is there and what comes.
    let mut watch = kubectl.prepare("get configmaps -w -o name").stdout(Stdio::piped()).spawn().expect("kubectl runs");
    let mut told = BufReader::new(watch.stdout.take().expect("its output")).lines();
    let mut next = || told.next().expect("a line").expect("text");
    assert_eq!((next(), next()), ("configmap/a".into(), "configmap/b".into()));
    let client = kubectl.server.client();
    client.post("/api/v1/namespaces/default/configmaps", &configmap("c")).await.expect(201);
    assert_eq!(next(), "configmap/c");
    watch.kill().expect("kubectl ends");
    watch.wait().expect("kubectl ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explains() {
    let Some(kubectl) = Kubectl::new().await else { return };
    let k = |arguments: &str| kubectl.run(arguments);
    let text = k("explain deployment.spec.replicas");
    assert!(text.contains("GROUP:      apps") && text.contains("FIELD: replicas <integer>"), "{text}");
    assert!(text.contains("Number of desired pods."), "{text}");
    let text = k("explain pod.spec.containers");
    for part in
        ["FIELD: containers <[]Container>", "List of containers belonging to the pod.", "imagePullPolicy\t<string>"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let whole = k("explain pods --recursive");
    assert!(whole.contains("topologySpreadConstraints\t<[]TopologySpreadConstraint>"), "{whole}");
    let old = k("explain pod.spec.nodeName --output plaintext-openapiv2");
    assert!(old.contains("FIELD:    nodeName <string>") && old.contains("DESCRIPTION:"), "{old}");
    assert!(k("explain ingress --api-version=networking.k8s.io/v1").contains("VERSION:    v1"));
    assert!(k("explain hpa --api-version=autoscaling/v1").contains("HorizontalPodAutoscaler"));
    assert!(kubectl.fails("explain pod.spec.wheels").contains("field \"wheels\" does not exist"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn describes() {
    let Some(kubectl) = Kubectl::new().await else { return };
    let k = |arguments: &str| kubectl.run(arguments);
    let client = kubectl.server.client();
    let post = async |path: &str, object: serde_json::Value| {
        client.post(path, &object).await.expect(201);
    };
    let (core, apps) = ("/api/v1/namespaces/default", "/apis/apps/v1/namespaces/default");
    post(&format!("{core}/serviceaccounts"), json!({"metadata": {"name": "default"}})).await;
    post(&format!("{apps}/deployments"), deployment("d")).await;
    for (plural, kind) in [("statefulsets", "StatefulSet"), ("daemonsets", "DaemonSet"), ("replicasets", "ReplicaSet")]
    {
        let mut object = deployment("w");
        object["kind"] = kind.into();
        if kind == "DaemonSet" {
            object["spec"].as_object_mut().expect("a spec").remove("replicas");
        }
        post(&format!("{apps}/{plural}"), object).await;
    }
    let mut pod = super::pod("p");
    pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    let pod = client.post(&format!("{core}/pods"), &pod).await.expect(201);
    let limits = json!({"limits": [{"type": "Container", "default": {"cpu": "1"}}]});
    post(&format!("{core}/limitranges"), json!({"metadata": {"name": "l"}, "spec": limits})).await;
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    post(&format!("{core}/persistentvolumeclaims"), json!({"metadata": {"name": "c"}, "spec": claim})).await;
    post("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    let volume = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
    post("/api/v1/persistentvolumes", json!({"metadata": {"name": "v"}, "spec": volume})).await;
    let policy = json!({"podSelector": {}, "policyTypes": ["Ingress"]});
    post(
        "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
        json!({"metadata": {"name": "np"}, "spec": policy}),
    )
    .await;
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "example.org/disk"});
    post("/apis/storage.k8s.io/v1/storageclasses", class).await;
    let event = json!({"metadata": {"name": "e"}, "reason": "Tested", "message": "a word", "type": "Normal", "count": 1,
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default", "uid": pod["metadata"]["uid"]}, "lastTimestamp": "2026-01-01T00:00:00Z"});
    post(&format!("{core}/events"), event).await;
    for command in [
        "create secret generic s --from-literal=k=v",
        "create configmap m --from-literal=k=v",
        "create role r --verb=get --resource=pods",
        "create rolebinding b --role=r --user=jane",
        "create clusterrole cr --verb=list --resource=nodes",
        "create quota q --hard=pods=5",
        "create poddisruptionbudget pdb --selector=app=d --min-available=1",
        "create job j --image=registry.example/app:1",
        "create cronjob t --image=registry.example/app:1 --schedule=@daily",
        "create ingress i --rule=example.org/=web:80",
        "create service clusterip web --tcp=80:8080",
        "create priorityclass high --value=1000",
        "autoscale deployment d --min=1 --max=3 --cpu-percent=80",
    ] {
        k(command);
    }
    for (what, shows) in [
        ("pod p", "a word"),
        ("deployment d", "StrategyType:"),
        ("statefulset w", "Update Strategy:"),
        ("daemonset w", "Desired Number of Nodes Scheduled:"),
        ("replicaset w", "Replicas:"),
        ("service kubernetes", "443/TCP"),
        ("secret s", "1 bytes"),
        ("configmap m", "Data"),
        ("role r", "pods"),
        ("rolebinding b", "jane"),
        ("clusterrole cr", "nodes"),
        ("quota q", "Used"),
        ("limitrange l", "Container"),
        ("pdb pdb", "Min available:"),
        ("job j", "Completions:"),
        ("cronjob t", "@daily"),
        ("ingress i", "example.org"),
        ("hpa d", "Deployment/d"),
        ("networkpolicy np", "Policy Types: Ingress"),
        ("node n", "Unschedulable:"),
        ("pv v", "/x"),
        ("pvc c", "Capacity:"),
        ("storageclass fast", "example.org/disk"),
        ("namespace default", "Active"),
        ("serviceaccount default", "Tokens:"),
        ("priorityclass high", "1000"),
    ] {
        let described = k(&format!("describe {what}"));
        assert!(described.contains(shows), "{what}: {described}");
    }
    assert!(k("get events").contains("Tested"));
    assert!(k("events --for pod/p").contains("Tested"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_what_there_is() {
    let Some(kubectl) = Kubectl::new().await else { return };
    let k = |arguments: &str| kubectl.run(arguments);
    let names = k("api-resources -o name");
    for name in ["bindings", "componentstatuses", "deployments.apps", "tokenreviews.authentication.k8s.io"] {
        assert!(names.lines().any(|line| line == name), "{name}: {names}");
    }
    assert!(k("api-resources --namespaced=false --verbs=list --no-headers").contains("persistentvolumes"));
    assert!(
        k("api-resources --api-group=apps -o wide")
            .contains("create,delete,deletecollection,get,list,patch,update,watch")
    );
    assert!(k("api-resources --categories=all -o name").contains("pods"));
    assert!(k("api-versions").lines().any(|line| line == "autoscaling/v2"));
    assert!(k("cluster-info").contains("control plane"));
    assert!(k("version -o json").contains("\"minor\": \"36\""));
    assert_eq!(k("get --raw /readyz"), "ok");
    assert_eq!(k("auth whoami -o jsonpath={.status.userInfo.groups[0]}"), "system:masters");
}
