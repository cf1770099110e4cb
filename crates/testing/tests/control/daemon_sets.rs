//! DaemonSets have one pod on every node they belong on, and go from one template to the next.

use controller_runtime::Informers;
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet, DaemonSetStatus},
    core::v1::{Event, Node, Pod},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    eventually,
    nodes::{Fate, meet, play},
    replica_sets::{server, template},
};

struct Case {
    sets: Api<DaemonSet>,
    pods: Api<Pod>,
    nodes: Api<Node>,
    client: Client,
    server: testing::TestServer,
}

impl Case {
    async fn new(nodes: &[&str]) -> Self {
        let (server, client) = server().await;
        play(&client, &Informers::new(client.clone(), CancellationToken::new()), |_| Fate::Ready);
        let (sets, pods) = (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
        let case = Self { sets, pods, nodes: Api::all(client.clone()), client, server };
        for node in nodes {
            case.add_node(node).await;
        }
        case
    }

    async fn add_node(&self, name: &str) {
        let node = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a node");
        self.nodes.create(&PostParams::default(), &node).await.expect("created");
    }

    async fn create(&self, strategy: Value) {
        let labels = json!({"app": "agent"});
        let mut template = template(labels.clone());
        // What is not well is not of interest here.
        template["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        let spec = json!({"selector": {"matchLabels": labels}, "template": template, "updateStrategy": strategy,
            "revisionHistoryLimit": 1});
        let set = serde_json::from_value(json!({"metadata": {"name": "agent"}, "spec": spec})).expect("a set");
        self.sets.create(&PostParams::default(), &set).await.expect("created");
    }

    async fn patch(&self, spec: Value) {
        let patch = Patch::Strategic(json!({"spec": {"template": {"spec": spec}}}));
        self.sets.patch("agent", &PatchParams::default(), &patch).await.expect("patched");
    }

    async fn image(&self, image: &str) {
        self.patch(json!({"containers": [{"name": "a", "image": image}]})).await;
    }

    async fn status(&self, what: &str, is: impl Fn(&DaemonSetStatus) -> bool) {
        eventually(what, || async {
            let set = self.sets.get("agent").await.expect("a set");
            set.status.filter(|status| status.observed_generation == set.metadata.generation && is(status))
        })
        .await;
    }

    /// Every one of so many nodes has a pod of the newest template.
    async fn complete(&self, nodes: i32, image: &str) {
        let some = Some(nodes).filter(|nodes| *nodes > 0);
        eventually(&format!("{nodes} of {image}"), || async {
            let pods = self.all_pods().await;
            let image_of = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
            let set = self.sets.get("agent").await.expect("a set");
            let status = set.status.filter(|status| status.observed_generation == set.metadata.generation)?;
            let right = pods.iter().all(|pod| image_of(pod).as_deref() == Some(image))
                && i32::try_from(pods.len()).is_ok_and(|count| count == nodes)
                && (status.desired_number_scheduled, status.current_number_scheduled) == (nodes, nodes)
                && (status.number_ready, status.number_misscheduled) == (nodes, 0)
                && (status.updated_number_scheduled, status.number_available) == (some, some);
            right.then_some(())
        })
        .await;
    }

    async fn all_pods(&self) -> Vec<Pod> {
        let all = self.pods.list(&ListParams::default()).await.expect("a list").items;
        all.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
    }

    async fn revisions(&self) -> Vec<(i64, String)> {
        let api: Api<ControllerRevision> = Api::default_namespaced(self.client.clone());
        let all = api.list(&ListParams::default()).await.expect("a list").items;
        let mut all: Vec<_> = all.into_iter().map(|one| (one.revision, one.metadata.name.expect("a name"))).collect();
        all.sort();
        all
    }
}

