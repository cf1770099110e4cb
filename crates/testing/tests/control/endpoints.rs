//! Endpoints and EndpointSlices tell where the pods of a Service are.

use k8s_openapi::api::{
    core::v1::{Endpoints, Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{client, eventually, replica_sets::server};

struct Cluster {
    pods: Api<Pod>,
    services: Api<Service>,
    slices: Api<EndpointSlice>,
    endpoints: Api<Endpoints>,
}

async fn cluster(client: &Client) -> Cluster {
    node(client).await;
    without_node(client)
}

async fn node(client: &Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z"}}});
    nodes.create(&PostParams::default(), &serde_json::from_value(node).expect("a node")).await.expect("created");
}

fn without_node(client: &Client) -> Cluster {
    Cluster {
        pods: Api::default_namespaced(client.clone()),
        services: Api::default_namespaced(client.clone()),
        slices: Api::default_namespaced(client.clone()),
        endpoints: Api::default_namespaced(client.clone()),
    }
}

impl Cluster {
    async fn service(&self, name: &str, spec: Value) -> Service {
        let service = json!({"metadata": {"name": name, "labels": {"of": name}}, "spec": spec});
        let service = serde_json::from_value(service).expect("a service");
        self.services.create(&PostParams::default(), &service).await.expect("created")
    }

    /// A pod on the node, with an address, ready or not.
    async fn pod(&self, name: &str, web: i32, ip: &str, ready: bool) {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "web"}, "finalizers": ["example.com/wait"]},
            "spec": {
                "nodeName": "n",
                "hostname": name,
                "subdomain": "headless",
                "containers": [{"name": "a", "image": "a:1", "ports": [{"name": "web", "containerPort": web}]}],
            },
        });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        self.pods.create(&PostParams::default(), &pod).await.expect("created");
        self.status(name, ip, ready).await;
    }

    async fn status(&self, name: &str, ip: &str, ready: bool) {
        let ready = json!({"type": "Ready", "status": if ready { "True" } else { "False" }});
        let status = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [ready]});
        let status = Patch::Merge(json!({"status": status}));
        self.pods.patch_status(name, &PatchParams::default(), &status).await.expect("patched");
    }

    async fn slices_of(&self, service: &str) -> Vec<EndpointSlice> {
        let of = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
        self.slices.list(&of).await.expect("a list").items
    }

    /// Port, address, ready and terminating of every endpoint in slices.
    async fn told(&self, service: &str) -> Vec<(i32, String, bool, bool)> {
        let mut told = Vec::new();
        for slice in self.slices_of(service).await {
            let port = slice.ports.iter().flatten().next().and_then(|port| port.port).unwrap_or(0);
            for endpoint in slice.endpoints.into_iter().flatten() {
                let state = endpoint.conditions.unwrap_or_default();
                let (ready, ending) = (state.ready == Some(true), state.terminating == Some(true));
                told.push((port, endpoint.addresses.join(","), ready, ending));
            }
        }
        told.sort();
        told
    }

    async fn tells(&self, service: &str, expected: &[(i32, &str, bool, bool)]) {
        let expected: Vec<_> = expected.iter().map(|(a, b, c, d)| (*a, (*b).to_owned(), *c, *d)).collect();
        eventually(&format!("{service}: {expected:?}"), || async {
            (self.told(service).await == expected).then_some(())
        })
        .await;
    }

    /// Port, addresses that are ready, and those that are not.
    async fn subsets(&self, service: &str, expected: &[(i32, &[&str], &[&str])]) -> Endpoints {
        let of = |list: &[&str]| list.iter().map(|ip| (*ip).to_owned()).collect::<Vec<_>>();
        let expected: Vec<_> = expected.iter().map(|(port, ready, not)| (*port, of(ready), of(not))).collect();
        eventually(&format!("subsets of {service}: {expected:?}"), || async {
            let endpoints = self.endpoints.get_opt(service).await.expect("an answer")?;
            let ips = |all: &Option<Vec<k8s_openapi::api::core::v1::EndpointAddress>>| {
                all.iter().flatten().map(|address| address.ip.clone()).collect::<Vec<_>>()
            };
            let port = |all: &Option<Vec<k8s_openapi::api::core::v1::EndpointPort>>| {
                all.iter().flatten().next().map_or(0, |port| port.port)
            };
            let subsets = endpoints.subsets.iter().flatten();
            let mut found: Vec<_> =
                subsets.map(|s| (port(&s.ports), ips(&s.addresses), ips(&s.not_ready_addresses))).collect();
            found.sort();
            (found == expected).then_some(endpoints)
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_come_and_go() {
    let (_server, client) = server().await;
    let cluster = cluster(&client).await;
    let port = json!([{"name": "http", "port": 80, "targetPort": "web"}]);
    let service = cluster.service("web", json!({"selector": {"app": "web"}, "ports": port})).await;
    let empty = eventually("a slice", || async { cluster.slices_of("web").await.pop() }).await;
    let owner = empty.metadata.owner_references.clone().expect("an owner")[0].clone();
    assert_eq!((Some(owner.uid), owner.controller), (service.metadata.uid, Some(true)));
    assert!(empty.metadata.name.as_deref().is_some_and(|name| name.starts_with("web-")));
    let caused = &empty.metadata.annotations.expect("annotations")["endpoints.kubernetes.io/last-change-trigger-time"];
    assert_eq!(Some(caused.parse().expect("a time")), service.metadata.creation_timestamp.map(|time| time.0));
    let labels = empty.metadata.labels.expect("labels");
    assert_eq!(labels["endpointslice.kubernetes.io/managed-by"], "endpointslice-controller.k8s.io");
    assert_eq!((labels["of"].as_str(), empty.address_type.as_str()), ("web", "IPv4"));

    cluster.pod("a", 8080, "10.1.0.1", true).await;
    cluster.pod("b", 8080, "10.1.0.2", false).await;
    // Pods of one Service may have the port elsewhere.
    cluster.pod("c", 9090, "10.1.0.3", true).await;
    let (a, b, c) =
        ((8080, "10.1.0.1", true, false), (8080, "10.1.0.2", false, false), (9090, "10.1.0.3", true, false));
    cluster.tells("web", &[a, b, c]).await;
    let endpoints = cluster.subsets("web", &[(8080, &["10.1.0.1"], &["10.1.0.2"]), (9090, &["10.1.0.3"], &[])]).await;
    let labels = endpoints.metadata.labels.expect("labels");
    assert_eq!(labels["endpoints.kubernetes.io/managed-by"], "endpoint-controller");
    let slices = cluster.slices_of("web").await;
    assert_eq!(slices.len(), 2);
    let all: Vec<_> = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten()).collect();
    assert!(all.iter().all(|e| (e.zone.as_deref(), e.node_name.as_deref()) == (Some("z"), Some("n"))), "{all:?}");
    assert!(all.iter().all(|e| e.target_ref.as_ref().is_some_and(|t| t.kind.as_deref() == Some("Pod"))));

    cluster.status("b", "10.1.0.2", true).await;
    let b = (8080, "10.1.0.2", true, false);
    cluster.tells("web", &[a, b, c]).await;
    // One that ends still serves, but is not ready any more, and not in Endpoints at all.
    cluster.pods.delete("a", &DeleteParams::default()).await.expect("deleted");
    cluster.tells("web", &[(8080, "10.1.0.1", false, true), b, c]).await;
    cluster.subsets("web", &[(8080, &["10.1.0.2"], &[]), (9090, &["10.1.0.3"], &[])]).await;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    cluster.pods.patch("a", &PatchParams::default(), &free).await.expect("patched");
    cluster.pods.delete("a", &DeleteParams::default().grace_period(0)).await.ok();
    cluster.tells("web", &[b, c]).await;

    // What somebody takes away comes back.
    for slice in cluster.slices_of("web").await {
        let name = slice.metadata.name.expect("a name");
        cluster.slices.delete(&name, &DeleteParams::default()).await.expect("deleted");
    }
    cluster.endpoints.delete("web", &DeleteParams::default()).await.expect("deleted");
    cluster.tells("web", &[b, c]).await;
    cluster.subsets("web", &[(8080, &["10.1.0.2"], &[]), (9090, &["10.1.0.3"], &[])]).await;
    cluster.services.delete("web", &DeleteParams::default()).await.expect("deleted");
    eventually("all is gone", || async {
        let gone = cluster.endpoints.get_opt("web").await.expect("an answer").is_none();
        (gone && cluster.slices_of("web").await.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_headless_service_names_its_pods_ready_or_not() {
    let (_server, client) = server().await;
    let cluster = cluster(&client).await;
    let spec = json!({"clusterIP": "None", "selector": {"app": "web"}, "publishNotReadyAddresses": true});
    cluster.service("headless", spec).await;
    cluster.pod("a", 8080, "10.1.0.1", false).await;
    cluster.tells("headless", &[(0, "10.1.0.1", true, false)]).await;
    let slice = cluster.slices_of("headless").await.remove(0);
    assert_eq!(slice.endpoints.expect("endpoints")[0].hostname.as_deref(), Some("a"));
    assert_eq!(slice.metadata.labels.expect("labels")["service.kubernetes.io/headless"], "");
    let endpoints = cluster.subsets("headless", &[(0, &["10.1.0.1"], &[])]).await;
    assert_eq!(endpoints.metadata.labels.expect("labels")["service.kubernetes.io/headless"], "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_count_when_their_node_is_known() {
    let (_server, client) = server().await;
    let cluster = without_node(&client);
    cluster.service("web", json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]})).await;
    cluster.pod("a", 8080, "10.1.0.1", true).await;
    cluster.subsets("web", &[(8080, &["10.1.0.1"], &[])]).await;
    assert!(cluster.told("web").await.is_empty());
    node(&client).await;
    cluster.tells("web", &[(8080, "10.1.0.1", true, false)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_of_others_are_mirrored() {
    let (server, _) = server().await;
    let client = client(&server).await;
    let cluster = cluster(&client).await;
    cluster.service("custom", json!({"ports": [{"name": "example", "port": 80}]})).await;
    let endpoints = json!({
        "metadata": {"name": "custom", "annotations": {"a": "b"}},
        "subsets": [{"addresses": [{"ip": "10.1.2.3"}], "notReadyAddresses": [{"ip": "10.1.2.4"}], "ports": [{"port": 80}]}],
    });
    let endpoints: Endpoints = serde_json::from_value(endpoints).expect("endpoints");
    cluster.endpoints.create(&PostParams::default(), &endpoints).await.expect("created");
    cluster.tells("custom", &[(80, "10.1.2.3", true, false), (80, "10.1.2.4", false, false)]).await;
    let slice = cluster.slices_of("custom").await.remove(0);
    let managed = slice.metadata.labels.expect("labels")["endpointslice.kubernetes.io/managed-by"].clone();
    assert_eq!(managed, "endpointslicemirroring-controller.k8s.io");
    assert_eq!(slice.metadata.annotations.expect("annotations")["a"], "b");

    let other = json!([{"addresses": [{"ip": "fd00::1"}, {"ip": "10.2.3.4"}], "ports": [{"port": 81}]}]);
    let other = Patch::Merge(json!({"subsets": other}));
    cluster.endpoints.patch("custom", &PatchParams::default(), &other).await.expect("patched");
    cluster.tells("custom", &[(81, "10.2.3.4", true, false), (81, "fd00::1", true, false)]).await;
    cluster.endpoints.delete("custom", &DeleteParams::default()).await.expect("deleted");
    cluster.tells("custom", &[]).await;
    eventually("no slice", || async { cluster.slices_of("custom").await.is_empty().then_some(()) }).await;
}
