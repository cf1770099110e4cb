//! Forms of requests and answers: tables, metadata only, YAML, protobuf, scale.

use hyper::Method;
use object_model::codec::protobuf;
use serde_json::{Value, json};
use testing::client::{APPLY, Answer, JSON, MERGE_PATCH, PROTOBUF, YAML};

use super::{Place, configmap, deployment, names, pod};

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
    let headers = [("content-type", PROTOBUF), ("accept", JSON)];
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

/// What an answer in protobuf says.
fn read(answer: Answer) -> Value {
    assert_eq!(answer.header("content-type"), PROTOBUF, "{}", answer.text());
    let schema = |api_version: &str, kind: &str| {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        api::schemas::schema_of(group, version, kind)
    };
    protobuf::read(&answer.body, schema).expect("protobuf")
}

/// A null stands for what is absent.
fn without_nulls(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(|value| *value = without_nulls(value.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| *value = without_nulls(value.take())),
        _ => {}
    }
    value
}

pub async fn protobuf_answers(place: &Place) {
    let client = &place.client;
    let headers = [("content-type", JSON), ("accept", PROTOBUF)];
    let made = client.send(Method::POST, &place.core("pods"), &headers, pod("p").to_string()).await;
    assert_eq!(made.code, 201);
    let (made, stored) = (read(made), client.get(&place.core("pods/p")).await.expect(200));
    assert_eq!(without_nulls(made), without_nulls(stored.clone()));
    let one = read(client.get_as(&place.core("pods/p"), "application/vnd.kubernetes.protobuf,*/*").await);
    assert_eq!(one["spec"], stored["spec"]);

    let list = read(client.get_as(&place.core("pods"), PROTOBUF).await);
    assert_eq!((&list["kind"], names(&list)), (&json!("PodList"), vec!["p"]));
    assert_eq!(list["items"][0]["spec"], stored["spec"]);
    let accept = format!("{PROTOBUF};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io");
    let list = read(client.get_as(&place.core("pods"), &accept).await);
    assert_eq!((&list["kind"], names(&list)), (&json!("PartialObjectMetadataList"), vec!["p"]));
    let table = client.get_as(&place.core("pods"), &format!("{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,{TABLE}")).await;
    assert_eq!(table.header("content-type"), JSON);
    client.post(&place.apps("deployments"), &deployment("d")).await.expect(201);
    let scale = read(client.get_as(&place.apps("deployments/d/scale"), PROTOBUF).await);
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(2)));

    let missing = client.get_as(&place.core("pods/none"), PROTOBUF).await;
    assert_eq!(missing.code, 404);
    let missing = read(missing);
    assert_eq!((&missing["kind"], &missing["details"]["name"]), (&json!("Status"), &json!("none")));
    let yaml = client.get_as(&place.core("pods/none"), YAML).await;
    assert!(yaml.text().contains("reason: NotFound"), "{}", yaml.text());
    let gone = client.send(Method::DELETE, &place.apps("deployments/d"), &headers, "").await;
    assert_eq!(read(gone)["status"], "Success");
    let groups = read(client.get_as("/apis", PROTOBUF).await);
    assert_eq!(groups["kind"], "APIGroupList");
}

/// More than one chunk, and more than is sent whole.
pub async fn long_lists_in_protobuf(place: &Place) {
    let client = &place.client;
    let mut big = configmap("x");
    big["data"]["text"] = "a long text ".repeat(40_000).into();
    for number in 0..12 {
        big["metadata"]["name"] = format!("c{number:02}").into();
        place.create("configmaps", &big).await;
    }
    let path = place.core("configmaps");
    let (wire, list) = (client.get_as(&path, PROTOBUF).await, client.get(&path).await.expect(200));
    assert!(wire.body.len() > 5 << 20, "{} bytes", wire.body.len());
    assert_eq!(without_nulls(read(wire))["items"], list["items"]);
    let page = read(client.get_as(&format!("{path}?limit=2"), PROTOBUF).await);
    assert_eq!((names(&page).len(), &page["metadata"]["remainingItemCount"]), (2, &json!(10)));
    assert!(page["metadata"]["continue"].is_string());
}

