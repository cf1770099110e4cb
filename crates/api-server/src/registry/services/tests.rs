use std::collections::HashMap;

use object_model::status::Reason;
use storage::{Range, Store};
use storage_embedded::{EmbeddedStore, Options};
use tempfile::TempDir;

use super::*;
use crate::{
    Server, Settings,
    clock::SystemClock,
    context::RequestContext,
    options::WriteOptions,
    registry::{Change, DeleteOptions},
};

#[test]
fn the_upper_part_of_a_range_is_chosen_first() {
    for _ in 0..50 {
        assert_eq!(choose(10, 13, 2, |n| n != 12), Some(13));
        assert!([10, 11].contains(&choose(10, 13, 2, |n| n < 12).unwrap_or_default()));
    }
    assert_eq!(choose(10, 13, 2, |_| false), None);
    assert_eq!(choose(10, 9, 0, |_| true), None);
}

#[test]
fn a_block_leaves_out_network_and_broadcast() {
    let block = Block::parse("10.96.0.0/16").expect("a block");
    let holds = |ip: &str| block.contains(ip.parse().expect("an address"));
    assert!(holds("10.96.0.1") && holds("10.96.255.254"));
    assert!(!holds("10.96.0.0") && !holds("10.96.255.255") && !holds("10.97.0.1") && !holds("::1"));
    for _ in 0..50 {
        let IpAddr::V4(chosen) = block.free(|_| true).expect("there is one") else { panic!("of its family") };
        assert!(u32::from(chosen) > 0x0a60_0100, "{chosen} is in the part for those who name theirs");
    }
    let small = Block::parse("10.0.0.0/30").expect("a block");
    assert_eq!(small.free(|ip| ip.to_string() != "10.0.0.1").map(|ip| ip.to_string()), Some("10.0.0.2".to_owned()));
    assert!(small.free(|_| false).is_none());
    assert!(Block::parse("10.0.0.0/32").is_none_or(|block| block.free(|_| true).is_none()));
    let v6 = Block::parse("fd00::/112").expect("a block");
    assert!(v6.contains("fd00::ffff".parse().expect("an address")));
}

#[test]
fn ports_of_one_number_share_and_others_do_not() {
    let mut ports = Ports::new(BTreeSet::from([30001]), false);
    let mut list = [
        json!({"port": 53, "protocol": "UDP"}),
        json!({"port": 53, "protocol": "TCP", "nodePort": 30053}),
        json!({"port": 80, "protocol": "TCP"}),
    ];
    assert_eq!(ports.for_new(&mut list, true), Ok(()));
    assert_eq!((list[0].int("nodePort"), list[1].int("nodePort")), (Some(30053), Some(30053)));
    assert!(list[2].int("nodePort").is_some_and(|port| (30086..=32767).contains(&port)));
    let refused = |port: i64, why: &str| Err(Wrong::Port { index: 0, port, why: why.to_owned() });
    let claim = |port: i64| {
        let mut list = [json!({"port": 80, "nodePort": port})];
        Ports::new(BTreeSet::from([30001]), false).for_new(&mut list, true)
    };
    assert_eq!(claim(30001), refused(30001, "provided port is already allocated"));
    let range = "provided port is not in the valid range. The range of valid ports is 30000-32767";
    assert_eq!(claim(80), refused(80, range));
    let mut full = Ports::new((30000..=32767).collect(), false);
    let none = Err(Wrong::Full("failed to allocate a nodePort: range is full".to_owned()));
    assert_eq!(full.for_new(&mut [json!({"port": 80})], true), none);
}

#[test]
fn a_changed_service_keeps_its_ports() {
    let mut ports = Ports::new(BTreeSet::from([30001, 30002]), false);
    let mut list = [json!({"port": 80, "protocol": "TCP", "nodePort": 30001}), json!({"port": 81, "protocol": "TCP"})];
    assert_eq!(ports.for_changed(&mut list, &[30001], true), Ok(()));
    assert_eq!(list[0].int("nodePort"), Some(30001));
    assert_eq!(ports.claimed, list[1].int("nodePort").into_iter().collect());
    let mut twice = [
        json!({"port": 80, "protocol": "TCP", "nodePort": 30009}),
        json!({"port": 81, "protocol": "TCP", "nodePort": 30009}),
    ];
    let duplicate = Err(Wrong::Other("duplicate nodePort: {TCP 30009}".to_owned()));
    assert_eq!(Ports::new(BTreeSet::new(), false).for_changed(&mut twice, &[], true), duplicate);
}

/// A server on a store of its own.
struct Cluster {
    server: Arc<Server>,
    store: Arc<EmbeddedStore>,
    _folder: TempDir,
}

struct Replace(Value);

