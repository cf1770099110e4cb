//! Volumes of whole pods, with real mounts. They need root.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::fakes;

struct Fixture {
    volumes: Volumes,
    folder: tempfile::TempDir,
}

impl Fixture {
    /// `None` where nothing can be mounted.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can mount volumes");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        Some(Self { volumes: open(&folder), folder })
    }

    async fn set_up(&self, pod: &Pod) -> Result<Ready, VolumeError> {
        self.volumes.set_up(pod, self.volumes.due(pod).await).await
    }

    /// The agent starts again, and knows nothing of before.
    fn restart(&mut self) {
        self.volumes = open(&self.folder);
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("pods/u1").join(path)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = folder::unmount_below(self.folder.path());
    }
}

/// Against a server that has a ConfigMap, a Secret and tokens.
fn open(folder: &tempfile::TempDir) -> Volumes {
    let answer = |request: http::Request<bytes::Bytes>| async move {
        let object = match request.uri().path() {
            "/api/v1/namespaces/ns/configmaps/c" => {
                json!({"metadata": {"name": "c"}, "data": {"k": "v"}, "binaryData": {"b": "AAE="}})
            }
            "/api/v1/namespaces/ns/secrets/s" => json!({"metadata": {"name": "s"}, "data": {"k": "dmFsdWU="}}),
            "/api/v1/namespaces/ns/serviceaccounts/robot/token" => {
                let expires = k8s_openapi::jiff::Timestamp::now() + k8s_openapi::jiff::SignedDuration::from_secs(3600);
                json!({"metadata": {}, "spec": {"expirationSeconds": 3600},
                    "status": {"token": "t", "expirationTimestamp": expires.to_string()}})
            }
            _ => {
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound",
                "code": 404, "message": "not found"})
            }
        };
        let status = if object["kind"] == "Status" { 404 } else { 200 };
        http::Response::builder().status(status).body(object.to_string()).expect("an answer")
    };
    let mut settings = fakes::settings(folder.path());
    settings.client = controller_runtime::transport::in_process(answer, "kubelet").expect("a client");
    let objects = Arc::new(Objects::new(settings.client.clone(), mpsc::unbounded_channel().0));
    Volumes::new(&settings, objects)
}

/// Unless the container says how, it mounts all volumes.
fn pod(volumes: Value, container: Value, context: Value) -> Pod {
    let mut container = container;
    container["name"] = json!("main");
    if container["volumeMounts"].is_null() {
        let names = volumes.as_array().expect("volumes").iter().filter_map(|volume| volume["name"].as_str());
        container["volumeMounts"] = names.map(|name| json!({"name": name, "mountPath": format!("/{name}")})).collect();
    }
    let pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u1", "labels": {"a": "b"}},
        "spec": {"serviceAccountName": "robot", "containers": [container], "volumes": volumes, "securityContext": context},
    });
    serde_json::from_value(pod).expect("a pod")
}

fn container(pod: &Pod) -> &Container {
    &pod.spec.as_ref().expect("a spec").containers[0]
}

