//! Create, read, update, patch, apply.

use serde_json::json;
use testing::client::{APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH};

use super::{Place, configmap, deployment, pod, version};

pub async fn create_and_read_back(place: &Place) {
    let created = place.create("configmaps", &configmap("a")).await;
    assert_eq!((&created["kind"], &created["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    assert_eq!(created["metadata"]["namespace"], json!(place.namespace));
    assert!(created["metadata"]["uid"].as_str().is_some_and(|uid| uid.len() == 36));
    assert_eq!(created["metadata"]["managedFields"][0]["manager"], "test");
    let client = &place.client;
    assert_eq!(client.get(&place.core("configmaps/a")).await.expect(200), created);
    assert_eq!(client.http1().get(&place.core("configmaps/a")).await.expect(200), created);

    let again = client.post(&place.core("configmaps"), &configmap("a")).await;
    assert_eq!(again.refused(409), "configmaps \"a\" already exists");
    let absent = client.get(&place.core("configmaps/b")).await.expect(404);
    assert_eq!((&absent["reason"], &absent["details"]["name"]), (&json!("NotFound"), &json!("b")));
    let elsewhere = client.post("/api/v1/namespaces/nowhere/configmaps", &configmap("a")).await;
    assert_eq!(elsewhere.refused(404), "namespaces \"nowhere\" not found");
    let bad = client.post(&place.core("configmaps"), &configmap("Not A Name")).await.expect(422);
    assert_eq!(bad["details"]["causes"][0]["field"], "metadata.name");
    let mut other = configmap("c");
    other["metadata"]["namespace"] = json!("other");
    client.post(&place.core("configmaps"), &other).await.refused(400);
}

pub async fn generated_names(place: &Place) {
    let wanted = json!({"metadata": {"generateName": "gen-"}});
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..5 {
        let made = place.create("configmaps", &wanted).await;
        let name = made["metadata"]["name"].as_str().expect("a name").to_owned();
        assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
        assert_eq!(made["metadata"]["generateName"], "gen-");
        names.insert(name);
    }
    assert_eq!(names.len(), 5);
    let nameless = place.client.post(&place.core("configmaps"), &json!({"metadata": {}})).await;
    assert!(nameless.refused(422).contains("name or generateName is required"));
}

pub async fn versions_guard_updates(place: &Place) {
    let (client, path) = (&place.client, place.core("configmaps/a"));
    let first = place.create("configmaps", &configmap("a")).await;
    let mut mine = first.clone();
    mine["data"]["key"] = json!("2");
    let second = client.put(&path, &mine).await.expect(200);
    assert!(version(&second) > version(&first));
    assert_eq!(second["metadata"]["uid"], first["metadata"]["uid"]);

    // The same again is stale now.
    let stale = client.put(&path, &mine).await.expect(409);
    assert_eq!(stale["reason"], "Conflict");
    let message = stale["message"].as_str().unwrap_or_default();
    assert!(message.ends_with("please apply your changes to the latest version and try again"), "{message}");
    let patch = json!({"metadata": {"resourceVersion": version(&first).to_string()}, "data": {"key": "3"}});
    client.patch(&path, MERGE_PATCH, &patch).await.refused(409);

    // Without a version the last writer wins.
    let third = client.put(&path, &configmap("a")).await.expect(200);
    assert_eq!(third["data"]["key"], "1");
    let mut another = configmap("a");
    another["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
    client.put(&path, &another).await.refused(409);
    let named = client.put(&path, &configmap("b")).await;
    assert_eq!(named.refused(400), "the name of the object (b) does not match the name on the URL (a)");

    // Some kinds want a version always.
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {}}});
    let budgets = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets", place.namespace);
    client.post(&budgets, &budget).await.expect(201);
    let unversioned = client.put(&format!("{budgets}/b"), &budget).await;
    assert!(unversioned.refused(422).contains("must be specified for an update"));
}

pub async fn new_objects_have_no_version_yet(place: &Place) {
    let mut object = configmap("a");
    object["metadata"]["resourceVersion"] = json!("7");
    let why = place.client.post(&place.core("configmaps"), &object).await.refused(500);
    assert_eq!(why, "resourceVersion should not be set on objects to be created");
    place.client.post(&place.core("configmaps?dryRun=All"), &object).await.expect(201);
    object["metadata"]["resourceVersion"] = json!("0");
    place.create("configmaps", &object).await;
}

pub async fn put_creates_where_kubernetes_does(place: &Place) {
    let path = place.core("configmaps/fresh");
    place.client.put(&path, &configmap("fresh")).await.refused(404);
    let role = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles/fresh", place.namespace);
    let known = json!({"metadata": {"name": "fresh", "uid": "another"}, "rules": []});
    let why = place.client.put(&role, &known).await.refused(409);
    assert!(why.contains("UID in precondition: another"), "{why}");
    place.client.put(&role, &json!({"metadata": {"name": "fresh"}, "rules": []})).await.expect(201);
}

pub async fn four_patches(place: &Place) {
    let client = &place.client;
    let path = place.apps("deployments/d");
    client.post(&place.apps("deployments"), &deployment("d")).await.expect(201);

    let merged = client.patch(&path, MERGE_PATCH, &json!({"metadata": {"labels": {"a": "1"}}})).await.expect(200);
    assert_eq!((&merged["metadata"]["labels"]["a"], &merged["metadata"]["generation"]), (&json!("1"), &json!(1)));

    let operations = json!([
        {"op": "test", "path": "/spec/replicas", "value": 2},
        {"op": "replace", "path": "/spec/replicas", "value": 3},
    ]);
    let patched = client.patch(&path, JSON_PATCH, &operations).await.expect(200);
    assert_eq!((&patched["spec"]["replicas"], &patched["metadata"]["generation"]), (&json!(3), &json!(2)));
    client.patch(&path, JSON_PATCH, &operations).await.refused(422);

    let container = json!({"name": "side", "image": "registry.example/side:1"});
    let strategic = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    let patched = client.patch(&path, STRATEGIC_PATCH, &strategic).await.expect(200);
    assert_eq!(patched["spec"]["template"]["spec"]["containers"].as_array().map(Vec::len), Some(2));

    let applied = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"minReadySeconds": 7},
    });
    let patched = client.patch(&format!("{path}?fieldManager=applier"), APPLY, &applied).await.expect(200);
    assert_eq!(patched["spec"]["minReadySeconds"], 7);

    let invalid = client.patch(&path, MERGE_PATCH, &json!({"spec": {"replicas": -1}})).await.expect(422);
    assert_eq!(invalid["details"]["causes"][0]["field"], "spec.replicas");
    client.patch(&place.apps("deployments/none"), MERGE_PATCH, &json!({})).await.refused(404);
    client.patch(&path, "application/json", &json!({})).await.refused(415);
}