#[async_trait::async_trait]
impl Change for Replace {
    async fn apply(&mut self, _: Option<&Value>) -> Result<Value, Status> {
        Ok(self.0.clone())
    }
}

impl Cluster {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Arc::new(EmbeddedStore::open(Options::new(folder.path().join("store"))).expect("a store"));
        let server = Server::start(store.clone(), Settings::new("127.0.0.1:7443")).await;
        Self { server: server.expect("it starts"), store, _folder: folder }
    }

    async fn create(&self, name: &str, spec: Value) -> Result<Value, Status> {
        self.create_with(name, spec, false).await
    }

    async fn create_with(&self, name: &str, spec: Value, dry_run: bool) -> Result<Value, Status> {
        let served = self.server.catalogue.served();
        let resource = served.find("", "v1", "services").expect("it is served");
        let target = Target { resource, subresource: "", namespace: "default", name };
        let options = WriteOptions { dry_run, ..WriteOptions::default() };
        let (context, object) = (RequestContext::default(), service(resource, name, spec));
        let answer = self.server.registry.create(&target, &context, object, &options).await?;
        Ok(answer.object("Service"))
    }

    async fn update(&self, name: &str, spec: Value) -> Result<Value, Status> {
        let served = self.server.catalogue.served();
        let resource = served.find("", "v1", "services").expect("it is served");
        let target = Target { resource, subresource: "", namespace: "default", name };
        let mut change = Replace(service(resource, name, spec));
        let (context, options) = (RequestContext::default(), WriteOptions::default());
        let answer = self.server.registry.update(&target, &context, &mut change, &options).await?;
        Ok(answer.object("Service"))
    }

    async fn delete(&self, name: &str) {
        let served = self.server.catalogue.served();
        let resource = served.find("", "v1", "services").expect("it is served");
        let target = Target { resource, subresource: "", namespace: "default", name };
        let (context, options) = (RequestContext::default(), DeleteOptions::default());
        self.server.registry.delete(&target, &context, &options).await.map(drop).expect("it is deleted");
    }

    /// The names of addresses and ports that are taken, and by whom.
    async fn taken(&self) -> HashMap<String, String> {
        let mut taken = HashMap::new();
        for prefix in [PORTS, "/registry/networking.k8s.io/ipaddresses/"] {
            let page = self.store.range(Range::prefix(prefix)).await.expect("the store answers");
            for kv in page.value.items {
                let owner = match serde_json::from_slice::<Value>(&kv.value) {
                    Ok(object) => {
                        let parent = &object["spec"]["parentRef"];
                        format!("{}/{}", parent.text("namespace"), parent.text("name"))
                    }
                    Err(_) => String::from_utf8_lossy(&kv.value).into_owned(),
                };
                taken.insert(kv.key.rsplit('/').next().unwrap_or_default().to_owned(), owner);
            }
        }
        taken
    }
}

fn service(resource: &crate::catalogue::Resource, name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
        "status": {"loadBalancer": {}},
    });
    (resource.strategy.defaults)(&mut object);
    object
}

fn node_port() -> Value {
    json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]})
}

