//! Names in the cluster: Services, headless ones and their pods, reverse names; all others are forwarded.

mod announce;
mod forward;
mod server;
mod zone;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use controller_runtime::{Informer, Informers, Key};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use tokio_util::sync::CancellationToken;

use self::{
    announce::Announcement,
    forward::Forwarder,
    server::{Server, Sockets},
    zone::{Cluster, Zone},
};
use crate::slices::{SERVICE, by_service};

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The name of the indexes by address.
const ADDRESS: &str = "network-address";

/// What the name server of a cluster is told.
pub struct Setting {
    /// Services, EndpointSlices and Nodes are followed.
    pub informers: Informers,
    /// May make the Service and the EndpointSlice by which pods reach the name server, and remove the slice.
    pub client: kube::Client,
    /// The address of that Service.
    pub service_address: IpAddr,
    /// Where it listens, over UDP and TCP: an address of the node that pods reach.
    pub listen: SocketAddr,
    /// Such as `cluster.local`.
    pub domain: String,
    /// The node it runs on, which may have another address at its next start.
    pub node_name: String,
}

/// Answers until it is told to stop, and then leads pods to the others that answer.
pub async fn run(setting: Setting, stop: CancellationToken) -> Result<(), crate::Error> {
    let Setting { informers, client, service_address, listen, domain, node_name } = setting;
    let sockets = Sockets::bind(listen).await?;
    let listen = sockets.address().unwrap_or(listen);
    let cluster = Informed::of(&informers);
    let (services, slices) = (cluster.services.clone(), cluster.slices.clone());
    let zone = Zone::new(cluster, &domain, service_address)?;
    // At another port of the same address somebody else may answer.
    let own = (listen.port() == forward::PORT).then(|| listen.ip());
    let others = Forwarder::new(RESOLV_CONF.into(), own.into_iter().chain([service_address]));
    let server = Arc::new(Server::new(zone, others));
    let synced = async { tokio::join!(services.synced(), slices.synced()) };
    if stop.run_until_cancelled(synced).await.is_none() {
        return Ok(());
    }
    let announcement = Announcement { informers: &informers, client, service_address, listen, node_name };
    let announced = async {
        stop.run_until_cancelled(announcement.keep()).await;
        announcement.withdraw().await;
    };
    // It answers as long as somebody is led here.
    tokio::select! {
        () = server.serve(sockets) => {}
        () = announced => {}
    }
    Ok(())
}

/// The cluster as informers know it.
struct Informed {
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
}

impl Informed {
    fn of(informers: &Informers) -> Self {
        let (services, slices) = (informers.of::<Service>(), informers.of::<EndpointSlice>());
        slices.index(SERVICE, by_service);
        services.index(ADDRESS, |service: &Service| {
            service.spec.as_ref().and_then(|spec| spec.cluster_ips.clone()).unwrap_or_default()
        });
        slices.index(ADDRESS, |slice: &EndpointSlice| {
            let mut addresses: Vec<String> =
                slice.endpoints.iter().flatten().filter_map(|endpoint| endpoint.addresses.first().cloned()).collect();
            addresses.sort_unstable();
            addresses.dedup();
            addresses
        });
        Self { services, slices }
    }
}

impl Cluster for Informed {
    fn service(&self, key: &Key) -> Option<Arc<Service>> {
        self.services.get(key)
    }

    fn slices(&self, service: &Key) -> Vec<Arc<EndpointSlice>> {
        self.slices.by_index(SERVICE, &service.to_string())
    }

    fn has_services(&self, namespace: &str) -> bool {
        !self.services.in_namespace(namespace).is_empty()
    }

    fn services_at(&self, address: IpAddr) -> Vec<Arc<Service>> {
        self.services.by_index(ADDRESS, &address.to_string())
    }

    fn slices_at(&self, address: IpAddr) -> Vec<Arc<EndpointSlice>> {
        self.slices.by_index(ADDRESS, &address.to_string())
    }
}
