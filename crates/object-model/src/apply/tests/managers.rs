//! What creates, updates and applies do to managed fields.

use super::*;
use crate::status::Reason;

use Operation::{Apply, Update};

fn create(new: Value, manager: &str) -> Value {
    let mut object = field_manager().on_update(None, new, manager, NOW);
    object["metadata"]["uid"] = json!("u");
    object
}

fn update(live: &Value, new: Value, manager: &str) -> Value {
    let mut new = new;
    new["metadata"]["uid"] = json!("u");
    field_manager().on_update(Some(live), new, manager, LATER)
}

fn apply(live: Option<&Value>, applied: Value, manager: &str) -> Result<Applied, ApplyError> {
    field_manager().on_apply(live, &applied, manager, false, LATER)
}

fn stored(applied: Applied) -> Value {
    let mut object = applied.object;
    object["metadata"]["uid"] = json!("u");
    object
}

fn without_managers(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"].as_object_mut().unwrap().remove("managedFields");
    object
}

fn manager_names(object: &Value) -> Vec<String> {
    managed_of(object).unwrap().entries().iter().map(|e| e.manager.name.clone()).collect()
}

#[test]
fn a_create_owns_what_it_sets() {
    let object = create(object(json!({"labels": {"a": "b"}}), json!({"text": "t", "probe": {"path": "/"}})), "me");
    assert_eq!(
        object["metadata"]["managedFields"],
        json!([{
            "manager": "me", "operation": "Update", "apiVersion": "test/v1", "time": NOW, "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                "f:spec": {"f:text": {}, "f:probe": {".": {}, "f:path": {}}},
            },
        }])
    );
    assert_eq!(manager_names(&create(self::object(json!({}), json!({"text": "t"})), "")), ["unknown"]);
}

#[test]
fn an_update_takes_what_it_changes() {
    let live = create(object(json!({}), json!({"text": "t", "count": 1, "flag": true})), "a");
    let new = update(&live, object(json!({}), json!({"text": "u", "count": 1})), "b");
    assert_eq!(owned(&new, "a", Update), json!({"f:spec": {"f:count": {}}}));
    assert_eq!(owned(&new, "b", Update), json!({"f:spec": {"f:text": {}}}));
    assert_eq!(new["metadata"]["managedFields"][0]["time"], NOW);
    assert_eq!(new["metadata"]["managedFields"][1]["time"], LATER);
    // Who has nothing left is gone.
    let new = update(&new, object(json!({}), json!({"text": "u", "count": 2})), "b");
    assert_eq!(manager_names(&new), ["b"]);
}

#[test]
fn an_update_that_changes_nothing_leaves_managers_alone() {
    let live = create(object(json!({}), json!({"text": "t"})), "a");
    assert_eq!(update(&live, without_managers(&live), "b"), live);
    assert_eq!(update(&live, live.clone(), "b"), live);
}

#[test]
fn managed_fields_can_be_reset_and_edited_but_not_spoiled() {
    let live = create(object(json!({}), json!({"text": "t"})), "a");
    let with = |list: Value| {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = list;
        update(&live, new, "b")
    };
    for reset in [json!([]), json!([{}]), json!([{"manager": ""}])] {
        assert!(with(reset)["metadata"].get("managedFields").is_none());
    }
    for bad in [
        json!([{"manager": "x"}]),
        json!([1]),
        json!("x"),
        json!([{"operation": "Update", "apiVersion": "v", "fieldsType": "FieldsV1", "fieldsV1": {"f": {}}}]),
    ] {
        assert_eq!(with(bad), live);
    }
    let edited = with(
        json!([{"manager": "z", "operation": "Update", "apiVersion": "test/v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:text": {}, "z:x": {}}}}]),
    );
    assert_eq!(owned(&edited, "z", Update), json!({"f:spec": {"f:text": {}}}));
    assert_eq!(edited["metadata"]["managedFields"][0]["fieldsV1"], json!({"f:spec": {"f:text": {}}}));
    // An object without managers has none after an update either, until it is applied to.
    let bare = without_managers(&live);
    assert_eq!(update(&bare, object(json!({}), json!({"text": "u"})), "b")["metadata"].get("managedFields"), None);
}

