//! Get and list: from the cache at its newest state, from the store at old revisions.

use std::{collections::VecDeque, ops::Bound, sync::Arc};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use object_model::{
    field::{Errors, Path},
    identity::GroupKind,
    status::Status,
};
use serde::{Deserialize, Serialize};
use storage::{Range, Revision};

use super::{Answer, Registry, parse_revision, selection::Selection, store_error};
use crate::{
    catalogue::Target,
    options::ListOptions,
    watch_cache::{Entry, Snapshot},
};

/// The objects of a list, at one exact revision.
pub struct List {
    pub revision: Revision,
    pub items: Items,
    /// Where the next page begins, if there is one.
    pub r#continue: Option<String>,
    pub remaining: Option<u64>,
}

/// The items of a list, taken one by one as the connection asks for them. A clone begins where this one is.
#[derive(Clone)]
pub enum Items {
    /// All that a snapshot has below a prefix.
    Snapshot { snapshot: Arc<Snapshot>, prefix: Box<str>, after: Option<Arc<str>>, selection: Selection },
    /// A page that is at hand.
    Page(VecDeque<Arc<Entry>>),
}

impl Items {
    /// Hands out entries until `take` says it has enough. False when there are no more.
    pub fn each(&mut self, mut take: impl FnMut(&Arc<Entry>) -> bool) -> bool {
        match self {
            Items::Page(page) => {
                while let Some(entry) = page.pop_front() {
                    if !take(&entry) {
                        return true;
                    }
                }
                false
            }
            Items::Snapshot { snapshot, prefix, after, selection } => {
                let snapshot = snapshot.clone();
                for (key, entry) in below(&snapshot, prefix, after.take()) {
                    if selection.selects(entry) && !take(entry) {
                        *after = Some(key.clone());
                        return true;
                    }
                }
                false
            }
        }
    }
}

/// The entries of a snapshot whose names begin with `prefix`, after `after`.
fn below<'a>(
    snapshot: &'a Snapshot,
    prefix: &'a str,
    after: Option<Arc<str>>,
) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Entry>)> {
    let from = after.map_or_else(|| Bound::Included(Arc::from(prefix)), Bound::Excluded);
    snapshot.objects.range((from, Bound::Unbounded)).take_while(move |(key, _)| key.starts_with(prefix))
}

/// Where the next page of a list begins. The same form that Kubernetes uses, so that clients may look into it.
#[derive(Serialize, Deserialize)]
struct ContinueToken {
    v: String,
    /// -1 when the list goes on at whatever revision is current.
    rv: i64,
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

impl ContinueToken {
    fn encode(revision: Option<Revision>, start: &str) -> String {
        let rv = revision.map_or(-1, |r| r.0 as i64);
        let token = Self { v: TOKEN_VERSION.into(), rv, start: format!("{start}\0") };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    fn decode(text: &str) -> Result<Self, Status> {
        let bad = || Status::bad_request("continue key is not valid: incorrectly encoded");
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad())?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|_| bad())?;
        if token.v != TOKEN_VERSION || token.start.is_empty() {
            return Err(bad());
        }
        Ok(token)
    }
}

impl Registry {
    pub async fn get(&self, target: &Target<'_>, resource_version: &str) -> Result<Answer, Status> {
        self.settle(resource_version).await?;
        match target.resource.cache.get(&target.cache_name()) {
            Some(entry) => Ok(Answer::of(&entry)),
            None => Err(Status::not_found(&target.resource.group_resource(), target.name)),
        }
    }

    /// Waits until the cache is as new as a reader demands: by default as new as the store, with `0` as it is, otherwise
    /// not older than the revision given.
    pub(crate) async fn settle(&self, resource_version: &str) -> Result<(), Status> {
        match resource_version {
            "0" => Ok(()),
            "" => self.cache.fresh().await.map(drop).map_err(store_error),
            text => self.cache.reach(parse_revision(text)?).await.map_err(store_error),
        }
    }

    pub async fn list(&self, target: &Target<'_>, selection: Selection, options: &ListOptions) -> Result<List, Status> {
        validate(options)?;
        let prefix = match (target.resource.namespaced, target.namespace) {
            (true, namespace) if !namespace.is_empty() => format!("{namespace}/"),
            _ => String::new(),
        };
        let limit = usize::try_from(options.limit).unwrap_or(0);
        let (from, exact) = if options.r#continue.is_empty() {
            let version = options.resource_version.as_str();
            let exact = match options.resource_version_match.as_str() {
                "Exact" => true,
                // Pages were always of one revision, before clients could say so.
                "" => limit > 0 && !matches!(version, "" | "0"),
                _ => false,
            };
            (None, exact.then(|| parse_revision(version)).transpose()?)
        } else {
            let token = ContinueToken::decode(&options.r#continue)?;
            let start = token.start.trim_end_matches('\0').to_owned();
            if !start.starts_with(&prefix) {
                return Err(Status::bad_request("continue key is not valid: it is of another namespace"));
            }
            (Some(start), u64::try_from(token.rv).ok().map(Revision))
        };
        let wanted = match (&from, exact) {
            (Some(_), _) => "",
            (None, Some(_)) => "0",
            (None, None) => options.resource_version.as_str(),
        };
        self.settle(wanted).await?;
        let (snapshot, revision) = self.cache.snapshot(&target.resource.cache);
        if let Some(exact) = exact {
            if exact > revision {
                self.cache.reach(exact).await.map_err(store_error)?;
            }
            let (snapshot, _) = self.cache.snapshot(&target.resource.cache);
            if snapshot.revision > exact {
                return self.list_old(target, selection, &prefix, from, limit, exact).await;
            }
            // It is the present state, too, but the past ends for everybody at the same revision.
            if exact < revision {
                let known = self.store.get(target.resource.cache.prefix(), Some(exact)).await;
                known.map_err(|error| unknown_past(error, from.as_deref()))?;
            }
            return Ok(page(snapshot, exact, prefix, from, selection, limit));
        }
        Ok(page(snapshot, revision, prefix, from, selection, limit))
    }

