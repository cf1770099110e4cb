//! The name that a pod has for itself.

use k8s_openapi::api::core::v1::Pod;

use super::ConfigError;

/// The longest name of a host.
const LONGEST: usize = 63;
/// The longest that the kernel takes, which a name with its domain must not exceed.
const LONGEST_WITH_DOMAIN: usize = 64;

/// A pod's name and the domain it is in, which may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hostname {
    pub name: String,
    pub domain: String,
}

impl Hostname {
    pub fn of(pod: &Pod, cluster_domain: &str) -> Result<Self, ConfigError> {
        let spec = pod.spec.clone().unwrap_or_default();
        let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
        if let Some(name) = &spec.hostname_override {
            return Ok(Self { name: shortened(pod_name, name)?, domain: String::new() });
        }
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let name = shortened(pod_name, given(&spec.hostname).as_deref().unwrap_or(pod_name))?;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let domain = given(&spec.subdomain)
            .map_or_else(String::new, |subdomain| format!("{subdomain}.{namespace}.svc.{cluster_domain}"));
        Ok(Self { name, domain })
    }

    /// What the kernel is told.
    pub fn for_kernel(&self, with_domain: bool) -> Result<String, ConfigError> {
        if !with_domain || self.domain.is_empty() {
            return Ok(self.name.clone());
        }
        let whole = format!("{}.{}", self.name, self.domain);
        if whole.len() > LONGEST_WITH_DOMAIN {
            return Err(ConfigError(format!(
                "failed to construct FQDN from pod hostname and cluster domain, FQDN {whole} is too long \
                 ({LONGEST_WITH_DOMAIN} characters is the max, {} characters requested)",
                whole.len()
            )));
        }
        Ok(whole)
    }
}

/// Cut to what a host may be called. Names are ASCII, or the server had refused them.
fn shortened(pod: &str, name: &str) -> Result<String, ConfigError> {
    let cut = name.get(..LONGEST).map_or(name, |cut| cut.trim_end_matches(['-', '.']));
    if cut.is_empty() {
        return Err(ConfigError(format!("hostname for pod {pod:?} was invalid: {name:?}")));
    }
    Ok(cut.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(name: &str, spec: serde_json::Value) -> Hostname {
        let mut pod = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"containers": []}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            pod["spec"][key] = value.clone();
        }
        Hostname::of(&serde_json::from_value(pod).expect("a pod"), "cluster.local").expect("a name")
    }

    #[test]
    fn a_pod_is_called_by_its_name_unless_it_says_otherwise() {
        let name = |host: Hostname| (host.name, host.domain);
        assert_eq!(name(of("web-0", json!({}))), ("web-0".into(), String::new()));
        assert_eq!(name(of("web-0", json!({"hostname": "other"}))).0, "other");
        let with_domain = of("web-0", json!({"hostname": "a", "subdomain": "web"}));
        assert_eq!(name(with_domain.clone()), ("a".into(), "web.ns.svc.cluster.local".into()));
        assert_eq!(with_domain.for_kernel(true), Ok("a.web.ns.svc.cluster.local".into()));
        assert_eq!(with_domain.for_kernel(false), Ok("a".into()));
        let over = of("web-0", json!({"hostname": "a", "subdomain": "web", "hostnameOverride": "b.example.org"}));
        assert_eq!(name(over), ("b.example.org".into(), String::new()));
    }

    #[test]
    fn long_names_are_cut_and_long_domains_refused() {
        let long = format!("{}-tail", "x".repeat(62));
        assert_eq!(of(&long, json!({})).name, "x".repeat(62));
        let host = of(&"x".repeat(60), json!({"subdomain": "web"}));
        let message = host.for_kernel(true).expect_err("it is too long").to_string();
        assert!(message.contains("(64 characters is the max, 85 characters requested)"), "{message}");
    }
}
