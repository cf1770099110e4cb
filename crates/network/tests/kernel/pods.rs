use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    path::Path,
    time::Duration,
};

use network::pods::{HostPort, Pods, Settings};
use nlink::{Connection, Route};

use crate::machine::{
    Machine, NODE, OUTSIDE, ask, ask_udp_from, flush_rules, in_own_network, outside, state_of_the_network,
};

pub fn settings(state: &Path) -> Settings {
    Settings { state: state.join("pods"), pod_cidr: "10.244.0.0/24".into(), cluster_cidr: "10.244.0.0/16".into() }
}

pub async fn attach(pods: &Pods, id: &str, machine: &Machine, ports: &[HostPort]) -> IpAddr {
    pods.attach(id, &machine.netns, ports).await.unwrap()[0]
}

#[test]
fn pods_reach_each_other_the_node_and_the_outside() {
    in_own_network(|| async {
        let outside = outside().await;
        let folder = tempfile::tempdir().unwrap();
        let pods = Pods::open(settings(folder.path())).await.unwrap();
        let (a, b) = (Machine::new(), Machine::new());
        let (at_a, at_b) = (attach(&pods, "a", &a, &[]).await, attach(&pods, "b", &b, &[]).await);
        a.serve(8080, "a");
        b.serve(8080, "b");
        outside.serve(8080, "outside");

        assert_eq!(a.ask(at_b, 8080).unwrap(), format!("b {at_a}"), "a pod sees the other's address");
        assert_eq!(b.ask(at_a, 8080).unwrap(), format!("a {at_b}"));
        assert_eq!(b.ask_udp(at_a, 8080).unwrap(), format!("a {at_b}"));
        assert_eq!(a.ask(Ipv4Addr::LOCALHOST, 8080).unwrap(), "a 127.0.0.1", "the loopback is up");
        assert_eq!(ask(SocketAddr::new(at_a, 8080)).unwrap(), format!("a {NODE}"), "the node reaches its pods");
        assert_eq!(a.ask(OUTSIDE, 8080).unwrap(), format!("outside {NODE}"), "the outside sees the node only");
    });
}

#[test]
fn pods_that_a_stopped_cluster_has_left_keep_their_addresses() {
    in_own_network(|| async {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (old, new) = (Machine::new(), Machine::new());
        let pods = Pods::open(settings(first.path())).await.unwrap();
        let at_old = attach(&pods, "old", &old, &[]).await;
        drop(pods);
        let pods = Pods::open(settings(second.path())).await.unwrap();
        let at_new = attach(&pods, "new", &new, &[]).await;
        assert_ne!(at_new, at_old);
        old.serve(8080, "old");
        new.serve(8080, "new");
        assert_eq!(new.ask(at_old, 8080).unwrap(), format!("old {at_new}"));
        assert_eq!(old.ask(at_new, 8080).unwrap(), format!("new {at_old}"));
    });
}

#[test]
fn everything_survives_a_new_process_and_a_purge_leaves_nothing() {
    in_own_network(|| async {
        let outside = outside().await;
        let before = state_of_the_network().await;
        let folder = tempfile::tempdir().unwrap();
        let pods = Pods::open(settings(folder.path())).await.unwrap();
        let (a, b) = (Machine::new(), Machine::new());
        let at_a = attach(&pods, "a", &a, &[]).await;
        a.serve(8080, "a");
        outside.serve(8080, "outside");
        // As after kill -9: nothing is closed in order.
        std::mem::forget(pods);
        assert_eq!(a.ask(OUTSIDE, 8080).unwrap(), format!("outside {NODE}"));

        let pods = Pods::open(settings(folder.path())).await.unwrap();
        assert_eq!(a.ask(OUTSIDE, 8080).unwrap(), format!("outside {NODE}"), "without being attached again");
        assert_eq!(attach(&pods, "a", &a, &[]).await, at_a);
        let at_b = attach(&pods, "b", &b, &[]).await;
        assert_ne!(at_a, at_b);
        assert_eq!(b.ask(at_a, 8080).unwrap(), format!("a {at_b}"));

        pods.detach("b").await.unwrap();
        pods.detach("b").await.unwrap();
        pods.detach("never attached").await.unwrap();
        assert_eq!(pods.ids().await, ["a"]);
        let again = Machine::new();
        assert_eq!(attach(&pods, "a", &again, &[]).await, at_a, "the same pod in a new namespace keeps its address");
        again.serve(8080, "again");
        assert_eq!(ask(SocketAddr::new(at_a, 8080)).unwrap(), format!("again {NODE}"));

        pods.purge().await.unwrap();
        assert_eq!(state_of_the_network().await, before);
        assert!(!folder.path().join("pods").exists());
    });
}

