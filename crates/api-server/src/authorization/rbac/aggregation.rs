//! Roles that gather the rules of other roles by their labels.
//!
//! Kubernetes does this in a controller, and so does Ferry: whenever a ClusterRole changes, the rules of all gathering
//! roles are compared with what they should be, and those that differ are applied under the controller's own identity.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::Duration,
};

use hyper::{Method, Request, header};
use object_model::{meta::Meta, selector::LabelSelector, value::Fields};
use serde_json::{Value, json};

use super::{GROUP, Rule};
use crate::{
    Server,
    authorization::follower::{self, Followed},
    body::RequestBody,
    catalogue::store_prefix,
    context::User,
    watch_cache::{Entry, Scope},
};

const CONTROLLER: &str = "clusterrole-aggregation-controller";
const AGAIN: Duration = Duration::from_secs(1);

static IDENTITY: LazyLock<Arc<User>> = LazyLock::new(|| Arc::new(User::service_account("kube-system", CONTROLLER)));

/// All ClusterRoles, with what gathering needs to know of them.
#[derive(Default)]
pub struct Gathered(BTreeMap<Box<str>, Role>);

struct Role {
    labels: BTreeMap<Box<str>, Box<str>>,
    rules: Vec<Rule>,
    /// `None` for a role that gathers nothing.
    gathers: Option<Vec<LabelSelector>>,
}

impl Gathered {
    pub fn of<'a>(roles: impl Iterator<Item = &'a Value>) -> Self {
        Self(roles.map(|role| (Meta::of(role).name().into(), Role::read(role))).collect())
    }

    /// The gathering roles whose rules are not what they should be, with what they should be.
    pub fn due(&self) -> Vec<(Box<str>, Vec<Rule>)> {
        let mut due = Vec::new();
        for (name, role) in &self.0 {
            let Some(selectors) = &role.gathers else { continue };
            let mut rules: Vec<Rule> = Vec::new();
            for selector in selectors {
                let joining = self.0.iter().filter(|(other, role)| *other != name && role.joins(selector));
                for rule in joining.flat_map(|(_, role)| &role.rules) {
                    if !rules.contains(rule) {
                        rules.push(rule.clone());
                    }
                }
            }
            if rules != role.rules {
                due.push((name.clone(), rules));
            }
        }
        due
    }
}

impl Role {
    fn read(role: &Value) -> Self {
        let selectors = |rule: &Value| {
            let all = rule.items("clusterRoleSelectors").iter();
            all.map(LabelSelector::from_object).collect::<Result<Vec<_>, _>>()
        };
        Self {
            labels: Meta::of(role).labels().iter().map(|(k, v)| (k.into(), v.into())).collect(),
            rules: Rule::of_role(role),
            // Validation lets no bad selector in; one that is there nevertheless leaves the role as it is.
            gathers: role.object("aggregationRule").and_then(|rule| selectors(rule).ok()),
        }
    }

    fn joins(&self, selector: &LabelSelector) -> bool {
        selector.matches(|key| self.labels.get(key).map(|value| &**value))
    }
}

impl follower::Index for Gathered {
    fn apply(&mut self, _: usize, key: &str, entry: Option<&Entry>) {
        match entry {
            Some(entry) => self.0.insert(key.into(), Role::read(&entry.object("ClusterRole"))),
            None => self.0.remove(key),
        };
    }
}

/// Keeps gathering roles complete until the server stops.
pub async fn run(server: Arc<Server>) {
    let roles = server.registry.cache.resource(&store_prefix(GROUP, "clusterroles"));
    let index: Followed<Gathered> = Followed::new([roles.clone()]);
    loop {
        // Watched from before the comparison, so that no change falls between the two.
        let changed = roles.watch(Scope::All, roles.snapshot().revision);
        let mut failed = changed.is_err();
        for (name, rules) in index.read(Gathered::due) {
            failed |= !apply(&server, &name, &rules).await;
        }
        let change = async {
            match changed {
                Ok(mut watcher) if !failed => drop(watcher.next().await),
                _ => tokio::time::sleep(AGAIN).await,
            }
        };
        tokio::select! {
            () = server.drain.cancelled() => return,
            () = change => {}
        }
    }
}

async fn apply(server: &Arc<Server>, name: &str, rules: &[Rule]) -> bool {
    let object = json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    });
    let path = format!("/apis/{GROUP}/v1/clusterroles/{name}?fieldManager={CONTROLLER}&force=true");
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(path)
        .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
        .header(header::USER_AGENT, CONTROLLER)
        .body(RequestBody::Whole(object.to_string().into()));
    let Ok(request) = request else {
        tracing::error!(name, "the name of a ClusterRole does not fit in a path");
        return true;
    };
    let response = server.call(IDENTITY.clone(), request).await;
    // A role that went meanwhile needs nothing more.
    let done = response.status().is_success() || response.status() == hyper::StatusCode::NOT_FOUND;
    if !done {
        tracing::warn!(name, status = %response.status(), "cannot fill a gathering ClusterRole; trying again");
    }
    done
}
