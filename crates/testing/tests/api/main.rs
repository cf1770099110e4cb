//! The API server as its users meet it: over HTTPS, on the embedded store and on a real etcd.

mod admission;
mod audit;
mod authentication;
mod authorization;
mod authorization_nodes;
mod authorization_webhook;
mod client_go;
mod deletes;
mod discovery;
mod evictions;
mod fairness;
mod forms;
mod hostile;
mod kube_rs;
mod kubectl;
mod kubectl_declares;
mod kubectl_runs;
mod kubectl_shows;
mod lists;
mod load;
mod observation;
mod own_endpoints;
mod sharing;
mod stream_protocols;
mod streams;
mod turns;
mod watches;
mod writes;

use std::pin::Pin;

use serde_json::{Value, json};
use testing::{TestServer, client::Client};

/// A namespace of its own for one test, on one server.
pub struct Place {
    pub client: Client,
    pub namespace: String,
}

impl Place {
    async fn new(server: &TestServer, name: &str) -> Self {
        let client = server.client();
        let namespace = json!({"metadata": {"name": name}});
        client.post("/api/v1/namespaces", &namespace).await.expect(201);
        let place = Self { client, namespace: name.to_owned() };
        place.create("serviceaccounts", &json!({"metadata": {"name": "default"}})).await;
        place
    }

    /// The path of a resource in the core group, such as `configmaps` or `pods/p/status?dryRun=All`.
    pub fn core(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    pub fn apps(&self, rest: &str) -> String {
        format!("/apis/apps/v1/namespaces/{}/{rest}", self.namespace)
    }

    pub async fn create(&self, resource: &str, object: &Value) -> Value {
        self.client.post(&self.core(resource), object).await.expect(201)
    }
}

pub fn configmap(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "1"}})
}

pub fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "registry.example/app:1"}]},
    })
}

pub fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "registry.example/app:1"}]},
            },
        },
    })
}

pub fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).expect("a resourceVersion")
}

pub fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().into_iter().flatten().filter_map(|o| o["metadata"]["name"].as_str()).collect()
}

type Test = for<'a> fn(&'a Place) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

macro_rules! tests {
    ($($module:ident: $($test:ident),+;)+) => {
        /// What holds on every store.
        const TESTS: &[(&str, Test)] = &[
            $($((stringify!($test), |place| Box::pin($module::$test(place))),)+)+
        ];
    };
}

tests! {
    admission: refused_objects_cost_nothing, limits_and_priorities, pod_security, posts_to_pods,
        what_is_not_enforced_is_said;
    writes: create_and_read_back, generated_names, versions_guard_updates, new_objects_have_no_version_yet, put_creates_where_kubernetes_does,
        four_patches, apply_owns_fields, dry_run_changes_nothing, unknown_fields, owners_are_named_once,
        status_is_separate, no_change_no_revision;
    deletes: deleting, finalizers_hold, pods_go_gracefully, endless_grace_is_readable, propagation, preconditions, collections;
    evictions: budgets_are_spent, pods_that_do_not_count_go_as_they_are;
    lists: pages, versions, selectors, events_by_fields;
    discovery: like_kubernetes, components, bindings;
    forms: tables, metadata_only, yaml_bodies, protobuf_bodies, protobuf_answers, long_lists_in_protobuf,
        protobuf_watches, negotiation, scale, applied_scale;
    watches: from_a_revision, initial_events, selections, one_object, ends;
}

async fn run(server: &TestServer) {
    for (name, test) in TESTS {
        let place = Place::new(server, &name.replace('_', "-")).await;
        eprintln!("{name}");
        test(&place).await;
    }
}

#[tokio::test]
async fn on_the_embedded_store() {
    run(&TestServer::embedded().await).await;
}

#[tokio::test]
async fn on_etcd() {
    if !storage_etcd::testing::etcd_is_installed() {
        return;
    }
    let etcd = storage_etcd::testing::Server::start(&[]).await.expect("etcd starts");
    run(&TestServer::on_etcd(&etcd).await).await;
}
