//! What a server is told at its start. Each part keeps its own settings beside its code; here they come together.

use std::{net::SocketAddr, sync::Arc};

use crate::{
    admission, audit, authentication,
    authorization::configuration::Configuration,
    clock::{Clock, SystemClock},
    fairness,
    streaming::Agents,
};

pub struct Settings {
    /// The address that clients are told.
    pub address: String,
    /// Where pods reach this server by the Service `kubernetes`. Without it, the Service leads nowhere.
    pub advertise: Option<SocketAddr>,
    pub clock: Arc<dyn Clock>,
    pub authentication: authentication::Settings,
    /// Who judges requests.
    pub authorization: Configuration,
    /// Without it nothing is recorded.
    pub audit: Option<audit::Settings>,
    pub limits: fairness::Limits,
    /// How the agents of nodes are reached. Without it, logs and streams of pods are not served.
    pub agents: Option<Arc<Agents>>,
    pub admission: admission::Settings,
    /// Keep count of what quotas limit. Without that, what they say of use is only ever added to.
    pub counts_quotas: bool,
}

impl Settings {
    /// The defaults, for a server that clients reach at this address.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            advertise: None,
            clock: Arc::new(SystemClock),
            authentication: Default::default(),
            authorization: Configuration::default(),
            audit: None,
            limits: Default::default(),
            agents: None,
            admission: admission::Settings::default(),
            counts_quotas: true,
        }
    }
}
