//! The protocol by which an informer follows a kind: list, then watch from the list's revision, and resume.
//!
//! A connection that ends is taken up again at the last revision seen, bookmarks included. Only when the server no longer
//! has that revision (410, in the answer or in the stream) is everything listed again. Errors back off, from 0.8 s to
//! 30 s as in client-go, until something has worked again.
//!
//! An object that cannot be read as it is costs a look of its own, never a list: in a list its page is read once more, and a
//! watch goes on where it was; both are then read more leniently, until the page or the connection ends.

mod lenient;

use std::{fmt::Debug, pin::pin, time::Duration};

use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{
    Api, Resource,
    api::{ListParams, Request, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};

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
    /// The same, and what comes next cannot be read as it is.
    Odd(String),
}

/// Follows a kind for as long as it is polled.
/// Only the objects that the field selector selects, if there is one.
pub(crate) async fn follow<K>(api: Api<K>, fields: Option<String>, mut tell: impl FnMut(Told<K>) + Send)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let (mut state, mut pause, mut may_list) = (State::Unlisted, FIRST_PAUSE, Instant::now());
    loop {
        let (next, problem) = match state {
            State::Unlisted => {
                // Whoever is always too slow for the server must not ask for everything all the time.
                sleep_until(may_list).await;
                may_list = Instant::now() + jittered(FIRST_PAUSE);
                match list(&api, &fields).await {
                    Ok((objects, version)) => {
                        tell(Told::All(objects, version.parse().unwrap_or(0)));
                        (State::Told(version), None)
                    }
                    Err(error) => (State::Unlisted, Some(error.to_string())),
                }
            }
            State::Told(version) => watch(&api, version, &fields, &mut tell).await,
            State::Odd(version) => watch_leniently(&api, version, &fields, &mut tell).await,
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
    version: String,
    fields: &Option<String>,
    tell: &mut (impl FnMut(Told<K>) + Send),
) -> (State, Option<String>)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    match api.watch(&watched(fields), &version).await {
        Ok(events) => hear(events, version, Some, tell).await,
        Err(error) => refused(error, version),
    }
}

/// The same for objects that cannot be read as they are. One that cannot be read even so is as it was known before.
async fn watch_leniently<K>(
    api: &Api<K>,
    version: String,
    fields: &Option<String>,
    tell: &mut (impl FnMut(Told<K>) + Send),
) -> (State, Option<String>)
where
    K: Resource + Clone + DeserializeOwned + Send + 'static,
{
    let request = Request::new(api.resource_url()).watch(&watched(fields), &version);
    let client = api.clone().into_client();
    let events = match request.map_err(kube::Error::BuildRequest) {
        Ok(request) => client.request_events::<Value>(request).await,
        Err(error) => Err(error),
    };
    match events {
        Ok(events) => match hear(events, version, lenient::object, tell).await {
            (State::Odd(_), _) => (State::Unlisted, Some("the watch cannot be read".to_owned())),
            heard => heard,
        },
        Err(error) => refused(error, version),
    }
}

fn watched(fields: &Option<String>) -> WatchParams {
    WatchParams { field_selector: fields.clone(), ..WatchParams::default() }
}

fn refused(error: kube::Error, version: String) -> (State, Option<String>) {
    match error {
        kube::Error::Api(status) if status.code == GONE => (State::Unlisted, None),
        error => (State::Told(version), Some(error.to_string())),
    }
}

/// Tells what a watch tells, as far as it can be read.
async fn hear<K: Resource, T>(
    events: impl Stream<Item = kube::Result<WatchEvent<T>>> + Send,
    mut version: String,
    read: impl Fn(T) -> Option<K>,
    tell: &mut (impl FnMut(Told<K>) + Send),
) -> (State, Option<String>) {
    let (began, mut heard, mut events) = (Instant::now(), false, pin!(events));
    while let Some(event) = events.next().await {
        heard = true;
        let told = match event {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => read(object).map(Told::Applied),
            Ok(WatchEvent::Deleted(object)) => read(object).map(Told::Deleted),
            Ok(WatchEvent::Bookmark(mark)) => {
                version = mark.metadata.resource_version;
                Some(Told::UpTo(version.parse().unwrap_or(0)))
            }
            Ok(WatchEvent::Error(status)) if status.code == GONE => return (State::Unlisted, None),
            Ok(WatchEvent::Error(status)) => return (State::Told(version), Some(status.message.clone())),
            Err(error) if is_unreadable(&error) => return (State::Odd(version), None),
            Err(error) => return (State::Told(version), Some(error.to_string())),
        };
        if let Some(Told::Applied(object) | Told::Deleted(object)) = &told {
            version = object.meta().resource_version.clone().unwrap_or(version);
        }
        told.into_iter().for_each(&mut *tell);
    }
    let too_short = !heard && began.elapsed() < SHORTEST_WATCH;
    (State::Told(version), too_short.then(|| "the watch ended at once".to_owned()))
}
