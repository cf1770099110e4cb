//! Hostile requests: each gets the right refusal, and everybody else is served meanwhile.

use std::time::{Duration, Instant};

use hyper::Method;
use object_model::codec::protobuf;
use serde_json::{Value, json};
use testing::{
    TestServer,
    client::{APPLY, Client, JSON, JSON_PATCH, MERGE_PATCH, PROTOBUF, STRATEGIC_PATCH, YAML},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{configmap, names, pod};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Others are served, and quickly.
async fn others_are_served(server: &TestServer) {
    let since = Instant::now();
    assert_eq!(server.client().get("/livez").await.text(), "ok");
    assert!(since.elapsed() < Duration::from_secs(5));
}

/// A server whose default namespace takes pods.
async fn with_account() -> TestServer {
    let server = TestServer::embedded().await;
    let account = json!({"metadata": {"name": "default"}});
    server.client().post("/api/v1/namespaces/default/serviceaccounts", &account).await.expect(201);
    server
}

/// Writes to a fresh connection and reads until the other side has nothing more to say.
async fn raw(client: &Client, request: &[u8]) -> String {
    let mut tls = client.connect(b"http/1.1").await.expect("a connection");
    // The other side may well close before it has read everything.
    let _ = tls.write_all(request).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(5), tls.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies() {
    let server = TestServer::embedded().await;
    let mut large = configmap("large");
    large["data"]["key"] = "x".repeat(4 << 20).into();
    for client in [server.client(), server.client().http1()] {
        let status = client.post(MAPS, &large).await.expect(413);
        assert_eq!(status["reason"], "RequestEntityTooLarge");
        client.put(&format!("{MAPS}/large"), &large).await.refused(413);
        client.patch(&format!("{MAPS}/large"), MERGE_PATCH, &large).await.refused(413);
        client.delete_with(MAPS, &large).await.refused(413);
        client.get("/livez").await;
    }
    // A length alone is reason enough.
    let head = format!("POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{{");
    let answer = raw(&server.client(), head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // Smaller than the limit of bodies, larger than an object may be.
    large["data"]["key"] = "x".repeat(2 << 20).into();
    let refused = server.client().post(MAPS, &large).await;
    assert!([413, 422].contains(&refused.code), "{}", refused.text());
    others_are_served(&server).await;
}

/// What is looked through once is looked through in a moment; what is compared each with each takes minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lists() {
    let server = with_account().await;
    let client = server.client();
    let named = |count: usize, field: &str| -> Value { (0..count).map(|n| json!({field: n.to_string()})).collect() };
    let mut owned = configmap("owned");
    owned["metadata"]["ownerReferences"] = named(150_000, "uid");
    let mut spec = pod("p");
    spec["spec"]["containers"] = named(150_000, "name");
    let mut claims = pod("q");
    claims["spec"]["containers"][0]["env"] = named(150_000, "name");
    let mut devices = pod("d");
    let container = &mut devices["spec"]["containers"][0];
    container["volumeDevices"] = named(75_000, "name");
    container["volumeMounts"] = named(75_000, "name");
    let mut unknown = pod("u");
    unknown["spec"]["resourceClaims"] = named(50_000, "name");
    unknown["spec"]["containers"][0]["resources"]["claims"] =
        (0..50_000).map(|n| json!({"name": "x", "request": n.to_string()})).collect();
    let codes = json!({"operator": "NotIn", "values": (0..400_000).collect::<Value>()});
    let rules = json!([{"action": "FailJob", "onExitCodes": codes}]);
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"metadata": {"name": "j"}, "spec": {"podFailurePolicy": {"rules": rules}, "template": template}});
    let usages: Value = (0..200_000).map(|n: usize| json!(n.to_string())).collect();
    let request =
        json!({"metadata": {"name": "r"}, "spec": {"usages": usages, "signerName": "a.b/c", "request": "YWE="}});
    for (path, object) in [
        (MAPS, owned),
        ("/api/v1/namespaces/default/pods", spec),
        ("/api/v1/namespaces/default/pods", claims),
        ("/api/v1/namespaces/default/pods", devices),
        ("/api/v1/namespaces/default/pods", unknown),
        ("/apis/batch/v1/namespaces/default/jobs", job),
        ("/apis/certificates.k8s.io/v1/certificatesigningrequests", request),
    ] {
        let answer = tokio::time::timeout(Duration::from_secs(45), client.post(path, &object)).await;
        let answer = answer.unwrap_or_else(|_| panic!("{path} has not answered"));
        // What is wrong, or too large for the store, has been looked through.
        let shown: String = answer.text().chars().take(300).collect();
        assert!(answer.code == 422 || shown.contains("the value of /registry/"), "{shown}");
    }
    others_are_served(&server).await;
}

