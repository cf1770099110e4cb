//! Where a proxied request goes: `[scheme:]name[:port]` of a pod, a service or a node.

use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
};

use object_model::{
    status::{Reason, Status},
    value::Fields,
};
use serde_json::Value;

use super::{is_allowed, outside};
use crate::{
    handlers::Call,
    streaming::{agents::Agent, connection::Place, exec, pods::object},
};

/// What a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named<'a> {
    scheme: &'a str,
    name: &'a str,
    port: &'a str,
}

impl<'a> Named<'a> {
    fn read(id: &'a str) -> Option<Self> {
        let parts: Vec<&str> = id.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => return None,
        };
        (!name.is_empty() && matches!(scheme, "" | "http" | "https")).then_some(Self { scheme, name, port })
    }
}

pub async fn find(call: &Call<'_>) -> Result<Place, Status> {
    let kind = &*call.resource.singular;
    let id = &call.info.name;
    let named = Named::read(id).ok_or_else(|| Status::bad_request(format!("invalid {kind} request {id:?}")))?;
    match kind {
        "pod" => pod(call, named).await,
        "service" => service(call, named).await,
        _ => node(call, named).await,
    }
}

async fn pod(call: &Call<'_>, named: Named<'_>) -> Result<Place, Status> {
    let pod = object(call, "pods", &call.info.namespace, named.name).await?;
    let host = pod.text_at(&["status", "podIP"]);
    let first_port = || {
        let containers = pod.at(&["spec", "containers"]).and_then(Value::as_array)?;
        containers.iter().find_map(|c| c.items("ports").first()?.int("containerPort"))
    };
    let port = match named.port {
        "" => first_port().unwrap_or(if named.scheme == "https" { 443 } else { 80 }).to_string(),
        port => port.to_owned(),
    };
    match host.parse::<IpAddr>() {
        Ok(address) if is_allowed(address) => outside(call, named.scheme, host, number(&port)?),
        _ => Err(Status::bad_request("address not allowed")),
    }
}

fn number(port: &str) -> Result<u16, Status> {
    let unknown = || {
        Status::service_unavailable(format!("error trying to reach service: dial tcp: lookup tcp/{port}: unknown port"))
    };
    port.parse().map_err(|_| unknown())
}

async fn node(call: &Call<'_>, named: Named<'_>) -> Result<Place, Status> {
    let agent = Agent::of(&object(call, "nodes", "", named.name).await?)?;
    let found = tokio::net::lookup_host((agent.host.as_str(), agent.port)).await;
    let addresses: Vec<IpAddr> = found.map_err(|e| Status::bad_request(e.to_string()))?.map(|a| a.ip()).collect();
    if addresses.is_empty() {
        return Err(Status::bad_request("no addresses for hostname"));
    }
    if !addresses.iter().all(|address| is_allowed(*address)) {
        return Err(Status::bad_request("address not allowed"));
    }
    match named.port {
        port if port.is_empty() || number(port)? == agent.port => Ok(agent.place(exec::agents(call)?, false)),
        port => outside(call, named.scheme, &agent.host, number(port)?),
    }
}

/// One of the pods behind a service, by chance.
async fn service(call: &Call<'_>, named: Named<'_>) -> Result<Place, Status> {
    let namespace = &call.info.namespace;
    let mut port = named.port.to_owned();
    if let Ok(number) = named.port.parse::<i64>() {
        let service = object(call, "services", namespace, named.name).await?;
        let ports = service.at(&["spec", "ports"]).and_then(Value::as_array);
        let found = ports.and_then(|all| all.iter().find(|p| p.int("port") == Some(number)));
        let Some(found) = found else {
            let message = format!("no service port {number} found for service {:?}", named.name);
            return Err(Status::service_unavailable(message));
        };
        port = found.text("name").to_owned();
    }
    let endpoints = object(call, "endpoints", namespace, named.name).await?;
    let mut candidates = candidates(endpoints.items("subsets"), &port);
    while !candidates.is_empty() {
        let chosen = candidates.swap_remove(RandomState::new().hash_one(0u8) as usize % candidates.len());
        if is_a_pod(call, chosen.address).await? {
            return outside(call, named.scheme, chosen.address.text("ip"), chosen.port);
        }
    }
    let name = if endpoints.items("subsets").is_empty() { named.name } else { &call.info.name };
    Err(Status::service_unavailable(format!("no endpoints available for service {name:?}")))
}

