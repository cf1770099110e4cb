//! Streams and proxies as other clients than kubectl use them: every WebSocket protocol, plain HTTP, and nonsense.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::BytesMut;
use serde_json::{Value, json};
use streaming::websocket::frame::{self, BINARY, Decoder, Event, From, TEXT};
use testing::skipped;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
};

use super::streams::Cluster;

trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// A WebSocket to the server, from the client's side.
struct Socket {
    io: Box<dyn Io>,
    decoder: Decoder,
    read: BytesMut,
}

impl Socket {
    /// Opens one, or says what the server answered instead.
    async fn open(cluster: &Cluster, path: &str, protocol: &str) -> Result<(Self, String), String> {
        let mut io = cluster.server.client().connect(b"http/1.1").await.expect("a connection");
        let offer = if protocol.is_empty() { String::new() } else { format!("Sec-WebSocket-Protocol: {protocol}\r\n") };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{offer}\r\n"
        );
        io.write_all(request.as_bytes()).await.expect("the request is sent");
        let mut read = BytesMut::new();
        let end = loop {
            if let Some(end) = read.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
            assert!(io.read_buf(&mut read).await.expect("an answer") > 0, "an answer");
        };
        let head = String::from_utf8_lossy(&read.split_to(end)).to_ascii_lowercase();
        if !head.starts_with("http/1.1 101") {
            return Err(head);
        }
        let chosen = head.lines().find_map(|line| line.strip_prefix("sec-websocket-protocol: ")).unwrap_or_default();
        let chosen = chosen.to_owned();
        Ok((Self { io: Box::new(io), decoder: Decoder::new(From::Server), read }, chosen))
    }

    async fn send(&mut self, kind: u8, parts: &[&[u8]]) {
        self.io.write_all(&frame::encode(kind, parts, Some([1, 2, 3, 4]))).await.expect("it is sent");
    }

    /// The next message; `None` when the server closed the connection.
    async fn next(&mut self) -> Option<Vec<u8>> {
        let mut message = Vec::new();
        loop {
            match self.decoder.next(&mut self.read).expect("a frame") {
                Some(Event::Piece { bytes, last, .. }) => {
                    message.extend_from_slice(&bytes);
                    if last {
                        return Some(message);
                    }
                }
                Some(Event::Close) => return None,
                Some(_) => {}
                None if self.io.read_buf(&mut self.read).await.unwrap_or(0) == 0 => return None,
                None => {}
            }
        }
    }

    /// What came in on each channel until the end.
    async fn channels(&mut self, base64: bool) -> [Vec<u8>; 5] {
        let mut all = [const { Vec::new() }; 5];
        while let Some(message) = self.next().await {
            let (number, data) = message.split_first().expect("a channel");
            match base64 {
                true => all[usize::from(number - b'0')].extend(STANDARD.decode(data).expect("base64")),
                false => all[usize::from(*number)].extend_from_slice(data),
            }
        }
        all
    }
}

