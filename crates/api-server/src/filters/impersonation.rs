//! Impersonation: a request by one user in the name of another, whom its `Impersonate-` headers describe.
//!
//! There are several ways to be allowed this, and the first that is open counts. The constrained ones say as whom *and* for
//! which requests somebody may act (verbs `impersonate:<mode>` and `impersonate-on:<mode>:<verb>`); the last one, the oldest,
//! only says as whom (verb `impersonate`). If none is open, the client learns what the first one lacks.

use std::{borrow::Cow, sync::Arc};

use hyper::HeaderMap;
use object_model::{
    field::{Errors, Path},
    names,
    status::Status,
};

use crate::{
    authentication::{
        ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED,
        front_proxy::{extra, text},
        service_accounts::{NODE_NAME, split_user_name},
    },
    authorization::{Attributes, Authorization, refusal},
    context::User,
};

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";
/// From so many values on, somebody who may impersonate all of them is asked about only once.
const MANY: usize = 4;

/// One way to be allowed impersonation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A service account as the node that its pod is on.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    /// Everybody who is neither.
    UserInfo,
    Legacy,
}

const MODES: &[Mode] = &[Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
            Mode::ServiceAccount => "serviceaccount",
            Mode::UserInfo => "user-info",
            Mode::Legacy => "",
        }
    }

    /// What the asker must be allowed to do with whom it wants to be.
    fn verb(self) -> String {
        if self.is_constrained() { format!("impersonate:{}", self.name()) } else { "impersonate".to_owned() }
    }

    fn is_constrained(self) -> bool {
        self != Mode::Legacy
    }

    /// Is this a way for somebody like this to become somebody like that?
    fn applies(self, asker: &User, wanted: &User) -> bool {
        let only_named = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let (node, account) = (node_name(&wanted.name), split_user_name(&wanted.name));
        match self {
            Mode::AssociatedNode => only_named && node.is_some() && node == own_node(asker),
            Mode::ArbitraryNode => only_named && node.is_some(),
            Mode::ServiceAccount => only_named && account.is_some(),
            Mode::UserInfo => node.is_none() && account.is_none(),
            Mode::Legacy => true,
        }
    }
}

/// Takes the headers that describe another user out of a request. What follows must not be able to tell.
pub fn take(headers: &mut HeaderMap) -> Result<Option<User>, Status> {
    let one = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let groups = headers.get_all(GROUP).iter().map(text).collect();
    let wanted = User { name: one(USER), uid: one(UID), groups, extra: extra(headers, &[EXTRA.to_owned()]) };
    if wanted == User::default() {
        return Ok(None);
    }
    if wanted.name.is_empty() {
        let message = format!(
            "requested a user with UID {:?}, groups {:?} and extra {:?} without impersonating a user name",
            wanted.uid, wanted.groups, wanted.extra
        );
        return Err(Status::bad_request(message));
    }
    let told: Vec<_> = headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
    for name in told {
        headers.remove(name);
    }
    Ok(Some(wanted))
}

/// Somebody in the place of the asker.
pub struct Acting {
    pub user: Arc<User>,
    /// The verb that allowed it, if that was one for some requests only.
    pub constraint: Option<String>,
}