#[test]
fn entries_of_versions_that_are_gone_are_dropped() {
    let mut live = create(object(json!({}), json!({"text": "t", "count": 1})), "a");
    live["metadata"]["managedFields"][0]["apiVersion"] = json!("test/v0");
    let new = update(&live, object(json!({}), json!({"text": "u", "count": 1})), "b");
    assert_eq!(manager_names(&new), ["b"]);
}

#[test]
fn an_apply_owns_what_it_says_and_drops_what_it_no_longer_says() {
    let first = stored(
        apply(
            None,
            object(
                json!({"labels": {"a": "1"}}),
                json!({"text": "t", "count": 1, "items": [{"name": "a", "image": "i"}]}),
            ),
            "me",
        )
        .unwrap(),
    );
    assert_eq!(
        owned(&first, "me", Apply),
        json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:text": {}, "f:count": {}, "f:items": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:image": {}}}}})
    );
    let other =
        stored(apply(Some(&first), object(json!({}), json!({"count": 1, "items": [{"name": "b"}]})), "other").unwrap());
    let second = apply(Some(&other), object(json!({}), json!({"text": "t"})), "me").unwrap();
    assert!(second.changed);
    assert_eq!(second.object["spec"], json!({"text": "t", "count": 1, "items": [{"name": "b"}]}));
    assert_eq!(second.object["metadata"]["labels"], Value::Null);
    assert_eq!(owned(&second.object, "me", Apply), json!({"f:spec": {"f:text": {}}}));
}

#[test]
fn an_apply_that_changes_nothing_changes_nothing() {
    let config = object(json!({"labels": {"a": "1"}}), json!({"text": "t"}));
    let first = stored(field_manager().on_apply(None, &config, "me", false, NOW).unwrap());
    let again = apply(Some(&first), config, "me").unwrap();
    assert_eq!(again, Applied { object: first, changed: false });
}

#[test]
fn conflicts_name_their_owners() {
    let live = create(object(json!({}), json!({"text": "t", "items": [{"name": "a", "image": "1"}]})), "a");
    let live = stored(apply(Some(&live), object(json!({}), json!({"count": 1})), "b").unwrap());
    let one = apply(Some(&live), object(json!({}), json!({"text": "u"})), "c").unwrap_err();
    assert_eq!(one.to_string(), "Apply failed with 1 conflict: conflict with \"a\" using test/v1: .spec.text");
    let config = object(json!({}), json!({"text": "u", "count": 2, "items": [{"name": "a", "image": "2"}]}));
    let ApplyError::Conflict(conflicts) = apply(Some(&live), config.clone(), "c").unwrap_err() else { panic!() };
    assert_eq!(
        conflicts.message(),
        "Apply failed with 3 conflicts: conflicts with \"a\" using test/v1:\n- .spec.text\n- .spec.items[name=\"a\"].image\nconflicts with \"b\":\n- .spec.count"
    );
    let status = conflicts.status();
    assert_eq!((status.code, &status.reason), (409, &Reason::CONFLICT));
    let causes = &status.details.as_ref().unwrap().causes;
    assert_eq!(causes[1].field, ".spec.items[name=\"a\"].image");
    assert_eq!(
        (&*causes[1].reason, &*causes[1].message),
        ("FieldManagerConflict", "conflict with \"a\" using test/v1")
    );

    let forced = field_manager().on_apply(Some(&live), &config, "c", true, LATER).unwrap().object;
    assert_eq!(forced["spec"]["text"], "u");
    assert_eq!(owned(&forced, "b", Apply), Value::Null);
    assert_eq!(
        owned(&forced, "a", Update),
        json!({"f:spec": {"f:items": {".": {}, "k:{\"name\":\"a\"}": {".": {}, "f:name": {}}}}})
    );
}

