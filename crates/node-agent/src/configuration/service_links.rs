//! Where a namespace's Services are, as variables: `NAME_SERVICE_HOST`, `NAME_SERVICE_PORT`, and Docker's old names.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use controller_runtime::{Informer, Key};
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use kube::{Api, Client};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::ConfigError;

/// How long the first reading may take.
const FIRST_READING: Duration = Duration::from_secs(10);

/// The Services of the cluster, each with its address and ports only.
pub(super) struct ServiceLinks {
    services: Informer<Service>,
    _until_dropped: DropGuard,
}

impl ServiceLinks {
    pub(super) fn follow(client: Client) -> Self {
        let stop = CancellationToken::new();
        let services = Informer::start(Api::all(client), None, trim, stop.clone());
        Self { services, _until_dropped: stop.drop_guard() }
    }

    /// The variables of the namespace's Services, if its pods want them, and always those of the API server.
    pub(super) async fn variables(&self, namespace: &str, all: bool) -> Result<BTreeMap<String, String>, ConfigError> {
        if tokio::time::timeout(FIRST_READING, self.services.synced()).await.is_err() {
            let why = "services have not yet been read at least once, cannot construct envvars";
            return Err(ConfigError(why.into()));
        }
        let api = self.services.get(&Key::new("default", "kubernetes"));
        let of_namespace: Vec<Arc<Service>> = if all { self.services.in_namespace(namespace) } else { Vec::new() };
        // A Service `kubernetes` of another namespace has no say over where the API server is.
        let mut variables = BTreeMap::new();
        for service in of_namespace.iter().chain(&api) {
            add(&mut variables, service);
        }
        Ok(variables)
    }
}

fn trim(service: &mut Service) {
    let spec = service.spec.take().unwrap_or_default();
    service.spec = Some(ServiceSpec { cluster_ip: spec.cluster_ip, ports: spec.ports, ..ServiceSpec::default() });
    service.status = None;
    service.metadata.annotations = None;
    service.metadata.labels = None;
}

fn add(variables: &mut BTreeMap<String, String>, service: &Service) {
    let Some(spec) = &service.spec else { return };
    let (Some(address), Some(ports)) = (spec.cluster_ip.as_deref(), &spec.ports) else { return };
    let Some(first) = ports.first().filter(|_| !address.is_empty() && address != "None") else { return };
    let name = variable(service.metadata.name.as_deref().unwrap_or_default());
    let mut set = |suffix: &str, value: String| variables.insert(format!("{name}_{suffix}"), value);
    set("SERVICE_HOST", address.to_owned());
    set("SERVICE_PORT", first.port.to_string());
    for port in ports {
        if let Some(port_name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            set(&format!("SERVICE_PORT_{}", variable(port_name)), port.port.to_string());
        }
    }
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    for (at, port) in ports.iter().enumerate() {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let url = format!("{}://{host}:{}", protocol.to_lowercase(), port.port);
        if at == 0 {
            set("PORT", url.clone());
        }
        let prefix = format!("PORT_{}_{}", port.port, protocol.to_uppercase());
        set(&prefix, url);
        set(&format!("{prefix}_PROTO"), protocol.to_lowercase());
        set(&format!("{prefix}_PORT"), port.port.to_string());
        set(&format!("{prefix}_ADDR"), address.to_owned());
    }
}

fn variable(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn variables(spec: serde_json::Value) -> Vec<String> {
        let service = json!({"metadata": {"name": "my-db"}, "spec": spec});
        let mut variables = BTreeMap::new();
        add(&mut variables, &serde_json::from_value(service).expect("a Service"));
        variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn a_service_is_told_under_all_its_names() {
        let ports = json!([{"port": 80, "name": "my-web"}, {"port": 53, "protocol": "UDP"}]);
        assert_eq!(
            variables(json!({"clusterIP": "fd00::1", "ports": ports})),
            [
                "MY_DB_PORT=tcp://[fd00::1]:80",
                "MY_DB_PORT_53_UDP=udp://[fd00::1]:53",
                "MY_DB_PORT_53_UDP_ADDR=fd00::1",
                "MY_DB_PORT_53_UDP_PORT=53",
                "MY_DB_PORT_53_UDP_PROTO=udp",
                "MY_DB_PORT_80_TCP=tcp://[fd00::1]:80",
                "MY_DB_PORT_80_TCP_ADDR=fd00::1",
                "MY_DB_PORT_80_TCP_PORT=80",
                "MY_DB_PORT_80_TCP_PROTO=tcp",
                "MY_DB_SERVICE_HOST=fd00::1",
                "MY_DB_SERVICE_PORT=80",
                "MY_DB_SERVICE_PORT_MY_WEB=80",
            ]
        );
    }

    #[test]
    fn a_service_without_an_address_is_not_told() {
        for address in [json!("None"), json!(""), json!(null)] {
            assert!(variables(json!({"clusterIP": address, "ports": [{"port": 1}]})).is_empty());
        }
    }
}
