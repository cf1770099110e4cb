//! What those who run the server look at: health checks and metrics.

use testing::TestServer;

const OPEN: &str = "apiserver_longrunning_requests{verb=\"WATCH\",group=\"\",version=\"v1\",resource=\"configmaps\"";

#[tokio::test]
async fn metrics_name_what_is_served_and_nothing_else() {
    let server = TestServer::embedded().await;
    let (client, nobody) = (server.client(), server.client_of_nobody());
    client.get("/api/v1/namespaces/default/configmaps").await.expect(200);
    for made_up in ["/api/v1/whims", "/apis/whims.example/v1/pods", "/api/v1/namespaces/a/pods/b/whims", "/whims"] {
        nobody.get(made_up).await.refused(403);
        client.get(made_up).await;
    }
    let metrics = client.get("/metrics").await.text();
    assert!(!metrics.contains("whims"), "{metrics}");
    let lists = "apiserver_request_total{verb=\"LIST\",group=\"\",version=\"v1\",resource=\"configmaps\",subresource=\"\",\
                 scope=\"namespace\",component=\"apiserver\",code=\"200\"} 1\n";
    assert!(metrics.contains(lists), "{metrics}");
    for name in [
        "apiserver_request_duration_seconds_bucket{",
        "apiserver_request_sli_duration_seconds_bucket{",
        "apiserver_current_inflight_requests{request_kind=\"mutating\"} ",
        "apiserver_storage_objects{resource=\"namespaces\"} 4",
        "kubernetes_build_info{git_version=\"v1.36.",
        "process_start_time_seconds ",
        "process_resident_memory_bytes ",
    ] {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
}

#[tokio::test]
async fn open_watches_are_counted() {
    let server = TestServer::embedded().await;
    let client = server.client();
    let watch = client.watch("/api/v1/configmaps?watch=1").await.expect("a watch");
    let metrics = client.get("/metrics").await.text();
    assert!(metrics.contains(OPEN), "{metrics}");
    drop(watch);
    // The server learns of it when it looks at the connection.
    while client.get("/metrics").await.text().contains(OPEN) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_server_without_its_store_is_not_healthy() {
    if !storage_etcd::testing::etcd_is_installed() {
        return;
    }
    let mut etcd = storage_etcd::testing::Server::start(&[]).await.expect("etcd starts");
    let server = TestServer::on_etcd(&etcd).await;
    let client = server.client();
    for path in ["/livez", "/readyz", "/healthz", "/readyz/etcd"] {
        assert_eq!((client.get(path).await.code, client.get(path).await.text().as_str()), (200, "ok"), "{path}");
    }
    assert_eq!(client.get("/readyz/whims").await.code, 404);
    etcd.kill();
    let answer = client.get("/readyz").await;
    assert_eq!(answer.code, 500);
    assert!(answer.text().starts_with("[+]ping ok\n[-]etcd failed: reason withheld\n"), "{}", answer.text());
    assert_eq!(client.get("/readyz?exclude=etcd").await.code, 200);
}
