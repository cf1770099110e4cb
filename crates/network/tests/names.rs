//! The name server over real sockets, and how pods find it.

mod fake;

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use fake::{Cluster, endpoint, service, slice};
use hickory_proto::{
    op::{Edns, Message, MessageType, OpCode, Query, ResponseCode},
    rr::{Name, RData, RecordType},
};
use network::{
    Error,
    dns::{Setting, run},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(20);

/// A name server for the cluster, and its address as it is announced.
async fn name_server(cluster: &Cluster) -> (SocketAddr, CancellationToken) {
    let (server, stop, _) = running_name_server(cluster).await;
    (server, stop)
}

async fn running_name_server(cluster: &Cluster) -> (SocketAddr, CancellationToken, JoinHandle<Result<(), Error>>) {
    let stop = CancellationToken::new();
    let setting = Setting {
        informers: cluster.informers(&stop),
        client: cluster.client(),
        service_address: Ipv4Addr::new(10, 96, 0, 10).into(),
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        domain: "cluster.local".into(),
        node_name: "here".into(),
    };
    let running = tokio::spawn(run(setting, stop.clone()));
    until("it announces itself", || announced(cluster).is_some()).await;
    let port = announced(cluster).unwrap()["ports"][0]["port"].as_u64().unwrap();
    (SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port).unwrap())), stop, running)
}

fn announced(cluster: &Cluster) -> Option<Value> {
    cluster.get("endpointslices", "kube-system", "kube-dns-here")
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let held = async {
        while !holds() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, held).await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

async fn ask(server: SocketAddr, question: &Message) -> Message {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    socket.send_to(&question.to_vec().unwrap(), server).await.unwrap();
    let mut buffer = [0; 4096];
    let length = timeout(PATIENCE, socket.recv(&mut buffer)).await.expect("an answer").unwrap();
    Message::from_vec(&buffer[..length]).unwrap()
}

async fn ask_tcp(server: SocketAddr, question: &Message) -> Message {
    let mut stream = TcpStream::connect(server).await.unwrap();
    let bytes = question.to_vec().unwrap();
    stream.write_u16(u16::try_from(bytes.len()).unwrap()).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    let mut buffer = vec![0; usize::from(stream.read_u16().await.unwrap())];
    stream.read_exact(&mut buffer).await.unwrap();
    Message::from_vec(&buffer).unwrap()
}

fn addresses(message: &Message) -> Vec<String> {
    let address = |data: &RData| match data {
        RData::A(address) => Some(address.to_string()),
        _ => None,
    };
    message.answers.iter().filter_map(|record| address(&record.data)).collect()
}

#[tokio::test]
async fn it_answers_and_follows_the_cluster() {
    let cluster = Cluster::new();
    cluster.put("services", service("web", "10.96.0.20", json!({})));
    let (server, stop) = name_server(&cluster).await;
    let answer = ask(server, &question("Web.Default.svc.cluster.LOCAL.", RecordType::A)).await;
    assert_eq!(addresses(&answer), ["10.96.0.20"]);
    assert_eq!((answer.metadata.id, answer.metadata.authoritative), (4711, true));
    assert_eq!(answer.queries[0].name().to_ascii(), "Web.Default.svc.cluster.LOCAL.", "as it was asked");
    let answer = ask_tcp(server, &question("web.default.svc.cluster.local.", RecordType::A)).await;
    assert_eq!(addresses(&answer), ["10.96.0.20"]);

    let answer = ask(server, &question("nothing.default.svc.cluster.local.", RecordType::A)).await;
    assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain);
    assert!(matches!(answer.authorities[0].data, RData::SOA(_)));
    let answer = ask(server, &question("web.default.svc.cluster.local.", RecordType::AAAA)).await;
    assert_eq!((answer.metadata.response_code, answer.answers.len()), (ResponseCode::NoError, 0));
    assert!(matches!(answer.authorities[0].data, RData::SOA(_)));

    cluster.put("services", service("new", "10.96.0.21", json!({})));
    let found = async {
        while addresses(&ask(server, &question("new.default.svc.cluster.local.", RecordType::A)).await).is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, found).await.expect("a new Service gets its name");
    stop.cancel();
}

#[tokio::test]
async fn what_is_too_large_is_asked_again_over_tcp() {
    let cluster = Cluster::new();
    cluster.put("services", service("many", "None", json!({})));
    let endpoints: Vec<_> = (1..=60).map(|n| endpoint(Ipv4Addr::new(10, 244, 0, n), "here")).collect();
    cluster.put("endpointslices", slice("many", json!(endpoints)));
    let (server, stop) = name_server(&cluster).await;
    let mut asked = question("many.default.svc.cluster.local.", RecordType::A);
    let short = ask(server, &asked).await;
    assert!(short.metadata.truncation && short.answers.is_empty() && short.edns.is_none());
    assert_eq!(addresses(&ask_tcp(server, &asked).await).len(), 60);
    let mut edns = Edns::new();
    edns.set_max_payload(4096);
    asked.set_edns(edns);
    let whole = ask(server, &asked).await;
    assert_eq!(addresses(&whole).len(), 60, "a client that takes more at once gets it");
    assert!(whole.edns.is_some());
    stop.cancel();
}

