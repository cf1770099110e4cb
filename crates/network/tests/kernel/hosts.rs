use std::{
    net::{IpAddr, Ipv4Addr},
    path::Path,
    time::Duration,
};

use network::{
    hosts,
    pods::{Pods, Settings},
    routes,
};
use serde_json::json;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    fake::Cluster,
    machine::{Machine, NODE, OUTSIDE, ask, in_own_network, outside, state_of_the_network},
    pods::attach,
};

fn settings(folder: &Path, number: u8) -> Settings {
    Settings {
        state: folder.join(number.to_string()),
        pod_cidr: format!("10.244.{number}.0/24"),
        cluster_cidr: "10.244.0.0/16".into(),
    }
}

fn node(cluster: &Cluster, name: &str, address: IpAddr, number: u8) {
    cluster.put(
        "nodes",
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"podCIDR": format!("10.244.{number}.0/24"), "podCIDRs": [format!("10.244.{number}.0/24")]},
            "status": {"addresses": [{"type": "InternalIP", "address": address.to_string()}]}}),
    );
}

#[test]
fn pods_of_all_hosts_reach_each_other_and_hosts_can_be_removed() {
    in_own_network(|| async {
        let outside = outside().await;
        outside.serve(8080, "outside");
        let before = state_of_the_network().await;
        let name = format!("test-{}-{}", std::process::id(), before.len());
        let (one, two) = (hosts::ensure(&name, "one").await.unwrap(), hosts::ensure(&name, "two").await.unwrap());
        let again = hosts::ensure(&name, "one").await.unwrap();
        assert_eq!((again.address, again.gateway), (one.address, one.gateway));
        assert_ne!(one.address, two.address);
        let links_of = |host: &str| {
            let links = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
            hosts::inside(&name, host, links).unwrap()
        };
        assert!(links_of("one").contains("eth0:"), "{}", links_of("one"));
        let nowhere = links_of("never");
        assert!(nowhere.contains("lo:") && !nowhere.contains("eth0:") && !nowhere.contains("outside0:"), "{nowhere}");

        let (at_one, at_two) = (Machine::at(one.netns.clone()), Machine::at(two.netns.clone()));
        at_one.serve(8080, "one");
        assert_eq!(ask((one.address, 8080).into()).unwrap(), format!("one {}", one.gateway));
        assert_eq!(
            at_two.ask(one.address, 8080).unwrap(),
            format!("one {}", two.address),
            "hosts see each other as they are"
        );
        assert_eq!(at_one.ask([192, 0, 2, 2], 8080).unwrap(), format!("outside {NODE}"));

        let cluster = Cluster::new();
        node(&cluster, "here", NODE.into(), 0);
        node(&cluster, "one", one.address, 1);
        node(&cluster, "two", two.address, 2);
        let (stop, folder) = (CancellationToken::new(), tempfile::tempdir().unwrap());
        tokio::spawn(routes::run(cluster.informers(&stop), "here".into(), stop.clone()));
        let (here, there, beyond) = (Machine::new(), Machine::new(), Machine::new());
        let pods = Pods::open(settings(folder.path(), 0)).await.unwrap();
        let at_here = attach(&pods, "here", &here, &[]).await;
        let mut addresses = Vec::new();
        for (number, host, pod) in [(1, &at_one, &there), (2, &at_two, &beyond)] {
            let (cluster, stop) = (cluster.clone(), stop.clone());
            let (settings, netns) = (settings(folder.path(), number), pod.netns.clone());
            let name = if number == 1 { "one" } else { "two" };
            addresses.push(host.block_on(move || async move {
                tokio::spawn(routes::run(cluster.informers(&stop), name.into(), stop.clone()));
                let pods = Box::leak(Box::new(Pods::open(settings).await.unwrap()));
                pods.attach("pod", &netns, &[]).await.unwrap()[0]
            }));
        }
        there.serve(8080, "there");
        here.serve(8080, "here");
        let mut reached = Err(String::new());
        for _ in 0..50 {
            reached = beyond.ask(addresses[0], 8080).and_then(|_| here.ask(addresses[0], 8080));
            if reached.is_ok() {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(reached.unwrap(), format!("there {at_here}"), "pods see each other across hosts");
        assert_eq!(beyond.ask(addresses[0], 8080).unwrap(), format!("there {}", addresses[1]));
        assert_eq!(beyond.ask(at_here, 8080).unwrap(), format!("here {}", addresses[1]));

        // A node that goes takes its route along.
        cluster.delete("nodes", "", "two");
        let route_to_two = || async { state_of_the_network().await.iter().any(|line| line.contains("10.244.2.0")) };
        for _ in 0..100 {
            if !route_to_two().await {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
        assert!(!route_to_two().await);

        stop.cancel();
        tokio::task::yield_now().await;
        routes::purge().await.unwrap();
        pods.purge().await.unwrap();
        for host in ["one", "two", "two", "never"] {
            hosts::remove(&name, host).await.unwrap();
        }
        assert_eq!(state_of_the_network().await, before);
        assert!(!one.netns.exists() && !one.netns.parent().unwrap().exists());
    });
}

#[test]
fn a_node_without_a_way_to_it_does_not_keep_the_others_from_being_reached() {
    in_own_network(|| async {
        let _there = outside().await;
        let kernel = nlink::Connection::<nlink::Route>::new().unwrap();
        kernel.del_route(nlink::netlink::route::Ipv4Route::default_route().gateway(OUTSIDE)).await.unwrap();
        let cluster = Cluster::new();
        node(&cluster, "a-lost", Ipv4Addr::new(198, 51, 100, 1).into(), 1);
        node(&cluster, "b-there", OUTSIDE.into(), 2);
        node(&cluster, "c-lost", Ipv4Addr::new(198, 51, 100, 2).into(), 3);
        let stop = CancellationToken::new();
        tokio::spawn(routes::run(cluster.informers(&stop), "here".into(), stop.clone()));
        let route_to = |block: &'static str| async move {
            state_of_the_network().await.iter().any(|line| line.starts_with("route") && line.contains(block))
        };
        let reached = async |block| {
            while !route_to(block).await {
                sleep(Duration::from_millis(10)).await;
            }
        };
        // A try after a failure is five seconds after it. Nodes that come meanwhile do not wait for that.
        let all = async {
            reached("10.244.2.0").await;
            for (name, number, block) in [("d", 4, "10.244.4.0"), ("e", 5, "10.244.5.0"), ("f", 6, "10.244.6.0")] {
                node(&cluster, name, OUTSIDE.into(), number);
                reached(block).await;
            }
        };
        timeout(Duration::from_secs(10), all).await.expect("routes to all that can be reached");
        assert!(!route_to("10.244.1.0").await && !route_to("10.244.3.0").await);
        stop.cancel();
    });
}
