//! What a server is told at its start. Each part keeps its own settings beside its code; here they come together.

use std::sync::Arc;

use crate::{
    audit, authentication,
    authorization::configuration::Configuration,
    clock::{Clock, SystemClock},
    fairness,
    streaming::Agents,
};

pub struct Settings {
    /// The address that clients are told.
    pub address: String,
    pub clock: Arc<dyn Clock>,
    pub authentication: authentication::Settings,
    /// Who judges requests.
    pub authorization: Configuration,
    /// Without it nothing is recorded.
    pub audit: Option<audit::Settings>,
    pub limits: fairness::Limits,
    /// How the agents of nodes are reached. Without it, logs and streams of pods are not served.
    pub agents: Option<Arc<Agents>>,
}

impl Settings {
    /// The defaults, for a server that clients reach at this address.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            clock: Arc::new(SystemClock),
            authentication: Default::default(),
            authorization: Configuration::default(),
            audit: None,
            limits: Default::default(),
            agents: None,
        }
    }
}
