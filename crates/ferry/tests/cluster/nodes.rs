//! Three nodes on one machine: pods on each reach the others, and a node that falls silent loses its pods to the others.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    machine::{processes, traces},
    place::Place,
};

/// Each request goes to a random pod: that all of these miss one of three nodes is as good as impossible.
const ASK_AT_MOST: usize = 60;

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

/// Where the pods are, whether they are ready, and since when they are to go.
const WHERE_READY: &str = r#"kubectl get pods -l app=web --no-headers -o \
    'custom-columns=NODE:.spec.nodeName,READY:.status.conditions[?(@.type=="Ready")].status,GOING:.metadata.deletionTimestamp'"#;

#[test]
fn three_nodes_are_one_cluster() {
    let Some(place) = Place::new() else { return };
    let before = traces();
    place.run("ferry up --nodes 3 --detach");
    place.until("kubectl get nodes --no-headers", |told| told.matches(" Ready ").count() == 3);
    place.run(PODS);
    place.run("kubectl apply -f examples/daemon-set.yaml");
    place.run("kubectl rollout status deployment/web --timeout 120s");
    place.run("kubectl rollout status daemonset/watchman --timeout 120s");
    let watchmen: BTreeSet<String> = places_of(&place, "app=watchman").into_values().collect();
    assert_eq!(watchmen.len(), 3, "one on every node");
    let pods = places_of(&place, "app=web");
    let nodes: BTreeSet<&String> = pods.values().collect();
    assert_eq!(nodes.len(), 3, "spread over all nodes: {pods:?}");

    // From a pod on each node, the Service reaches pods on every node.
    for node in &nodes {
        let (pod, _) = pods.iter().find(|(_, at)| at == node).expect("it has one");
        let mut reached = BTreeSet::new();
        for _ in 0..ASK_AT_MOST {
            let told = place.run(&format!("kubectl exec {pod} -- wget -q -O - http://web"));
            let host = told.lines().find_map(|line| line.strip_prefix("hostname: ")).expect("a pod tells its name");
            reached.insert(pods.get(host).unwrap_or_else(|| panic!("{host} is not among {pods:?}")));
            if reached == nodes {
                break;
            }
        }
        assert_eq!(reached, nodes, "from {node}");
    }

    // One falls silent; its pods are replaced on the others when their toleration ends.
    let silent = (*nodes.last().expect("three")).clone();
    let (id, _) = processes()
        .into_iter()
        .find(|(_, line)| line.contains(" agent ") && line.contains(&silent))
        .expect("the node's own process");
    let process = Pid::from_raw(id.cast_signed()).expect("a process");
    kill_process(process, Signal::STOP).expect("it can be stopped");
    place.until("kubectl get nodes --no-headers", |told| told.contains("NotReady"));
    place.until(WHERE_READY, |told| {
        let ready = told.lines().filter(|line| line.contains(" True ") && line.contains("<none>"));
        ready.filter(|line| !line.starts_with(&silent)).count() == 6
    });
    kill_process(process, Signal::CONT).expect("it goes on");
    place.until("kubectl get nodes --no-headers", |told| told.matches(" Ready ").count() == 3);
    place.until("kubectl get pods -l app=web --no-headers", |told| told.lines().count() == 6);

    // Stopped and started again, it is the same cluster; removed, nothing of it is left.
    place.run("ferry down");
    place.run("ferry up --nodes 3 --detach");
    place.until("kubectl get nodes --no-headers", |told| told.matches(" Ready ").count() == 3);
    place.run("kubectl rollout status deployment/web --timeout 120s");
    place.run("ferry down --purge");
    let left: Vec<String> = traces().difference(&before).cloned().collect();
    assert!(left.is_empty(), "left behind: {left:#?}");
}

/// The pods with a label, each with its node.
fn places_of(place: &Place, label: &str) -> BTreeMap<String, String> {
    let columns = "custom-columns=NAME:.metadata.name,NODE:.spec.nodeName";
    let told = place.run(&format!("kubectl get pods -l {label} --no-headers -o {columns}"));
    let both = |line: &str| line.split_once(' ').map(|(pod, node)| (pod.to_owned(), node.trim().to_owned()));
    told.lines().filter_map(both).collect()
}

#[test]
fn a_second_cluster_on_the_same_machine_is_refused() {
    let Some(place) = Place::new() else { return };
    place.run("ferry up --detach");
    let before = traces();
    let second = place.folder.path().join("second");
    let up =
        format!("$(command -v ferry) up --api-port 0 --data-dir {0} --kubeconfig {0}/kubeconfig", second.display());
    let refused = place.shell(&up);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && told.contains("a node needs port 10250"), "{told}");
    assert_eq!(traces(), before, "it has touched nothing of the first one's, nor left anything of its own");
    place.run("kubectl get --raw /readyz");
}