/// A small pod that can be warned of in very many ways is made in a moment, and the warnings that have room are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_warnings() {
    let server = with_account().await;
    let path = "/api/v1/namespaces/default/pods?dryRun=All";
    for (field, item, first) in [
        ("ports", json!({"containerPort": 80}), "duplicate port definition with spec.containers[0].ports[0]"),
        (
            "env",
            json!({"name": "A", "value": "x"}),
            r#"hides previous definition of \"A\", which may be dropped when using apply"#,
        ),
    ] {
        let mut warned = pod("p");
        warned["spec"]["containers"][0][field] = vec![item; 20_000].into();
        let answer = tokio::time::timeout(Duration::from_secs(45), server.client().post(path, &warned)).await;
        let answer = answer.unwrap_or_else(|_| panic!("a pod with many {field} is not answered"));
        assert_eq!(answer.code, 201, "{}", answer.text());
        let warnings: Vec<&str> = answer.headers.get_all("warning").iter().filter_map(|w| w.to_str().ok()).collect();
        assert_eq!(warnings.first(), Some(&&*format!("299 - \"spec.containers[0].{field}[1]: {first}\"")));
        let told: usize = warnings.iter().map(|warning| warning.replace('\\', "").len() - "299 - \"\"".len()).sum();
        assert!((4096..4096 + 256).contains(&told), "{told}");
    }
    others_are_served(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_and_broken_bodies() {
    let server = TestServer::embedded().await;
    let client = server.client();
    let nested = |open: &str, close: &str, depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
    let block: String = (0..1000).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
    let bomb = {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for i in 1..10 {
            let all = vec![format!("*a{}", i - 1); 9].join(", ");
            text.push_str(&format!("a{i}: &a{i} [{all}]\n"));
        }
        text
    };
    let bodies = [
        (JSON, nested("[", "]", 100_000)),
        (JSON, nested("{\"a\":", "}", 100_000)),
        (JSON, "[".repeat(1 << 20)),
        (JSON, "{\"metadata\":".into()),
        (JSON, "[]".into()),
        (JSON, "\"text\"".into()),
        (YAML, nested("[", "]", 100_000)),
        (YAML, block),
        (YAML, bomb),
        (YAML, "a: b: c".into()),
    ];
    for (kind, body) in bodies {
        let shown: String = body.chars().take(20).collect();
        let answer = client.send(Method::POST, MAPS, &[("content-type", kind)], body).await;
        assert_eq!(answer.code, 400, "{kind} {shown}: {}", answer.text());
    }
    client.post(MAPS, &configmap("a")).await.expect(201);
    let path = format!("{MAPS}/a?fieldManager=me");
    for kind in [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY] {
        for depth in [400, 100_000] {
            let body = nested("{\"data\":", "}", depth);
            let answer = client.send(Method::PATCH, &path, &[("content-type", kind)], body).await;
            assert!([400, 422].contains(&answer.code), "{kind} {depth}: {}", answer.text());
        }
    }
    // Text that is no Unicode is mended, as Kubernetes does.
    let body = b"{\"metadata\":{\"name\":\"b\"},\"data\":{\"x\":\"\xff\xfe\"}}".to_vec();
    let made = client.send(Method::POST, MAPS, &[("content-type", JSON)], body).await.expect(201);
    assert_eq!(made["data"], json!({"x": "\u{fffd}\u{fffd}"}));
    others_are_served(&server).await;
}

/// What is accepted can be listed, watched and deleted in every form; what cannot is refused, whichever way it comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_deep_as_everyone_can_read() {
    let server = TestServer::embedded().await;
    let client = server.client();
    let nested =
        |key: &str, depth: usize| format!("{}{{}}{}", format!("{{{key:?}:").repeat(depth - 1), "}".repeat(depth - 1));
    let send = |method: Method, path: String, kind: &'static str, body: String| {
        let client = client.clone();
        async move { client.send(method, &path, &[("content-type", kind)], body).await }
    };

    // The data of a revision is free; it stands one level down.
    let revisions = "/apis/apps/v1/namespaces/default/controllerrevisions";
    let revision =
        |name: &str, depth| format!(r#"{{"metadata":{{"name":{name:?}}},"revision":1,"data":{}}}"#, nested("a", depth));
    send(Method::POST, revisions.into(), JSON, revision("deep", 99)).await.expect(201);
    for depth in [100, 200, 500] {
        let refused = send(Method::POST, revisions.into(), JSON, revision("deeper", depth)).await.refused(400);
        assert!(refused.contains("nested more than 100 levels deep"), "{refused}");
        send(Method::POST, revisions.into(), YAML, revision("deeper", depth)).await.refused(400);
    }
    // In protobuf it is text of its own, which may be as deep as a whole object.
    let schema = api::schemas::schema_of("apps", "v1", "ControllerRevision").expect("a schema");
    let mut whole: Value = serde_json::from_str(&revision("deeper", 100)).expect("JSON");
    whole["apiVersion"] = json!("apps/v1");
    whole["kind"] = json!("ControllerRevision");
    let message = protobuf::to_vec(&schema, &whole).expect("protobuf");
    for path in [revisions.to_owned(), format!("{revisions}?dryRun=All")] {
        let answer = client.send(Method::POST, &path, &[("content-type", PROTOBUF)], message.clone()).await;
        let words = "the object, with its managed fields, is nested more than 100 levels deep";
        assert_eq!(answer.refused(400), words);
    }
    assert_eq!(client.get_as(&format!("{revisions}/deep"), YAML).await.code, 200);
    assert_eq!(client.get_as(revisions, PROTOBUF).await.code, 200);

    // Owned fields stand four levels down.
    let fields = |depth| {
        let entry = r#""manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1""#;
        format!(
            r#"{{"metadata":{{"name":"a","finalizers":["x/y"],"managedFields":[{{{entry}:{}}}]}}}}"#,
            nested("f:a", depth)
        )
    };
    for depth in [97, 200, 500] {
        send(Method::POST, MAPS.into(), JSON, fields(depth)).await.refused(400);
    }
    let made = send(Method::POST, MAPS.into(), JSON, fields(96)).await.expect(201);
    let place = format!("{MAPS}/a");
    for depth in [97, 200] {
        send(Method::PATCH, place.clone(), MERGE_PATCH, fields(depth)).await.refused(400);
        let value = nested("f:a", depth);
        let patch = format!(r#"[{{"op":"add","path":"/metadata/managedFields/0/fieldsV1","value":{value}}}]"#);
        let refused = send(Method::PATCH, place.clone(), JSON_PATCH, patch).await;
        assert!([400, 422].contains(&refused.code), "{}", refused.text());
    }
    // What each step alone allows can be too much together.
    let steps: Vec<_> = (0..2)
        .map(|step| {
            let down = "/f:a".repeat(95 * step);
            format!(
                r#"{{"op":"add","path":"/metadata/managedFields/0/fieldsV1{down}","value":{}}}"#,
                nested("f:a", 96 - 46 * step)
            )
        })
        .collect();
    let refused = send(Method::PATCH, place.clone(), JSON_PATCH, format!("[{}]", steps.join(","))).await;
    assert!([400, 422].contains(&refused.code), "{}", refused.text());

    let listed = client.get_as(MAPS, PROTOBUF).await;
    assert_eq!(listed.code, 200, "{}", listed.text());
    let since = made["metadata"]["resourceVersion"].as_str().expect("a version").parse::<u64>().expect("a number") - 1;
    let mut watch = client.watch(&format!("{MAPS}?watch=1&resourceVersion={since}")).await.expect("a watch");
    assert_eq!(watch.next().await.expect("an event")["object"]["metadata"], made["metadata"]);
    // The finalizer holds it, so it was read.
    client.delete(&place).await.expect(200);
    assert!(client.get(&place).await.expect(200)["metadata"]["deletionTimestamp"].is_string());
    client.patch(&place, MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await.expect(200);
    client.get(&place).await.refused(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths() {
    let server = TestServer::embedded().await;
    let client = server.client();
    client.post(MAPS, &configmap("a")).await.expect(201);
    let long = format!("{MAPS}/{}", "x".repeat(10_000));
    for path in [
        "//api/v1/namespaces",
        "/api//v1/namespaces",
        "/api/v1//namespaces",
        "/api/v1/namespaces//configmaps",
        "/api/v1/namespaces//configmaps/a",
        "/api/v1/namespaces/default//configmaps",
        "/api/v1/namespaces/default/configmaps//a",
        "/api/v1/namespaces/../nodes",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/namespaces/default/../default/configmaps/a",
        "/api/v1/namespaces/default%2Fconfigmaps%2Fa",
        "/api/v1/namespaces/default/configmaps%2Fa",
        "/api/v1/namespaces/default/configmaps/..%2Fconfigmaps%2Fa",
        "/api/v1/namespaces/default/configmaps/%2e%2e/a",
        "/api/v1/namespaces/kube-system/configmaps/..%2F..%2Fdefault%2Fa",
        "/api/v1/namespaces/default/configmaps/a%00",
        "/api/v1/namespaces/default/configmaps/%ff",
        "/api/v1/namespaces/default/configmaps/a/b/c/d",
        "/api/v1/configmaps/a",
        "/apis/core/v1/configmaps",
        "/apis//v1/configmaps",
        &long,
    ] {
        assert_eq!(client.get(path).await.code, 404, "{path}");
    }
    for path in ["/api/v1/namespaces/default/configmaps/", "/api/v1/namespaces/default/configmap%73"] {
        assert_eq!(names(&client.get(path).await.expect(200)), ["a"], "{path}");
    }
    // Methods that a path does not have.
    for (method, path) in [
        (Method::POST, "/api/v1/configmaps"),
        (Method::DELETE, "/api/v1/configmaps"),
        (Method::PUT, "/api/v1/configmaps"),
        (Method::PUT, MAPS),
        (Method::PATCH, MAPS),
        (Method::POST, "/api/v1/namespaces/default"),
        (Method::POST, "/api/v1/namespaces/default/configmaps/a"),
        (Method::DELETE, "/api/v1/namespaces"),
        (Method::TRACE, MAPS),
    ] {
        let answer = client.send(method.clone(), path, &[("content-type", JSON)], configmap("a").to_string()).await;
        let status = answer.expect(405);
        assert_eq!(status["reason"], "MethodNotAllowed", "{method} {path}");
    }
    let escapes = client.get(&format!("{MAPS}?labelSelector=%zz%&fieldSelector=%ff&limit=1&=&&")).await;
    assert_eq!(escapes.code, 400, "{}", escapes.text());
    others_are_served(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_http() {
    let server = TestServer::embedded().await;
    let client = server.client();
    let endless = {
        let mut text = String::from("GET /livez HTTP/1.1\r\nHost: x\r\n");
        while text.len() < 4 << 20 {
            text.push_str("X-Pad: ");
            text.push_str(&"y".repeat(1000));
            text.push_str("\r\n");
        }
        text
    };
    let one_long = format!("GET /livez HTTP/1.1\r\nHost: x\r\nX-Pad: {}\r\n\r\n", "y".repeat(2 << 20));
    let many: String = (0..500).map(|i| format!("X-{i}: 1\r\n")).collect();
    let many = format!("GET /livez HTTP/1.1\r\nHost: x\r\n{many}\r\n");
    for request in [endless, one_long, many] {
        let answer = raw(&client, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
    for request in [
        &b"\x00\x01\x02\x03\r\n\r\n"[..],
        b"GET /livez HTTP/9.9\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\nBad Header: 1\r\n\r\n",
        b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
    ] {
        let answer = raw(&client, request).await;
        let shown = String::from_utf8_lossy(request);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{shown}: {answer}");
    }
    // Not even TLS.
    let mut plain = tokio::net::TcpStream::connect(server.address).await.expect("a connection");
    plain.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("written");
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(5), plain.read_to_end(&mut answer)).await.expect("closed");
    others_are_served(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_hold_nobody_up() {
    let server = TestServer::embedded().await;
    let client = server.client();
    let mut held = Vec::new();
    for i in 0..60 {
        let mut tls = client.connect(b"http/1.1").await.expect("a connection");
        let said = match i % 3 {
            0 => String::new(),
            1 => "GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ".into(),
            _ => format!("POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{{"),
        };
        tls.write_all(said.as_bytes()).await.expect("written");
        held.push(tls);
    }
    // A watch that is never read.
    let _unread = client.watch(&format!("{MAPS}?watch=1")).await.expect("a watch");
    for i in 0..20 {
        let mut large = configmap(&format!("c{i}"));
        large["data"]["key"] = "x".repeat(200_000).into();
        server.client().post(MAPS, &large).await.expect(201);
    }
    others_are_served(&server).await;
    // Even a server with such clients stops in time.
    let mut watch = server.client().watch(&format!("{MAPS}?watch=1&resourceVersion=0")).await.expect("a watch");
    server.stop();
    let ended = tokio::time::timeout(Duration::from_secs(5), async { while watch.next().await.is_some() {} });
    ended.await.expect("watches end when the server stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_never_comes_is_not_waited_for_longer_than_its_client_has_time() {
    let server = TestServer::embedded().await;
    let client = server.client();
    let request = |timeout: &str| {
        let line = format!("POST {MAPS}?timeout={timeout} HTTP/1.1\r\nHost: x\r\n");
        format!("{line}Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{{").into_bytes()
    };
    let answer = raw(&client, &request("50ms")).await;
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
    assert!(answer.contains("Timeout: request did not complete within the allotted timeout"), "{answer}");
    let why = client.get(&format!("{MAPS}?timeout=soon")).await.refused(400);
    assert!(why.starts_with("invalid timeout specified in the request URL"), "{why}");
    client.get(&format!("{MAPS}?timeout=32s")).await.expect(200);
}
