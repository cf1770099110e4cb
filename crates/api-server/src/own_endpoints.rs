//! Where the Service `kubernetes` leads: to every API server that runs on this store.
//!
//! Each server keeps a key in the store for as long as it lives, named after its address, and the Endpoints and the
//! EndpointSlice of the Service are made from all keys there are. A server that stops takes its key away; that of one that
//! crashed expires, and another server notices. As in Kubernetes all servers of a cluster listen on the same port.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use storage::{Error, Range, Transaction};

use crate::{Server, context::User};

/// Where servers say that they live: `/servers/10.0.0.1`. These are no objects.
const SERVERS: &str = "/servers/";
const REFRESH_EVERY: Duration = Duration::from_secs(10);
const LIVES_FOR: Duration = Duration::from_secs(15);
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const NAME: &str = "kubernetes";

/// Keeps the endpoints up to date until the server is drained. The first time is over when this is called from the start
/// of the server and awaited; the rest is a task.
pub async fn keep(server: &Arc<Server>, user: Arc<User>, advertised: SocketAddr) {
    if advertised.ip().is_loopback() || advertised.ip().is_unspecified() {
        tracing::info!(%advertised, "nobody else can reach this address: the Service `kubernetes` has no endpoints");
        return;
    }
    let own = Own { server: server.clone(), user, advertised };
    own.refresh().await;
    tokio::spawn(async move {
        let drain = own.server.drain.clone();
        loop {
            tokio::select! {
                () = drain.cancelled() => return own.leave().await,
                () = tokio::time::sleep(REFRESH_EVERY) => own.refresh().await,
            }
        }
    });
}

struct Own {
    server: Arc<Server>,
    user: Arc<User>,
    advertised: SocketAddr,
}

impl Own {
    fn key(&self) -> String {
        format!("{SERVERS}{}", self.advertised.ip())
    }

    async fn refresh(&self) {
        // As heartbeats of nodes are: what a crash loses is written again soon.
        let alive = Transaction::default().put_with_ttl(self.key(), "", LIVES_FOR).relaxed();
        let done = async {
            self.server.registry.store.commit(alive).await.map_err(words)?;
            let servers = self.servers().await?;
            if servers.is_empty() { Err("no server is known to live".to_owned()) } else { self.write(&servers).await }
        };
        if let Err(problem) = done.await {
            tracing::warn!(problem, "the endpoints of the Service `kubernetes` stay as they are for now");
        }
    }

    /// The last thing a server does. The next start or another server makes up for what fails.
    async fn leave(&self) {
        let gone = async {
            self.server.registry.store.commit(Transaction::default().delete(self.key())).await.map_err(words)?;
            self.write(&self.servers().await?).await
        };
        if let Err(problem) = gone.await {
            tracing::debug!(problem, "the Service `kubernetes` still leads here");
        }
    }

    async fn servers(&self) -> Result<BTreeSet<IpAddr>, String> {
        let page = self.server.registry.store.range(Range::prefix(SERVERS)).await.map_err(words)?;
        let names = page.value.items.iter().filter_map(|item| item.key.strip_prefix(SERVERS));
        Ok(names.filter_map(|name| name.parse().ok()).collect())
    }

    async fn write(&self, servers: &BTreeSet<IpAddr>) -> Result<(), String> {
        self.ensure(ENDPOINTS, endpoints(servers, self.advertised.port())).await?;
        self.ensure(SLICES, slice(servers, self.advertised.port())).await
    }