struct Candidate<'a> {
    address: &'a Value,
    port: u16,
}

/// Every ready address with a port of this name.
fn candidates<'a>(subsets: &'a [Value], port: &str) -> Vec<Candidate<'a>> {
    let of_subset = |subset: &'a Value| {
        let ports = subset.items("ports").iter().filter(|p| p.text("name") == port);
        let numbers = ports.filter_map(|p| u16::try_from(p.int("port")?).ok());
        numbers.flat_map(|port| subset.items("addresses").iter().map(move |address| Candidate { address, port }))
    };
    subsets.iter().flat_map(of_subset).collect()
}

/// Endpoints can be written by hand; only those that are pods of the namespace are reached through the proxy.
async fn is_a_pod(call: &Call<'_>, address: &Value) -> Result<bool, Status> {
    let namespace = &call.info.namespace;
    if address.text_at(&["targetRef", "namespace"]) != namespace {
        return Ok(false);
    }
    let pod = match object(call, "pods", namespace, address.text_at(&["targetRef", "name"])).await {
        Ok(pod) => pod,
        Err(status) if status.is(Reason::NOT_FOUND) => return Ok(false),
        Err(status) => return Err(status),
    };
    let addresses = pod.at(&["status", "podIPs"]).and_then(Value::as_array);
    Ok(addresses.is_some_and(|all| all.iter().any(|a| a.text("ip") == address.text("ip"))))
}

/// The path behind the proxy: what follows the subresource, without steps that lead nowhere or up.
pub fn path(asked: &str, rest: &str) -> String {
    let mut steps: Vec<&str> = Vec::new();
    for step in rest.split('/') {
        match step.to_ascii_lowercase().replace("%2e", ".").as_str() {
            "" | "." => {}
            ".." => {
                steps.pop();
            }
            _ => steps.push(step),
        }
    }
    let slash = if asked.ends_with('/') { "/" } else { "" };
    if steps.is_empty() { slash.to_owned() } else { format!("/{}{slash}", steps.join("/")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names() {
        let named = |scheme, name, port| Some(Named { scheme, name, port });
        assert_eq!(Named::read("a"), named("", "a", ""));
        assert_eq!(Named::read("a:80"), named("", "a", "80"));
        assert_eq!(Named::read("https:a:web"), named("https", "a", "web"));
        assert_eq!((Named::read("ftp:a:1"), Named::read(":80"), Named::read("a:b:c:d")), (None, None, None));
    }

    #[test]
    fn paths() {
        for (asked, rest, want) in [
            ("/p/proxy", "", ""),
            ("/p/proxy/", "", "/"),
            ("/p/proxy/a/b", "a/b", "/a/b"),
            ("/p/proxy/a%2Fb/", "a%2Fb/", "/a%2Fb/"),
            ("/p/proxy/../../x", "../../x", "/x"),
            ("/p/proxy/%2e%2E/x", "%2e%2E/x", "/x"),
            ("/p/proxy//x", "/x", "/x"),
        ] {
            assert_eq!(path(asked, rest), want, "{asked}");
        }
    }

    #[test]
    fn endpoints_of_a_port() {
        let subsets = json!([
            {"addresses": [{"ip": "1"}, {"ip": "2"}], "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]},
            {"notReadyAddresses": [{"ip": "3"}], "ports": [{"name": "b", "port": 2}]},
        ]);
        let found: Vec<(&str, u16)> =
            candidates(subsets.as_array().unwrap(), "b").iter().map(|c| (c.address.text("ip"), c.port)).collect();
        assert_eq!(found, [("1", 2), ("2", 2)]);
        assert!(candidates(subsets.as_array().unwrap(), "").is_empty());
    }
}