pub async fn apply_owns_fields(place: &Place) {
    let client = &place.client;
    let path = place.core("configmaps/a");
    let object = |data: serde_json::Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
    let by = |manager: &str| format!("{path}?fieldManager={manager}");
    client.patch(&by("one"), APPLY, &object(json!({"x": "1", "y": "1"}))).await.expect(201);
    let same = client.patch(&by("one"), APPLY, &object(json!({"x": "1", "y": "1"}))).await.expect(200);

    let conflict = client.patch(&by("two"), APPLY, &object(json!({"x": "2"}))).await.expect(409);
    assert_eq!(conflict["details"]["causes"][0]["field"], ".data.x");
    assert_eq!(conflict["details"]["causes"][0]["reason"], "FieldManagerConflict");
    let forced = format!("{}&force=true", by("two"));
    let taken = client.patch(&forced, APPLY, &object(json!({"x": "2"}))).await.expect(200);
    assert!(version(&taken) > version(&same));
    // What its owner no longer applies goes; what another owns stays.
    let left = client.patch(&by("one"), APPLY, &object(json!({}))).await.expect(200);
    assert_eq!(left["data"], json!({"x": "2"}));
    client.patch(&path, APPLY, &object(json!({}))).await.refused(422);
}

pub async fn dry_run_changes_nothing(place: &Place) {
    let client = &place.client;
    let dry = place.core("configmaps?dryRun=All");
    let answer = client.post(&dry, &configmap("a")).await.expect(201);
    assert!(answer["metadata"]["uid"].is_string() && answer["metadata"]["resourceVersion"].is_null());
    client.get(&place.core("configmaps/a")).await.refused(404);
    client.post(&place.core("configmaps?dryRun=Some"), &configmap("a")).await.refused(422);

    let real = place.create("configmaps", &configmap("a")).await;
    client.post(&dry, &configmap("a")).await.refused(409);
    let path = place.core("configmaps/a?dryRun=All");
    let patched = client.patch(&path, MERGE_PATCH, &json!({"data": {"key": "2"}})).await.expect(200);
    assert_eq!(patched["data"]["key"], "2");
    client.delete(&path).await.expect(200);
    client.delete(&place.core("configmaps?dryRun=All")).await.expect(200);
    assert_eq!(client.get(&place.core("configmaps/a")).await.expect(200), real);
}

