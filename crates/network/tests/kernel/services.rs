use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use network::{
    pods::Pods,
    proxy::{self, Setting},
};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    fake::{Cluster, endpoint, service, slice},
    machine::{Machine, NODE, OUTSIDE, ask, ask_udp_from, flush_rules, in_own_network, outside, state_of_the_network},
    pods::{attach, settings},
};

const WEB: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
const REFUSED: &str = "connection refused";

/// A node with two pods `a` and `b` that serve at 8080, a client pod, a machine outside, and a service proxy.
struct Node {
    cluster: Cluster,
    outside: Machine,
    a: (Machine, IpAddr),
    b: (Machine, IpAddr),
    client: Machine,
    client_address: IpAddr,
    stop: CancellationToken,
    _pods: Pods,
    _folder: tempfile::TempDir,
}

impl Node {
    async fn new() -> Self {
        let outside = outside().await;
        let folder = tempfile::tempdir().unwrap();
        let pods = Pods::open(settings(folder.path())).await.unwrap();
        let (a, b, client) = (Machine::new(), Machine::new(), Machine::new());
        let (at_a, at_b) = (attach(&pods, "a", &a, &[]).await, attach(&pods, "b", &b, &[]).await);
        let client_address = attach(&pods, "client", &client, &[]).await;
        a.serve(8080, "a");
        b.serve(8080, "b");
        let node = Self {
            cluster: Cluster::new(),
            outside,
            a: (a, at_a),
            b: (b, at_b),
            client,
            client_address,
            stop: CancellationToken::new(),
            _pods: pods,
            _folder: folder,
        };
        node.start();
        node
    }

    fn start(&self) {
        let setting = Setting {
            informers: self.cluster.informers(&self.stop),
            node_name: "here".into(),
            node_addresses: vec![NODE.into()],
            cluster_cidr: "10.244.0.0/16".into(),
        };
        tokio::spawn(proxy::run(setting, self.stop.clone()));
    }

    fn put(&self, spec: Value, endpoints: Value) {
        self.cluster.put("services", service("web", &WEB.to_string(), spec));
        self.cluster.put("endpointslices", slice("web", endpoints));
    }

    /// A socket of the client whose datagrams to the Service have gone to `a`, and where it sends them.
    async fn sent_to_a(&self) -> (UdpSocket, SocketAddr) {
        self.put(json!({}), json!([endpoint(self.a.1, "here")]));
        until("the service is there", || self.client.ask_udp(WEB, 80).is_ok()).await;
        let socket = self.client.run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
        let to = SocketAddr::from((WEB, 80));
        assert!(ask_udp_from(&socket, to).unwrap().starts_with("a "));
        (socket, to)
    }

    fn both(&self) -> Value {
        json!([endpoint(self.a.1, "here"), endpoint(self.b.1, "here")])
    }
}

