//! Those who take part: service accounts that may edit a namespace of their own, with names that no run had before.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::load::{
    connection::Connection,
    kubeconfig::Cluster,
    requests::{JSON, Requests, object_named, request},
};

const SYSTEM: &str = "kube-system";
const EDITS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces";
/// Permissions are there this long after they were written, at the latest.
const PERMITTED_WITHIN: Duration = Duration::from_secs(30);

pub struct Tenants {
    pub flooding: Tenant,
    pub quiet: Tenant,
    /// An account of kube-system, which edits the namespace of the quiet one.
    pub system: Tenant,
    system_account: String,
}

/// A service account, and the requests of one who goes on with what they do.
pub struct Tenant {
    pub namespace: String,
    pub token: String,
    pub get: Vec<u8>,
    pub create: Vec<u8>,
    pub delete: Vec<u8>,
}

/// Requests of somebody with a token, in a namespace.
pub struct Caller {
    host: String,
    collection: String,
    headers: String,
}

impl Caller {
    pub fn new(cluster: &Cluster, namespace: &str, token: &str) -> Self {
        Self {
            host: cluster.address.to_string(),
            collection: format!("/api/v1/namespaces/{namespace}/configmaps"),
            headers: format!("Authorization: Bearer {token}\r\n"),
        }
    }

    pub fn list(&self) -> Vec<u8> {
        request("GET", &self.host, &self.collection, &self.headers, b"")
    }

    pub fn get(&self, name: &str) -> Vec<u8> {
        request("GET", &self.host, &format!("{}/{name}", self.collection), &self.headers, b"")
    }

    pub fn delete(&self, name: &str) -> Vec<u8> {
        request("DELETE", &self.host, &format!("{}/{name}", self.collection), &self.headers, b"")
    }

    pub fn create(&self, name: &str) -> Vec<u8> {
        let headers = format!("{}{JSON}", self.headers);
        request("POST", &self.host, &self.collection, &headers, &object_named(name, 0))
    }
}

/// The administrator, who makes everything.
struct Admin {
    host: String,
    connection: Connection,
}

impl Admin {
    async fn new(cluster: &Cluster) -> anyhow::Result<Self> {
        let connection = Connection::open(cluster).await;
        let connection = connection.with_context(|| format!("cannot connect to {}", cluster.address))?;
        Ok(Self { host: cluster.address.to_string(), connection })
    }

    async fn post(&mut self, path: &str, object: &Value) -> anyhow::Result<Value> {
        let request = request("POST", &self.host, path, JSON, object.to_string().as_bytes());
        let (code, answer) = self.connection.ask(&request).await?;
        if code != 201 {
            bail!("POST {path} was answered {code}: {}", String::from_utf8_lossy(&answer));
        }
        Ok(serde_json::from_slice(&answer)?)
    }

    async fn delete(&mut self, path: &str) -> anyhow::Result<()> {
        let (code, answer) = self.connection.ask(&request("DELETE", &self.host, path, "", b"")).await?;
        if !matches!(code, 200 | 202 | 404) {
            bail!("DELETE {path} was answered {code}: {}", String::from_utf8_lossy(&answer));
        }
        Ok(())
    }

    async fn namespace(&mut self, name: &str) -> anyhow::Result<()> {
        self.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await.map(drop)
    }

    /// A service account that may edit `edits`.
    async fn tenant(
        &mut self,
        cluster: &Cluster,
        namespace: &str,
        account: &str,
        edits: &str,
        object: &str,
    ) -> anyhow::Result<Tenant> {
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        self.post(&accounts, &json!({"metadata": {"name": account}})).await?;
        let binding = json!({
            "metadata": {"name": format!("{account}-{namespace}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        });
        self.post(&format!("{EDITS}/{edits}/rolebindings"), &binding).await?;
        let wanted = json!({"spec": {"expirationSeconds": 7200}});
        let token = self.post(&format!("{accounts}/{account}/token"), &wanted).await?;
        let token = token["status"]["token"].as_str().context("a token request without a token")?.to_owned();
        let caller = Caller::new(cluster, edits, &token);
        permitted(cluster, &caller.list()).await?;
        Ok(Tenant {
            namespace: edits.to_owned(),
            token,
            get: caller.get(object),
            create: caller.create(account),
            delete: caller.delete(account),
        })
    }
}

/// Permission follows what is written a little later.
async fn permitted(cluster: &Cluster, request: &[u8]) -> anyhow::Result<()> {
    let mut connection = Connection::open_as_nobody(cluster).await?;
    let begun = Instant::now();
    loop {
        match connection.ask(request).await? {
            (200, _) => return Ok(()),
            (401 | 403, _) if begun.elapsed() < PERMITTED_WITHIN => tokio::time::sleep(Duration::from_millis(10)).await,
            (code, answer) => bail!("a tenant was answered {code}: {}", String::from_utf8_lossy(&answer)),
        }
    }
}

impl Tenants {
    pub async fn make(cluster: &Cluster, objects: usize) -> anyhow::Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let run = format!("{:x}", now.as_millis());
        let (flooded, quiet) = (format!("bench-flood-{run}"), format!("bench-quiet-{run}"));
        let mut admin = Admin::new(cluster).await?;
        admin.namespace(&flooded).await?;
        admin.namespace(&quiet).await?;
        for (namespace, count) in [(&flooded, objects.max(1)), (&quiet, 1)] {
            for create in Requests::new(&admin.host, namespace, count).create {
                admin.connection.exchange(&create, 201).await?;
            }
        }
        let object = crate::load::requests::name(0);
        let system_account = format!("bench-{run}");
        Ok(Self {
            flooding: admin.tenant(cluster, &flooded, "floods", &flooded, &object).await?,
            quiet: admin.tenant(cluster, &quiet, "goes-on", &quiet, &object).await?,
            system: admin.tenant(cluster, SYSTEM, &system_account, &quiet, &object).await?,
            system_account,
        })
    }

    pub async fn remove(&self, cluster: &Cluster) -> anyhow::Result<()> {
        let mut admin = Admin::new(cluster).await?;
        for namespace in [&self.flooding.namespace, &self.quiet.namespace] {
            // The objects first, for a server that has nobody to empty a namespace.
            admin.delete(&format!("/api/v1/namespaces/{namespace}/configmaps")).await?;
            admin.delete(&format!("/api/v1/namespaces/{namespace}")).await?;
        }
        admin.delete(&format!("/api/v1/namespaces/{SYSTEM}/serviceaccounts/{}", self.system_account)).await
    }
}