#[tokio::test]
async fn volumes_of_objects_are_there_and_go_with_the_pod() {
    let Some(mut fixture) = Fixture::new() else { return };
    let all = json!([
        {"name": "c", "configMap": {"name": "c"}},
        {"name": "s", "secret": {"secretName": "s", "defaultMode": 256}},
        {"name": "d", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"name": "p", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
            {"configMap": {"name": "c", "items": [{"key": "k", "path": "nested/k"}]}},
            {"secret": {"name": "none", "optional": true}},
        ]}},
    ]);
    let pod = pod(all, json!({}), json!({"fsGroup": 4242}));
    let renewal = fixture.set_up(&pod).await.expect("they are ready").renewal.expect("a token is renewed");
    assert!(renewal > Duration::from_secs(2000) && renewal < Duration::from_secs(2890), "{renewal:?}");
    let check = |fixture: &Fixture| {
        assert_eq!(fixture.read("volumes/kubernetes.io~configmap/c/k").as_deref(), Some("v"));
        assert_eq!(fs::read(fixture.path("volumes/kubernetes.io~configmap/c/b")).expect("a file"), [0, 1]);
        assert_eq!(fixture.read("volumes/kubernetes.io~secret/s/k").as_deref(), Some("value"));
        assert_eq!(fixture.read("volumes/kubernetes.io~downward-api/d/labels").as_deref(), Some("a=\"b\""));
        assert_eq!(fixture.read("volumes/kubernetes.io~projected/p/token").as_deref(), Some("t"));
        assert_eq!(fixture.read("volumes/kubernetes.io~projected/p/nested/k").as_deref(), Some("v"));
    };
    check(&fixture);
    let secret = fs::metadata(fixture.path("volumes/kubernetes.io~secret/s/k")).expect("a file");
    assert_eq!((secret.gid(), secret.permissions().mode() & 0o7777), (4242, 0o440));
    let token = fs::metadata(fixture.path("volumes/kubernetes.io~projected/p/token")).expect("a file");
    assert_eq!((token.gid(), token.permissions().mode() & 0o7777), (4242, 0o640));
    assert_eq!(folder::mounts_below(fixture.folder.path()).expect("mounts").len(), 3, "secrets are never on disk");
    let data = fs::read_link(fixture.path("volumes/kubernetes.io~secret/s/..data")).expect("a link");
    fixture.restart();
    fixture.set_up(&pod).await.expect("they are still ready");
    check(&fixture);
    assert_eq!(fs::read_link(fixture.path("volumes/kubernetes.io~secret/s/..data")).expect("a link"), data);
    assert_eq!(folder::mounts_below(fixture.folder.path()).expect("mounts").len(), 3, "nothing is mounted twice");
    fixture.restart();
    assert_eq!(fixture.volumes.pods_on_disk(), ["u1"]);
    for _ in 0..2 {
        fixture.volumes.tear_down("u1").await.expect("it goes");
    }
    assert!(folder::mounts_below(fixture.folder.path()).expect("mounts").is_empty());
    assert!(fixture.volumes.pods_on_disk().is_empty());
}

