//! Rollouts in the middle of which everything changes, on hollow nodes. What watches tell of them is written down and
//! judged event by event: see [`history`].

mod history;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use history::{History, Seen};
use serde_json::{Value, json};
use testing::{
    Habits, HollowNodes, Random, TestServer,
    client::{Client, MERGE_PATCH, STRATEGIC_PATCH},
};

use super::eventually;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// How often each Deployment is changed.
const CHANGES: u64 = 12;
/// However busy the machine is.
const SETTLED_WITHIN: Duration = Duration::from_secs(600);

/// Everything that watches tell of some resources.
struct Recording {
    client: Client,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Recording {
    async fn begin(server: &TestServer, paths: &[&'static str]) -> Self {
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        for &path in paths {
            let client = server.client();
            let from = client.get(path).await.expect(200)["metadata"]["resourceVersion"].clone();
            let from = from.as_str().unwrap_or_default();
            let watch = client.watch(&format!("{path}?watch=1&resourceVersion={from}")).await;
            let (mut watch, seen) = (watch.expect("a watch"), seen.clone());
            tokio::spawn(async move {
                while let Some(event) = watch.next().await {
                    seen.lock().expect("nobody panics").push(Seen::new(path, &event));
                }
            });
        }
        Self { client: server.client(), seen }
    }

    /// All that happened up to now, in the order in which it happened.
    async fn end(self, paths: &[&'static str]) -> Vec<Seen> {
        for path in paths {
            let list = self.client.get(path).await.expect(200);
            let name = list["items"][0]["metadata"]["name"].as_str().expect("an object").to_owned();
            // A label: an annotation is a new generation of a Deployment, which then has yet to be observed.
            let mark = json!({"metadata": {"labels": {"mark": "end"}}});
            let marked = self.client.patch(&format!("{path}/{name}"), MERGE_PATCH, &mark).await.expect(200);
            let revision = history::revision(&marked);
            eventually("the watch has seen the last change", || async {
                let seen = self.seen.lock().expect("nobody panics");
                seen.iter().any(|seen| seen.path == *path && seen.revision >= revision).then_some(())
            })
            .await;
        }
        let mut all = std::mem::take(&mut *self.seen.lock().expect("nobody panics"));
        all.sort_by_key(|seen| seen.revision);
        all
    }
}

/// A Deployment whose owner cannot make up their mind.
struct Restless<'a> {
    client: Client,
    random: &'a Random,
    name: String,
}

impl Restless<'_> {
    fn path(&self) -> String {
        format!("{DEPLOYMENTS}/{}", self.name)
    }

    async fn create(&self) {
        let strategy = match self.random.below(5) {
            0 => json!({"type": "Recreate"}),
            _ => {
                let (surge, unavailable) = (self.random.below(4), self.random.below(3));
                let surge = if unavailable == 0 { surge.max(1) } else { surge };
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
            }
        };
        let labels = json!({"app": self.name});
        let deployment = json!({
            "metadata": {"name": self.name},
            "spec": {
                "replicas": 1 + self.random.below(8), "selector": {"matchLabels": labels}, "strategy": strategy,
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "a", "image": "a:0"}]},
                },
            },
        });
        self.client.post(DEPLOYMENTS, &deployment).await.expect(201);
    }

    async fn change(&self) {
        let merge =
            |change: Value| async move { self.client.patch(&self.path(), MERGE_PATCH, &change).await.expect(200) };
        match self.random.below(10) {
            0..=2 => drop(merge(json!({"spec": {"replicas": self.random.below(9)}})).await),
            3..=5 => self.image(&format!("a:{}", self.random.below(4))).await,
            6 => self.image("broken:1").await,
            7 => drop(merge(json!({"spec": {"paused": true}})).await),
            8 => drop(merge(json!({"spec": {"paused": false}})).await),
            _ => {
                let back = json!({"metadata": {"annotations": {"deprecated.deployment.rollback.to": "0"}}});
                drop(merge(back).await);
            }
        }
    }

    async fn image(&self, image: &str) {
        let containers = json!([{"name": "a", "image": image}]);
        let change = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        self.client.patch(&self.path(), STRATEGIC_PATCH, &change).await.expect(200);
    }

    /// Makes up their mind, and waits until it has come true.
    async fn settle(&self) {
        let last = json!({
            "metadata": {"annotations": {"deprecated.deployment.rollback.to": null}},
            "spec": {"paused": false, "replicas": 1 + self.random.below(8)},
        });
        self.client.patch(&self.path(), MERGE_PATCH, &last).await.expect(200);
        self.image("a:last").await;
        let begun = Instant::now();
        loop {
            let deployment = self.client.get(&self.path()).await.expect(200);
            let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
            if image == "a:last" && history::is_complete(&deployment) {
                return;
            }
            if image != "a:last" {
                // A rollback that was wanted before came through after all.
                self.image("a:last").await;
            }
            assert!(begun.elapsed() < SETTLED_WITHIN, "{} never settled:\n{}", self.name, self.state().await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Everything that belongs to it.
    async fn state(&self) -> String {
        let mut all = String::new();
        for path in [DEPLOYMENTS, SETS, PODS] {
            let list = self.client.get(path).await.expect(200);
            for object in list["items"].as_array().into_iter().flatten() {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                if name.starts_with(&self.name) {
                    all += &format!("{} {}\n", history::summary(object), object["status"]["conditions"]);
                }
            }
        }
        all
    }

    async fn run(&self) {
        self.create().await;
        for _ in 0..CHANGES {
            tokio::time::sleep(self.random.within(&(Duration::ZERO..Duration::from_millis(200)))).await;
            self.change().await;
        }
        self.settle().await;
    }
}

/// `FERRY_SEED` repeats the changes of a run that failed; what they meet is up to the machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollouts_keep_their_promises_whatever_happens() {
    let given = std::env::var("FERRY_SEED").ok().and_then(|seed| seed.parse().ok());
    let drawn = || u64::from(std::time::UNIX_EPOCH.elapsed().expect("it is later").subsec_nanos());
    let seed: u64 = given.unwrap_or_else(drawn);
    eprintln!("FERRY_SEED={seed}");
    let random = Random::new(seed);
    let server = TestServer::with_controllers().await;
    server.run_scheduler();
    let accounts = "/api/v1/namespaces/default/serviceaccounts/default";
    let admin = server.client();
    eventually("an account", || async { (admin.get(accounts).await.code == 200).then_some(()) }).await;
    let hollow = HollowNodes::new(&server, seed).await;
    let habits = Habits {
        starts_within: Duration::ZERO..Duration::from_millis(150),
        ends_within: Duration::ZERO..Duration::from_millis(100),
        ..Habits::default()
    };
    let mut nodes = Vec::new();
    for number in 0..3 {
        nodes.push(hollow.add(&format!("hollow-{number}"), habits.clone()).await);
    }
    let recording = Recording::begin(&server, &[DEPLOYMENTS, SETS, PODS]).await;
    let all: Vec<Restless> = (0..4)
        .map(|number| Restless { client: server.client(), random: &random, name: format!("restless-{number}") })
        .collect();
    futures::future::join_all(all.iter().map(Restless::run)).await;
    let seen = recording.end(&[DEPLOYMENTS, SETS, PODS]).await;
    let mut history = History::default();
    for seen in &seen {
        history.hear(seen);
    }
    history.ends_well();
    assert!(history.broken.is_empty(), "FERRY_SEED={seed}\n{}", history.broken.join("\n"));
    assert!(history.events > 100, "{} events are too few to say anything", history.events);
}