#[test]
fn fields_can_be_owned_together() {
    let live = create(object(json!({}), json!({"text": "t"})), "a");
    let shared = apply(Some(&live), object(json!({}), json!({"text": "t"})), "b").unwrap();
    assert!(!shared.changed);
    assert_eq!(owned(&shared.object, "a", Update), owned(&shared.object, "b", Apply));
    // What one no longer says stays for the other.
    let nothing = json!({"apiVersion": "test/v1", "kind": "Thing", "metadata": {"name": "x"}});
    let left = apply(Some(&shared.object), nothing, "b").unwrap();
    assert_eq!((left.object["spec"]["text"].as_str(), left.changed), (Some("t"), false));
    assert_eq!(manager_names(&left.object), ["a"]);
}

#[test]
fn objects_without_managers_get_one_before_their_first_apply() {
    let live = without_managers(&create(object(json!({}), json!({"text": "t", "count": 1})), "a"));
    let applied = apply(Some(&live), object(json!({}), json!({"count": 1, "flag": true})), "b").unwrap().object;
    assert_eq!(owned(&applied, "before-first-apply", Update), json!({"f:spec": {"f:text": {}, "f:count": {}}}));
    let conflict = apply(Some(&live), object(json!({}), json!({"count": 2})), "b").unwrap_err();
    assert_eq!(
        conflict.to_string(),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using test/v1: .spec.count"
    );
}

#[test]
fn applied_objects_are_checked() {
    let refused = |applied: Value| apply(None, applied, "me").unwrap_err();
    let mut other = object(json!({}), json!({}));
    other["kind"] = json!("Other");
    assert_eq!(refused(other), ApplyError::BadRequest("invalid object type: test/v1, Kind=Other".into()));
    let listed = object(json!({"managedFields": [{}]}), json!({}));
    assert_eq!(refused(listed), ApplyError::BadRequest("metadata.managedFields must be nil".into()));
    let twice = object(json!({"namespace": "n"}), json!({"items": [{"name": "a"}, {"name": "a"}]}));
    let status = refused(twice).status();
    assert_eq!(
        status.message,
        "failed to create typed patch object (n/x; test/v1, Kind=Thing): .spec.items: duplicate entries for key [name=\"a\"]"
    );
    assert_eq!((status.code, status.reason.as_str()), (500, ""));
}

struct Reset(Filter);

impl Versions for Reset {
    fn schema(&self, _: &str) -> Option<&Schema> {
        None
    }
    fn convert(&self, _: &Value, _: &str) -> Result<Value, String> {
        Err(String::new())
    }
    fn filter(&self, api_version: &str) -> Option<&Filter> {
        (api_version == "test/v1").then_some(&self.0)
    }
}

#[test]
fn fields_that_are_set_back_are_never_owned() {
    let reset = Reset(Filter::Without(Set::of_fields(&[&["status"]])));
    let manager = FieldManager { versions: &reset, ..field_manager() };
    let mut new = object(json!({}), json!({"text": "t"}));
    new["status"] = json!({"ready": 1});
    let created = manager.on_update(None, new.clone(), "a", NOW);
    assert_eq!(owned(&created, "a", Update), json!({"f:spec": {"f:text": {}}}));
    let applied = manager.on_apply(None, &new, "a", false, NOW).unwrap().object;
    assert_eq!(owned(&applied, "a", Apply), json!({"f:spec": {"f:text": {}}}));

    let reset = Reset(Filter::Without(Set::of_fields(&[&["spec"]])));
    let status = FieldManager { versions: &reset, subresource: "status", ..field_manager() };
    let mut next = created.clone();
    next["status"] = json!({"ready": 2});
    next["metadata"]["managedFields"] = json!([]);
    let next = status.on_update(Some(&created), next, "a", LATER);
    assert_eq!(next["metadata"]["managedFields"][1]["subresource"], "status");
    assert_eq!(next["metadata"]["managedFields"][1]["fieldsV1"], json!({"f:status": {"f:ready": {}}}));
    assert_eq!(owned(&next, "a", Update), json!({"f:spec": {"f:text": {}}}));
}