#[test]
fn ports_of_the_node_lead_to_pods() {
    in_own_network(|| async {
        let outside = outside().await;
        let folder = tempfile::tempdir().unwrap();
        let pods = Pods::open(settings(folder.path())).await.unwrap();
        let (a, b) = (Machine::new(), Machine::new());
        let port = |protocol: &str, host: Ipv4Addr, port: u16| HostPort {
            protocol: protocol.into(),
            host: (host, port).into(),
            container_port: 8080,
        };
        let at_a = attach(&pods, "a", &a, &[port("TCP", Ipv4Addr::UNSPECIFIED, 80), port("TCP", NODE, 81)]).await;
        // The same port on another address, and for another protocol.
        let local = [port("TCP", Ipv4Addr::LOCALHOST, 81), port("UDP", NODE, 81)];
        attach(&pods, "b", &b, &local).await;
        a.serve(8080, "a");
        b.serve(8080, "b");

        assert_eq!(outside.ask(NODE, 80).unwrap(), format!("a {OUTSIDE}"));
        assert_eq!(outside.ask(NODE, 81).unwrap(), format!("a {OUTSIDE}"));
        assert_eq!(outside.ask_udp(NODE, 81).unwrap(), format!("b {OUTSIDE}"));
        assert_eq!(ask((Ipv4Addr::LOCALHOST, 80).into()).unwrap(), format!("a {NODE}"));
        assert_eq!(ask((Ipv4Addr::LOCALHOST, 81).into()).unwrap(), format!("b {NODE}"));
        assert_eq!(a.ask(NODE, 80).unwrap(), format!("a {NODE}"), "a pod reaches itself through its port of the node");
        assert_eq!(b.ask(at_a, 8080).map(|answer| answer.starts_with('a')), Ok(true));

        pods.detach("a").await.unwrap();
        assert!(outside.ask(NODE, 80).is_err());
        assert_eq!(outside.ask_udp(NODE, 81).unwrap(), format!("b {OUTSIDE}"));
    });
}

#[test]
fn a_pod_with_a_port_of_the_node_does_not_reach_the_loopback_of_the_node() {
    in_own_network(|| async {
        let _outside = outside().await;
        let folder = tempfile::tempdir().unwrap();
        let pods = Pods::open(settings(folder.path())).await.unwrap();
        let a = Machine::new();
        let port = HostPort { protocol: "UDP".into(), host: (Ipv4Addr::UNSPECIFIED, 53).into(), container_port: 8080 };
        attach(&pods, "a", &a, std::slice::from_ref(&port)).await;
        a.serve(8080, "a");
        let node_only = UdpSocket::bind((Ipv4Addr::LOCALHOST, 5000)).unwrap();
        node_only.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        // Without a loopback of its own, what the pod sends there goes out by the default route. One that may write raw packets
        // does not need that.
        let in_pod = Connection::<Route>::new_in(a.netns.as_path()).unwrap();
        in_pod.del_address("lo", Ipv4Addr::LOCALHOST.into(), 8).await.unwrap();
        let reached = || {
            a.run(|| {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
                [5000, 53].map(|port| socket.send_to(b"?", (Ipv4Addr::LOCALHOST, port)).unwrap())
            });
            node_only.recv(&mut [0; 8]).is_ok()
        };
        assert!(!reached());
        let own = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let answer = ask_udp_from(&own, (Ipv4Addr::LOCALHOST, 53).into());
        assert_eq!(answer.unwrap(), format!("a {NODE}"), "the node's own programs reach the port there");
        flush_rules().await;
        assert!(reached(), "it is our rules that keep it from there");
    });
}