/// Asks again until the answer is as expected: what the API says takes a moment to arrive.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..200 {
        if holds() {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

fn names(mut ask: impl FnMut() -> Result<String, String>) -> HashSet<String> {
    (0..40).map(|_| ask().unwrap().split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn a_service_leads_to_all_its_endpoints() {
    in_own_network(|| async {
        let node = Node::new().await;
        let both = HashSet::from(["a".to_owned(), "b".to_owned()]);
        node.put(json!({}), node.both());
        until("the service is there", || node.client.ask(WEB, 80).is_ok()).await;
        assert_eq!(names(|| node.client.ask(WEB, 80)), both);
        assert_eq!(names(|| node.client.ask_udp(WEB, 80)), both);
        assert_eq!(names(|| ask((WEB, 80).into())), both, "from the node itself");
        assert_eq!(names(|| node.a.0.ask(WEB, 80)), both, "also from one of them, to itself");
        assert_eq!(node.client.ask(WEB, 81), Err(REFUSED.into()), "a port that the service does not have");

        node.put(json!({}), json!([endpoint(node.b.1, "here")]));
        until("only b is left", || names(|| node.client.ask(WEB, 80)) == HashSet::from(["b".to_owned()])).await;
        node.put(json!({}), json!([]));
        until("nobody is left", || node.client.ask(WEB, 80) == Err(REFUSED.into())).await;
        assert_eq!(ask((WEB, 80).into()), Err(REFUSED.into()), "from the node too");
        node.put(json!({}), node.both());
        until("they are back", || node.client.ask(WEB, 80).is_ok()).await;
        node.cluster.delete("services", "default", "web");
        until("the service is gone", || node.client.ask(WEB, 80).is_err()).await;
    });
}

#[test]
fn pods_see_who_asks_and_the_outside_comes_by_the_node() {
    in_own_network(|| async {
        let node = Node::new().await;
        let external = Ipv4Addr::new(203, 0, 113, 5);
        let ports = json!([{"name": "tcp", "protocol": "TCP", "port": 80, "nodePort": 30080}]);
        let spec = json!({"type": "NodePort", "ports": ports, "externalIPs": [external.to_string()]});
        node.put(spec, json!([endpoint(node.a.1, "here")]));
        until("the node port is there", || node.outside.ask(NODE, 30080).is_ok()).await;
        assert_eq!(
            node.outside.ask(NODE, 30080).unwrap(),
            format!("a {NODE}"),
            "masqueraded, so that answers come back"
        );
        assert_eq!(ask((NODE, 30080).into()).unwrap(), format!("a {NODE}"));
        assert!(node.client.ask(WEB, 80).unwrap().starts_with("a 10.244.0."), "a pod is seen as it is");
        assert!(node.client.ask(NODE, 30080).unwrap().starts_with("a "));
        assert!(node.client.ask(external, 80).unwrap().starts_with("a "));
        assert_eq!(node.a.0.ask(WEB, 80).unwrap(), format!("a {NODE}"), "to itself, by way of the node");
    });
}

#[test]
fn traffic_stays_on_the_node_if_it_is_told_to() {
    in_own_network(|| async {
        let node = Node::new().await;
        let ports = json!([{"name": "tcp", "protocol": "TCP", "port": 80, "nodePort": 30080}]);
        let spec = json!({"type": "LoadBalancer", "ports": ports, "externalTrafficPolicy": "Local",
            "internalTrafficPolicy": "Local", "healthCheckNodePort": 30999});
        node.put(spec.clone(), json!([endpoint(node.a.1, "here"), endpoint(node.b.1, "elsewhere")]));
        until("the node port is there", || node.outside.ask(NODE, 30080).is_ok()).await;
        let a = HashSet::from(["a".to_owned()]);
        assert_eq!(node.outside.ask(NODE, 30080).unwrap(), format!("a {OUTSIDE}"), "the client's own address is seen");
        assert_eq!(names(|| node.outside.ask(NODE, 30080)), a);
        assert_eq!(names(|| node.client.ask(WEB, 80)), a);
        let both = HashSet::from(["a".to_owned(), "b".to_owned()]);
        assert_eq!(names(|| node.client.ask(NODE, 30080)), both, "from the cluster to all");
        until("load balancers are told", || health(&node).starts_with("HTTP/1.1 200")).await;
        assert!(health(&node).contains("\"localEndpoints\":1"), "{}", health(&node));

        node.put(spec, json!([endpoint(node.b.1, "elsewhere")]));
        until("there is none here", || health(&node).starts_with("HTTP/1.1 503")).await;
        until("nobody answers the outside", || node.outside.ask(NODE, 30080) == Err("timed out".into())).await;
        assert_eq!(names(|| node.client.ask(NODE, 30080)), HashSet::from(["b".to_owned()]));
    });
}

fn health(node: &Node) -> String {
    use std::io::{Read, Write};
    node.outside.run(|| {
        let mut answer = String::new();
        if let Ok(mut stream) = std::net::TcpStream::connect((NODE, 30999)) {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            stream.read_to_string(&mut answer).unwrap();
        }
        answer
    })
}

#[test]
fn a_balanced_address_can_be_kept_for_some() {
    in_own_network(|| async {
        let node = Node::new().await;
        let balanced = Ipv4Addr::new(203, 0, 113, 7);
        let entered = |ranges: Value| {
            let spec = json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ranges});
            let mut service = service("web", &WEB.to_string(), spec);
            service["status"] = json!({"loadBalancer": {"ingress": [{"ip": balanced.to_string()}]}});
            node.cluster.put("services", service);
        };
        node.cluster.put("endpointslices", slice("web", node.both()));
        // The kernel does not take blocks that overlap.
        entered(json!(["10.244.0.0/16", "192.0.2.128/25", "10.244.0.0/24", "10.244.0.0/16"]));
        until("pods may enter", || node.client.ask(balanced, 80).is_ok()).await;
        let to_balanced = nlink::netlink::route::Ipv4Route::from_addr(balanced, 32).gateway(NODE);
        let there = nlink::Connection::<nlink::Route>::new_in(node.outside.netns.as_path()).unwrap();
        there.add_route(to_balanced).await.unwrap();
        assert_eq!(node.outside.ask(balanced, 80), Err("timed out".into()));
        assert_eq!(ask((balanced, 80).into()), Err("timed out".into()), "nor may the node itself");
        assert!(node.client.ask(WEB, 80).is_ok(), "its own address is free to enter");
        entered(json!(["192.0.2.0/25"]));
        until("the outside may enter", || node.outside.ask(balanced, 80).is_ok()).await;
        assert!(ask((balanced, 80).into()).is_ok(), "and the node");
        assert_eq!(node.client.ask(balanced, 80), Err("timed out".into()));
    });
}

#[test]
fn a_client_comes_back_to_the_same_endpoint() {
    in_own_network(|| async {
        let node = Node::new().await;
        let spec =
            json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 100}}});
        node.put(spec.clone(), node.both());
        until("the service is there", || node.client.ask(WEB, 80).is_ok()).await;
        let first = names(|| node.client.ask(WEB, 80));
        assert_eq!(first.len(), 1);
        let (kept, other) = if first.contains("a") { (&node.a, "b") } else { (&node.b, "a") };
        let left: Vec<Value> = node
            .both()
            .as_array()
            .unwrap()
            .iter()
            .filter(|e| e["addresses"][0] != kept.1.to_string())
            .cloned()
            .collect();
        node.put(spec.clone(), json!(left));
        until("the client moves", || node.client.ask(WEB, 80).is_ok_and(|answer| answer.starts_with(other))).await;
        node.put(spec, node.both());
        sleep(Duration::from_millis(100)).await;
        assert_eq!(names(|| node.client.ask(WEB, 80)), HashSet::from([other.to_owned()]), "and stays there");
    });
}

