//! The Service `kubernetes` leads to every API server that runs.

use serde_json::{Value, json};
use testing::{TestServer, client::Client};

const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";

async fn advertising(address: &'static str, beside: Option<&TestServer>) -> TestServer {
    let change = move |settings: &mut api_server::Settings, _: &std::path::Path| {
        settings.advertise = Some(address.parse().expect("an address"));
    };
    match beside {
        None => TestServer::with(change).await,
        Some(other) => TestServer::start_with(other.store.clone(), change).await,
    }
}

async fn addresses(client: &Client) -> (Value, Value) {
    let (endpoints, slice) = (client.get(ENDPOINTS).await.expect(200), client.get(SLICE).await.expect(200));
    (endpoints["subsets"][0]["addresses"].clone(), slice["endpoints"].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_leads_to_all_servers_that_live() {
    let first = advertising("10.9.0.2:6443", None).await;
    let client = first.client();
    let (ready, one) = (json!({"ready": true}), json!({"ip": "10.9.0.2"}));
    let in_slice = |address: &str| json!({"addresses": [address], "conditions": ready});
    assert_eq!(addresses(&client).await, (json!([one]), json!([in_slice("10.9.0.2")])));
    let endpoints = client.get(ENDPOINTS).await.expect(200);
    assert_eq!(endpoints["subsets"][0]["ports"], json!([{"name": "https", "port": 6443, "protocol": "TCP"}]));
    assert_eq!(endpoints["metadata"]["labels"]["endpointslice.kubernetes.io/skip-mirror"], "true");
    let slice = client.get(SLICE).await.expect(200);
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "kubernetes");
    let service = client.get("/api/v1/namespaces/default/services/kubernetes").await.expect(200);
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 6443);

    let second = advertising("10.9.0.1:6443", Some(&first)).await;
    let both = (json!([{"ip": "10.9.0.1"}, one]), json!([in_slice("10.9.0.1"), in_slice("10.9.0.2")]));
    assert_eq!(addresses(&second.client()).await, both);
    // The one that stops takes its address away.
    second.stop();
    while addresses(&client).await.0 != json!([one]) {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(addresses(&client).await.1, json!([in_slice("10.9.0.2")]));
}

#[tokio::test]
async fn an_address_that_nobody_else_can_reach_is_not_told() {
    let server = advertising("127.0.0.1:6443", None).await;
    server.client().get(ENDPOINTS).await.refused(404);
}
