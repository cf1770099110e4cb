//! What goes on beside requests: whether the level that a flow schema names exists is written into its status, and seats are
//! lent and borrowed.

use std::{collections::HashMap, sync::Arc, time::Duration};

use hyper::Method;
use object_model::value::Fields;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::{defaults, schema};
use crate::{
    Server,
    context::User,
    registry::Answer,
    watch_cache::{Scope, Watcher},
};

const ADJUST_EVERY: Duration = Duration::from_secs(10);
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";
const CONDITION: &str = "Dangling";
/// A flow schema whose condition others keep changing is left to them for a while after so many writes in a minute.
const WRITES_IN_A_MINUTE: usize = 6;
const MINUTE: Duration = Duration::from_secs(60);
const LATER: Duration = Duration::from_secs(1);

/// Runs for as long as the server does.
pub async fn keep(server: Arc<Server>, user: Arc<User>) {
    let mut keeper = Keeper { server, user, written: HashMap::new() };
    let mut adjust_at = Instant::now() + ADJUST_EVERY;
    let mut watchers = keeper.watchers();
    loop {
        let settled = keeper.conditions().await;
        let changed = async {
            match &mut watchers {
                Some((schemas, levels)) => tokio::select! {
                    event = schemas.next() => event.is_ok(),
                    event = levels.next() => event.is_ok(),
                },
                None => {
                    sleep(LATER).await;
                    false
                }
            }
        };
        tokio::select! {
            going_on = changed => if !going_on {
                watchers = keeper.watchers();
            },
            () = sleep_until(adjust_at) => {
                keeper.server.fairness.adjust();
                adjust_at = Instant::now() + ADJUST_EVERY;
            }
            () = sleep(LATER), if !settled => {}
            () = keeper.server.drain.cancelled() => return,
        }
    }
}

struct Keeper {
    server: Arc<Server>,
    user: Arc<User>,
    /// When the condition of each flow schema was written of late.
    written: HashMap<String, Vec<Instant>>,
}

impl Keeper {
    fn watchers(&self) -> Option<(Watcher, Watcher)> {
        let fairness = &self.server.fairness;
        let watch = |cache: &Arc<crate::watch_cache::ResourceCache>| {
            cache.watch(Scope::All, self.server.registry.cache.applied()).ok()
        };
        Some((watch(&fairness.schemas)?, watch(&fairness.levels)?))
    }

    /// Brings every condition up to date. False if something is left to do.
    async fn conditions(&mut self) -> bool {
        let (schemas, levels) = (self.server.fairness.schemas.snapshot(), self.server.fairness.levels.snapshot());
        let mut settled = true;
        for (name, entry) in &schemas.objects {
            let object = Answer::of(entry).object("FlowSchema");
            let level = schema::level_name(&object);
            // The mandatory ones are there even if they are not.
            let exists = levels.objects.contains_key(level) || matches!(level, super::EXEMPT | super::CATCH_ALL);
            let Some(condition) = wanted(&object, level, exists) else { continue };
            settled &= self.write(name, condition).await;
        }
        self.written.retain(|name, _| schemas.objects.contains_key(&**name));
        settled
    }

    async fn write(&mut self, name: &str, mut condition: Value) -> bool {
        let now = Instant::now();
        let recent = self.written.entry(name.to_owned()).or_default();
        recent.retain(|at| now.duration_since(*at) < MINUTE);
        if recent.len() >= WRITES_IN_A_MINUTE {
            return false;
        }
        recent.push(now);
        condition["lastTransitionTime"] = self.server.registry.clock.seconds().to_string().into();
        let applied = json!({
            "apiVersion": format!("{}/v1", defaults::GROUP),
            "kind": "FlowSchema",
            "metadata": {"name": name},
            "status": {"conditions": [condition]},
        });
        let path = format!(
            "/apis/{}/v1/{}/{name}/status?fieldManager={CONSUMER}&force=true",
            defaults::GROUP,
            defaults::SCHEMAS
        );
        let media = "application/apply-patch+yaml";
        match defaults::send(&self.server, &self.user, Method::PATCH, &path, media, &applied).await {
            Ok(()) => true,
            // Deleted meanwhile.
            Err(status) if status.code == 404 => true,
            Err(status) => {
                tracing::warn!(%status, name, "the condition of a flow schema could not be written");
                false
            }
        }
    }
}

/// The condition that a flow schema should have, unless it has it.
fn wanted(object: &Value, level: &str, exists: bool) -> Option<Value> {
    let references = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?}");
    let (status, reason, message) = match exists {
        true => ("False", "Found", format!("{references} and it exists")),
        false => ("True", "NotFound", format!("{references} but there is no such object")),
    };
    let conditions = object["status"].items("conditions");
    let current = conditions.iter().find(|condition| condition.text("type") == CONDITION);
    let has = |field: &str, text: &str| current.is_some_and(|condition| condition.text(field) == text);
    if has("status", status) && has("reason", reason) && has("message", &message) {
        return None;
    }
    Some(json!({"type": CONDITION, "status": status, "reason": reason, "message": message}))
}