#[test]
fn clients_stay_with_their_endpoints_when_everything_is_written_anew() {
    in_own_network(|| async {
        let mut node = Node::new().await;
        let seconds = 100;
        node.put(
            json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}}),
            node.both(),
        );
        until("the service is there", || node.client.ask(WEB, 80).is_ok()).await;
        let went = |node: &Node| {
            let name = |answer: Result<String, String>| answer.unwrap().split(' ').next().unwrap().to_owned();
            [&node.client, &node.a.0, &node.b.0].map(|asks| [name(asks.ask(WEB, 80)), name(asks.ask_udp(WEB, 80))])
        };
        let before = went(&node);
        for start in 1..=3 {
            node.stop.cancel();
            tokio::task::yield_now().await;
            // Another Service, which comes first by its name.
            let (name, address) = (format!("another-{start}"), Ipv4Addr::new(10, 96, 0, 20 + start));
            node.cluster.put("services", service(&name, &address.to_string(), json!({})));
            node.cluster.put("endpointslices", slice(&name, node.both()));
            node.stop = CancellationToken::new();
            node.start();
            until("it is written anew", || node.client.ask(address, 80).is_ok()).await;
            assert_eq!(went(&node), before);
        }
        let kernel = nlink::Connection::<nlink::Nftables>::new().unwrap();
        let family = nlink::netlink::nftables::Family::Ip;
        let known = kernel.list_set_elements("ferry-services", "clients", family).await.unwrap();
        let left = |seconds: u64| Duration::from_secs(seconds);
        assert_eq!(known.len(), 6, "three clients of two ports");
        assert!(known.iter().all(|one| one.expiration().is_some_and(|until| until <= left(seconds))), "{known:?}");
    });
}