    /// Creates or replaces an object that is not as it should be. Of two servers that do so at once one may be refused, and
    /// looks again at its next turn.
    async fn ensure(&self, path: &str, wanted: Value) -> Result<(), String> {
        let named = format!("{path}/{NAME}");
        let (code, mut found) = self.exchange(Method::GET, &named, &Value::Null).await;
        let answer = match code {
            StatusCode::NOT_FOUND => self.exchange(Method::POST, path, &wanted).await,
            StatusCode::OK if is_as_wanted(&found, &wanted) => return Ok(()),
            // The family of addresses of a slice never changes.
            StatusCode::OK if found["addressType"] != wanted["addressType"] => {
                self.exchange(Method::DELETE, &named, &Value::Null).await;
                self.exchange(Method::POST, path, &wanted).await
            }
            StatusCode::OK => {
                merge(&mut found, &wanted);
                self.exchange(Method::PUT, &named, &found).await
            }
            _ => (code, found),
        };
        let (code, answer) = answer;
        if code.is_success() || code == StatusCode::CONFLICT { Ok(()) } else { Err(answer["message"].to_string()) }
    }

    async fn exchange(&self, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        self.server.exchange(&self.user, method, path, body).await
    }
}

fn words(error: Error) -> String {
    error.to_string()
}

/// Labels that others have added may stay.
fn is_as_wanted(found: &Value, wanted: &Value) -> bool {
    let mut merged = found.clone();
    merge(&mut merged, wanted);
    merged == *found
}

fn merge(found: &mut Value, wanted: &Value) {
    for (name, value) in wanted.as_object().into_iter().flatten().filter(|(name, _)| *name != "metadata") {
        match found.as_object_mut() {
            Some(fields) if value.is_null() => drop(fields.remove(name)),
            _ => found[name] = value.clone(),
        }
    }
    for (name, value) in wanted["metadata"]["labels"].as_object().into_iter().flatten() {
        found["metadata"]["labels"][name] = value.clone();
    }
}

fn ports(port: u16) -> Value {
    json!([{"name": "https", "port": port, "protocol": "TCP"}])
}

fn endpoints(servers: &BTreeSet<IpAddr>, port: u16) -> Value {
    let addresses: Vec<Value> = servers.iter().map(|server| json!({"ip": server.to_string()})).collect();
    let subsets =
        if addresses.is_empty() { Value::Null } else { json!([{"addresses": addresses, "ports": ports(port)}]) };
    json!({
        "apiVersion": "v1",
        "kind": "Endpoints",
        // The slice is written here and not mirrored by a controller.
        "metadata": {"name": NAME, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": subsets,
    })
}

fn slice(servers: &BTreeSet<IpAddr>, port: u16) -> Value {
    let four = servers.is_empty() || servers.iter().any(IpAddr::is_ipv4);
    let of_family = servers.iter().filter(|server| server.is_ipv4() == four);
    let endpoints: Vec<Value> =
        of_family.map(|server| json!({"addresses": [server.to_string()], "conditions": {"ready": true}})).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": NAME, "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": if four { "IPv4" } else { "IPv6" },
        "endpoints": endpoints,
        "ports": if servers.is_empty() { Value::Null } else { ports(port) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_compared_with_what_is_wanted() {
        let servers = ["10.0.0.2".parse().expect("an address"), "10.0.0.1".parse().expect("an address")];
        let servers = BTreeSet::from(servers);
        let mut found = endpoints(&servers, 6443);
        assert_eq!(found["subsets"][0]["addresses"], json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]));
        found["metadata"]["labels"]["other"] = json!("stays");
        assert!(is_as_wanted(&found, &endpoints(&servers, 6443)));
        assert!(!is_as_wanted(&found, &endpoints(&servers, 443)));
        assert!(!is_as_wanted(&found, &endpoints(&BTreeSet::new(), 6443)));
        let slice = slice(&servers, 6443);
        assert_eq!(slice["endpoints"][1], json!({"addresses": ["10.0.0.2"], "conditions": {"ready": true}}));
    }

    #[test]
    fn a_slice_has_one_family() {
        let six: IpAddr = "fd00::1".parse().expect("an address");
        assert_eq!(slice(&BTreeSet::from([six]), 1)["addressType"], "IPv6");
        let both = slice(&BTreeSet::from([six, IpAddr::from([10, 0, 0, 1])]), 1);
        assert_eq!((&both["addressType"], both["endpoints"].as_array().map(Vec::len)), (&json!("IPv4"), Some(1)));
    }
}
