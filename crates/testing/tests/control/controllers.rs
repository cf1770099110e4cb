//! What the controllers do, seen through the API.

use k8s_openapi::{
    api::core::v1::{ConfigMap, Event, Namespace, Pod, ServiceAccount},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use testing::TestServer;

use super::{client, eventually};

fn config(name: &str, owners: &[(&ConfigMap, bool)]) -> ConfigMap {
    let owners = owners.iter().map(|(owner, blocks)| OwnerReference {
        block_owner_deletion: Some(*blocks),
        ..owner.owner_ref(&()).expect("a stored object")
    });
    let owner_references = Some(owners.collect());
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.into()), owner_references, ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

async fn create(api: &Api<ConfigMap>, object: ConfigMap) -> ConfigMap {
    api.create(&PostParams::default(), &object).await.expect("created")
}

async fn gone(api: &Api<ConfigMap>, name: &str) {
    eventually(&format!("{name} is gone"), || async {
        api.get_opt(name).await.expect("an answer").is_none().then_some(())
    })
    .await;
}

async fn namespace(client: &Client, name: &str) -> Namespace {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    let wanted = Namespace { metadata, ..Namespace::default() };
    Api::all(client.clone()).create(&PostParams::default(), &wanted).await.expect("created")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_namespace_has_its_account_and_its_root_certificate() {
    let server = TestServer::with_controllers().await;
    let client = client(&server).await;
    namespace(&client, "new").await;
    for name in ["default", "kube-system", "new"] {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
        eventually("an account", || async { accounts.get_opt("default").await.expect("an answer") }).await;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), name);
        let map = eventually("a map", || async { maps.get_opt("kube-root-ca.crt").await.expect("an answer") }).await;
        assert_eq!(map.data.expect("data")["ca.crt"], server.authority().certificate_pem());
        let managers: Vec<_> = map.metadata.managed_fields.into_iter().flatten().filter_map(|m| m.manager).collect();
        assert_eq!(managers, ["kube-controller-manager"]);
    }
    let (accounts, maps): (Api<ServiceAccount>, Api<ConfigMap>) =
        (Api::namespaced(client.clone(), "new"), Api::namespaced(client.clone(), "new"));
    let old = accounts.get("default").await.expect("an account").metadata.uid;
    accounts.delete("default", &DeleteParams::default()).await.expect("deleted");
    eventually("another account", || async {
        accounts.get_opt("default").await.expect("an answer").filter(|account| account.metadata.uid != old)
    })
    .await;
    let change = Patch::Merge(json!({"data": {"ca.crt": "mine"}, "metadata": {"annotations": null}}));
    maps.patch("kube-root-ca.crt", &PatchParams::default(), &change).await.expect("patched");
    eventually("the right certificate", || async {
        let map = maps.get("kube-root-ca.crt").await.expect("a map");
        (map.data?["ca.crt"] == server.authority().certificate_pem() && map.metadata.annotations.is_some())
            .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_namespace_takes_all_it_has_with_it() {
    let server = TestServer::with_controllers().await;
    let client = client(&server).await;
    namespace(&client, "going").await;
    let (namespaces, maps): (Api<Namespace>, Api<ConfigMap>) =
        (Api::all(client.clone()), Api::namespaced(client.clone(), "going"));
    create(&maps, config("plain", &[])).await;
    let mut held = config("held", &[]);
    held.metadata.finalizers = Some(vec!["example.com/wait".into()]);
    create(&maps, held).await;
    namespaces.delete("going", &DeleteParams::default()).await.expect("deleted");

    gone(&maps, "plain").await;
    let conditions = eventually("a condition", || async {
        let status = namespaces.get("going").await.expect("a namespace").status?;
        assert_eq!(status.phase.as_deref(), Some("Terminating"));
        let conditions = status.conditions?;
        conditions.iter().any(|found| found.status == "True").then_some(conditions)
    })
    .await;
    let of = |type_: &str| {
        let found = conditions.iter().find(|condition| condition.type_ == type_).expect("a condition");
        (found.status.clone(), found.reason.clone().unwrap_or_default(), found.message.clone().unwrap_or_default())
    };
    let remaining = "Some resources are remaining: configmaps. has 1 resource instances";
    assert_eq!(of("NamespaceContentRemaining"), ("True".into(), "SomeResourcesRemain".into(), remaining.into()));
    let waiting = "Some content in the namespace has finalizers remaining: example.com/wait in 1 resource instances";
    assert_eq!(of("NamespaceFinalizersRemaining"), ("True".into(), "SomeFinalizersRemain".into(), waiting.into()));
    assert_eq!(of("NamespaceDeletionDiscoveryFailure").0, "False");

    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("held", &PatchParams::default(), &free).await.expect("patched");
    eventually("the namespace is gone", || async {
        namespaces.get_opt("going").await.expect("an answer").is_none().then_some(())
    })
    .await;
    namespace(&client, "going").await;
    assert!(maps.get_opt("held").await.expect("an answer").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_a_namespace_go_before_the_rest() {
    let server = TestServer::with_controllers().await;
    let client = client(&server).await;
    namespace(&client, "going").await;
    let (namespaces, pods, maps): (Api<Namespace>, Api<Pod>, Api<ConfigMap>) =
        (Api::all(client.clone()), Api::namespaced(client.clone(), "going"), Api::namespaced(client.clone(), "going"));
    create(&maps, config("plain", &[])).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "going");
    eventually("an account", || async { accounts.get_opt("default").await.expect("an answer") }).await;
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "held", "finalizers": ["example.com/wait"]},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }));
    pods.create(&PostParams::default(), &pod.expect("a pod")).await.expect("created");
    namespaces.delete("going", &DeleteParams::default()).await.expect("deleted");
    eventually("the pod is being deleted", || async {
        pods.get("held").await.expect("a pod").metadata.deletion_timestamp.map(drop)
    })
    .await;
    eventually("conditions", || async { namespaces.get("going").await.expect("one").status?.conditions }).await;
    assert!(maps.get_opt("plain").await.expect("an answer").is_some(), "it waits for the pod");
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pods.patch("held", &PatchParams::default(), &free).await.expect("patched");
    pods.delete("held", &DeleteParams::default().grace_period(0)).await.ok();
    eventually("the namespace is gone", || async {
        namespaces.get_opt("going").await.expect("an answer").is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependents_go_after_their_last_owner() {
    let server = TestServer::with_controllers().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server).await);
    let first = create(&maps, config("first", &[])).await;
    let second = create(&maps, config("second", &[])).await;
    let child = create(&maps, config("child", &[(&first, false), (&second, false)])).await;
    create(&maps, config("grandchild", &[(&child, false)])).await;
    let mut absent = first.clone();
    absent.metadata.uid = Some("00000000-0000-0000-0000-000000000000".into());
    create(&maps, config("of-nobody", &[(&absent, false)])).await;
    gone(&maps, "of-nobody").await;

    maps.delete("first", &DeleteParams::background()).await.expect("deleted");
    eventually("one owner is left", || async {
        let owners = maps.get("child").await.expect("a child").metadata.owner_references?;
        (owners.len() == 1 && owners[0].name == "second").then_some(())
    })
    .await;
    maps.delete("second", &DeleteParams::background()).await.expect("deleted");
    gone(&maps, "child").await;
    gone(&maps, "grandchild").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_waits_in_the_foreground_or_lets_its_dependents_go() {
    let server = TestServer::with_controllers().await;
    let client = client(&server).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let owner = create(&maps, config("owner", &[])).await;
    let mut held = config("held", &[(&owner, true)]);
    held.metadata.finalizers = Some(vec!["example.com/wait".into()]);
    create(&maps, held).await;
    create(&maps, config("free", &[(&owner, true)])).await;
    maps.delete("owner", &DeleteParams::foreground()).await.expect("deleted");
    gone(&maps, "free").await;
    eventually("held is being deleted", || async {
        maps.get("held").await.expect("held").metadata.deletion_timestamp.map(drop)
    })
    .await;
    let waiting = maps.get("owner").await.expect("it waits").metadata;
    assert_eq!(waiting.finalizers, Some(vec!["foregroundDeletion".to_owned()]));
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("held", &PatchParams::default(), &free).await.expect("patched");
    gone(&maps, "owner").await;
    assert!(maps.get_opt("held").await.expect("an answer").is_none());

    let owner = create(&maps, config("orphaning", &[])).await;
    create(&maps, config("orphan", &[(&owner, true)])).await;
    maps.delete("orphaning", &DeleteParams::orphan()).await.expect("deleted");
    gone(&maps, "orphaning").await;
    assert_eq!(maps.get("orphan").await.expect("it stays").metadata.owner_references, None);

    namespace(&client, "elsewhere").await;
    let there: Api<ConfigMap> = Api::namespaced(client.clone(), "elsewhere");
    let owner = create(&there, config("foreign", &[])).await;
    create(&maps, config("lost", &[(&owner, false)])).await;
    gone(&maps, "lost").await;
    let events: Api<Event> = Api::default_namespaced(client);
    let event = eventually("an event", || async {
        let found = events.list(&ListParams::default()).await.expect("a list").items;
        found.into_iter().find(|event| event.reason.as_deref() == Some("OwnerRefInvalidNamespace"))
    })
    .await;
    assert_eq!(event.source.and_then(|source| source.component).as_deref(), Some("garbage-collector-controller"));
    assert!(there.get_opt("foreign").await.expect("an answer").is_some());
}