/// The user that the asker wants to be for this request, if it may.
pub async fn act_as(authorization: &Authorization, request: &Attributes<'_>, wanted: &User) -> Result<Acting, Status> {
    let mut refused = None;
    for mode in MODES.iter().copied().filter(|mode| mode.applies(request.user, wanted)) {
        match attempt(authorization, request, wanted, mode).await {
            Ok(user) => {
                let constraint = mode.is_constrained().then(|| mode.verb());
                return Ok(Acting { user: Arc::new(user), constraint });
            }
            Err(status) => refused = refused.or(Some(status)),
        }
    }
    Err(refused.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
}

async fn attempt(
    authorization: &Authorization,
    request: &Attributes<'_>,
    wanted: &User,
    mode: Mode,
) -> Result<User, Status> {
    // Which node it is has been checked; the permission is one for all of them.
    let associated = (mode == Mode::AssociatedNode).then(|| without_extra(request.user));
    let asker = associated.as_ref().unwrap_or(request.user);
    let verb = mode.verb();
    if mode.is_constrained() {
        let on = format!("impersonate-on:{}:{}", mode.name(), request.verb);
        let attributes = Attributes { user: asker, verb: &on, ..request.clone() };
        authorization.decide(&attributes).await.permit(&attributes)?;
    }
    let check = Check { authorization, asker, verb: &verb, mode };
    let groups = check.name(wanted).await?;
    if !wanted.uid.is_empty() {
        check.may(AUTHENTICATION, "uids", "", &wanted.uid).await?;
    }
    check.groups(&wanted.groups).await?;
    check.extra(&wanted.extra).await?;
    let mut user = User { groups, ..wanted.clone() };
    let belongs = |user: &User, group: &str| user.groups.iter().any(|own| own == group);
    if user.name == ANONYMOUS {
        if !belongs(&user, UNAUTHENTICATED) {
            user.groups.push(UNAUTHENTICATED.to_owned());
        }
    } else if !belongs(&user, UNAUTHENTICATED) && !belongs(&user, AUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    Ok(user)
}

/// The questions of one mode, each about one thing that the asker wants to be.
struct Check<'a> {
    authorization: &'a Authorization,
    asker: &'a User,
    verb: &'a str,
    mode: Mode,
}

impl<'a> Check<'a> {
    fn attributes(&self, group: &'a str, resource: &'a str, subresource: &'a str, name: &'a str) -> Attributes<'a> {
        let version = "v1";
        let name = Cow::Borrowed(name);
        Attributes { version, subresource, name, ..Attributes::of_resource(self.asker, self.verb, group, resource) }
    }

    async fn may(&self, group: &'a str, resource: &'a str, subresource: &'a str, name: &'a str) -> Result<(), Status> {
        let attributes = self.attributes(group, resource, subresource, name);
        self.authorization.decide(&attributes).await.permit(&attributes)
    }

    /// The group in which names and groups are judged.
    fn group(&self) -> &'static str {
        if self.mode.is_constrained() { AUTHENTICATION } else { "" }
    }

    /// Checks the name, and says to which groups it belongs.
    async fn name(&self, wanted: &'a User) -> Result<Vec<String>, Status> {
        let group = self.group();
        if let (true, Some(node)) = (self.mode.is_constrained(), node_name(&wanted.name)) {
            let node = if self.mode == Mode::AssociatedNode { "*" } else { node };
            self.may(group, "nodes", "", node).await?;
            return Ok(vec!["system:nodes".to_owned()]);
        }
        let Some((namespace, name)) = split_user_name(&wanted.name) else {
            self.may(group, "users", "", &wanted.name).await?;
            return Ok(wanted.groups.clone());
        };
        let attributes = Attributes { namespace, ..self.attributes(group, "serviceaccounts", "", name) };
        self.authorization.decide(&attributes).await.permit(&attributes)?;
        let own = || User::service_account(namespace, name).groups;
        Ok(if wanted.groups.is_empty() { own() } else { wanted.groups.clone() })
    }

    async fn groups(&self, groups: &'a [String]) -> Result<(), Status> {
        let api_group = self.group();
        if self.mode.is_constrained() {
            for (forbidden, told) in [("", "the empty string"), ("system:masters", "the system:masters")] {
                if groups.iter().any(|group| group == forbidden) {
                    let why = format!("impersonating {told} group is not allowed");
                    return Err(refusal(&self.attributes(api_group, "groups", "", forbidden), &why));
                }
            }
            if groups.len() >= MANY && self.may(api_group, "groups", "", "*").await.is_ok() {
                return Ok(());
            }
        }
        for group in groups {
            self.may(api_group, "groups", "", group).await?;
        }
        Ok(())
    }

    async fn extra(&self, extra: &'a [(String, Vec<String>)]) -> Result<(), Status> {
        if self.mode.is_constrained() {
            if let Some(why) = extra.iter().find_map(|(key, values)| bad_extra(key, values)) {
                return Err(refusal(&self.attributes(AUTHENTICATION, "userextras", "", ""), &why));
            }
            let many = extra.len() >= MANY || extra.iter().map(|(_, values)| values.len()).sum::<usize>() >= MANY;
            if many && self.may(AUTHENTICATION, "userextras", "*", "*").await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                self.may(AUTHENTICATION, "userextras", key, value).await?;
            }
        }
        Ok(())
    }
}

/// What is wrong with a piece of extra information, where that is judged.
fn bad_extra(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".into());
    }
    let (mut errors, root) = (Errors::new(), Path::root());
    names::domain_prefixed_path(&root.child("extra").child("key"), key, &mut errors);
    if !errors.is_empty() {
        return Some(format!("impersonating an invalid key in extra is not allowed: {key:?}"));
    }
    if key.chars().any(char::is_uppercase) {
        return Some(format!("impersonating a non-lowercase key in extra is not allowed: {key:?}"));
    }
    values.iter().any(String::is_empty).then(|| "impersonating the empty string value in extra is not allowed".into())
}

fn node_name(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| names::dns_subdomain(name).is_empty())
}

/// The node that a service account's pod is on, as its token says.
fn own_node(user: &User) -> Option<&str> {
    split_user_name(&user.name)?;
    let (_, values) = user.extra.iter().find(|(key, _)| key == NODE_NAME)?;
    match values.as_slice() {
        [one] => Some(one),
        _ => None,
    }
}

/// The asker with nothing but the names of what is known about it.
fn without_extra(user: &User) -> User {
    let mut keys: Vec<String> = user.extra.iter().map(|(key, _)| key.clone()).collect();
    keys.sort();
    User { extra: vec![("authentication.kubernetes.io/associated-node-keys".to_owned(), keys)], ..user.clone() }
}