fn rolling(surge: i32, unavailable: i32) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_has_its_pod() {
    let case = Case::new(&["n1", "n2"]).await;
    case.create(rolling(0, 1)).await;
    case.complete(2, "a:1").await;
    case.add_node("n3").await;
    case.complete(3, "a:1").await;
    let pod = case.all_pods().await.remove(0);
    let affinity = pod.spec.clone().expect("a spec").affinity.expect("one").node_affinity.expect("one");
    let terms = affinity.required_during_scheduling_ignored_during_execution.expect("one").node_selector_terms;
    assert_eq!(terms[0].match_fields.as_ref().expect("fields")[0].key, "metadata.name");

    // One that fails is replaced.
    let name = pod.metadata.name.expect("a name");
    meet(&case.pods, &name, Fate::Failed(1)).await;
    eventually("it goes", || async { case.pods.get_opt(&name).await.expect("an answer").is_none().then_some(()) })
        .await;
    case.complete(3, "a:1").await;
    let events: Api<Event> = Api::default_namespaced(case.client.clone());
    eventually("an event", || async {
        let all = events.list(&ListParams::default()).await.expect("a list").items;
        all.into_iter().find(|event| event.reason.as_deref() == Some("FailedDaemonPod"))
    })
    .await;

    // Only where the label is.
    case.patch(json!({"nodeSelector": {"color": "blue"}})).await;
    case.complete(0, "a:1").await;
    let blue = Patch::Merge(json!({"metadata": {"labels": {"color": "blue"}}}));
    case.nodes.patch("n2", &PatchParams::default(), &blue).await.expect("patched");
    case.complete(1, "a:1").await;
    case.sets.delete("agent", &DeleteParams::background()).await.expect("deleted");
    eventually("all is gone", || async {
        (case.all_pods().await.is_empty() && case.revisions().await.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_roll_and_roll_back() {
    let case = Case::new(&["n1", "n2", "n3"]).await;
    case.create(rolling(0, 1)).await;
    case.complete(3, "a:1").await;
    let first = case.revisions().await;
    assert_eq!(first.len(), 1);
    // Clients find the revision of a template by comparing texts.
    let raw = case.server.client();
    let set = raw.get("/apis/apps/v1/namespaces/default/daemonsets/agent").await.expect(200);
    let path = format!("/apis/apps/v1/namespaces/default/controllerrevisions/{}", first[0].1);
    let mut template = set["spec"]["template"].clone();
    template["$patch"] = json!("replace");
    assert_eq!(raw.get(&path).await.expect(200)["data"], json!({"spec": {"template": template}}));
    let revisions: Api<ControllerRevision> = Api::default_namespaced(case.client.clone());
    let lost = revisions.get(&first[0].1).await.expect("a revision").metadata;
    revisions.delete(&first[0].1, &DeleteParams::default()).await.expect("deleted");
    eventually("a lost revision is made again", || async {
        revisions.get_opt(&first[0].1).await.expect("an answer").filter(|made| made.metadata.uid != lost.uid)
    })
    .await;
    case.image("a:2").await;
    case.complete(3, "a:2").await;
    case.image("a:1").await;
    case.complete(3, "a:1").await;
    let back = case.revisions().await;
    assert_eq!((back.len(), back[1].0, &back[1].1), (2, 3, &first[0].1), "the old revision has a new number");
    case.image("a:3").await;
    case.complete(3, "a:3").await;
    eventually("history is cut", || async {
        let numbers: Vec<i64> = case.revisions().await.into_iter().map(|(number, _)| number).collect();
        (numbers == [3, 4]).then_some(())
    })
    .await;

    // New pods beside old ones.
    let surging = Patch::Merge(json!({"spec": {"updateStrategy": rolling(1, 0)}}));
    case.sets.patch("agent", &PatchParams::default(), &surging).await.expect("patched");
    case.image("a:4").await;
    case.complete(3, "a:4").await;

    // Only what is deleted by hand becomes new.
    let by_hand = Patch::Merge(json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}}));
    case.sets.patch("agent", &PatchParams::default(), &by_hand).await.expect("patched");
    case.image("a:5").await;
    case.status("nothing is new", |status| status.updated_number_scheduled.is_none()).await;
    let name = case.all_pods().await.remove(0).metadata.name.expect("a name");
    case.pods.delete(&name, &DeleteParams::default()).await.expect("deleted");
    case.status("one is new", |status| (status.updated_number_scheduled, status.number_ready) == (Some(1), 3)).await;
}