pub async fn protobuf_watches(place: &Place) {
    let client = &place.client;
    let path = place.core("configmaps?watch=1&allowWatchBookmarks=true&sendInitialEvents=true");
    let path = format!("{path}&resourceVersionMatch=NotOlderThan&timeoutSeconds=2");
    place.create("configmaps", &configmap("a")).await;
    let whole = client.get_as(&path, PROTOBUF).await;
    assert_eq!(whole.header("content-type"), "application/vnd.kubernetes.protobuf;stream=watch");
    let events = frames(&whole.body);
    let told: Vec<(&str, &str)> =
        events.iter().map(|(kind, object)| (&**kind, object["metadata"]["name"].as_str().unwrap_or(""))).collect();
    assert_eq!(told, [("ADDED", "a"), ("BOOKMARK", "")]);
    assert_eq!(events[0].1["data"], json!({"key": "1"}));
    assert_eq!(events[1].1["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let yaml = client.get_as(&path, YAML).await;
    assert_eq!(yaml.code, 406);
    let refused = client.get_as(&place.core("configmaps?watch=1&resourceVersion=x"), PROTOBUF).await;
    assert_eq!((refused.code, &read(refused)["kind"]), (400, &json!("Status")));
}

/// The events in the frames of a watch: their kinds and objects.
fn frames(mut bytes: &[u8]) -> Vec<(String, Value)> {
    let mut events = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        // The object inside is another message, which the first field of a raw extension holds.
        let kind = protobuf_text(frame);
        let from = frame.windows(4).position(|window| window == protobuf::PREFIX).expect("an object");
        let schema = |version: &str, kind: &str| api::schemas::schema_of("", version, kind);
        events.push((kind, protobuf::read(&frame[from..], schema).expect("an object")));
        bytes = rest;
    }
    events
}

/// The text that a message begins with.
fn protobuf_text(message: &[u8]) -> String {
    String::from_utf8_lossy(&message[2..2 + usize::from(message[1])]).into_owned()
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

/// Server-side apply of a scale: its owners are those of the object's replicas.
pub async fn applied_scale(place: &Place) {
    let client = &place.client;
    let whole = place.apps("deployments/applied");
    client.post(&format!("{}?fieldManager=maker", place.apps("deployments")), &deployment("applied")).await.expect(201);
    let apply = async |manager: &str, replicas: Value, more: &str| {
        let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": replicas}});
        client.patch(&format!("{whole}/scale?fieldManager={manager}{more}"), APPLY, &scale).await
    };
    let conflict = apply("scaler", json!(4), "").await.expect(409);
    let message = "Apply failed with 1 conflict: conflict with \"maker\" using autoscaling/v1: .spec.replicas";
    assert_eq!(conflict["message"], message);
    assert_eq!(conflict["details"]["causes"][0]["field"], ".spec.replicas");

    let scale = apply("scaler", json!(4), "&force=true").await.expect(200);
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(4)));
    assert!(scale["metadata"].get("managedFields").is_none());
    let owners = async |name: &str| {
        let object = client.get(&whole).await.expect(200);
        let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        entries.into_iter().filter(|entry| entry["manager"] == name).collect::<Vec<_>>()
    };
    let expected = json!([{"manager": "scaler", "operation": "Apply", "apiVersion": "apps/v1", "subresource": "scale",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
    assert_eq!(json!(owners("scaler").await), expected);
    let maker = owners("maker").await;
    assert!(maker[0]["fieldsV1"]["f:spec"].get("f:replicas").is_none());
    assert!(maker[0]["fieldsV1"]["f:spec"].get("f:template").is_some());

    // The same again changes nothing; the same by another is shared; an update takes the replicas from all.
    let before = client.get(&whole).await.expect(200);
    apply("scaler", json!(4), "").await.expect(200);
    assert_eq!(client.get(&whole).await.expect(200), before);
    apply("second", json!(4), "").await.expect(200);
    assert_eq!((owners("scaler").await.len(), owners("second").await.len()), (1, 1));
    let patch = json!({"spec": {"replicas": 5}});
    client.patch(&format!("{whole}/scale?fieldManager=hand"), MERGE_PATCH, &patch).await.expect(200);
    assert!(owners("scaler").await.is_empty() && owners("second").await.is_empty());
    assert_eq!(owners("hand").await[0]["subresource"], "scale");

    apply("scaler", json!(-1), "&force=true").await.refused(422);
    apply("scaler", json!("many"), "&force=true").await.refused(500);
    apply("", json!(4), "").await.refused(422);
    let wrong = client.patch(&format!("{whole}/scale?fieldManager=x"), "text/plain", &json!({})).await.refused(415);
    assert!(wrong.contains(APPLY), "{wrong}");
    let gone = format!("{}/scale?fieldManager=x", place.apps("deployments/gone"));
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 1}});
    client.patch(&gone, APPLY, &scale).await.refused(404);
}
