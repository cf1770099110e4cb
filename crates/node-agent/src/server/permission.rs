//! Whether somebody may: each path is a part of the node, and the API server says who may use which.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hyper::Method;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};
use tokio::time::Instant;

use super::identity::User;

/// How long the API server's word is taken.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// How many decisions are kept in mind.
const MOST: usize = 1024;

pub(super) struct Permissions {
    client: Client,
    node: String,
    known: Mutex<HashMap<Asked, (bool, Instant)>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Asked {
    user: Arc<User>,
    verb: &'static str,
    part: &'static str,
}

impl Permissions {
    pub(super) fn new(client: Client, node: String) -> Self {
        Self { client, node, known: Mutex::default() }
    }

    /// The refusal, if there is one. It is enough to be allowed one of the parts that a path belongs to.
    pub(super) async fn check(&self, user: &Arc<User>, method: &Method, path: &str) -> Result<(), String> {
        let (verb, parts) = (verb(method), parts(path));
        for part in parts {
            let asked = Asked { user: user.clone(), verb, part };
            if self.allows(asked).await? {
                return Ok(());
            }
        }
        let parts = parts.join(" ");
        Err(format!("Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{parts}])\n", user.name))
    }

    async fn allows(&self, asked: Asked) -> Result<bool, String> {
        let now = Instant::now();
        if let Some((allowed, _)) = self.known().get(&asked).filter(|(_, until)| now < *until) {
            return Ok(*allowed);
        }
        let allowed = self.review(&asked).await.map_err(|error| {
            tracing::warn!(%error, user = asked.user.name, "cannot ask whether a request is allowed");
            "Authorization error (the API server cannot be asked)\n".to_owned()
        })?;
        let mut known = self.known();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(asked, (allowed, now + if allowed { ALLOWED_FOR } else { REFUSED_FOR }));
        Ok(allowed)
    }

    async fn review(&self, asked: &Asked) -> Result<bool, kube::Error> {
        let some = |text: &str| Some(text.to_owned());
        let user = &asked.user;
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: some(&user.name),
                uid: some(&user.uid).filter(|uid| !uid.is_empty()),
                groups: Some(user.groups.clone()),
                extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
                resource_attributes: Some(ResourceAttributes {
                    verb: some(asked.verb),
                    version: some("v1"),
                    resource: some("nodes"),
                    subresource: some(asked.part),
                    name: some(&self.node),
                    ..ResourceAttributes::default()
                }),
                non_resource_attributes: None,
            },
            ..SubjectAccessReview::default()
        };
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Asked, (bool, Instant)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

/// The parts of a node that a path belongs to, the narrowest first.
fn parts(path: &str) -> &'static [&'static str] {
    match path.split('/').nth(1).unwrap_or_default() {
        "stats" => &["stats"],
        "metrics" => &["metrics"],
        "logs" => &["log"],
        "checkpoint" => &["checkpoint"],
        "pods" | "runningpods" => &["pods", "proxy"],
        "healthz" => &["healthz", "proxy"],
        "configz" => &["configz", "proxy"],
        _ => &["proxy"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_is_a_part_of_the_node() {
        for (path, expected) in [
            ("/stats/summary", &["stats"][..]),
            ("/metrics", &["metrics"]),
            ("/metrics/cadvisor", &["metrics"]),
            ("/pods", &["pods", "proxy"]),
            ("/runningpods/", &["pods", "proxy"]),
            ("/healthz/ping", &["healthz", "proxy"]),
            ("/exec/ns/pod/container", &["proxy"]),
            ("/statsfoo", &["proxy"]),
        ] {
            assert_eq!(parts(path), expected, "{path}");
        }
        assert_eq!([Method::GET, Method::POST, Method::HEAD].map(|method| verb(&method)), ["get", "create", "get"]);
    }
}
