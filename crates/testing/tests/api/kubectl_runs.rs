//! kubectl, running things: rollouts on stored objects, set, scale, autoscale, expose, nodes, waits.

use serde_json::{Value, json};
use testing::client::{Client, MERGE_PATCH};

use super::{deployment, kubectl::Kubectl};

const APPS: &str = "/apis/apps/v1/namespaces/default";

fn owner(kind: &str, object: &Value) -> Value {
    let meta = &object["metadata"];
    json!([{"apiVersion": "apps/v1", "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": true}])
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

/// A ReplicaSet of an earlier or later template of the Deployment.
async fn replica_set(client: &Client, of: &Value, revision: &str, image: &str) {
    let mut template = template(image);
    template["metadata"]["labels"]["pod-template-hash"] = revision.into();
    let set = json!({
        "metadata": {
            "name": format!("d-{revision}"), "labels": {"app": "d", "pod-template-hash": revision},
            "annotations": {"deployment.kubernetes.io/revision": revision}, "ownerReferences": owner("Deployment", of),
        },
        "spec": {"selector": {"matchLabels": {"app": "d", "pod-template-hash": revision}}, "template": template},
    });
    client.post(&format!("{APPS}/replicasets"), &set).await.expect(201);
}

/// A ControllerRevision with the template that the object had.
async fn controller_revision(client: &Client, kind: &str, of: &Value, revision: i64, image: &str) {
    let mut template = template(image);
    template["$patch"] = "replace".into();
    let history = json!({
        "metadata": {"name": format!("w-{revision}"), "labels": {"app": "d"}, "ownerReferences": owner(kind, of)},
        "data": {"spec": {"template": template}},
        "revision": revision,
    });
    client.post(&format!("{APPS}/controllerrevisions"), &history).await.expect(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolls_out() {
    let Some(kubectl) = Kubectl::new().await else { return };
    let k = |arguments: &str| kubectl.run(arguments);
    let client = kubectl.server.client();
    let made = client.post(&format!("{APPS}/deployments"), &deployment("d")).await.expect(201);
    replica_set(&client, &made, "1", "registry.example/app:0").await;
    replica_set(&client, &made, "2", "registry.example/app:1").await;
    let history = k("rollout history deployment/d");
    let revisions: Vec<&str> = history.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(revisions, ["deployment.apps/d", "REVISION", "1", "2"]);
    assert!(k("rollout history deployment/d --revision=1").contains("registry.example/app:0"));
    assert_eq!(k("rollout undo deployment/d --to-revision=1"), "deployment.apps/d rolled back");
    let image = "-o jsonpath={.spec.template.spec.containers[0].image}";
    assert_eq!(k(&format!("get deployment d {image}")), "registry.example/app:0");
    assert_eq!(k("rollout pause deployment/d"), "deployment.apps/d paused");
    assert!(kubectl.fails("rollout undo deployment/d").contains("paused"));
    assert_eq!(k("rollout resume deployment/d"), "deployment.apps/d resumed");
    assert_eq!(k("rollout restart deployment/d"), "deployment.apps/d restarted");
    let generation: i64 = k("get deployment d -o jsonpath={.metadata.generation}").parse().expect("a number");
    let status = json!({"status": {
        "observedGeneration": generation, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
        "conditions": [{"type": "Available", "status": "True"}],
    }});
    client.patch(&format!("{APPS}/deployments/d/status"), MERGE_PATCH, &status).await.expect(200);
    assert_eq!(k("rollout status deployment/d --timeout=30s"), "deployment \"d\" successfully rolled out");
    assert_eq!(k("wait --for=condition=Available deployment/d --timeout=30s"), "deployment.apps/d condition met");
    let late = kubectl.fails("wait --for=condition=Progressing deployment/d --timeout=1s");
    assert!(late.contains("timed out waiting for the condition"), "{late}");

    for kind in ["DaemonSet", "StatefulSet"] {
        let (plural, singular) = (format!("{}s", kind.to_lowercase()), kind.to_lowercase());
        let mut object = deployment("d");
        object["kind"] = kind.into();
        object["metadata"]["name"] = "w".into();
        if kind == "DaemonSet" {
            object["spec"].as_object_mut().expect("a spec").remove("replicas");
        }
        let made = client.post(&format!("{APPS}/{plural}"), &object).await.expect(201);
        controller_revision(&client, kind, &made, 1, "registry.example/app:0").await;
        controller_revision(&client, kind, &made, 2, "registry.example/app:1").await;
        assert!(k(&format!("rollout history {singular}/w")).ends_with("2         <none>"));
        assert_eq!(k(&format!("rollout undo {singular}/w --to-revision=1")), format!("{singular}.apps/w rolled back"));
        assert_eq!(k(&format!("get {singular} w {image}")), "registry.example/app:0");
        k(&format!("delete {singular} w"));
        k("delete controllerrevisions --all");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_and_scales() {
    let Some(kubectl) = Kubectl::new().await else { return };
    let k = |arguments: &str| kubectl.run(arguments);
    k("create serviceaccount default");
    k("create deployment d --image=registry.example/app:1 --replicas=2 --port=8080");
    assert_eq!(k("set image deployment/d app=registry.example/app:2"), "deployment.apps/d image updated");
    assert_eq!(k("set env deployment/d COLOUR=red"), "deployment.apps/d env updated");
    assert!(k("set env deployment/d --list").contains("COLOUR=red"));
    let limits = "set resources deployment/d --limits=cpu=200m,memory=64Mi --requests=cpu=100m";
    assert_eq!(k(limits), "deployment.apps/d resource requirements updated");
    assert_eq!(k("set serviceaccount deployment/d robot"), "deployment.apps/d serviceaccount updated");
    let object: Value = serde_json::from_str(&k("get deployment d -o json")).expect("JSON");
    let spec = &object["spec"]["template"]["spec"];
    let container = &spec["containers"][0];
    assert_eq!((&container["image"], &spec["serviceAccountName"]), (&json!("registry.example/app:2"), &json!("robot")));
    assert_eq!(
        container["resources"],
        json!({"limits": {"cpu": "200m", "memory": "64Mi"}, "requests": {"cpu": "100m"}})
    );
    assert_eq!(container["env"], json!([{"name": "COLOUR", "value": "red"}]));

    assert_eq!(k("scale deployment/d --replicas=5"), "deployment.apps/d scaled");
    assert_eq!(k("scale --current-replicas=5 --replicas=3 deployment/d"), "deployment.apps/d scaled");
    assert_eq!(k("get deployment d -o jsonpath={.spec.replicas}"), "3");
    let scaled = k("autoscale deployment d --min=1 --max=4 --cpu-percent=70");
    assert_eq!(scaled, "horizontalpodautoscaler.autoscaling/d autoscaled");
    assert_eq!(k("get hpa d -o jsonpath={.spec.maxReplicas}"), "4");
    assert_eq!(k("expose deployment d --port=80 --target-port=8080"), "service/d exposed");
    assert_eq!(k("get service d -o jsonpath={.spec.selector.app}:{.spec.ports[0].targetPort}"), "d:8080");
    assert_eq!(k("set selector service d app=other"), "service/d selector updated");

    assert_eq!(k("label deployment d tier=web"), "deployment.apps/d labeled");
    assert!(kubectl.fails("label deployment d tier=db").contains("--overwrite is false"));
    assert_eq!(k("label deployment d tier=db --overwrite"), "deployment.apps/d labeled");
    assert_eq!(k("label deployment d tier-"), "deployment.apps/d unlabeled");
    assert_eq!(k("annotate deployments --all note=x"), "deployment.apps/d annotated");
    assert_eq!(k("annotate deployment d note-"), "deployment.apps/d annotated");
    let run = k("run p --image=registry.example/app:1 --restart=Never --dry-run=server");
    assert_eq!(run, "pod/p created (server dry run)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tends_nodes() {
    let Some(kubectl) = Kubectl::new().await else { return };
    let k = |arguments: &str| kubectl.run(arguments);
    let client = kubectl.server.client();
    client.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await.expect(201);
    client
        .post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}))
        .await
        .expect(201);
    let mut pod = super::pod("p");
    pod["spec"]["nodeName"] = "n".into();
    client.post("/api/v1/namespaces/default/pods", &pod).await.expect(201);
    assert_eq!(k("taint nodes n gpu=yes:NoSchedule"), "node/n tainted");
    assert!(k("get node n -o jsonpath={.spec.taints}").contains("\"key\":\"gpu\""));
    assert_eq!(k("taint nodes n gpu-"), "node/n untainted");
    assert_eq!(k("cordon n"), "node/n cordoned");
    assert!(k("get nodes").contains("SchedulingDisabled"));
    assert_eq!(k("uncordon n"), "node/n uncordoned");
    let drained = k("drain n --force --dry-run=server");
    assert!(drained.contains("evicting pod default/p (server dry run)"), "{drained}");
    assert_eq!(k("get pod p -o jsonpath={.metadata.deletionTimestamp}"), "");
    let waiting = kubectl.prepare("wait --for=jsonpath={.status.phase}=Running pod/p --timeout=60s").spawn();
    let status = json!({"status": {"phase": "Running"}});
    client.patch("/api/v1/namespaces/default/pods/p/status", MERGE_PATCH, &status).await.expect(200);
    assert!(waiting.expect("kubectl runs").wait().expect("kubectl ends").success());
}
