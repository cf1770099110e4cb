//! Who a request comes from.

use std::sync::Arc;

use async_trait::async_trait;
use hyper::HeaderMap;
use object_model::status::Status;

use crate::{context::User, serving::Peer};

/// What a request arrived with, before anybody has judged it.
#[derive(Clone, Debug)]
pub enum Identity {
    /// Over a connection.
    Remote(Peer),
    /// From a component in this process, which carries its identity itself.
    Local(Arc<User>),
}

/// One way to tell who asks. Most answer from memory; one that asks somebody else may wait.
#[async_trait]
pub trait Authenticator: Send + Sync {
    /// The user, `None` if this way does not apply, or a refusal.
    async fn authenticate(&self, peer: &Peer, headers: &HeaderMap) -> Result<Option<User>, Status>;
}

/// All ways, in order. A request that none applies to is anonymous.
pub struct Authentication(Vec<Box<dyn Authenticator>>);

pub const ANONYMOUS: &str = "system:anonymous";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

impl Authentication {
    pub fn new(ways: Vec<Box<dyn Authenticator>>) -> Self {
        Self(ways)
    }

    pub async fn authenticate(&self, identity: &Identity, headers: &HeaderMap) -> Result<Arc<User>, Status> {
        let peer = match identity {
            Identity::Local(user) => return Ok(user.clone()),
            Identity::Remote(peer) => peer,
        };
        for way in &self.0 {
            if let Some(mut user) = way.authenticate(peer, headers).await? {
                if !user.groups.iter().any(|g| g == AUTHENTICATED) {
                    user.groups.push(AUTHENTICATED.to_owned());
                }
                return Ok(Arc::new(user));
            }
        }
        if headers.contains_key(hyper::header::AUTHORIZATION) {
            return Err(Status::unauthorized("Unauthorized"));
        }
        let groups = vec![UNAUTHENTICATED.to_owned()];
        Ok(Arc::new(User { name: ANONYMOUS.to_owned(), groups, ..User::default() }))
    }
}

/// By a client certificate of our authority: the common name is the user, the organisations are its groups.
pub struct ClientCertificate;

#[async_trait]
impl Authenticator for ClientCertificate {
    async fn authenticate(&self, peer: &Peer, _: &HeaderMap) -> Result<Option<User>, Status> {
        Ok(peer.certificate.as_deref().map(|(name, groups)| User {
            name: name.clone(),
            groups: groups.clone(),
            ..User::default()
        }))
    }
}