pub async fn unknown_fields(place: &Place) {
    let client = &place.client;
    let mut odd = configmap("a");
    odd["dada"] = json!({"x": "1"});
    let path = |name: &str| place.core(&format!("configmaps?fieldValidation={name}"));
    let strict = client.post(&path("Strict"), &odd).await;
    assert!(strict.refused(400).contains("strict decoding error: unknown field \"dada\""));
    let warned = client.post(&path("Warn"), &odd).await;
    assert_eq!(warned.header("warning"), "299 - \"unknown field \\\"dada\\\"\"");
    assert!(warned.expect(201)["dada"].is_null());
    odd["metadata"]["name"] = json!("b");
    let ignored = client.post(&path("Ignore"), &odd).await;
    assert_eq!(ignored.header("warning"), "");
    ignored.expect(201);
    client.post(&path("Sometimes"), &odd).await.refused(422);
}

/// Whichever way a second mention of an owner comes, it is dropped and told.
pub async fn owners_are_named_once(place: &Place) {
    let client = &place.client;
    let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid});
    let twice = json!([owner("1"), owner("2"), owner("1")]);
    let warning = |when: &str| {
        format!(
            "299 - \".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in \
             1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: 1\""
        )
    };
    let mut object = configmap("a");
    object["metadata"]["ownerReferences"] = twice.clone();
    let path = place.core("configmaps/a");
    let made = client.post(&place.core("configmaps"), &object).await;
    let put = client.put(&path, &object).await;
    let merge = client.patch(&path, MERGE_PATCH, &json!({"metadata": {"ownerReferences": twice}})).await;
    let add = json!([{"op": "add", "path": "/metadata/ownerReferences", "value": twice}]);
    let json_patch = client.patch(&path, JSON_PATCH, &add).await;
    let after = " after mutating admission happens";
    for (answer, code, when) in [(made, 201, ""), (put, 200, ""), (merge, 200, after), (json_patch, 200, after)] {
        assert_eq!(answer.headers.get_all("warning").iter().count(), 1);
        assert_eq!(answer.header("warning"), warning(when));
        assert_eq!(answer.expect(code)["metadata"]["ownerReferences"], json!([owner("1"), owner("2")]));
    }
}

pub async fn status_is_separate(place: &Place) {
    let client = &place.client;
    let created = place.create("pods", &pod("p")).await;
    assert_eq!(created["status"]["phase"], "Pending");
    let path = place.core("pods/p");
    let mut both = created.clone();
    both["status"]["phase"] = json!("Running");
    both["metadata"]["labels"] = json!({"a": "1"});
    let main = client.put(&path, &both).await.expect(200);
    assert_eq!((&main["status"]["phase"], &main["metadata"]["labels"]["a"]), (&json!("Pending"), &json!("1")));

    let mut both = main.clone();
    both["status"]["phase"] = json!("Running");
    both["spec"]["activeDeadlineSeconds"] = json!(5);
    let status = client.put(&format!("{path}/status"), &both).await.expect(200);
    assert_eq!(status["status"]["phase"], "Running");
    assert!(status["spec"]["activeDeadlineSeconds"].is_null());
    assert_eq!(client.get(&format!("{path}/status")).await.expect(200), status);
    let patch = json!({"status": {"message": "hello"}, "spec": {"activeDeadlineSeconds": 5}});
    let patched = client.patch(&format!("{path}/status"), MERGE_PATCH, &patch).await.expect(200);
    assert_eq!(patched["status"]["message"], "hello");
    assert!(patched["spec"]["activeDeadlineSeconds"].is_null());
    client.get(&format!("{path}/nonsense")).await.refused(404);
}

pub async fn no_change_no_revision(place: &Place) {
    let client = &place.client;
    let created = place.create("pods", &pod("p")).await;
    let path = place.core("pods/p");
    assert_eq!(version(&client.put(&path, &created).await.expect(200)), version(&created));
    for kind in [MERGE_PATCH, STRATEGIC_PATCH] {
        let patch = json!({"metadata": {"labels": null}, "spec": {"restartPolicy": "Always"}});
        assert_eq!(version(&client.patch(&path, kind, &patch).await.expect(200)), version(&created));
    }
    assert_eq!(version(&client.patch(&path, JSON_PATCH, &json!([])).await.expect(200)), version(&created));
}