#[tokio::test]
async fn empty_folders_stay_as_they_are() {
    let Some(mut fixture) = Fixture::new() else { return };
    let all = json!([
        {"name": "disk", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    ]);
    let pod = pod(all, json!({}), json!({"fsGroup": 4242}));
    fixture.set_up(&pod).await.expect("they are ready");
    for (name, mode) in [("disk", 0o2777), ("memory", 0o3777)] {
        let path = format!("volumes/kubernetes.io~empty-dir/{name}");
        let metadata = fs::metadata(fixture.path(&path)).expect("a folder");
        assert_eq!((metadata.gid(), metadata.permissions().mode() & 0o7777), (4242, mode), "{name}");
        fs::write(fixture.path(&format!("{path}/file")), "kept").expect("it can be written");
    }
    let memory = fixture.path("volumes/kubernetes.io~empty-dir/memory");
    let size = rustix::fs::statvfs(&memory).expect("a file system");
    assert_eq!(size.f_blocks * size.f_frsize, 1 << 20);
    fixture.restart();
    fixture.set_up(&pod).await.expect("they are ready");
    for name in ["disk", "memory"] {
        assert_eq!(fixture.read(&format!("volumes/kubernetes.io~empty-dir/{name}/file")).as_deref(), Some("kept"));
    }
    fixture.volumes.tear_down("u1").await.expect("it goes");
}

#[tokio::test]
async fn all_problems_are_told_at_once() {
    let Some(fixture) = Fixture::new() else { return };
    let all = json!([
        {"name": "a", "configMap": {"name": "none"}},
        {"name": "b", "secret": {"secretName": "s", "items": [{"key": "x", "path": "x"}]}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "x"}},
        {"name": "d", "hostPath": {"path": "/dev/null", "type": "Directory"}},
        {"name": "e", "emptyDir": {}},
    ]);
    let error = fixture.set_up(&pod(all, json!({}), json!({}))).await.expect_err("they are not ready");
    for part in [
        "MountVolume.SetUp failed for volume \"a\" : configmap \"none\" not found",
        "MountVolume.SetUp failed for volume \"b\" : references non-existent secret key: x",
        "MountVolume.SetUp failed for volume \"c\" : no volume plugin matched: this node has no volumes of the type \
         persistentVolumeClaim",
        "MountVolume.SetUp failed for volume \"d\" : hostPath type check failed: /dev/null is not a directory",
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(fixture.path("volumes/kubernetes.io~empty-dir/e").is_dir(), "the others are ready");
}

#[tokio::test]
async fn what_was_ready_stays_so_and_what_nobody_mounts_is_not_waited_for() {
    let Some(fixture) = Fixture::new() else { return };
    let of = |name: &str| {
        let volumes = json!([{"name": "c", "configMap": {"name": name}}, {"name": "d", "configMap": {"name": "gone"}}]);
        pod(volumes, json!({"volumeMounts": [{"name": "c", "mountPath": "/c"}]}), json!({}))
    };
    let ready = fixture.set_up(&of("c")).await.expect("it is ready");
    assert_eq!((ready.renewal, ready.outdated), (None, None));
    let ready = fixture.set_up(&of("none")).await.expect("it is as it was");
    assert_eq!(fixture.read("volumes/kubernetes.io~configmap/c/k").as_deref(), Some("v"));
    assert!(ready.outdated.is_some_and(|why| why.to_string().ends_with("configmap \"none\" not found")));
    assert!(ready.renewal.is_some(), "it is tried again");
    fixture.volumes.tear_down("u1").await.expect("it goes");
}

#[tokio::test]
async fn a_mount_path_does_not_lead_out_of_a_volume() {
    let Some(fixture) = Fixture::new() else { return };
    let volumes = json!([{"name": "c", "configMap": {"name": "c"}}, {"name": "data", "emptyDir": {}}]);
    let out = fixture.folder.path().join("out");
    let path = format!("/c/{}{}", "../".repeat(40), out.display());
    let mounts = json!([{"name": "c", "mountPath": "/c"}, {"name": "data", "mountPath": path},
        {"name": "data", "mountPath": "/x/../c/in"}]);
    fixture.set_up(&pod(volumes, json!({"volumeMounts": mounts}), json!({}))).await.expect("they are ready");
    assert!(!out.exists());
    assert!(fixture.path("volumes/kubernetes.io~configmap/c/in").is_dir());
    fixture.volumes.tear_down("u1").await.expect("it goes");
}

#[tokio::test]
async fn a_container_gets_its_mounts_in_order() {
    let Some(fixture) = Fixture::new() else { return };
    let volumes = json!([{"name": "data", "emptyDir": {}}, {"name": "c", "configMap": {"name": "c"}}]);
    let mounts = json!({"terminationMessagePath": "/dev/termination-log", "volumeMounts": [
        {"name": "data", "mountPath": "/c/inner", "subPathExpr": "$(POD)/x"},
        {"name": "c", "mountPath": "/c"},
        {"name": "c", "mountPath": "/file", "subPath": "k"},
        {"name": "data", "mountPath": "rw", "readOnly": true, "recursiveReadOnly": "IfPossible"},
        {"name": "data", "mountPath": "/shared", "mountPropagation": "Bidirectional"},
    ]});
    let pod = pod(volumes, mounts, json!({}));
    fixture.set_up(&pod).await.expect("they are ready");
    let environment = [KeyValue { key: "POD".into(), value: "p".into() }];
    let ips = ["10.0.0.5".parse().expect("an address")];
    // A container that starts again gets the same.
    for _ in 0..2 {
        let all =
            fixture.volumes.mounts(&pod, container(&pod), &ips, &environment, &BTreeMap::new()).await.expect("mounts");
        let by_path = |path: &str| all.iter().find(|mount| mount.container_path == path).expect("a mount").clone();
        let order: Vec<&str> = all.iter().map(|mount| mount.container_path.as_str()).collect();
        assert_eq!(order, ["/c", "/file", "/rw", "/shared", "/c/inner", "/etc/hosts", "/dev/termination-log"]);
        assert!(by_path("/c").readonly && !by_path("/c/inner").readonly);
        assert!(by_path("/rw").readonly && by_path("/rw").recursive_read_only);
        assert_eq!(by_path("/shared").propagation, container_runtime::services::MountPropagation::Bidirectional);
        assert_eq!(fs::read_to_string(by_path("/file").host_path).expect("a file"), "v");
        fs::write(PathBuf::from(by_path("/c/inner").host_path).join("seen"), "x").expect("it can be written");
        assert_eq!(fixture.read("volumes/kubernetes.io~empty-dir/data/p/x/seen").as_deref(), Some("x"));
        assert!(fixture.path("volumes/kubernetes.io~configmap/c/inner").is_dir(), "a place to mount on");
        assert!(fs::read_to_string(by_path("/etc/hosts").host_path).expect("a file").ends_with("10.0.0.5\tp\n"));
        let log = fs::metadata(by_path("/dev/termination-log").host_path).expect("a file");
        assert_eq!((log.len(), log.permissions().mode() & 0o777), (0, 0o666));
    }
    assert_eq!(fs::read_dir(fixture.path("containers/main")).expect("logs").count(), 2);
    fixture.volumes.tear_down("u1").await.expect("it goes");
    assert!(!fixture.path("").exists());
}

#[tokio::test]
async fn a_pod_without_volumes_has_its_hosts() {
    let Some(fixture) = Fixture::new() else { return };
    let pod = pod(json!([]), json!({"terminationMessagePath": "/dev/termination-log"}), json!({}));
    fixture.set_up(&pod).await.expect("nothing is to be done");
    let ips = ["10.0.0.5".parse().expect("an address")];
    let all = fixture.volumes.mounts(&pod, container(&pod), &ips, &[], &BTreeMap::new()).await.expect("mounts");
    assert_eq!(all.len(), 2);
    let mode = fs::metadata(fixture.folder.path().join("pods")).expect("a folder").permissions().mode() & 0o777;
    assert_eq!(mode & 0o007, 0, "others on the node do not look into volumes");
}

#[tokio::test]
async fn mounts_that_cannot_be_say_why() {
    let Some(fixture) = Fixture::new() else { return };
    let volumes = json!([{"name": "data", "emptyDir": {}}]);
    for (mount, why) in [
        (json!({"name": "none", "mountPath": "/a"}), "cannot find volume \"none\" to mount into container \"main\""),
        (
            json!({"name": "data", "mountPath": "/a", "subPathExpr": "$(A)/$(EMPTY)/$(B)"}),
            "missing value for A, B, EMPTY",
        ),
        (
            json!({"name": "data", "mountPath": "/a", "subPathExpr": "$(UP)"}),
            "unable to provision SubPath `..`: must not contain '..'",
        ),
        (
            json!({"name": "data", "mountPath": "/a", "subPath": "/x"}),
            "error SubPath `/x` must not be an absolute path",
        ),
        (
            json!({"name": "data", "mountPath": "/a", "subPath": "out/x"}),
            "failed to create subPath directory for volumeMount \"data\" of container \"main\"",
        ),
        (
            json!({"name": "data", "mountPath": "/a", "recursiveReadOnly": "Enabled"}),
            "failed to resolve recursive read-only mode: volume \"data\" requested recursive read-only mode, but it is not read-only",
        ),
    ] {
        let pod = pod(volumes.clone(), json!({"volumeMounts": [mount]}), json!({}));
        fixture.set_up(&pod).await.expect("it is ready");
        let out = fixture.path("volumes/kubernetes.io~empty-dir/data/out");
        let _ = std::os::unix::fs::symlink("/etc", out);
        let environment =
            [("EMPTY", ""), ("UP", "..")].map(|(key, value)| KeyValue { key: key.into(), value: value.into() });
        let error = fixture
            .volumes
            .mounts(&pod, container(&pod), &[], &environment, &BTreeMap::new())
            .await
            .expect_err("it cannot be");
        assert_eq!(error.to_string(), why);
    }
}

#[tokio::test]
async fn files_of_variables_are_read_from_the_volume_only() {
    let Some(fixture) = Fixture::new() else { return };
    let pod = pod(json!([{"name": "data", "emptyDir": {}}]), json!({}), json!({}));
    fixture.set_up(&pod).await.expect("it is ready");
    let folder = fixture.path("volumes/kubernetes.io~empty-dir/data");
    fs::write(folder.join("env"), "A='1'\n").expect("a file");
    std::os::unix::fs::symlink("/etc/hostname", folder.join("link")).expect("a link");
    let read = |path: &'static str| read_file(fixture.folder.path(), &pod, "data", path);
    assert_eq!(read("env").await.expect("a file"), "A='1'\n");
    assert!(
        matches!(read("link").await, Err(ReadError::File(_))),
        "the link leads into the volume, where there is nothing"
    );
    assert!(matches!(read("none").await, Err(ReadError::File(_))));
    let other = read_file(fixture.folder.path(), &pod, "none", "env").await;
    assert!(matches!(other, Err(ReadError::NoVolume)));
}