#[test]
fn datagrams_do_not_go_to_an_endpoint_that_is_gone() {
    in_own_network(|| async {
        let node = Node::new().await;
        let (socket, to) = node.sent_to_a().await;
        node.put(json!({}), json!([endpoint(node.b.1, "here")]));
        // The same socket: the kernel remembers where its datagrams went.
        until("the next datagram goes to b", || ask_udp_from(&socket, to).is_ok_and(|answer| answer.starts_with("b ")))
            .await;
    });
}

#[test]
fn datagrams_stay_with_an_endpoint_that_ends_but_still_serves() {
    in_own_network(|| async {
        let node = Node::new().await;
        let (socket, to) = node.sent_to_a().await;
        let mut ending = endpoint(node.a.1, "here");
        ending["conditions"] = json!({"ready": false, "serving": true, "terminating": true});
        node.put(json!({}), json!([ending, endpoint(node.b.1, "here")]));
        until("others go to b", || names(|| node.client.ask_udp(WEB, 80)) == HashSet::from(["b".to_owned()])).await;
        assert!(ask_udp_from(&socket, to).unwrap().starts_with("a "), "who went to a before still does");
        ending["conditions"]["serving"] = json!(false);
        node.put(json!({}), json!([ending, endpoint(node.b.1, "here")]));
        until("then to b, too", || ask_udp_from(&socket, to).is_ok_and(|answer| answer.starts_with("b "))).await;
    });
}

#[test]
fn what_others_flush_comes_back_with_the_next_change() {
    in_own_network(|| async {
        let node = Node::new().await;
        node.put(json!({}), node.both());
        until("the service is there", || node.client.ask(WEB, 80).is_ok()).await;
        flush_rules().await;
        assert!(node.client.ask(WEB, 80).is_err());
        node.put(json!({}), json!([endpoint(node.b.1, "here")]));
        until("it is back", || node.client.ask(WEB, 80).is_ok()).await;
    });
}

#[test]
fn what_goes_to_a_service_that_is_not_there_stays_in_the_cluster() {
    in_own_network(|| async {
        let node = Node::new().await;
        let nobodys = Ipv4Addr::new(10, 96, 0, 77);
        let there = nlink::Connection::<nlink::Route>::new_in(node.outside.netns.as_path()).unwrap();
        there.add_address(nlink::netlink::addr::Ipv4Address::new("eth0", nobodys, 32)).await.unwrap();
        node.outside.serve(8080, "outside");
        assert!(node.client.ask(nobodys, 8080).is_ok(), "as long as nobody knows that it is an address of Services");
        node.cluster.put(
            "servicecidrs",
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
                "spec": {"cidrs": ["10.96.0.0/16"]}}),
        );
        until("nobody answers", || node.client.ask(nobodys, 8080) == Err("timed out".into())).await;
        node.put(json!({}), node.both());
        until("a service of the block is there", || node.client.ask(WEB, 80).is_ok()).await;
        assert_eq!(node.client.ask(WEB, 81), Err(REFUSED.into()));
    });
}

