//! The process of the cluster is killed again and again; pods go on, and what was begun is finished.

use std::{collections::BTreeSet, fs, thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    machine::{processes, traces},
    place::Place,
};

const KILLS: u32 = 20;

const STEADY: &str = r#"kubectl apply -f - <<'END'
apiVersion: v1
kind: Pod
metadata: {name: steady}
spec:
  containers:
    - {name: steady, image: ferry.local/toolbox, command: [httpd]}
END"#;

/// Which container a pod runs, since when, and how often it was started again.
const WHICH: &str = "kubectl get pod steady -o \
    jsonpath='{.metadata.uid} {.status.podIP} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}'";

#[test]
#[ignore = "not proven yet: run it with -- --ignored"]
fn killed_in_the_middle_nothing_is_lost_and_down_leaves_nothing() {
    let Some(place) = Place::new() else { return };
    let before = traces();
    place.run("ferry up --detach");
    place.run(STEADY);
    place.run("kubectl wait --for condition=Ready pod/steady --timeout 120s");
    place.run("kubectl create deployment web --image ferry.local/toolbox --replicas 3 -- httpd");
    let (steady, process) = (place.run(WHICH), steady_process());
    for round in 0..KILLS {
        // A change that takes a while, and an end somewhere in the middle of it.
        match round % 3 {
            0 => place.run(&format!("kubectl set env deployment/web ROUND={round}")),
            1 => place.run(&format!("kubectl scale deployment/web --replicas {}", 2 + round % 4)),
            _ => place.run(&format!("kubectl create configmap round-{round} --from-literal=a=b")),
        };
        thread::sleep(Duration::from_millis(u64::from(round * 37 % 400)));
        kill(&place);
        assert!(processes().iter().any(|(id, _)| *id == process), "a pod's process ended with the cluster");
        place.run("ferry up --detach");
        assert_eq!(place.run(WHICH), steady, "after round {round}");
    }
    place.run("kubectl scale deployment/web --replicas 4");
    place.run("kubectl rollout status deployment/web --timeout 120s");
    place.until("kubectl get pods --no-headers --selector app=web", |told| told.lines().count() == 4);
    let maps = place.run("kubectl get configmaps -o name");
    assert_eq!(maps.matches("configmap/round-").count(), (2..KILLS).step_by(3).count(), "{maps}");
    assert_eq!(steady_process(), process);
    // Nothing runs twice: one httpd for each of the pods.
    let servers: BTreeSet<u32> =
        processes().into_iter().filter(|(_, line)| line.starts_with("httpd")).map(|(id, _)| id).collect();
    assert_eq!(servers.len(), 5, "{:?}", processes());

    place.run("ferry down --purge");
    let left: Vec<String> = traces().difference(&before).cloned().collect();
    assert!(left.is_empty(), "left behind: {left:#?}");
}

/// The process that runs in the pod `steady`: the first that was started of its kind.
fn steady_process() -> u32 {
    let servers = processes().into_iter().filter(|(_, line)| line.starts_with("httpd"));
    servers.map(|(id, _)| id).min().expect("it runs")
}

fn kill(place: &Place) {
    let file = place.folder.path().join("data/ferry.pid");
    let id: i32 = fs::read_to_string(file).expect("it runs").trim().parse().expect("a number");
    kill_process(Pid::from_raw(id).expect("a process"), Signal::KILL).expect("it can be killed");
    while fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
        thread::sleep(Duration::from_millis(5));
    }
}