fn cluster_ip() -> Value {
    json!({"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_never_share_and_nothing_leaks() {
    let cluster = Arc::new(Cluster::start().await);
    assert_eq!(cluster.taken().await, HashMap::from([("10.96.0.1".to_owned(), "default/kubernetes".to_owned())]));
    let mut creating = tokio::task::JoinSet::new();
    for i in 0..200 {
        let cluster = cluster.clone();
        creating.spawn(async move { cluster.create(&format!("s{i}"), node_port()).await });
    }
    let mut expected = HashMap::from([("10.96.0.1".to_owned(), "default/kubernetes".to_owned())]);
    for created in creating.join_all().await {
        let service = created.expect("it is created");
        let owner = format!("default/{}", service.text_at(&["metadata", "name"]));
        let ip = service.text_at(&["spec", "clusterIP"]).to_owned();
        assert_eq!(service["spec"]["clusterIPs"], json!([ip]));
        let port = service["spec"]["ports"][0].int("nodePort").unwrap_or_default().to_string();
        for taken in [ip, port] {
            assert_eq!(expected.insert(taken.clone(), owner.clone()), None, "{taken} is given twice");
        }
    }
    assert_eq!(cluster.taken().await, expected);
    for i in 0..200 {
        cluster.delete(&format!("s{i}")).await;
    }
    assert_eq!(cluster.taken().await.len(), 1);
}

#[tokio::test]
async fn what_is_named_is_given_or_refused_in_kubernetes_words() {
    let cluster = Cluster::start().await;
    let with_ip = |ip: &str| json!({"clusterIP": ip, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]});
    cluster.create("a", with_ip("10.96.0.10")).await.expect("it is free");
    let taken = cluster.create("b", with_ip("10.96.0.10")).await.expect_err("it is taken");
    assert!(taken.is(Reason::INVALID));
    let why = "failed to allocate IP 10.96.0.10: provided IP is already allocated";
    assert!(
        taken.message.contains("spec.clusterIPs: Invalid value") && taken.message.ends_with(why),
        "{}",
        taken.message
    );
    let outside = cluster.create("b", with_ip("192.168.0.1")).await.expect_err("it is in no block");
    let why = "failed to allocate IP 192.168.0.1: the provided network does not match the current range";
    assert!(outside.message.ends_with(why), "{}", outside.message);
    let dry = cluster.create_with("b", with_ip("192.168.0.1"), true).await.expect_err("it is in no block");
    let why = "(192.168.0.1) is not in the valid range. The range of valid IPs is 10.96.0.0/16";
    assert!(dry.message.ends_with(why), "{}", dry.message);
    let with_port = |port: i64| json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": port}]});
    cluster.create("c", with_port(30080)).await.expect("it is free");
    let taken = cluster.create("d", with_port(30080)).await.expect_err("it is taken");
    let why = "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated";
    assert!(taken.message.ends_with(why), "{}", taken.message);
    let before = cluster.taken().await;
    cluster.create_with("d", node_port(), true).await.expect("a dry run");
    assert_eq!(cluster.taken().await, before, "a dry run takes nothing");
    cluster.delete("c").await;
    cluster.create("d", with_port(30080)).await.expect("it is free again");
}

#[tokio::test]
async fn without_a_block_there_is_no_address() {
    let cluster = Cluster::start().await;
    let services = Services::new(&WatchCache::new(cluster.store.clone()), Arc::new(SystemClock));
    let mut service = json!({"metadata": {"name": "a"}, "spec": {"type": "ClusterIP"}});
    let full = services.allocate(&mut service, &Value::Null, false).expect_err("nothing is free");
    let why = "Internal error occurred: failed to allocate a serviceIP for Service \"a\": range is full";
    assert_eq!(full.message, why);
}

#[tokio::test]
async fn a_change_of_type_takes_and_releases() {
    let cluster = Cluster::start().await;
    let first = cluster.create("a", cluster_ip()).await.expect("it is created");
    let ip = first.text_at(&["spec", "clusterIP"]).to_owned();
    assert_eq!(cluster.taken().await.len(), 2);
    let second = cluster.update("a", node_port()).await.expect("it gets a port");
    let port = second["spec"]["ports"][0].int("nodePort").unwrap_or_default();
    let taken = cluster.taken().await;
    assert!(taken.contains_key(&ip) && taken.contains_key(&port.to_string()) && taken.len() == 3, "{taken:?}");
    let third = cluster.update("a", cluster_ip()).await.expect("it gives the port back");
    assert_eq!((third.text_at(&["spec", "clusterIP"]), cluster.taken().await.len()), (&*ip, 2));
    let local = json!({
        "type": "LoadBalancer",
        "externalTrafficPolicy": "Local",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
    });
    let fourth = cluster.update("a", local).await.expect("it gets a port for health checks");
    assert!(fourth["spec"].int("healthCheckNodePort").is_some_and(|port| port >= 30000));
    assert_eq!(cluster.taken().await.len(), 4);
    cluster
        .update("a", json!({"type": "ExternalName", "externalName": "example.com"}))
        .await
        .expect("it needs nothing");
    assert_eq!(cluster.taken().await.len(), 1);
    let headless = cluster.create("b", json!({"clusterIP": "None", "ports": cluster_ip()["ports"]})).await;
    assert_eq!(headless.expect("it is created").text_at(&["spec", "clusterIP"]), "None");
    assert_eq!(cluster.taken().await.len(), 1);
    let back = cluster.update("a", cluster_ip()).await.expect("it gets an address again");
    assert!(cluster.taken().await.contains_key(back.text_at(&["spec", "clusterIP"])));
}

#[tokio::test]
async fn the_cluster_reaches_itself() {
    let cluster = Cluster::start().await;
    let registry = &cluster.server.registry;
    let service = registry.cache.resource("/registry/core/services/").get("default/kubernetes");
    let service = service.expect("it is there").object("Service");
    assert_eq!(
        service["spec"],
        json!({
            "clusterIP": "10.96.0.1",
            "clusterIPs": ["10.96.0.1"],
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 7443}],
            "sessionAffinity": "None",
            "type": "ClusterIP",
        })
    );
    // What is there already stays as it is.
    let again = Server::start(cluster.store.clone(), Settings::new("127.0.0.1:7443")).await;
    let again = again.expect("it starts again");
    let blocks = again.registry.cache.resource("/registry/networking.k8s.io/servicecidrs/");
    assert!(is_ready(&blocks.get("kubernetes").expect("it is there").object("ServiceCIDR")));
}