/// Two versions: `spec.text` of v1 is `metadata.namespace` of v2.
struct Renamed(Schema);

impl Versions for Renamed {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        (api_version == "test/v2").then_some(&self.0)
    }
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let mut object = object.clone();
        let (from, to) = if api_version == "test/v2" { ("/spec", "/metadata") } else { ("/metadata", "/spec") };
        let moved = object
            .pointer_mut(from)
            .and_then(|o| o.as_object_mut()?.remove(if from == "/spec" { "text" } else { "namespace" }));
        if let (Some(moved), Some(target)) = (moved, object.pointer_mut(to).and_then(Value::as_object_mut)) {
            target.insert(if to == "/spec" { "text" } else { "namespace" }.to_owned(), moved);
        }
        object["apiVersion"] = json!(api_version);
        Ok(object)
    }
    fn filter(&self, _: &str) -> Option<&Filter> {
        None
    }
}

#[test]
fn owners_in_other_versions_are_found_by_conversion() {
    let versions = Renamed(thing("v2.Thing"));
    let v1 = FieldManager { versions: &versions, ..field_manager() };
    let mut live = object(json!({"uid": "u"}), json!({"text": "t", "count": 1}));
    live["metadata"]["managedFields"] = json!([{"manager": "old", "operation": "Apply", "apiVersion": "test/v2", "time": NOW, "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:namespace": {}}, "f:spec": {"f:count": {}}}}]);
    let conflict = v1.on_apply(Some(&live), &object(json!({}), json!({"text": "u"})), "me", false, LATER).unwrap_err();
    assert_eq!(conflict.to_string(), "Apply failed with 1 conflict: conflict with \"old\": .metadata.namespace");
    let forced = v1.on_apply(Some(&live), &object(json!({}), json!({"text": "u"})), "me", true, LATER).unwrap().object;
    assert_eq!(owned(&forced, "old", Apply), json!({"f:spec": {"f:count": {}}}));
    // The same applier in another version: what it said there and says no more goes.
    let moved = v1.on_apply(Some(&live), &object(json!({}), json!({"count": 1})), "old", false, LATER).unwrap().object;
    assert_eq!(moved["spec"], json!({"count": 1}));
    assert_eq!(moved["metadata"]["managedFields"][0]["apiVersion"], "test/v1");
}

#[test]
fn old_updaters_are_merged() {
    let mut live = create(object(json!({}), json!({"count": 0})), "first");
    for n in 1..=15 {
        let mut new = without_managers(&live);
        new["metadata"]["labels"][format!("l{n}")] = json!("x");
        live = field_manager().on_update(Some(&live), new, &format!("m{n:02}"), &format!("2026-02-{n:02}T00:00:00Z"));
    }
    let names = manager_names(&live);
    assert_eq!(names.len(), 10);
    assert_eq!(names[0], "ancient-changes");
    assert_eq!(names[9], "m15");
    assert_eq!(live["metadata"]["managedFields"][0]["time"], "2026-02-06T00:00:00Z");
    let old = owned(&live, "ancient-changes", Update);
    assert_eq!(old["f:spec"], json!({"f:count": {}}));
    assert_eq!(old["f:metadata"]["f:labels"].as_object().unwrap().len(), 7);
}

