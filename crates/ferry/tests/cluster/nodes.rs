//! Three nodes on one machine: pods on each reach the others, and a node that falls silent loses its pods to the others.

use std::collections::BTreeSet;

use rustix::process::{Pid, Signal, kill_process};

use crate::{machine::processes, place::Place};

const PODS: &str = r#"kubectl apply -f - <<'END'
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
      tolerations:
        - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
        - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      containers:
        - name: web
          image: ferry.local/toolbox
          command: [httpd, -p, "8080"]
          readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
END"#;

#[test]
#[ignore = "not proven yet: run it with -- --ignored"]
fn three_nodes_are_one_cluster() {
    let Some(place) = Place::new() else { return };
    place.run("ferry up --nodes 3 --detach");
    place.until("kubectl get nodes --no-headers", |told| told.matches(" Ready ").count() == 3);
    place.run(PODS);
    place.run("kubectl apply -f examples/daemon-set.yaml");
    place.run("kubectl rollout status deployment/web --timeout 120s");
    place.run("kubectl rollout status daemonset/watchman --timeout 120s");
    assert_eq!(nodes_of(&place, "app=watchman").len(), 3, "one on every node");
    let pods = nodes_of(&place, "app=web");
    assert_eq!(pods.len(), 3, "spread over all nodes");

    // From a pod on each node, the Service reaches pods on every node.
    for node in &pods {
        let pod = place.run(&format!(
            "kubectl get pods -l app=web --field-selector spec.nodeName={node} -o jsonpath={{.items[0].metadata.name}}"
        ));
        let ask = format!("kubectl exec {pod} -- wget -q -O - http://web");
        let answers: BTreeSet<String> = (0..40).map(|_| place.run(&ask)).collect();
        assert!(answers.len() >= 4, "from {node} only {answers:#?}");
    }

    // One falls silent; its pods are replaced on the others when their toleration ends.
    let silent = pods.iter().next_back().expect("three").clone();
    let (id, _) = processes()
        .into_iter()
        .find(|(_, line)| line.contains(" agent ") && line.contains(&silent))
        .expect("the node's own process");
    let process = Pid::from_raw(id.cast_signed()).expect("a process");
    kill_process(process, Signal::STOP).expect("it can be stopped");
    place.until("kubectl get nodes --no-headers", |told| told.contains("NotReady"));
    place.until(
        "kubectl get pods -l app=web --no-headers -o \
         custom-columns=NODE:.spec.nodeName,READY:.status.conditions[?(@.type==\"Ready\")].status,GOING:.metadata.deletionTimestamp",
        |told| {
            let running = told.lines().filter(|line| line.contains("True") && line.contains("<none>"));
            running.filter(|line| !line.starts_with(&silent)).count() == 6
        },
    );
    kill_process(process, Signal::CONT).expect("it goes on");
    place.until("kubectl get nodes --no-headers", |told| told.matches(" Ready ").count() == 3);
    place.until("kubectl get pods -l app=web --no-headers", |told| told.lines().count() == 6);
}

/// The nodes that run pods with a label.
fn nodes_of(place: &Place, label: &str) -> BTreeSet<String> {
    let told = place.run(&format!("kubectl get pods -l {label} -o jsonpath='{{.items[*].spec.nodeName}}'"));
    told.split_whitespace().map(String::from).collect()
}
