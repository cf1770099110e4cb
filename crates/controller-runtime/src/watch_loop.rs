//! The protocol by which an informer follows a kind: list, then watch from the list's revision, and resume.
//!
//! A connection that ends is taken up again at the last revision seen, bookmarks included. Only when the server no longer
//! has that revision (410, in the answer or in the stream) is everything listed again. Errors back off, from 0.8 s to
//! 30 s as in client-go, until something has worked again. An object that cannot be read ends a watch; then everything is
//! listed again with more leniency.

mod lenient;

use std::{fmt::Debug, time::Duration};

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{
    Api, Resource,
    api::{ListParams, Request, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// How many objects are asked for at a time.
const PAGE: u32 = 500;
const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A watch that ends sooner, without a word, is taken for a failure.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
const GONE: u16 = 410;

/// What is told of a kind.
pub(crate) enum Told<K> {
    /// All objects there are, as of a revision.
    All(Vec<K>, u64),
    Applied(K),
    Deleted(K),
    /// Nothing else has happened up to a revision.
    UpTo(u64),
}

enum State {
    /// Nothing is known, or too little.
    Unlisted,
    /// Everything up to a revision has been told.
    Told(String),
}

/// Follows a kind for as long as it is polled.
/// Only the objects that the field selector selects, if there is one.
pub(crate) async fn follow<K>(api: Api<K>, fields: Option<String>, mut tell: impl FnMut(Told<K>) + Send)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let (mut state, mut pause) = (State::Unlisted, FIRST_PAUSE);
    loop {
        let (next, problem) = match state {
            State::Unlisted => match list(&api, &fields).await {
                Ok((objects, version)) => {
                    tell(Told::All(objects, version.parse().unwrap_or(0)));
                    (State::Told(version), None)
                }
                Err(error) => (State::Unlisted, Some(error.to_string())),
            },
            State::Told(version) => watch(&api, version, &fields, &mut tell).await,
        };
        state = next;
        match problem {
            None => pause = FIRST_PAUSE,
            Some(problem) => {
                tracing::warn!(resource = api.resource_url(), problem, "cannot follow; trying again");
                sleep(jittered(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Up to twice the pause, so that many do not come back at once.
fn jittered(pause: Duration) -> Duration {
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.subsec_nanos());
    pause + pause.mul_f64(f64::from(nanos % 1000) / 1000.0)
}

async fn list<K>(api: &Api<K>, fields: &Option<String>) -> kube::Result<(Vec<K>, String)>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let (mut objects, mut page) =
        (Vec::new(), ListParams { field_selector: fields.clone(), ..ListParams::default().limit(PAGE) });
    loop {
        let (items, metadata) = match api.list(&page).await {
            Ok(list) => (list.items, list.metadata),
            Err(error) if is_unreadable(&error) => list_leniently(api, &page).await?,
            Err(error) => return Err(error),
        };
        objects.extend(items);
        match metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok((objects, metadata.resource_version.unwrap_or_default())),
        }
    }
}

async fn list_leniently<K>(api: &Api<K>, page: &ListParams) -> kube::Result<(Vec<K>, ListMeta)>
where
    K: Resource + Clone + DeserializeOwned,
{
    let request = Request::new(api.resource_url()).list(page).map_err(kube::Error::BuildRequest)?;
    let mut list: Value = api.clone().into_client().request(request).await?;
    let metadata = list.get_mut("metadata").map(Value::take).unwrap_or_default();
    Ok((lenient::objects(&mut list), serde_json::from_value(metadata).map_err(kube::Error::SerdeError)?))
}

/// The client takes an event that it cannot read for a status in which everything is missing.
fn is_unreadable(error: &kube::Error) -> bool {
    match error {
        kube::Error::SerdeError(_) => true,
        kube::Error::Api(status) => status.code == 0 && status.message.is_empty(),
        _ => false,
    }
}

/// Watches until the connection ends. Gives where to go on from, and what was wrong if anything was.
async fn watch<K>(
    api: &Api<K>,
    mut version: String,
    fields: &Option<String>,
    tell: &mut (impl FnMut(Told<K>) + Send),
) -> (State, Option<String>)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let (began, mut heard) = (Instant::now(), false);
    let selected = WatchParams { field_selector: fields.clone(), ..WatchParams::default() };
    let mut events = match api.watch(&selected, &version).await {
        Ok(events) => events.boxed(),
        Err(kube::Error::Api(status)) if status.code == GONE => return (State::Unlisted, None),
        Err(error) => return (State::Told(version), Some(error.to_string())),
    };
    while let Some(event) = events.next().await {
        heard = true;
        match event {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                version = object.meta().resource_version.clone().unwrap_or(version);
                tell(Told::Applied(object));
            }
            Ok(WatchEvent::Deleted(object)) => {
                version = object.meta().resource_version.clone().unwrap_or(version);
                tell(Told::Deleted(object));
            }
            Ok(WatchEvent::Bookmark(mark)) => {
                version = mark.metadata.resource_version;
                tell(Told::UpTo(version.parse().unwrap_or(0)));
            }
            Ok(WatchEvent::Error(status)) if status.code == GONE => return (State::Unlisted, None),
            Ok(WatchEvent::Error(status)) => return (State::Told(version), Some(status.message.clone())),
            Err(error) if is_unreadable(&error) => return (State::Unlisted, None),
            Err(error) => return (State::Told(version), Some(error.to_string())),
        }
    }
    let too_short = !heard && began.elapsed() < SHORTEST_WATCH;
    (State::Told(version), too_short.then(|| "the watch ended at once".to_owned()))
}