const EXEC: &str = "/api/v1/namespaces/default/pods/p/exec?stdin=1&stdout=1&stderr=1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_websocket_protocol() {
    for speaks_websocket in [false, true] {
        let cluster = Cluster::new(speaks_websocket).await;
        let path = format!("{EXEC}&command=sh&command=-c&command=head+-c+5;echo+oops+%3E%262;exit+4");
        for protocol in [
            "",
            "channel.k8s.io",
            "base64.channel.k8s.io",
            "v4.channel.k8s.io",
            "v4.base64.channel.k8s.io",
            "v5.channel.k8s.io",
        ] {
            let (mut socket, chosen) = Socket::open(&cluster, &path, protocol).await.expect("a WebSocket");
            assert_eq!(chosen, protocol);
            let base64 = protocol.contains("base64");
            match base64 {
                true => socket.send(TEXT, &[b"0", STANDARD.encode("hello").as_bytes()]).await,
                false => socket.send(BINARY, &[&[0], b"hello"]).await,
            }
            let [_, stdout, stderr, error, _] = socket.channels(base64).await;
            assert_eq!((&*stdout, &*stderr), (&b"hello"[..], &b"oops\n"[..]), "{protocol}");
            let error = String::from_utf8(error).expect("text");
            match protocol.starts_with('v') {
                true => {
                    let status: Value = serde_json::from_str(&error).expect("a status");
                    assert_eq!(
                        status["details"]["causes"],
                        json!([{"reason": "ExitCode", "message": "4"}]),
                        "{protocol}"
                    );
                }
                false => assert!(error.contains("exit status 4"), "{protocol}: {error}"),
            }
        }
        assert!(Socket::open(&cluster, &path, "v9.channel.k8s.io").await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_ends_and_terminals_change_their_size() {
    for speaks_websocket in [false, true] {
        let cluster = Cluster::new(speaks_websocket).await;
        let (mut socket, _) =
            Socket::open(&cluster, &format!("{EXEC}&command=cat"), "v5.channel.k8s.io").await.expect("one");
        socket.send(BINARY, &[&[0], b"all of it"]).await;
        socket.send(BINARY, &[&[255, 0]]).await;
        assert_eq!(socket.channels(false).await[1], b"all of it");

        let path = "/api/v1/namespaces/default/pods/p/exec?stdout=1&tty=1&command=sizes&command=2";
        for protocol in ["v4.channel.k8s.io", "v5.channel.k8s.io"] {
            let (mut socket, _) = Socket::open(&cluster, path, protocol).await.expect("a WebSocket");
            socket.send(BINARY, &[&[4], br#"{"Width":80,"Height":24}"#]).await;
            socket.send(BINARY, &[&[4], br#"{"Width":132,"Height":50}"#]).await;
            assert_eq!(socket.channels(false).await[1], b"80x24\r\n132x50\r\n", "{protocol}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ports_over_channels() {
    let cluster = Cluster::new(true).await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).await.expect("it is read");
        stream.write_all(b"welcome").await.expect("it is sent");
        hello
    });
    let path = format!("/api/v1/namespaces/default/pods/p/portforward?ports={port}");
    let (mut socket, _) = Socket::open(&cluster, &path, "v4.channel.k8s.io").await.expect("a WebSocket");
    let [low, high] = port.to_le_bytes();
    assert_eq!(socket.next().await, Some(vec![0, low, high]));
    assert_eq!(socket.next().await, Some(vec![1, low, high]));
    socket.send(BINARY, &[&[0], b"hello"]).await;
    assert_eq!(&served.await.expect("it was served"), b"hello");
    assert_eq!(socket.next().await, Some(b"\0welcome".to_vec()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_and_watches_over_websockets() {
    let cluster = Cluster::new(false).await;
    let path = "/api/v1/namespaces/default/pods/p/log?tailLines=1";
    for (protocol, want) in
        [("", "current c 10\n"), ("binary.k8s.io", "current c 10\n"), ("base64.binary.k8s.io", "Y3VycmVudCBjIDEwCg==")]
    {
        let (mut socket, _) = Socket::open(&cluster, path, protocol).await.expect("a WebSocket");
        assert_eq!(socket.next().await.as_deref(), Some(&b""[..]));
        assert_eq!(socket.next().await.as_deref(), Some(want.as_bytes()), "{protocol}");
        assert_eq!(socket.next().await, None);
    }
    let path = "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=2";
    let (mut socket, _) = Socket::open(&cluster, path, "").await.expect("a WebSocket");
    for name in ["a", "b"] {
        let object = json!({"metadata": {"name": name}});
        cluster.server.client().post("/api/v1/namespaces/default/configmaps", &object).await.expect(201);
    }
    for name in ["a", "b"] {
        let event: Value = serde_json::from_slice(&socket.next().await.expect("an event")).expect("JSON");
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&"ADDED".into(), &name.into()));
    }
    // Its time is up.
    assert_eq!(socket.next().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_streamed_says_why() {
    let cluster = Cluster::new(false).await;
    let here = Ipv4Addr::LOCALHOST.into();
    cluster.pod("two", &["a", "b"], Some("node-1"), here).await;
    cluster.pod("homeless", &["a"], None, here).await;
    cluster.pod("lost", &["a"], Some("no-such-node"), here).await;
    cluster.pod("quiet", &["silent"], Some("node-1"), here).await;
    let client = cluster.server.client();
    let pods = "/api/v1/namespaces/default/pods";
    for (path, code, message) in [
        ("two/log", 400, "a container name must be specified for pod two, choose one of: [a b]"),
        ("two/log?container=x", 400, "container x is not valid for pod two"),
        ("two/log?tailLines=-1", 422, "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ("lost/log", 404, "nodes \"no-such-node\" not found"),
        ("quiet/log", 400, "container \"silent\" is waiting to start"),
        ("homeless/exec?stdout=1&command=x", 400, "pod homeless does not have a host assigned"),
        ("p/exec?stdout=1&command=x", 400, "Upgrade request required"),
        ("p/portforward", 400, "Upgrade request required"),
        ("p/attach?dryRun=All", 400, "dryRun is not supported"),
        ("none/exec?stdout=1", 404, "pods \"none\" not found"),
        ("p/proxy/", 400, "address not allowed"),
        ("a:b:c:d/proxy/", 400, "invalid pod request"),
    ] {
        let told = client.get(&format!("{pods}/{path}")).await.refused(code);
        assert!(told.contains(message), "{path}: {told}");
    }
    assert_eq!(client.get(&format!("{pods}/homeless/log")).await.code, 204);
    assert_eq!(client.delete(&format!("{pods}/p/log")).await.code, 405);
    assert!(client.get("/api/v1/nodes/node-1/proxy/").await.refused(400).contains("address not allowed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_ends_its_connection_and_no_other() {
    let cluster = Cluster::new(false).await;
    let endless = [&[0x82, 0xff, 0x7f][..], &[0xff; 7], &[0; 4], &[0; 64 << 10]].concat();
    let fragmented_ping = frame::encode(frame::PING, &[&[0; 200]], Some([0; 4]));
    for nonsense in [&b"\x82\x01a"[..], &[0xff; 100], &fragmented_ping, &endless, &[0x80, 0x80, 0, 0, 0, 0]] {
        let (mut socket, _) =
            Socket::open(&cluster, &format!("{EXEC}&command=cat"), "v5.channel.k8s.io").await.expect("one");
        socket.io.write_all(nonsense).await.expect("it is sent");
        // A frame without an end is not wrong yet; its sender goes away.
        if nonsense.len() > 1000 {
            continue;
        }
        socket.channels(false).await;
    }
    let (mut socket, _) =
        Socket::open(&cluster, &format!("{EXEC}&command=echo&command=fine"), "v5.channel.k8s.io").await.expect("one");
    socket.send(BINARY, &[&[77], b"no such channel"]).await;
    assert_eq!(socket.channels(false).await[1], b"fine\n");
}

/// An address of this machine that is not only its own.
fn outside_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    let usable = !address.is_loopback() && !address.is_unspecified();
    usable.then_some(address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxies() {
    let Some(address) = outside_address() else {
        return skipped("this machine has no address but loopback");
    };
    let cluster = Cluster::at(address, false).await;
    let client = cluster.server.client();
    let port = cluster.agent.address.port();
    let pods = "/api/v1/namespaces/default/pods";

    // The agent stands in for a pod that serves HTTPS, whose certificate nobody checks.
    let said = client.get(&format!("{pods}/https:p:{port}/proxy/x")).await.expect(200);
    assert_eq!(said["uri"], "/x");
    let said = client.get("/api/v1/nodes/node-1/proxy/some%20path/?a=1&b=%2F").await.expect(200);
    assert_eq!(said["uri"], "/some%20path/?a=1&b=%2F");
    assert_eq!(said["headers"]["x-forwarded-uri"], "/api/v1/nodes/node-1/proxy/some%20path/");
    assert_eq!(said["headers"]["x-forwarded-for"], "127.0.0.1");
    let said = client.patch("/api/v1/nodes/node-1/proxy/x", "text/plain", &json!("body")).await.expect(200);
    assert_eq!((&said["method"], &said["body"]), (&"PATCH".into(), &"\"body\"".into()));

    let listener = TcpListener::bind((address, 0)).await.expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            let read = stream.read(&mut request).await.unwrap_or(0);
            let page = "<a href=\"/next\">";
            let answer = match request[..read].starts_with(b"GET /moved") {
                true => "HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n".to_owned(),
                false => format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: {}\r\n\r\n{page}",
                    page.len()
                ),
            };
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let base = format!("{pods}/p:{port}/proxy");
    let root = client.get(&base).await;
    assert_eq!((root.code, root.header("location")), (301, &*format!("{base}/")));
    let page = client.get(&format!("{base}/")).await;
    assert_eq!((page.code, page.text()), (200, format!("<a href=\"{base}/next\">")));
    assert_eq!(page.header("access-control-allow-origin"), "");
    assert_eq!(client.get(&format!("{base}/moved")).await.header("location"), format!("{base}/there"));

    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "web", "port": 80}]}});
    client.post(services, &service).await.expect(201);
    assert!(
        client
            .get(&format!("{services}/s:81/proxy/"))
            .await
            .refused(503)
            .contains("no service port 81 found for service \"s\"")
    );
    assert!(client.get(&format!("{services}/s:80/proxy/")).await.refused(404).contains("endpoints \"s\" not found"));
    let mut endpoints = json!({"metadata": {"name": "s"}, "subsets": [{
        "addresses": [{"ip": address.to_string()}], "ports": [{"name": "web", "port": port}]}]});
    let made = client.post("/api/v1/namespaces/default/endpoints", &endpoints).await.expect(201);
    // Nobody's address, as far as the cluster knows.
    assert!(
        client
            .get(&format!("{services}/s:web/proxy/"))
            .await
            .refused(503)
            .contains("no endpoints available for service")
    );
    endpoints["subsets"][0]["addresses"][0]["targetRef"] = json!({"kind": "Pod", "namespace": "default", "name": "p"});
    endpoints["metadata"] = made["metadata"].clone();
    client.put("/api/v1/namespaces/default/endpoints/s", &endpoints).await.expect(200);
    for id in ["s:80", "s:web", "http:s:web"] {
        assert_eq!(client.get(&format!("{services}/{id}/proxy/x")).await.code, 200, "{id}");
    }
}
