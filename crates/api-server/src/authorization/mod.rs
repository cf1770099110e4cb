//! Whether a user may do what a request asks.

use async_trait::async_trait;
use object_model::{identity::GroupResource, status::Status};

use crate::{context::User, request_info::RequestInfo};

/// What an authorizer thinks of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow,
    Deny(String),
    NoOpinion,
}

/// One judge. Decisions come from memory; only a judge outside of this process is waited for.
#[async_trait]
pub trait Authorizer: Send + Sync {
    async fn decide(&self, user: &User, info: &RequestInfo) -> Decision;
}

/// All judges, in order: the first opinion counts, and without one the request is refused.
pub struct Authorization(Vec<Box<dyn Authorizer>>);

impl Authorization {
    pub fn new(judges: Vec<Box<dyn Authorizer>>) -> Self {
        Self(judges)
    }

    pub async fn authorize(&self, user: &User, info: &RequestInfo) -> Result<(), Status> {
        let mut why = String::new();
        for judge in &self.0 {
            match judge.decide(user, info).await {
                Decision::Allow => return Ok(()),
                Decision::Deny(reason) => {
                    why = reason;
                    break;
                }
                Decision::NoOpinion => {}
            }
        }
        Err(refusal(user, info, &why))
    }
}

/// Members of `system:masters` may do everything.
pub struct Masters;

#[async_trait]
impl Authorizer for Masters {
    async fn decide(&self, user: &User, _: &RequestInfo) -> Decision {
        if user.groups.iter().any(|g| g == "system:masters") { Decision::Allow } else { Decision::NoOpinion }
    }
}

/// Everybody may ask how the server is and what it is.
pub struct PublicInfo;

#[async_trait]
impl Authorizer for PublicInfo {
    async fn decide(&self, _: &User, info: &RequestInfo) -> Decision {
        let public = ["/healthz", "/livez", "/readyz", "/version"];
        let matches = |p: &&str| info.path == **p || info.path.starts_with(&format!("{p}/"));
        if !info.is_resource && info.verb == "get" && public.iter().any(matches) {
            Decision::Allow
        } else {
            Decision::NoOpinion
        }
    }
}

fn refusal(user: &User, info: &RequestInfo, why: &str) -> Status {
    let because = if why.is_empty() { String::new() } else { format!(": {why}") };
    if !info.is_resource {
        let message = format!("User {:?} cannot {} path {:?}{because}", user.name, info.verb, info.path);
        return Status::forbidden(&GroupResource::default(), "", message);
    }
    let mut resource = info.resource.clone();
    if !info.subresource.is_empty() {
        resource = format!("{resource}/{}", info.subresource);
    }
    let place = if info.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {:?}", info.namespace)
    };
    let message = format!(
        "User {:?} cannot {} resource {resource:?} in API group {:?} {place}{because}",
        user.name, info.verb, info.group
    );
    Status::forbidden(&GroupResource::new(info.group.as_str(), info.resource.as_str()), &info.name, message)
}
