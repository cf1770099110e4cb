//! What admission changes and refuses, as clients see it; and quotas, which hold however many ask at once.

use std::{fs, time::Duration};

use hyper::Method;
use serde_json::{Value, json};
use storage_etcd::testing as etcd;
use testing::{TestServer, client::Client, facts};

use super::{Place, configmap, deployment, kubectl::Kubectl, names, pod};

const CREATORS: usize = 64;
/// Far more than it takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Watches one object until something is true of it.
async fn until(client: &Client, collection: &str, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let path = format!("{collection}?watch=1&fieldSelector=metadata.name%3D{name}&sendInitialEvents=false");
    let wait = async {
        loop {
            let now = client.get(&format!("{collection}/{name}")).await.expect(200);
            if holds(&now) {
                return now;
            }
            let version = now["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            let from = path.replace("&sendInitialEvents=false", &format!("&resourceVersion={version}"));
            let mut watch = client.watch(&from).await.unwrap_or_else(|answer| panic!("{}", answer.text()));
            watch.next().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{name} never was as it should be"))
}

fn used<'a>(quota: &'a Value, name: &str) -> &'a str {
    quota["status"]["used"][name].as_str().unwrap_or_default()
}

/// Everybody creates some objects at once; says how many were let in. All others must be refused for the quota.
async fn rush(clients: &[Client], path: &str, each: usize, make: fn(&str) -> Value, round: &str) -> usize {
    let creators: Vec<_> = clients
        .iter()
        .cloned()
        .enumerate()
        .map(|(creator, client)| {
            let (path, round) = (path.to_owned(), round.to_owned());
            tokio::spawn(async move {
                let mut made = 0;
                for i in 0..each {
                    let answer = client.post(&path, &make(&format!("{round}-{creator}-{i}"))).await;
                    match answer.code {
                        201 => made += 1,
                        _ => assert!(answer.text().contains("exceeded quota: q"), "{}", answer.text()),
                    }
                }
                made
            })
        })
        .collect();
    let mut made = 0;
    for creator in creators {
        made += creator.await.expect("a creator");
    }
    made
}

/// Exactly as many as the quota has room for, again and again, from all of these servers.
async fn quota_holds(servers: &[&TestServer]) {
    let place = Place::new(servers[0], "limited").await;
    let clients: Vec<Client> = (0..CREATORS).map(|i| servers[i % servers.len()].client()).collect();
    let quota =
        json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "50", "pods": "7", "requests.cpu": "1"}}});
    place.create("resourcequotas", &quota).await;
    let quotas = place.core("resourcequotas");
    let counted = until(&place.client, &quotas, "q", |q| !used(q, "pods").is_empty()).await;
    assert_eq!(counted["status"]["hard"], quota["spec"]["hard"]);
    assert_eq!(counted["status"]["used"], json!({"configmaps": "0", "pods": "0", "requests.cpu": "0"}));
    for server in servers {
        until(&server.client(), &quotas, "q", |q| !used(q, "pods").is_empty()).await;
    }

    let maps = place.core("configmaps");
    assert_eq!(rush(&clients, &maps, 2, configmap, "a").await, 50);
    let list = place.client.get(&maps).await.expect(200);
    assert_eq!(names(&list).len(), 50);
    assert_eq!(used(&place.client.get(&format!("{quotas}/q")).await.expect(200), "configmaps"), "50");
    // What goes makes room for just as many.
    for name in names(&list).iter().take(10) {
        place.client.delete(&format!("{maps}/{name}")).await.expect(200);
    }
    until(&place.client, &quotas, "q", |q| used(q, "configmaps") == "40").await;
    assert_eq!(rush(&clients, &maps, 1, configmap, "b").await, 10);

    let sized = |name: &str| {
        let mut pod = pod(name);
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "200m"}});
        pod
    };
    let pods = place.core("pods");
    assert_eq!(rush(&clients, &pods, 1, sized, "p").await, 5);
    let quota = place.client.get(&format!("{quotas}/q")).await.expect(200);
    assert_eq!((used(&quota, "pods"), used(&quota, "requests.cpu")), ("5", "1"));
    let refused = place.client.post(&pods, &sized("late")).await.refused(403);
    assert_eq!(
        refused,
        "pods \"late\" is forbidden: exceeded quota: q, requested: requests.cpu=200m, used: requests.cpu=1, limited: \
         requests.cpu=1"
    );
    let silent = place.client.post(&pods, &pod("silent")).await.refused(403);
    assert_eq!(silent, "pods \"silent\" is forbidden: failed quota: q: must specify requests.cpu for: c");
    // A pod that has ended needs nothing more.
    let list = place.client.get(&pods).await.expect(200);
    let first = format!("{pods}/{}/status", names(&list)[0]);
    let ended = json!({"status": {"phase": "Succeeded"}});
    place.client.patch(&first, "application/merge-patch+json", &ended).await.expect(200);
    until(&place.client, &quotas, "q", |q| used(q, "pods") == "4" && used(q, "requests.cpu") == "800m").await;
    // More room is told at once.
    let more = json!({"spec": {"hard": {"requests.cpu": "2"}}});
    place.client.patch(&format!("{quotas}/q"), "application/merge-patch+json", &more).await.expect(200);
    until(&place.client, &quotas, "q", |q| q["status"]["hard"]["requests.cpu"] == "2").await;
    place.client.post(&pods, &sized("late")).await.expect(201);
    // What others say of it is put right.
    let wrong = json!({"status": {"hard": {"requests.cpu": "9"}}});
    let told =
        place.client.patch(&format!("{quotas}/q/status"), "application/merge-patch+json", &wrong).await.expect(200);
    assert_eq!(told["status"]["hard"]["requests.cpu"], "9");
    until(&place.client, &quotas, "q", |q| q["status"]["hard"]["requests.cpu"] == "2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_never_exceeded() {
    quota_holds(&[&TestServer::embedded().await]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_never_exceeded_on_two_servers() {
    if !etcd::etcd_is_installed() {
        return;
    }
    let etcd = etcd::Server::start(&[]).await.expect("etcd starts");
    let (one, other) = tokio::join!(TestServer::on_etcd(&etcd), TestServer::on_etcd(&etcd));
    quota_holds(&[&one, &other]).await;
}

/// An object that is not made in the end is not charged.
pub async fn refused_objects_cost_nothing(place: &Place) {
    let spec = json!({"hard": {"count/configmaps": "3", "services.nodeports": "1"}});
    place.create("resourcequotas", &json!({"metadata": {"name": "q"}, "spec": spec})).await;
    let quotas = place.core("resourcequotas");
    until(&place.client, &quotas, "q", |q| !used(q, "count/configmaps").is_empty()).await;
    place.create("configmaps", &configmap("a")).await;
    let maps = place.core("configmaps");
    for _ in 0..5 {
        place.client.post(&maps, &configmap("a")).await.refused(409);
        place.client.post(&format!("{maps}?dryRun=All"), &configmap("dry")).await.expect(201);
        place.client.post(&maps, &configmap("Not A Name")).await.refused(422);
    }
    let quota = place.client.get(&format!("{quotas}/q")).await.expect(200);
    assert_eq!(used(&quota, "count/configmaps"), "1");
    let service = |kind: &str| json!({"metadata": {"name": "s"}, "spec": {"type": kind, "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}});
    let refused = place.client.post(&place.core("services"), &service("NodePort")).await.refused(403);
    assert!(
        refused.contains("requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1")
    );
    place.create("services", &service("ClusterIP")).await;
    let change = json!({"spec": {"type": "NodePort"}});
    let path = place.core("services/s");
    place.client.patch(&path, "application/merge-patch+json", &change).await.refused(403);
}

pub async fn limits_and_priorities(place: &Place) {
    let limits = json!([{"type": "Container", "default": {"memory": "64Mi"}, "max": {"memory": "128Mi"}}]);
    place.create("limitranges", &json!({"metadata": {"name": "l"}, "spec": {"limits": limits}})).await;
    let made = place.create("pods", &pod("p")).await;
    assert_eq!(made["spec"]["containers"][0]["resources"]["limits"]["memory"], "64Mi");
    assert_eq!(made["spec"]["priority"], 0);
    let mut large = pod("large");
    large["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "1Gi"}});
    assert_eq!(
        place.client.post(&place.core("pods"), &large).await.refused(403),
        "pods \"large\" is forbidden: maximum memory usage per Container is 128Mi, but limit is 1Gi"
    );
    let mut urgent = pod("urgent");
    urgent["spec"]["priorityClassName"] = "system-node-critical".into();
    assert_eq!(place.create("pods", &urgent).await["spec"]["priority"], 2_000_001_000);
    urgent["spec"]["priorityClassName"] = "unheard-of".into();
    assert_eq!(
        place.client.post(&place.core("pods"), &urgent).await.refused(403),
        "pods \"urgent\" is forbidden: no PriorityClass with name unheard-of was found"
    );
}

/// The three modes of pod security, on pods, templates and namespaces.
pub async fn pod_security(place: &Place) {
    let namespace = format!("/api/v1/namespaces/{}", place.namespace);
    let label = async |labels: Value| {
        let patch = json!({"metadata": {"labels": labels}});
        let answer = place.client.patch(&namespace, "application/merge-patch+json", &patch).await;
        // Admission goes by the cache; whoever has read from it knows that it is that far.
        place.client.get(&namespace).await.expect(200);
        answer
    };
    let mut host = pod("host");
    host["spec"]["hostNetwork"] = true.into();
    place.create("pods", &host).await;
    let enforced = label(json!({"pod-security.kubernetes.io/enforce": "baseline"})).await;
    let warnings: Vec<String> =
        enforced.headers.get_all("warning").iter().map(|w| w.to_str().unwrap_or_default().to_owned()).collect();
    let name = &place.namespace;
    assert_eq!(
        warnings,
        [
            format!(
                "299 - \"existing pods in namespace \\\"{name}\\\" violate the new PodSecurity enforce level \\\"baseline:latest\\\"\""
            ),
            "299 - \"host: host namespaces\"".to_owned(),
        ]
    );
    enforced.expect(200);
    host["metadata"]["name"] = "other".into();
    assert_eq!(
        place.client.post(&place.core("pods"), &host).await.refused(403),
        "pods \"other\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)"
    );
    // A workload may be made, and its owner is warned.
    let mut workload = deployment("d");
    workload["spec"]["template"]["spec"]["hostNetwork"] = true.into();
    let answer = place.client.post(&place.apps("deployments"), &workload).await;
    assert_eq!(
        answer.header("warning"),
        "299 - \"would violate PodSecurity \\\"baseline:latest\\\": host namespaces (hostNetwork=true)\""
    );
    answer.expect(201);
    place.create("pods", &pod("plain")).await;
    let wrong = label(json!({"pod-security.kubernetes.io/warn": "some"})).await.refused(422);
    assert!(wrong.contains("must be one of privileged, baseline, restricted"), "{wrong}");
}

/// What is posted to a pod is admitted as that, and not as the change of the pod that comes of it.
pub async fn posts_to_pods(place: &Place) {
    let zone = "topology.kubernetes.io/zone";
    let node = format!("node-{}", place.namespace);
    let object = json!({"metadata": {"name": node, "labels": {zone: "z"}}});
    place.client.post("/api/v1/nodes", &object).await.expect(201);
    place.create("pods", &pod("p")).await;
    let mut binding =
        json!({"metadata": {"name": "p", "resourceVersion": "1"}, "target": {"kind": "Node", "name": node}});
    let why = place.client.post(&place.core("pods/p/binding"), &binding).await.refused(409);
    assert!(
        why.contains("Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object meta: "),
        "{why}"
    );
    binding["metadata"] = json!({"name": "p"});
    place.client.post(&place.core("pods/p/binding"), &binding).await.expect(201);
    let bound = place.client.get(&place.core("pods/p")).await.expect(200);
    assert_eq!(bound["metadata"]["labels"][zone], "z");
    place.client.post(&place.core("pods/p/eviction"), &json!({"metadata": {"name": "p"}})).await.expect(201);
}

pub async fn what_is_not_enforced_is_said(place: &Place) {
    let name = format!("{}.example.com", place.namespace);
    let configuration = json!({"metadata": {"name": name}, "webhooks": []});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let answer = place.client.post(path, &configuration).await;
    assert_eq!(
        answer.header("warning"),
        "299 - \"this version of ferry stores validatingwebhookconfigurations and does not enforce them\""
    );
    answer.expect(201);
}

/// Kubernetes' own pods, each of which a level must take in or must refuse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn levels_take_and_refuse_what_kubernetes_does() {
    let Some(folder) = facts("pod-security-v1.35") else { return };
    let server = TestServer::embedded().await;
    for level in ["baseline", "restricted"] {
        let place = Place::new(&server, level).await;
        let labels =
            json!({"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/enforce-version": "v1.35"});
        let patch = json!({"metadata": {"labels": labels}});
        let namespace = format!("/api/v1/namespaces/{level}");
        place.client.patch(&namespace, "application/merge-patch+json", &patch).await.expect(200);
        let mut seen = 0;
        for verdict in ["pass", "fail"] {
            for file in fs::read_dir(folder.join(level).join(verdict)).expect("pods to try") {
                let path = file.expect("a file").path();
                // Some are named as no object may be.
                let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
                let pod = fs::read_to_string(&path).expect("a pod").replace(name, &name.replace('_', "-"));
                let pods = place.core("pods?dryRun=All");
                let answer = place.client.send(Method::POST, &pods, &[("content-type", "application/yaml")], pod).await;
                // One thing that the levels forbid is not even valid any more.
                let refused = answer.code == 403 && answer.text().contains("violates PodSecurity")
                    || answer.code == 422 && answer.text().contains("`hostUsers` must be false");
                match verdict {
                    "pass" => assert_eq!(answer.code, 201, "{}: {}", path.display(), answer.text()),
                    _ => assert!(refused, "{}: {}", path.display(), answer.text()),
                }
                seen += 1;
            }
        }
        assert!(seen > 40, "{seen} pods of level {level}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_shows_warnings_and_refusals() {
    let Some(kubectl) = Kubectl::new().await else { return };
    kubectl.run("create namespace guarded");
    kubectl.run("-n guarded create serviceaccount default");
    kubectl.run("label namespace guarded pod-security.kubernetes.io/enforce=baseline pod-security.kubernetes.io/warn=restricted");
    let output = kubectl.command("-n guarded create deployment web --image=registry.example/app:1");
    let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{warnings}");
    assert!(
        warnings.starts_with(
            "Warning: would violate PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \"app\" must \
             set securityContext.allowPrivilegeEscalation=false)"
        ),
        "{warnings}"
    );
    let refused = kubectl.fails("-n guarded run p --image=registry.example/app:1 --privileged");
    assert_eq!(
        refused,
        "Error from server (Forbidden): pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": privileged (container \
         \"p\" must not set securityContext.privileged=true)"
    );
}