#[test]
fn stray_packets_of_pods_do_not_reach_clients() {
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket, sockopt};
    in_own_network(|| async {
        let node = Node::new().await;
        node.put(json!({}), node.both());
        until("the service is there", || node.client.ask(WEB, 80).is_ok()).await;
        let (IpAddr::V4(a), IpAddr::V4(client)) = (node.a.1, node.client_address) else { panic!("IPv4") };
        let raw = || socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::TCP)).unwrap();
        let hears = node.client.run(raw);
        sockopt::set_socket_timeout(&hears, sockopt::Timeout::Recv, Some(Duration::from_millis(500))).unwrap();
        // From port 8080 to port 99. One begins and ends a connection at once, which is nonsense; one only begins it.
        let packet = |flags: u8| {
            let mut header = [0x1f, 0x90, 0, 99, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0x20, 0, 0, 0, 0, 0];
            let pseudo = [a.octets(), client.octets(), [0, 6, 0, 20]].concat();
            let words = pseudo.chunks(2).chain(header.chunks(2));
            let sum = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u32>();
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            header[16..18].copy_from_slice(&sum.to_be_bytes());
            header
        };
        let (nonsense, begins) = (packet(0x03), packet(0x02));
        node.a.0.run(move || {
            let to = SocketAddr::from((client, 0));
            for packet in [nonsense, begins] {
                sendto(raw(), &packet, SendFlags::empty(), &to).unwrap();
            }
        });
        let heard = node.client.run(move || {
            let (mut heard, mut buffer) = (Vec::new(), [0; 128]);
            while let Ok((length, _)) = recv(&hears, &mut buffer, RecvFlags::empty()) {
                // After the header of twenty bytes: the port it comes from, and thirteen bytes on the flags.
                if buffer[..length].get(20..22) == Some(&[0x1f, 0x90]) && buffer[22..24] == [0, 99] {
                    heard.push(buffer[33]);
                }
            }
            heard
        });
        assert_eq!(heard, [0x02], "only what may begin a connection");
    });
}

#[test]
fn endpoints_that_end_serve_while_there_are_no_others() {
    in_own_network(|| async {
        let node = Node::new().await;
        let mut ending = endpoint(node.a.1, "here");
        ending["conditions"] = json!({"ready": false, "serving": true, "terminating": true});
        node.put(json!({}), json!([ending]));
        until("a still serves", || node.client.ask(WEB, 80).is_ok()).await;
        node.put(json!({}), json!([ending, endpoint(node.b.1, "here")]));
        until("only b is asked", || names(|| node.client.ask(WEB, 80)) == HashSet::from(["b".to_owned()])).await;
    });
}

#[test]
fn services_work_while_nobody_keeps_them_and_a_purge_leaves_nothing() {
    in_own_network(|| async {
        let mut node = Node::new().await;
        node.put(json!({}), node.both());
        until("the service is there", || node.client.ask(WEB, 80).is_ok()).await;
        node.stop.cancel();
        tokio::task::yield_now().await;
        assert_eq!(names(|| node.client.ask(WEB, 80)).len(), 2);
        // Another process finds the table, and changes that happened meanwhile.
        node.put(json!({}), json!([endpoint(node.b.1, "here")]));
        node.stop = CancellationToken::new();
        node.start();
        until("only b is left", || names(|| node.client.ask(WEB, 80)) == HashSet::from(["b".to_owned()])).await;
        node.stop.cancel();
        tokio::task::yield_now().await;
        proxy::purge().await.unwrap();
        proxy::purge().await.unwrap();
        let left = state_of_the_network().await;
        assert!(!left.iter().any(|line| line.contains("ferry-services")), "{left:?}");
    });
}

#[test]
fn no_request_fails_while_endpoints_come_and_go() {
    in_own_network(|| async {
        let node = Node::new().await;
        node.put(json!({}), node.both());
        until("the service is there", || node.client.ask(WEB, 80).is_ok()).await;
        let client = node.client;
        let asking = tokio::task::spawn_blocking(move || -> Vec<String> {
            (0..400).filter_map(|_| client.ask(WEB, 80).err()).collect()
        });
        let mut turns = [
            json!([endpoint(node.a.1, "here")]),
            json!([endpoint(node.b.1, "here")]),
            json!([endpoint(node.a.1, "here"), endpoint(node.b.1, "here")]),
        ]
        .into_iter()
        .cycle();
        while !asking.is_finished() {
            node.cluster.put("endpointslices", slice("web", turns.next().unwrap()));
            sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(asking.await.unwrap(), Vec::<String>::new());
    });
}