#[test]
fn clients_that_sent_datagrams_before_reach_the_pod() {
    in_own_network(|| async {
        let outside = outside().await;
        let folder = tempfile::tempdir().unwrap();
        let pods = Pods::open(settings(folder.path())).await.unwrap();
        let (a, b) = (Machine::new(), Machine::new());
        let port = HostPort { protocol: "UDP".into(), host: (Ipv4Addr::UNSPECIFIED, 53).into(), container_port: 8080 };
        a.serve(8080, "a");
        b.serve(8080, "b");
        let socket = outside.run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
        let to = SocketAddr::from((NODE, 53));
        // Somebody on the node answers, so that the kernel remembers it.
        let own = UdpSocket::bind(to).unwrap();
        socket.send_to(b"?", to).unwrap();
        let (_, from) = own.recv_from(&mut [0; 8]).unwrap();
        own.send_to(b"node", from).unwrap();
        drop(own);
        assert_eq!(socket.recv(&mut [0; 8]).unwrap(), 4);

        attach(&pods, "a", &a, std::slice::from_ref(&port)).await;
        assert_eq!(ask_udp_from(&socket, to).unwrap(), format!("a {OUTSIDE}"));
        pods.detach("a").await.unwrap();
        attach(&pods, "b", &b, std::slice::from_ref(&port)).await;
        assert_eq!(ask_udp_from(&socket, to).unwrap(), format!("b {OUTSIDE}"));
    });
}

#[test]
fn a_node_that_gets_another_block_keeps_its_pods() {
    in_own_network(|| async {
        let outside = outside().await;
        outside.serve(8080, "outside");
        let folder = tempfile::tempdir().unwrap();
        let pods = Pods::open(settings(folder.path())).await.unwrap();
        let (old, new) = (Machine::new(), Machine::new());
        let at_old = attach(&pods, "old", &old, &[]).await;
        drop(pods);
        let other = Settings { pod_cidr: "10.244.7.0/24".into(), ..settings(folder.path()) };
        let pods = Pods::open(other).await.unwrap();
        let at_new = attach(&pods, "new", &new, &[]).await;
        assert_eq!(at_new.to_string(), "10.244.7.1");
        old.serve(8080, "old");
        assert_eq!(new.ask(at_old, 8080).unwrap(), format!("old {at_new}"));
        assert_eq!(old.ask(OUTSIDE, 8080).unwrap(), format!("outside {NODE}"));
        assert_eq!(new.ask(OUTSIDE, 8080).unwrap(), format!("outside {NODE}"));
        pods.detach("old").await.unwrap();
        assert_eq!(pods.ids().await, ["new"]);
    });
}

#[test]
fn what_others_flush_is_made_again() {
    in_own_network(|| async {
        let outside = outside().await;
        let folder = tempfile::tempdir().unwrap();
        let pods = Pods::open(settings(folder.path())).await.unwrap();
        let (a, b) = (Machine::new(), Machine::new());
        let port = HostPort { protocol: "TCP".into(), host: (Ipv4Addr::UNSPECIFIED, 80).into(), container_port: 8080 };
        attach(&pods, "a", &a, std::slice::from_ref(&port)).await;
        a.serve(8080, "a");
        outside.serve(8080, "outside");
        flush_rules().await;
        assert!(a.ask(OUTSIDE, 8080).is_err(), "nothing is masqueraded");
        attach(&pods, "b", &b, &[]).await;
        assert_eq!(a.ask(OUTSIDE, 8080).unwrap(), format!("outside {NODE}"));
        assert_eq!(outside.ask(NODE, 80).unwrap(), format!("a {OUTSIDE}"));
        flush_rules().await;
        pods.detach("b").await.unwrap();
        assert_eq!(outside.ask(NODE, 80).unwrap(), format!("a {OUTSIDE}"));
        assert_eq!(pods.ids().await, ["a"]);
    });
}

#[test]
fn many_are_attached_at_once() {
    in_own_network(|| async {
        let folder = tempfile::tempdir().unwrap();
        let pods = Pods::open(settings(folder.path())).await.unwrap();
        let machines: Vec<Machine> = (0..50).map(|_| Machine::new()).collect();
        let names: Vec<String> = (0..50).map(|n| format!("pod-{n}")).collect();
        let attached = machines.iter().zip(&names).map(|(machine, name)| attach(&pods, name, machine, &[]));
        let addresses = futures::future::join_all(attached).await;
        let distinct: std::collections::HashSet<_> = addresses.iter().collect();
        assert_eq!(distinct.len(), 50);
        machines[0].serve(8080, "first");
        assert_eq!(machines[49].ask(addresses[0], 8080).unwrap(), format!("first {}", addresses[49]));
        pods.purge().await.unwrap();
    });
}
