//! What is kept and told, without a server. With one: `crates/testing/tests/control`.

use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry};
use kube::api::ObjectMeta;

use super::*;
use crate::OwnWrites;

fn object(namespace: &str, name: &str, uid: &str, revision: u64, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            namespace: Some(namespace.into()),
            name: Some(name.into()),
            uid: Some(uid.into()),
            resource_version: Some(revision.to_string()),
            managed_fields: Some(vec![ManagedFieldsEntry::default()]),
            labels: Some(BTreeMap::from([("app".into(), value.into())])),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

/// An informer with a handler that writes down what it hears.
fn heard() -> (Informer<ConfigMap>, Arc<Mutex<Vec<String>>>) {
    let informer = Informer::detached();
    let told = Arc::new(Mutex::new(Vec::new()));
    let notes = told.clone();
    informer.on_change(move |change: &Change<ConfigMap>| {
        let uid = change.object().metadata.uid.clone().unwrap_or_default();
        let what = match change {
            Change::Applied { old: None, .. } => "new",
            Change::Applied { .. } => "changed",
            Change::Deleted(_) => "deleted",
        };
        notes.lock().expect("no panic").push(format!("{what} {uid}"));
    });
    (informer, told)
}

fn take(told: &Mutex<Vec<String>>) -> Vec<String> {
    std::mem::take(&mut *told.lock().expect("no panic"))
}

#[test]
fn a_new_list_is_told_as_the_difference() {
    let (informer, told) = heard();
    let keep = |_: &mut ConfigMap| {};
    let list = vec![object("x", "a", "1", 5, ""), object("x", "b", "2", 6, ""), object("y", "a", "3", 7, "")];
    informer.tell(Told::All(list, 10), &keep);
    assert_eq!(take(&told), ["new 1", "new 2", "new 3"]);
    assert_eq!(informer.in_namespace("x").len(), 2);
    assert!(!informer.has_none_in("x"));
    assert!(["w", "xx", "z"].iter().all(|none| informer.has_none_in(none)));
    assert!(informer.all().iter().all(|object| object.metadata.managed_fields.is_none()));

    let list = vec![object("x", "a", "1", 5, ""), object("x", "b", "9", 12, ""), object("z", "a", "4", 13, "")];
    informer.tell(Told::All(list, 15), &keep);
    assert_eq!(take(&told), ["deleted 3", "deleted 2", "new 9", "new 4"]);
    informer.tell(Told::Applied(object("x", "a", "1", 16, "")), &keep);
    informer.tell(Told::Deleted(object("x", "a", "1", 17, "")), &keep);
    assert_eq!(take(&told), ["changed 1", "deleted 1"]);
    assert_eq!(*informer.progress().borrow(), Progress { synced: true, revision: 17, stopped: false });
    informer.tell(Told::UpTo(30), &keep);
    assert_eq!(informer.progress().borrow().revision, 30);
}

#[test]
fn indexes_follow_every_change() {
    let (informer, _) = heard();
    let keep = |_: &mut ConfigMap| {};
    informer.tell(Told::Applied(object("x", "a", "1", 1, "web")), &keep);
    informer.index("app", |object: &ConfigMap| object.metadata.labels.iter().flatten().map(|l| l.1.clone()).collect());
    informer.tell(Told::Applied(object("x", "b", "2", 2, "web")), &keep);
    let names = |value: &str| informer.by_index("app", value).iter().map(|o| Key::of(&**o).name).collect::<Vec<_>>();
    assert_eq!(names("web"), ["a", "b"]);
    informer.tell(Told::Applied(object("x", "a", "1", 3, "db")), &keep);
    assert_eq!((names("web"), names("db")), (vec!["b".to_owned()], vec!["a".to_owned()]));
    informer.tell(Told::All(vec![object("x", "a", "1", 3, "db")], 9), &keep);
    assert!(names("web").is_empty() && informer.by_index("unknown", "web").is_empty());
}

#[tokio::test(start_paused = true)]
async fn own_writes_are_waited_for() {
    let (informer, _) = heard();
    let keep = |_: &mut ConfigMap| {};
    let own_writes = OwnWrites::default();
    own_writes.seen(&"key").await;
    let (made, gone) = (object("x", "a", "1", 7, ""), object("x", "b", "2", 3, ""));
    informer.tell(Told::All(vec![gone.clone()], 5), &keep);
    own_writes.wrote(&"key", &informer, &made);
    own_writes.deleted(&"key", &informer, &gone);
    let waiting = own_writes.clone();
    let seen = tokio::spawn(async move { waiting.seen(&"key").await });
    tokio::task::yield_now().await;
    informer.tell(Told::Applied(made), &keep);
    tokio::task::yield_now().await;
    assert!(!seen.is_finished(), "the deletion has not been seen");
    informer.tell(Told::Deleted(object("x", "b", "2", 8, "")), &keep);
    seen.await.expect("both have been seen");
}

#[tokio::test]
async fn writes_of_keys_that_nobody_works_on_again_are_forgotten() {
    let (informer, _) = heard();
    let keep = |_: &mut ConfigMap| {};
    let own_writes = OwnWrites::default();
    informer.tell(Told::All(Vec::new(), 5), &keep);
    for key in 0..20_000 {
        own_writes.wrote(&key, &informer, &object("x", "a", "1", 3, ""));
    }
    own_writes.wrote(&0, &informer, &object("x", "a", "1", 9, ""));
    assert!(own_writes.len() <= 1024, "{}", own_writes.len());
    let seen = own_writes.seen(&0);
    informer.tell(Told::UpTo(9), &keep);
    seen.await;
}

#[test]
fn a_handler_that_panics_keeps_nobody_from_hearing() {
    let informer: Informer<ConfigMap> = Informer::detached();
    informer.on_change(|_| panic!("on purpose"));
    let heard = Arc::new(Mutex::new(0));
    let count = heard.clone();
    informer.on_change(move |_| *count.lock().expect("no panic") += 1);
    informer.tell(Told::All(vec![object("x", "a", "1", 1, ""), object("x", "b", "2", 2, "")], 2), &|_| {});
    informer.tell(Told::Deleted(object("x", "a", "1", 3, "")), &|_| {});
    assert_eq!((*heard.lock().expect("no panic"), informer.all().len()), (3, 1));
}

#[test]
fn an_informer_that_has_ended_keeps_nothing() {
    let informer: Informer<ConfigMap> = Informer::detached();
    informer.tell(Told::All(vec![object("x", "a", "1", 1, "")], 1), &|_| {});
    let knows_itself = |informer: &Informer<ConfigMap>| {
        let known = informer.clone();
        informer.on_change(move |_| drop(known.all()));
    };
    knows_itself(&informer);
    informer.end();
    knows_itself(&informer);
    let shared = Arc::downgrade(&informer.shared);
    drop(informer);
    assert!(shared.upgrade().is_none());
}
