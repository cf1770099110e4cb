//! The agents of nodes: where they are, and how this server shows them who it is.

use std::sync::Arc;

use arc_swap::ArcSwap;
use object_model::{
    status::{Reason, Status},
    value::Fields,
};
use rustls::ClientConfig;
use serde_json::Value;

use super::connection::Place;
use crate::{
    outbound::{self, Trust},
    serving::authority::{Authority, Error},
};

/// The user that agents see.
const USER: &str = "kube-apiserver-kubelet-client";
/// Where an agent listens that does not say so.
const DEFAULT_PORT: u16 = 10250;
/// By which of its addresses a node is reached. Those that need no resolver come first.
const ADDRESSES: [&str; 5] = ["InternalIP", "Hostname", "InternalDNS", "ExternalIP", "ExternalDNS"];
/// What an agent declares that speaks every protocol itself.
const SPEAKS_WEBSOCKET: &str = "ExtendWebSocketsToKubelet";

/// How this server speaks to agents. Agents show certificates of the cluster's authority, and so does the server.
pub struct Agents(ArcSwap<Configs>);

struct Configs {
    /// Believes agents that prove who they are.
    proven: Arc<ClientConfig>,
    /// Believes any agent, for those who ask for it.
    unproven: Arc<ClientConfig>,
    /// For what is behind a proxy, which is not ours: no proof either way.
    proxied: Arc<ClientConfig>,
}

impl Agents {
    pub fn new(authority: &Authority) -> Result<Self, Error> {
        Ok(Self(ArcSwap::from_pointee(Configs::new(authority)?)))
    }

    /// Gets a new certificate; connections made from now on show it.
    pub fn renew(&self, authority: &Authority) -> Result<(), Error> {
        self.0.store(Arc::new(Configs::new(authority)?));
        Ok(())
    }

    pub(super) fn tls(&self, insecure: bool) -> Arc<ClientConfig> {
        let configs = self.0.load();
        if insecure { configs.unproven.clone() } else { configs.proven.clone() }
    }

    pub(super) fn proxied(&self) -> Arc<ClientConfig> {
        self.0.load().proxied.clone()
    }
}

impl Configs {
    fn new(authority: &Authority) -> Result<Self, Error> {
        let leaf = authority.client(USER, "system:masters")?;
        let certificate = (leaf.certificate_pem.into_bytes(), leaf.key_pem.into_bytes());
        let config = |trust: &Trust, certificate| {
            let unusable = |e: outbound::Error| Error::Unusable { path: "ca.crt".into(), reason: e.to_string() };
            let mut config = outbound::client_config(trust, certificate).map_err(unusable)?;
            // Only these connections can be upgraded.
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Ok::<_, Error>(Arc::new(config))
        };
        let ours = Trust::Authorities(authority.certificate_pem().as_bytes().to_vec());
        Ok(Self {
            proven: config(&ours, Some(&certificate))?,
            unproven: config(&Trust::Anybody, Some(&certificate))?,
            proxied: config(&Trust::Anybody, None)?,
        })
    }
}

/// One node's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    pub host: String,
    pub port: u16,
    pub speaks_websocket: bool,
}

impl Agent {
    pub fn of(node: &Value) -> Result<Self, Status> {
        let addresses =
            node.at(&["status", "addresses"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let of_type = |kind: &&str| addresses.iter().find(|a| a.text("type") == *kind).map(|a| a.text("address"));
        let Some(host) = ADDRESSES.iter().find_map(of_type) else {
            let message = format!("no preferred addresses found; known addresses: {}", Value::from(addresses));
            return Err(Status::failure(500, Reason::UNKNOWN, message, None));
        };
        let port = node.at(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"]).and_then(Value::as_u64);
        let port = port.and_then(|p| u16::try_from(p).ok()).filter(|p| *p > 0).unwrap_or(DEFAULT_PORT);
        let declared = node.at(&["status", "declaredFeatures"]).and_then(Value::as_array);
        let speaks_websocket = declared.is_some_and(|all| all.iter().any(|f| f == SPEAKS_WEBSOCKET));
        Ok(Self { host: host.to_owned(), port, speaks_websocket })
    }

    /// Where requests to this agent go.
    pub fn place(&self, agents: &Agents, insecure: bool) -> Place {
        Place { host: self.host.clone(), port: self.port, tls: Some(agents.tls(insecure)) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn where_an_agent_is() {
        let node = json!({"status": {
            "addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 4}},
            "declaredFeatures": ["ExtendWebSocketsToKubelet"],
        }});
        let wanted = Agent { host: "10.0.0.1".into(), port: 4, speaks_websocket: true };
        assert_eq!(Agent::of(&node).unwrap(), wanted);
        let node = json!({"status": {"addresses": [{"type": "Hostname", "address": "n"}]}});
        let wanted = Agent { host: "n".into(), port: 10250, speaks_websocket: false };
        assert_eq!(Agent::of(&node).unwrap(), wanted);
        assert_eq!(Agent::of(&json!({"status": {}})).unwrap_err().code, 500);
    }
}
