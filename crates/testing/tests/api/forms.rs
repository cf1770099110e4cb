//! Forms of requests and answers: tables, metadata only, YAML, protobuf, scale.

use hyper::Method;
use object_model::codec::protobuf;
use serde_json::json;
use testing::client::{JSON, MERGE_PATCH, PROTOBUF, YAML};

use super::{Place, configmap, deployment, pod};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

pub async fn tables(place: &Place) {
    let client = &place.client;
    place.create("pods", &pod("p")).await;
    let table = client.get_as(&place.core("pods"), TABLE).await.expect(200);
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().into_iter().flatten().filter_map(|c| c["name"].as_str()).collect();
    assert_eq!(columns[..5], ["Name", "Ready", "Status", "Restarts", "Age"]);
    let row = &table["rows"][0];
    assert_eq!((&row["cells"][0], &row["cells"][1], &row["cells"][2]), (&json!("p"), &json!("0/1"), &json!("Pending")));
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    let whole = client.get_as(&place.core("pods/p?includeObject=Object"), TABLE).await.expect(200);
    assert_eq!(whole["rows"][0]["object"]["spec"]["containers"][0]["name"], "c");
    let none = client.get_as(&place.core("pods/p?includeObject=None"), TABLE).await.expect(200);
    assert!(none["rows"][0]["object"].is_null());
}

pub async fn metadata_only(place: &Place) {
    let client = &place.client;
    let mut object = pod("p");
    object["metadata"]["annotations"] = json!({"tricky": "}}{{\"\\\""});
    let whole = place.create("pods", &object).await;
    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let one = client.get_as(&place.core("pods/p"), accept).await.expect(200);
    let wanted =
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": whole["metadata"]});
    assert_eq!(one, wanted);
    let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let list = client.get_as(&place.core("pods"), accept).await.expect(200);
    assert_eq!(
        (&list["kind"], &list["items"][0]["metadata"]),
        (&json!("PartialObjectMetadataList"), &whole["metadata"])
    );
    assert!(list["items"][0]["spec"].is_null());
}

pub async fn yaml_bodies(place: &Place) {
    let client = &place.client;
    let text =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: plain\ndata:\n  word: \"yes\"\n  lines: |\n    a\n    b\n";
    let headers = [("content-type", YAML), ("accept", YAML)];
    let made = client.send(Method::POST, &place.core("configmaps"), &headers, text).await;
    assert_eq!((made.code, made.header("content-type")), (201, YAML), "{}", made.text());
    assert!(made.text().contains("kind: ConfigMap"), "{}", made.text());
    let stored = client.get(&place.core("configmaps/plain")).await.expect(200);
    assert_eq!(stored["data"], json!({"word": "yes", "lines": "a\nb\n"}));
    let list = client.get_as(&place.core("configmaps"), YAML).await;
    assert!(list.text().contains("kind: ConfigMapList"), "{}", list.text());
    let broken = client.send(Method::POST, &place.core("configmaps"), &headers[..1], "a: [b").await;
    broken.refused(400);
}

pub async fn protobuf_bodies(place: &Place) {
    let client = &place.client;
    let schema = |group: &str, kind: &str| api::schemas::schema_of(group, "v1", kind).expect("a schema");
    let body = protobuf::to_vec(&schema("", "Pod"), &pod("p")).expect("protobuf");
    let headers = [("content-type", PROTOBUF), ("accept", "application/vnd.kubernetes.protobuf,application/json")];
    let made = client.send(Method::POST, &place.core("pods"), &headers, body).await;
    assert_eq!(made.header("content-type"), JSON);
    let made = made.expect(201);
    assert_eq!(made["spec"]["containers"][0]["image"], "registry.example/app:1");
    let mut changed = made.clone();
    changed["metadata"]["labels"] = json!({"a": "1"});
    let body = protobuf::to_vec(&schema("", "Pod"), &changed).expect("protobuf");
    let put = client.send(Method::PUT, &place.core("pods/p"), &headers, body).await.expect(200);
    assert_eq!(put["metadata"]["labels"]["a"], "1");
    assert_eq!(put["metadata"]["uid"], made["metadata"]["uid"]);

    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "another"}});
    let body = protobuf::to_vec(&schema("meta.k8s.io", "DeleteOptions"), &options).expect("protobuf");
    client.send(Method::DELETE, &place.core("pods/p"), &headers, body).await.refused(409);
    for broken in [&b"k8s\0"[..], b"k8s\0\xff\xff\xff", b"nonsense", b""] {
        client.send(Method::POST, &place.core("pods"), &headers[..1], broken.to_vec()).await.refused(400);
    }
}

pub async fn negotiation(place: &Place) {
    let client = &place.client;
    let path = place.core("configmaps");
    let html = client.get_as(&path, "text/html").await.expect(406);
    assert_eq!(html["reason"], "NotAcceptable");
    client.get_as(&path, "text/html,*/*;q=0.1").await.expect(200);
    let odd = client.send(Method::POST, &path, &[("content-type", "text/plain")], "x").await.expect(415);
    assert_eq!(odd["reason"], "UnsupportedMediaType");
    client.send(Method::POST, &path, &[], configmap("a").to_string()).await.expect(201);
    let charset = [("content-type", "application/json; charset=utf-8")];
    client.send(Method::POST, &path, &charset, configmap("b").to_string()).await.expect(201);

    let head = client.send(Method::HEAD, &place.core("configmaps/a"), &[], "").await;
    let whole = client.get(&place.core("configmaps/a")).await;
    assert_eq!((head.code, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), whole.body.len().to_string());
    let list = client.http1().send(Method::HEAD, &format!("{path}?watch=1"), &[], "").await;
    assert_eq!((list.code, list.body.len()), (200, 0));
    let odd = client.send(Method::OPTIONS, &path, &[], "").await.expect(405);
    assert_eq!(odd["reason"], "MethodNotAllowed");
    client.post(&place.core("configmaps/a"), &configmap("a")).await.refused(405);
    client.get(&place.core("wheels")).await.refused(404);
    client.get("/apis/no.such.group/v1/wheels").await.refused(404);
    assert_eq!(client.get("/nonsense").await.code, 404);
}

pub async fn scale(place: &Place) {
    let client = &place.client;
    client.post(&place.apps("deployments"), &deployment("d")).await.expect(201);
    let path = place.apps("deployments/d/scale");
    let mut scale = client.get(&path).await.expect(200);
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(2)));
    assert_eq!(scale["status"]["selector"], "app=d");
    scale["spec"]["replicas"] = json!(5);
    client.put(&path, &scale).await.expect(200);
    client.put(&path, &scale).await.refused(409);
    let patched = client.patch(&path, MERGE_PATCH, &json!({"spec": {"replicas": 6}})).await.expect(200);
    assert_eq!(patched["spec"]["replicas"], 6);
    let whole = client.get(&place.apps("deployments/d")).await.expect(200);
    assert_eq!((&whole["spec"]["replicas"], &whole["metadata"]["generation"]), (&json!(6), &json!(3)));
}
