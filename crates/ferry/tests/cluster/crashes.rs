//! The process of the cluster is killed again and again; pods go on, and what was begun is finished.

use std::{fs, thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    machine::{assert_nothing_new, processes, traces},
    place::Place,
};

/// In the middle of changes; a few more hit the cluster while it starts.
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
fn killed_in_the_middle_nothing_is_lost_and_down_leaves_nothing() {
    let Some(place) = Place::new() else { return };
    let before = traces();
    place.run("ferry up --detach");
    place.run(STEADY);
    place.run("kubectl wait --for condition=Ready pod/steady --timeout 120s");
    let steady = place.run(WHICH);
    let uid = steady.split(' ').next().expect("a uid");
    let process = servers_of(uid);
    assert_eq!(process.len(), 1, "one process runs in the pod");
    place.run("kubectl create deployment web --image ferry.local/toolbox --replicas 3 -- httpd");
    for round in 0..KILLS {
        // A change that takes a while, and an end somewhere in the middle of it.
        match round % 3 {
            0 => place.run(&format!("kubectl set env deployment/web ROUND={round}")),
            1 => place.run(&format!("kubectl scale deployment/web --replicas {}", 2 + round % 4)),
            _ => place.run(&format!("kubectl create configmap round-{round} --from-literal=a=b")),
        };
        pause(round * 37 % 400);
        kill(&fs::read_to_string(place.folder.path().join("data/ferry.pid")).expect("it runs"));
        if round % 4 == 3 {
            // Once more, before it has found everything again.
            let starting = place.run("ferry up >/dev/null 2>&1 & echo $!");
            pause(round * 53 % 700);
            kill(&starting);
        }
        assert_eq!(servers_of(uid), process, "a pod's process ended with the cluster, in round {round}");
        place.run("ferry up --detach");
        assert_eq!(place.run(WHICH), steady, "after round {round}");
    }
    place.run("kubectl scale deployment/web --replicas 4");
    place.run("kubectl rollout status deployment/web --timeout 120s");
    place.until("kubectl get pods --no-headers --selector app=web", |told| told.lines().count() == 4);
    let maps = place.run("kubectl get configmaps -o name");
    assert_eq!(maps.matches("configmap/round-").count(), (2..KILLS).step_by(3).count(), "{maps}");
    // Nothing runs twice, and nothing that no pod has: one server in each.
    assert_eq!(servers_of(uid), process);
    let uids = place.run("kubectl get pods -o jsonpath='{.items[*].metadata.uid}'");
    for uid in uids.split_whitespace() {
        assert_eq!(servers_of(uid).len(), 1, "in the pod {uid}: {:?}", processes());
    }
    assert_eq!(servers_of("").len(), 5, "{:?}", processes());

    place.run("ferry down --purge");
    assert!(!place.folder.path().join("data").exists(), "the data folder is gone");
    assert_nothing_new(&before);
}

/// The web servers that run in the pod with a uid, or in any.
fn servers_of(uid: &str) -> Vec<u32> {
    let in_pod = |id: &u32| fs::read_to_string(format!("/proc/{id}/cgroup")).is_ok_and(|groups| groups.contains(uid));
    let servers = processes().into_iter().filter(|(_, line)| line.starts_with("httpd")).map(|(id, _)| id);
    servers.filter(in_pod).collect()
}

fn pause(millis: u32) {
    thread::sleep(Duration::from_millis(millis.into()));
}

/// Kills a process, and waits until it is no more.
fn kill(id: &str) {
    let id: i32 = id.trim().parse().expect("a number");
    kill_process(Pid::from_raw(id).expect("a process"), Signal::KILL).expect("it can be killed");
    while fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
        pause(5);
    }
}
