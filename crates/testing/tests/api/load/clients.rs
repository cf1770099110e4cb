//! Clients that list and watch in every way there is, break off at random and come back.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde_json::Value;
use testing::client::Client;

use super::{CHOSEN, Progress};
use crate::version;

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The object that everybody sees at the end; none comes after it in a list.
pub const LAST: &str = "zz-last";

/// How a client learns what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// Lists, and watches from the list's revision.
    All,
    /// The same, of the labelled objects only: changes of the label come and go as objects.
    Chosen,
    /// The same through all namespaces, with bookmarks, from which it goes on.
    Bookmarks,
    /// Has the watch begin with what there is, up to a bookmark.
    InitialEvents,
    /// The same, of the labelled objects.
    ChosenInitialEvents,
    /// Watches from "0": whatever there is, and then what changes.
    Whatever,
}

impl Habit {
    pub fn of(client: usize) -> Self {
        use Habit::*;
        [All, Chosen, Bookmarks, InitialEvents, Chosen, Whatever, ChosenInitialEvents, Chosen][client % 8]
    }

    /// Does such a client see an object that is labelled, or is not?
    pub fn selects(self, chosen: bool) -> bool {
        chosen || !matches!(self, Habit::Chosen | Habit::ChosenInitialEvents)
    }

    fn begins_with_events(self) -> bool {
        matches!(self, Habit::InitialEvents | Habit::ChosenInitialEvents)
    }

    fn path(self) -> String {
        match self {
            Habit::All | Habit::InitialEvents | Habit::Whatever => format!("{MAPS}?"),
            Habit::Chosen | Habit::ChosenInitialEvents => format!("{MAPS}?labelSelector={CHOSEN}%3Dyes&"),
            Habit::Bookmarks => "/api/v1/configmaps?fieldSelector=metadata.namespace%3Ddefault&".into(),
        }
    }

    /// After so many events or so much time a watch is broken off, so that it happens often on fast machines and on slow
    /// ones.
    fn patience(self, random: &mut Random) -> (usize, Duration) {
        match self {
            // The bookmark comes after a second.
            Habit::Bookmarks => (usize::MAX, Duration::from_millis(random.next(1600))),
            _ => (random.next(400) as usize, Duration::from_millis(random.next(1500))),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Added,
    Modified,
    Deleted,
}

/// An event as a client is told it: the object's name and its version.
pub type Told = (Seen, String, u64);

/// What a client saw between two revisions.
#[derive(Debug)]
pub struct Stretch {
    pub begins: Begins,
    pub to: u64,
    pub events: Vec<Told>,
}

#[derive(Debug)]
pub enum Begins {
    /// Where the one before it ended.
    Resumed(u64),
    /// With everything at a revision.
    Listed(u64, BTreeMap<String, u64>),
    /// With everything at a revision that is not told.
    Unknown,
}

/// Lists and watches, breaking off at random, until everything up to the end is seen.
pub async fn follow(client: Client, number: usize, habit: Habit, progress: Arc<Progress>) -> Vec<Stretch> {
    let mut random = Random(88172645463325252 + number as u64);
    let mut stretches = Vec::new();
    let mut resume = None;
    loop {
        let end = progress.end.load(Ordering::SeqCst);
        let (events, time) = match end {
            0 => habit.patience(&mut random),
            _ => (usize::MAX, Duration::from_secs(60)),
        };
        let mut stretch = begin(&client, habit, resume.take()).await;
        let watched = tokio::time::timeout(time, watch(&client, habit, &mut stretch, end, events)).await;
        // Whoever was told that the past is gone, does not know where it is, or has luck, starts over.
        let lost = watched == Ok(Ended::Expired) || matches!(stretch.begins, Begins::Unknown);
        resume = (!lost && random.next(3) > 0).then_some(stretch.to);
        let done = stretch.reached(habit, end);
        if stretch.to > 0 {
            stretches.push(stretch);
        }
        if done {
            return stretches;
        }
        progress.returns[number].store(stretches.len(), Ordering::SeqCst);
    }
}

#[derive(PartialEq, Eq)]
enum Ended {
    /// By the client, or because its time was up.
    InOrder,
    Expired,
}

impl Stretch {
    /// Has the client seen the end? Where the watch begins with what there is, that has to be complete.
    fn reached(&self, habit: Habit, end: u64) -> bool {
        let complete = !(habit.begins_with_events() && matches!(self.begins, Begins::Unknown));
        end > 0 && self.to >= end && complete
    }
}

async fn begin(client: &Client, habit: Habit, resume: Option<u64>) -> Stretch {
    if let Some(from) = resume {
        return Stretch { begins: Begins::Resumed(from), to: from, events: Vec::new() };
    }
    if habit.begins_with_events() || habit == Habit::Whatever {
        return Stretch { begins: Begins::Unknown, to: 0, events: Vec::new() };
    }
    let list = client.get(&habit.path()).await.expect(200);
    let from = version(&list);
    Stretch { begins: Begins::Listed(from, listed(&list)), to: from, events: Vec::new() }
}

/// Watches on; what is told is noted as it comes, so that nothing of it is lost when the future is dropped.
async fn watch(client: &Client, habit: Habit, stretch: &mut Stretch, end: u64, at_most: usize) -> Ended {
    let from = match (&stretch.begins, habit) {
        // Two seconds before the end of a watch there is a bookmark.
        (_, Habit::Bookmarks) => format!("{}&allowWatchBookmarks=true&timeoutSeconds=3", stretch.to),
        (Begins::Resumed(from) | Begins::Listed(from, _), _) => from.to_string(),
        (Begins::Unknown, Habit::Whatever) => "0".into(),
        (Begins::Unknown, _) => {
            "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true".into()
        }
    };
    let path = format!("{}watch=1&resourceVersion={from}", habit.path());
    let mut watch = client.watch(&path).await.expect("a watch");
    while !stretch.reached(habit, end) && stretch.events.len() <= at_most {
        let Some(event) = watch.next().await else { break };
        let object = &event["object"];
        let seen = match event["type"].as_str() {
            Some("ADDED") => Seen::Added,
            Some("MODIFIED") => Seen::Modified,
            Some("DELETED") => Seen::Deleted,
            Some("BOOKMARK") => {
                bookmark(stretch, object);
                continue;
            }
            _ => {
                assert_eq!(object["code"], 410, "{event}");
                return Ended::Expired;
            }
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        stretch.to = stretch.to.max(version(object));
        stretch.events.push((seen, name, version(object)));
    }
    Ended::InOrder
}

/// Everything up to here has been told; with the mark, it was the state to begin with.
fn bookmark(stretch: &mut Stretch, object: &Value) {
    let at = version(object);
    assert!(at >= stretch.to, "a bookmark at {at} after an event at {}", stretch.to);
    stretch.to = at;
    if object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true" {
        let events = std::mem::take(&mut stretch.events);
        assert!(events.iter().all(|(seen, ..)| *seen == Seen::Added), "{events:?}");
        stretch.begins = Begins::Listed(at, events.into_iter().map(|(_, name, version)| (name, version)).collect());
    }
}

/// The names and versions in a list.
pub fn listed(list: &Value) -> BTreeMap<String, u64> {
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|o| (o["metadata"]["name"].as_str().unwrap_or_default().to_owned(), version(o))).collect()
}

/// The same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}
