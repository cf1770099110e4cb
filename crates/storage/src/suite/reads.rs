//! Gets and ranges, now and in the past.

use std::sync::Arc;

use super::{committed, delete, put, value};
use crate::{At, Error, Page, Range, Revision, Store, Transaction};

fn keys(page: &Page) -> Vec<&str> {
    page.items.iter().map(|kv| kv.key.as_str()).collect()
}

async fn read(store: &dyn Store, range: Range) -> At<Page> {
    super::in_time("a range", store.range(range)).await.expect("range")
}

pub async fn ranges_select_by_prefix_after_and_limit(store: Arc<dyn Store>) {
    for key in ["/p/b", "/p/a", "/p/c", "/p", "/q/a", "/p/ä", "/p/a/x", "/o"] {
        committed(&*store, put(key, key)).await;
    }
    committed(&*store, put("/p/bb", "gone")).await;
    let revision = committed(&*store, delete("/p/bb")).await;

    let all = read(&*store, Range::default()).await;
    assert_eq!(keys(&all.value), ["/o", "/p", "/p/a", "/p/a/x", "/p/b", "/p/c", "/p/ä", "/q/a"]);
    assert_eq!((all.revision, all.value.remaining), (revision, 0));
    let under = read(&*store, Range::prefix("/p/")).await.value;
    assert_eq!(keys(&under), ["/p/a", "/p/a/x", "/p/b", "/p/c", "/p/ä"]);
    assert_eq!(under.items[0].value, "/p/a");
    assert_eq!(keys(&read(&*store, Range::prefix("/none/")).await.value), [""; 0]);

    let page = |after: Option<&str>, limit| {
        let after = after.map(str::to_owned);
        Range { prefix: "/p/".into(), after, limit: Some(limit), revision: None }
    };
    let first = read(&*store, page(None, 2)).await.value;
    assert_eq!((keys(&first), first.remaining), (vec!["/p/a", "/p/a/x"], 3));
    let second = read(&*store, page(Some("/p/a/x"), 2)).await.value;
    assert_eq!((keys(&second), second.remaining), (vec!["/p/b", "/p/c"], 1));
    let third = read(&*store, page(Some("/p/c"), 2)).await.value;
    assert_eq!((keys(&third), third.remaining), (vec!["/p/ä"], 0));
    let between = read(&*store, page(Some("/p/bb"), 1)).await.value;
    assert_eq!((keys(&between), between.remaining), (vec!["/p/c"], 1));
    let before = read(&*store, page(Some("/a"), 1)).await.value;
    assert_eq!((keys(&before), before.remaining), (vec!["/p/a"], 4));
    let beyond = read(&*store, page(Some("/z"), 1)).await.value;
    assert_eq!((keys(&beyond), beyond.remaining), (vec![], 0));
}

pub async fn ranges_page_at_one_revision_while_writers_write(store: Arc<dyn Store>) {
    let initial: Vec<String> = (0..50).map(|i| format!("/pages/{i:03}")).collect();
    for key in &initial {
        committed(&*store, put(key, "old")).await;
    }
    let mut listed = Vec::new();
    let mut range = Range { limit: Some(7), ..Range::prefix("/pages/") };
    loop {
        let At { revision, value: page } = read(&*store, range.clone()).await;
        assert!(range.revision.is_none_or(|pinned| pinned == revision));
        range.revision = Some(revision);
        range.after = page.items.last().map(|kv| kv.key.clone());
        listed.extend(page.items);
        if page.remaining == 0 {
            break;
        }
        // What happens between two pages must not show: a change, a deletion and a creation further on.
        let turn = listed.len();
        committed(&*store, put("/pages/049", "new").put(format!("/pages/0{turn}x"), "new")).await;
        committed(&*store, delete(&format!("/pages/0{}", 48 - turn / 7))).await;
    }
    assert_eq!(listed.iter().map(|kv| &kv.key).collect::<Vec<_>>(), initial.iter().collect::<Vec<_>>());
    assert!(listed.iter().all(|kv| kv.value == "old"));
}

pub async fn reads_at_old_revisions_see_the_past(store: Arc<dyn Store>) {
    let start = store.current_revision().await.expect("current revision");
    let created = committed(&*store, put("/h/a", "1").put("/h/b", "1")).await;
    let updated = committed(&*store, put("/h/a", "2")).await;
    let deleted = committed(&*store, delete("/h/a")).await;
    let recreated = committed(&*store, put("/h/a", "4")).await;
    let expected = [(created, Some("1")), (updated, Some("2")), (deleted, None), (recreated, Some("4"))];
    for (revision, wanted) in expected {
        assert_eq!(value(&*store, "/h/a", Some(revision)).await.as_deref(), wanted, "at {revision}");
        let page = read(&*store, Range { revision: Some(revision), ..Range::prefix("/h/") }).await;
        assert_eq!(page.revision, revision, "the revision to continue at");
        let listed = page.value.items.iter().find(|kv| kv.key == "/h/a").map(|kv| kv.value.clone());
        assert_eq!(listed.as_deref(), wanted.map(str::as_bytes), "at {revision}");
        assert_eq!(value(&*store, "/h/b", Some(revision)).await.as_deref(), Some("1"));
    }
    if start > Revision(0) {
        let page = read(&*store, Range { revision: Some(start), ..Range::prefix("/h/") }).await;
        assert_eq!(keys(&page.value), [""; 0]);
    }
    let counted = read(&*store, Range { revision: Some(deleted), limit: Some(1), ..Range::default() }).await;
    assert_eq!((keys(&counted.value), counted.value.remaining), (vec!["/h/b"], 0));
}

pub async fn reads_of_the_future_are_refused(store: Arc<dyn Store>) {
    let current = committed(&*store, Transaction::default().put("/f/a", "1")).await;
    let future = Revision(current.0 + 1);
    let refused = Error::FutureRevision { requested: future, current };
    assert_eq!(store.get("/f/a", Some(future)).await, Err(refused.clone()));
    assert_eq!(store.range(Range { revision: Some(future), ..Range::default() }).await, Err(refused.clone()));
    assert_eq!(store.compact(future).await, Err(refused));
    assert_eq!(value(&*store, "/f/a", Some(current)).await.as_deref(), Some("1"));
}
