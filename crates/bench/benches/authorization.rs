//! Authorization: what one decision costs with 1,000 roles and 1,000 bindings beside the bootstrap policy.
//! `cargo bench -p bench --bench authorization`

use std::{hint::black_box, sync::Arc};

use api_server::{
    authorization::{
        Attributes,
        rbac::{Rbac, policy},
    },
    catalogue::store_prefix,
    context::User,
    watch_cache::{WatchCache, encode_stored},
};
use criterion::Criterion;
use serde_json::{Value, json};
use storage::{Durability, Lifetime, Operation, Store, Transaction};
use storage_embedded::EmbeddedStore;
use tokio::runtime::Builder;

const GROUP: &str = "rbac.authorization.k8s.io";
const ROLES: usize = 1000;
const NAMESPACES: usize = 50;

/// Each namespace has twenty roles, each bound to a user, a group and a service account.
fn objects() -> Vec<(&'static str, Value)> {
    let mut objects = policy::objects();
    for n in 0..ROLES {
        let metadata = json!({"name": format!("role-{n}"), "namespace": format!("ns-{}", n % NAMESPACES)});
        let rules = json!([
            {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["configmaps", "pods", "services"]},
            {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"]},
        ]);
        let subjects = json!([
            {"kind": "User", "name": format!("user-{n}")},
            {"kind": "Group", "name": format!("group-{}", n % 100)},
            {"kind": "ServiceAccount", "name": format!("account-{n}")},
        ]);
        let version = format!("{GROUP}/v1");
        let role = json!({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules});
        let reference = json!({"apiGroup": GROUP, "kind": "Role", "name": format!("role-{n}")});
        let binding = json!({"apiVersion": version, "kind": "RoleBinding", "metadata": metadata,
                             "roleRef": reference, "subjects": subjects});
        objects.extend([("roles", role), ("rolebindings", binding)]);
    }
    objects
}

async fn index(store: Arc<dyn Store>) -> Rbac {
    let put = |(plural, object): (&str, Value)| {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let name = match text("namespace") {
            "" => text("name").to_owned(),
            namespace => format!("{namespace}/{}", text("name")),
        };
        Operation::Put {
            key: format!("{}{name}", store_prefix(GROUP, plural)),
            value: encode_stored(&object),
            lifetime: Lifetime::Endless,
        }
    };
    let operations: Vec<Operation> = objects().into_iter().map(put).collect();
    for some in operations.chunks(100) {
        let transaction = Transaction { compares: vec![], operations: some.to_vec(), durability: Durability::Relaxed };
        store.commit(transaction).await.expect("a commit");
    }
    let cache = WatchCache::new(store);
    let rbac = Rbac::new(&cache);
    cache.load().await.expect("the cache loads");
    rbac
}

fn user(name: &str, groups: &[&str]) -> User {
    User { name: name.into(), groups: groups.iter().map(|g| (*g).into()).collect(), ..User::default() }
}

fn main() {
    let runtime = Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let store = EmbeddedStore::open(storage_embedded::Options::new(folder.path().join("state.redb"))).expect("a store");
    let rbac = runtime.block_on(index(Arc::new(store)));

    let member = user("user-500", &["group-0", "group-50", "system:authenticated"]);
    let robot = User::service_account("ns-7", "account-7");
    let stranger = user("nobody", &["nothing", "system:authenticated"]);
    let scheduler = user("system:kube-scheduler", &["system:authenticated"]);
    let inside =
        |user, namespace, verb, resource| Attributes { namespace, ..Attributes::of_resource(user, verb, "", resource) };
    let questions = [
        ("a user creates in a namespace: allowed", inside(&member, "ns-0", "list", "configmaps"), true),
        ("a service account reads: allowed", inside(&robot, "ns-7", "get", "pods"), true),
        ("a component reads everywhere: allowed", inside(&scheduler, "", "list", "pods"), true),
        ("a user in another namespace: refused", inside(&member, "ns-1", "get", "configmaps"), false),
        ("a stranger: refused", inside(&stranger, "ns-0", "get", "secrets"), false),
    ];
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group(format!("a decision with {ROLES} roles and bindings"));
    for (name, question, allowed) in &questions {
        assert_eq!(rbac.judge(question).is_allowed(), *allowed, "{name}");
        group.bench_function(*name, |bencher| bencher.iter(|| rbac.judge(black_box(question)).is_allowed()));
    }
    group.finish();
    criterion.final_summary();
}