    /// A page of the past, from the store's history.
    async fn list_old(
        &self,
        target: &Target<'_>,
        selection: Selection,
        prefix: &str,
        from: Option<String>,
        limit: usize,
        revision: Revision,
    ) -> Result<List, Status> {
        let cache = &target.resource.cache;
        let mut range = Range {
            prefix: format!("{}{prefix}", cache.prefix()),
            after: from.as_ref().map(|name| format!("{}{name}", cache.prefix())),
            revision: Some(revision),
            limit: (limit > 0).then_some(limit.max(100)),
        };
        let mut items = VecDeque::new();
        loop {
            let answer = self.store.range(range.clone()).await;
            let answer = answer.map_err(|error| unknown_past(error, from.as_deref()))?;
            let last = answer.value.items.last().map(|kv| kv.key.clone());
            let mut rest = answer.value.remaining;
            for kv in answer.value.items {
                if limit > 0 && items.len() == limit {
                    rest += 1;
                    continue;
                }
                let entry = cache.read(&kv.key, &kv.value, kv.mod_revision).map_err(Status::internal)?;
                if selection.selects(&entry) {
                    items.push_back(Arc::new(entry));
                }
            }
            let full = limit > 0 && items.len() == limit;
            if rest == 0 || last.is_none() || full {
                let next = items.back().filter(|_| rest > 0 && full).map(|e: &Arc<Entry>| e.key());
                return Ok(List {
                    revision,
                    r#continue: next.map(|name| ContinueToken::encode(Some(revision), &name)),
                    remaining: (rest > 0 && selection.is_everything()).then_some(rest),
                    items: Items::Page(items),
                });
            }
            range.after = last;
        }
    }
}

fn page(
    snapshot: Arc<Snapshot>,
    revision: Revision,
    prefix: String,
    from: Option<String>,
    selection: Selection,
    limit: usize,
) -> List {
    let after: Option<Arc<str>> = from.map(Arc::from);
    if limit == 0 {
        let items = Items::Snapshot { snapshot, prefix: prefix.as_str().into(), after, selection };
        return List { revision, items, r#continue: None, remaining: None };
    }
    let mut items = VecDeque::new();
    let mut more = false;
    let mut rest = 0;
    for (_, entry) in below(&snapshot, &prefix, after) {
        if items.len() < limit {
            if selection.selects(entry) {
                items.push_back(entry.clone());
            }
        } else if selection.is_everything() {
            rest += 1;
            more = true;
        } else if selection.selects(entry) {
            more = true;
            break;
        }
    }
    let next = items.back().filter(|_| more).map(|e| e.key());
    List {
        revision,
        r#continue: next.map(|name| ContinueToken::encode(Some(revision), &name)),
        remaining: (rest > 0).then_some(rest),
        items: Items::Page(items),
    }
}

/// Why the state at a revision cannot be had, by one who goes on at a key.
fn unknown_past(error: storage::Error, from: Option<&str>) -> Status {
    match (error, from) {
        (storage::Error::Compacted { .. }, Some(start)) => expired_continue(start),
        (error, _) => store_error(error),
    }
}

/// A continue token whose revision is gone carries on, if the client wants, at whatever is current.
fn expired_continue(start: &str) -> Status {
    let mut status = Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
         the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
         Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
         deleted between the time the first chunk was returned and now may show up in the list.",
    );
    status.metadata.r#continue = ContinueToken::encode(None, start);
    status
}

/// Which combinations of resourceVersion, its match and continue make sense.
fn validate(options: &ListOptions) -> Result<(), Status> {
    let mut errors = Errors::new();
    let root = Path::root();
    let path = root.child("resourceVersionMatch");
    let version = options.resource_version.as_str();
    let given = options.resource_version_match.as_str();
    if !given.is_empty() {
        if version.is_empty() {
            errors.forbidden(&path, "resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if !options.r#continue.is_empty() {
            errors.forbidden(&path, "resourceVersionMatch is forbidden when continue is provided");
        }
        if !matches!(given, "Exact" | "NotOlderThan") {
            errors.not_supported(&path, given, &["Exact", "NotOlderThan", ""]);
        }
        if given == "Exact" && version == "0" {
            errors.forbidden(&path, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
        }
    }
    if options.send_initial_events.is_some() {
        errors.forbidden(&root.child("sendInitialEvents"), "sendInitialEvents is forbidden for list");
    }
    if errors.is_empty() {
        if !options.r#continue.is_empty() && !matches!(version, "" | "0") {
            return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
        }
        return Ok(());
    }
    Err(Status::invalid(&GroupKind::new("meta.k8s.io", "ListOptions"), "", &errors))
}
