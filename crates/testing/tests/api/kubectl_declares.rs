//! kubectl, declaratively: apply in both ways, prune, diff, edit, replace, dry runs, deletion with all cascades.

use std::process::Command;

use serde_json::{Value, json};

use super::{configmap, deployment, kubectl::Kubectl};

/// Runs a prepared command and gives back what it printed, if all is well.
#[track_caller]
fn output(mut command: Command) -> String {
    let output = command.output().expect("kubectl runs");
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applies() {
    let Some(kubectl) = Kubectl::new().await else { return };
    let k = |arguments: &str| kubectl.run(arguments);

    // Client-side: what is no longer in the file goes, what others set stays.
    let mut config = configmap("c");
    config["data"] = json!({"a": "1", "b": "2"});
    kubectl.write("c.json", &config);
    assert_eq!(k("apply -f c.json"), "configmap/c created");
    k("patch configmap c --type=merge -p {\"data\":{\"other\":\"x\"}}");
    config["data"] = json!({"a": "3"});
    kubectl.write("c.json", &config);
    assert_eq!(k("apply -f c.json --dry-run=server"), "configmap/c configured (server dry run)");
    assert_eq!(k("get configmap c -o jsonpath={.data.a}"), "1");
    assert_eq!(k("apply -f c.json"), "configmap/c configured");
    assert_eq!(k("get configmap c -o jsonpath={.data}"), r#"{"a":"3","other":"x"}"#);
    assert!(k("apply view-last-applied configmap/c").contains("a: \"3\""));
    assert!(kubectl.command("diff -f c.json").status.success(), "nothing differs");

    // Server-side: owners and conflicts.
    kubectl.write("d.json", &deployment("d"));
    assert_eq!(k("apply --server-side -f d.json"), "deployment.apps/d serverside-applied");
    let mut taken = deployment("d");
    taken["spec"]["replicas"] = 9.into();
    kubectl.write("d.json", &taken);
    let conflict = kubectl.fails("apply --server-side --field-manager=other -f d.json");
    assert!(conflict.contains("conflict with \"kubectl\"") && conflict.contains(".spec.replicas"), "{conflict}");
    let forced = "apply --server-side --field-manager=other --force-conflicts -f d.json";
    assert_eq!(k(forced), "deployment.apps/d serverside-applied");
    let object: Value = serde_json::from_str(&k("get deployment d -o json --show-managed-fields")).expect("JSON");
    let managers: Vec<&str> = object["metadata"]["managedFields"]
        .as_array()
        .expect("managers")
        .iter()
        .filter_map(|m| m["manager"].as_str())
        .collect();
    assert_eq!((managers, &object["spec"]["replicas"]), (vec!["kubectl", "other"], &json!(9)));
    let diff = kubectl.command("diff --server-side --field-manager=other -f d.json");
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));

    // Pruning: what the label selects and the files no longer have.
    for name in ["one", "two"] {
        let mut object = configmap(name);
        object["metadata"]["labels"] = json!({"set": "s"});
        kubectl.write(&format!("{name}.json"), &object);
    }
    let prune = "--prune -l set=s --prune-allowlist=core/v1/ConfigMap";
    k(&format!("apply -f one.json -f two.json {prune}"));
    let pruned = k(&format!("apply -f one.json {prune}"));
    assert!(pruned.contains("configmap/one unchanged") && pruned.contains("configmap/two pruned"), "{pruned}");
    assert_eq!(k("get configmaps -l set=s -o name"), "configmap/one");

    let strict = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "odd"}, "dota": {}});
    kubectl.write("odd.json", &strict);
    let odd = kubectl.fails("apply -f odd.json");
    assert!(odd.contains("strict decoding error: unknown field \"dota\""), "{odd}");
    assert_eq!(k("apply -f odd.json --validate=ignore"), "configmap/odd created");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_and_replaces() {
    let Some(kubectl) = Kubectl::new().await else { return };
    let k = |arguments: &str| kubectl.run(arguments);
    k("create configmap c --from-literal=a=old");
    let mut edit = kubectl.prepare("edit configmap c");
    edit.env("KUBE_EDITOR", "sed -i s/old/new/");
    assert_eq!(output(edit), "configmap/c edited");
    assert_eq!(k("get configmap c -o jsonpath={.data.a}"), "new");
    let mut unchanged = kubectl.prepare("edit configmap c -o json");
    unchanged.env("KUBE_EDITOR", "true");
    let unchanged = unchanged.output().expect("kubectl runs");
    assert!(String::from_utf8_lossy(&unchanged.stderr).contains("Edit cancelled, no changes made"));

    kubectl.write("c.json", &configmap("c"));
    assert_eq!(k("replace -f c.json"), "configmap/c replaced");
    let uid = k("get configmap c -o jsonpath={.metadata.uid}");
    let forced = k("replace --force -f c.json");
    assert!(forced.contains("configmap/c replaced"), "{forced}");
    assert_ne!(k("get configmap c -o jsonpath={.metadata.uid}"), uid);
    let mut stale = configmap("c");
    stale["metadata"]["resourceVersion"] = "1".into();
    kubectl.write("stale.json", &stale);
    assert!(kubectl.fails("replace -f stale.json").contains("the object has been modified"));
    assert!(kubectl.fails("create -f c.json").contains("\"c\" already exists"));

    for (command, made) in [
        ("create secret generic s --from-literal=k=v", "secret/s created"),
        ("create serviceaccount robot", "serviceaccount/robot created"),
        ("create service clusterip web --tcp=80:8080", "service/web created"),
        ("create role reader --verb=get --resource=pods", "role.rbac.authorization.k8s.io/reader created"),
        ("create rolebinding b --role=reader --user=jane", "rolebinding.rbac.authorization.k8s.io/b created"),
        ("create quota q --hard=pods=5", "resourcequota/q created"),
        ("create poddisruptionbudget p --selector=app=x --min-available=1", "poddisruptionbudget.policy/p created"),
        ("create priorityclass high --value=1000", "priorityclass.scheduling.k8s.io/high created"),
        ("create job j --image=registry.example/app:1", "job.batch/j created"),
        ("create cronjob t --image=registry.example/app:1 --schedule=@daily", "cronjob.batch/t created"),
        ("create ingress i --rule=example.org/=web:80", "ingress.networking.k8s.io/i created"),
    ] {
        let dry = k(&format!("{command} --dry-run=server"));
        assert_eq!(dry, format!("{made} (server dry run)"));
        assert_eq!(k(command), made);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes() {
    let Some(kubectl) = Kubectl::new().await else { return };
    let k = |arguments: &str| kubectl.run(arguments);
    let client = kubectl.server.client();
    let finalizers = "-o jsonpath={.metadata.finalizers}";
    k("create deployment d --image=registry.example/app:1");
    assert_eq!(k("delete deployment d --dry-run=server"), "deployment.apps \"d\" deleted (server dry run)");
    assert_eq!(k("delete deployment d --cascade=orphan --wait=false"), "deployment.apps \"d\" deleted");
    assert_eq!(k(&format!("get deployment d {finalizers}")), r#"["orphan"]"#);
    k("create deployment e --image=registry.example/app:1");
    k("delete deployment e --cascade=foreground --wait=false");
    assert_eq!(k(&format!("get deployment e {finalizers}")), r#"["foregroundDeletion"]"#);
    k("create deployment f --image=registry.example/app:1");
    assert_eq!(k("delete deployment f --cascade=background"), "deployment.apps \"f\" deleted");

    // A wait ends when the last finalizer is gone.
    let waiting = kubectl.prepare("wait --for=delete deployment/d --timeout=60s").spawn().expect("kubectl runs");
    let path = "/apis/apps/v1/namespaces/default/deployments/d";
    let free = json!({"metadata": {"finalizers": null}});
    client.patch(path, testing::client::MERGE_PATCH, &free).await.expect(200);
    assert!(waiting.wait_with_output().expect("kubectl ends").status.success());

    for name in ["a", "b", "c"] {
        k(&format!("create configmap {name} --from-literal=k=v"));
    }
    k("label configmaps a b set=s");
    let gone = k("delete configmaps -l set=s");
    assert_eq!(gone, "configmap \"a\" deleted\nconfigmap \"b\" deleted");
    kubectl.write("c.json", &configmap("c"));
    assert_eq!(k("delete -f c.json"), "configmap \"c\" deleted");
    assert_eq!(k("delete configmap c --ignore-not-found"), "");
    assert!(kubectl.fails("delete configmap c").contains("not found"));
    k("create configmap x --from-literal=k=v");
    assert!(k("delete configmaps --all").contains("configmap \"x\" deleted"));
}