/// Thirty thousand managers fit into a request; merging them one by one would copy what is merged each time.
#[test]
fn very_many_updaters_are_merged_soon() {
    let start = testing::cpu_time();
    let mut live = create(object(json!({}), json!({"count": 0})), "first");
    let entry = |n: usize| {
        json!({"manager": format!("m{n:05}"), "operation": "Update", "apiVersion": "test/v1", "time": NOW,
            "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {format!("f:l{n:05}"): {}}}}})
    };
    live["metadata"]["managedFields"] = (0..30_000).map(entry).collect();
    let mut new = live.clone();
    new["spec"]["count"] = json!(1);
    let live = field_manager().on_update(Some(&live), new, "last", LATER);
    assert_eq!(manager_names(&live).len(), 10);
    let spent = testing::cpu_time() - start;
    assert!(spent < std::time::Duration::from_secs(5), "took {spent:?}");
}

#[test]
fn kubectl_takes_over_what_it_applied_from_the_client() {
    let config = object(json!({}), json!({"text": "t", "count": 1}));
    let mut live = config.clone();
    live["metadata"]["annotations"][LAST_APPLIED] = json!(config.to_string());
    let live = create(live, "kubectl-client-side-apply");
    let mut next = config.clone();
    next["spec"]["text"] = json!("<u>");
    assert!(apply(Some(&live), next.clone(), "somebody").is_err());
    let taken = apply(Some(&live), next.clone(), "kubectl").unwrap().object;
    assert_eq!(taken["spec"]["text"], "<u>");
    assert_eq!(
        taken["metadata"]["annotations"][LAST_APPLIED],
        "{\"apiVersion\":\"test/v1\",\"kind\":\"Thing\",\"metadata\":{\"name\":\"x\"},\"spec\":{\"count\":1,\"text\":\"\\u003cu\\u003e\"}}\n"
    );
    // Not what others changed since.
    let mut changed = without_managers(&live);
    changed["spec"]["text"] = json!("changed");
    let live = update(&live, changed, "other");
    let conflict = apply(Some(&live), next, "kubectl").unwrap_err();
    assert_eq!(conflict.to_string(), "Apply failed with 1 conflict: conflict with \"other\" using test/v1: .spec.text");
}

#[test]
fn owners_of_replicas_as_the_scale_sees_them() {
    let path = FieldPath::of_fields(&["spec", "count"]);
    let mapping = ScaleMapping { api_version: "test/v1", replicas: &[("test/v1", Some(path))] };
    let entry = |name: &str, operation, version: &str, subresource: &str, fields: Value| {
        let manager = Manager { name: name.into(), operation, subresource: subresource.into() };
        Entry::new(manager, version, set(fields), Some(NOW.into()))
    };
    let parent = || {
        let mut parent = Managed::default();
        parent.put(entry("a", Apply, "test/v1", "", json!({"f:spec": {"f:count": {}, "f:text": {}}})));
        parent.put(entry("b", Update, "test/v1", "", json!({"f:spec": {"f:flag": {}}})));
        parent.put(entry("c", Update, "test/v0", "", json!({"f:spec": {"f:count": {}}})));
        parent
    };
    let scale = mapping.to_scale(&parent()).encode().unwrap();
    assert_eq!(
        scale,
        json!([{"manager": "a", "operation": "Apply", "apiVersion": "autoscaling/v1", "time": NOW, "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}])
    );

    let kept = mapping.to_parent(parent(), &mapping.to_scale(&parent()));
    assert_eq!(kept.entries().len(), 2);
    let mut stolen = Managed::default();
    stolen.put(entry("hpa", Update, "autoscaling/v1", "scale", json!({"f:spec": {"f:replicas": {}}})));
    let after = json!({"metadata": {"managedFields": mapping.to_parent(parent(), &stolen).encode()}});
    assert_eq!(owned(&after, "a", Apply), json!({"f:spec": {"f:text": {}}}));
    assert_eq!(owned(&after, "hpa", Update), json!({"f:spec": {"f:count": {}}}));
}

#[test]
fn times_alone_are_no_change() {
    let live = create(object(json!({}), json!({"text": "t"})), "a");
    let mut new = live.clone();
    new["metadata"]["managedFields"][0]["time"] = json!(LATER);
    let mut changed = new.clone();
    keep_times(&mut new, &live);
    assert_eq!(new, live);
    changed["spec"]["text"] = json!("u");
    let before = changed.clone();
    keep_times(&mut changed, &live);
    assert_eq!(changed, before);
}