#[tokio::test]
async fn every_address_is_told_first_in_turn() {
    let cluster = Cluster::new();
    cluster.put("services", service("many", "None", json!({})));
    let endpoints: Vec<_> = (1..=3).map(|n| endpoint(Ipv4Addr::new(10, 244, 0, n), "here")).collect();
    cluster.put("endpointslices", slice("many", json!(endpoints)));
    let (server, stop) = name_server(&cluster).await;
    let mut first = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let told = addresses(&ask(server, &question("many.default.svc.cluster.local.", RecordType::A)).await);
        assert_eq!(told.len(), 3);
        first.extend(told.into_iter().next());
    }
    assert_eq!(first.len(), 3);
    stop.cancel();
}

#[tokio::test]
async fn nonsense_is_refused_or_ignored() {
    let cluster = Cluster::new();
    let (server, stop) = name_server(&cluster).await;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    socket.send_to(b"nonsense", server).await.unwrap();
    let mut update = question("web.default.svc.cluster.local.", RecordType::A);
    update.metadata.op_code = OpCode::Update;
    assert_eq!(ask(server, &update).await.metadata.response_code, ResponseCode::NotImp);
    let answer = ask(server, &question("dns-version.cluster.local.", RecordType::TXT)).await;
    assert_eq!(answer.answers[0].data.to_string(), "1.1.0");
    stop.cancel();
}

#[tokio::test]
async fn pods_find_it_by_its_service_also_when_somebody_spoils_it() {
    let cluster = Cluster::new();
    let (server, stop) = name_server(&cluster).await;
    let made = cluster.get("services", "kube-system", "kube-dns").unwrap();
    assert_eq!(made["spec"]["clusterIP"], "10.96.0.10");
    assert_eq!(made["metadata"]["labels"]["k8s-app"], "kube-dns");
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/name"], "CoreDNS");
    let ports: Vec<_> = made["spec"]["ports"].as_array().unwrap().iter().map(|port| port["name"].clone()).collect();
    assert_eq!(ports, ["dns", "dns-tcp"]);
    let answer = ask(server, &question("kube-dns.kube-system.svc.cluster.local.", RecordType::A)).await;
    assert_eq!(addresses(&answer), ["10.96.0.10"]);

    cluster.delete("endpointslices", "kube-system", "kube-dns-here");
    until("it is made again", || announced(&cluster).is_some()).await;
    stop.cancel();
}

#[tokio::test]
async fn the_way_to_it_goes_with_its_node() {
    let cluster = Cluster::new();
    let (_, stop) = name_server(&cluster).await;
    // At the first start of a cluster, the node comes later.
    cluster.put("nodes", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}}));
    let node = cluster.put("nodes", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}}));
    let owners = || announced(&cluster).map_or(Value::Null, |slice| slice["metadata"]["ownerReferences"].clone());
    until("the node owns it", || owners().is_array()).await;
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "here", "uid": node["metadata"]["uid"]}]);
    assert_eq!(owners(), owner);
    stop.cancel();
}

#[tokio::test]
async fn pods_are_led_to_the_others_when_it_stops() {
    let cluster = Cluster::new();
    let (_, stop, running) = running_name_server(&cluster).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    assert!(announced(&cluster).is_some(), "there is no other, so that it is found at once when it is back");

    let mut other = announced(&cluster).unwrap();
    other["metadata"]["name"] = "kube-dns-there".into();
    cluster.put("endpointslices", other);
    cluster.delete("endpointslices", "kube-system", "kube-dns-here");
    let (_, stop, running) = running_name_server(&cluster).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    assert!(announced(&cluster).is_none());
    assert!(cluster.get("endpointslices", "kube-system", "kube-dns-there").is_some());
}

#[tokio::test]
async fn pods_are_led_away_from_a_server_whose_node_is_lost_unless_all_are() {
    let cluster = Cluster::new();
    let node = |name: &str, ready: &str| {
        cluster.put(
            "nodes",
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}}),
        );
    };
    node("here", "True");
    node("there", "True");
    let (_, stop) = name_server(&cluster).await;
    let mut other = announced(&cluster).unwrap();
    other["metadata"]["name"] = "kube-dns-there".into();
    other["endpoints"][0]["nodeName"] = "there".into();
    cluster.put("endpointslices", other);
    let is = |name: &str, ready: bool| {
        let slice = cluster.get("endpointslices", "kube-system", name).unwrap();
        let conditions = &slice["endpoints"][0]["conditions"];
        (&conditions["ready"], &conditions["serving"]) == (&json!(ready), &json!(ready))
    };
    node("here", "False");
    node("there", "Unknown");
    until("the other one is not asked", || is("kube-dns-there", false)).await;
    assert!(is("kube-dns-here", true), "a node that is heard of is not lost");
    node("here", "Unknown");
    node("there", "True");
    until("this one is not asked", || is("kube-dns-here", false)).await;
    node("there", "Unknown");
    until("all are lost, so that one may be as good as the other", || is("kube-dns-here", true)).await;
    stop.cancel();
}
