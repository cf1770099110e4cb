use std::io::Write;

use serde_json::json;

use super::*;

fn store() -> (tempfile::TempDir, ImageStore) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("images")).expect("a folder");
    let store = ImageStore::open(folder.path()).expect("it opens");
    (folder, store)
}

fn archive(files: &[(&str, Vec<u8>)]) -> tempfile::NamedTempFile {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_uid(rustix::process::geteuid().as_raw().into());
        header.set_gid(rustix::process::getegid().as_raw().into());
        builder.append_data(&mut header, path, bytes.as_slice()).expect("an entry");
    }
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(&builder.into_inner().expect("an archive")).expect("it is written");
    file
}

fn config(layer: &[u8]) -> Vec<u8> {
    let config = json!({
        "config": { "User": "web:34", "Env": ["A=b"], "Cmd": ["serve"], "Entrypoint": null, "StopSignal": "SIGQUIT" },
        "rootfs": { "type": "layers", "diff_ids": [Digest::of(layer)] },
    });
    config.to_string().into_bytes()
}

#[test]
fn names_in_full() {
    let full = |name: &str| normalize(name).ok();
    assert_eq!(full("nginx").as_deref(), Some("docker.io/library/nginx:latest"));
    assert_eq!(full("a/b:1").as_deref(), Some("docker.io/a/b:1"));
    assert_eq!(full("localhost:5000/x").as_deref(), Some("localhost:5000/x:latest"));
    assert_eq!(full("ferry.local/toolbox:1@sha256:ab").as_deref(), Some("ferry.local/toolbox@sha256:ab"));
    let bad = ["", "a b", "x:", "a//b", "a/../b", "localhost/./b"];
    assert!(bad.iter().all(|name| full(name).is_none()));
}

#[test]
fn an_archive_of_docker_save() {
    let (folder, store) = store();
    let layer = b"layer".to_vec();
    let manifest = json!([{ "Config": "c.json", "RepoTags": ["web:1"], "Layers": ["l/layer.tar"] }]);
    let file = archive(&[
        ("l/layer.tar", layer.clone()),
        ("c.json", config(&layer)),
        ("manifest.json", manifest.to_string().into_bytes()),
    ]);
    let ids = store.import(file.path()).expect("it is taken");
    let image = store.find("web:1").expect("it is found by name");
    assert_eq!(vec![image.summary.id.clone()], ids);
    assert_eq!((image.summary.username.as_str(), image.config.stop_signal.as_str()), ("web", "SIGQUIT"));
    assert_eq!(image.config.cmd, ["serve"]);
    let stored = fs::read_dir(folder.path().join("content/sha256")).expect("the folder").count();
    assert_eq!(stored, 2, "the configuration and the layer, and not the index");

    drop(store);
    let again = ImageStore::open(folder.path()).expect("it opens");
    assert_eq!(again.find(&ids[0]).as_deref(), Some(&*image));
    again.content().remove(&Digest::of(&layer)).expect("it is lost");
    drop(again);
    let again = ImageStore::open(folder.path()).expect("it opens");
    assert!(again.find(&ids[0]).is_none(), "an image without its content is none");
    again.import(file.path()).expect("it is taken again");
    again.remove(&image).expect("it is removed");
    assert_eq!(fs::read_dir(folder.path().join("content/sha256")).expect("the folder").count(), 0);
}

#[test]
fn an_oci_layout_with_an_index_of_platforms() {
    let (_folder, store) = store();
    let layer = b"layer".to_vec();
    let config = config(&layer);
    let blob = |bytes: &[u8]| format!("blobs/sha256/{}", Digest::of(bytes).hex());
    let manifest = json!({
        "config": { "digest": Digest::of(&config) },
        "layers": [{ "digest": Digest::of(&layer) }],
    });
    let manifest = manifest.to_string().into_bytes();
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let platforms = json!({ "manifests": [
        { "digest": Digest::of(b"other"), "platform": { "os": "linux", "architecture": "s390x" } },
        { "digest": Digest::of(&manifest), "platform": { "os": "linux", "architecture": architecture } },
    ]});
    let platforms = platforms.to_string().into_bytes();
    let index = json!({ "manifests": [{
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "digest": Digest::of(&platforms),
        "annotations": { "io.containerd.image.name": "example.com/web:2" },
    }]});
    let file = archive(&[
        ("oci-layout", b"{}".to_vec()),
        (&blob(&layer), layer.clone()),
        (&blob(&config), config.clone()),
        (&blob(&manifest), manifest.clone()),
        (&blob(&platforms), platforms.clone()),
        ("index.json", index.to_string().into_bytes()),
    ]);
    store.import(file.path()).expect("it is taken");
    let image = store.find("example.com/web:2").expect("it is found");
    assert_eq!(image.summary.repo_digests, [format!("example.com/web@{}", Digest::of(&manifest))]);
}

#[test]
fn a_name_moves_to_the_newer_image() {
    let (_folder, store) = store();
    let mut ids = Vec::new();
    for layer in [b"one".to_vec(), b"two".to_vec()] {
        let manifest = json!([{ "Config": "c.json", "RepoTags": ["web:1"], "Layers": ["l"] }]);
        let file = archive(&[
            ("l", layer.clone()),
            ("c.json", config(&layer)),
            ("manifest.json", manifest.to_string().into_bytes()),
        ]);
        ids.extend(store.import(file.path()).expect("it is taken"));
    }
    assert_eq!(store.find("web:1").map(|image| image.summary.id.clone()), ids.pop());
    let old = store.find(&ids[0]).expect("it is still here");
    assert!(old.summary.repo_tags.is_empty());
}

#[test]
fn bad_archives_leave_nothing() {
    let (folder, store) = store();
    let manifest = json!([{ "Config": "c.json", "RepoTags": ["web:1"], "Layers": ["missing"] }]);
    let file = archive(&[("c.json", config(b"x")), ("manifest.json", manifest.to_string().into_bytes())]);
    assert!(matches!(store.import(file.path()), Err(ImageError::Missing(path)) if path == "missing"));
    assert!(matches!(store.import(archive(&[("x", vec![])]).path()), Err(ImageError::NoManifest)));
    assert_eq!(fs::read_dir(folder.path().join("content/sha256")).expect("the folder").count(), 0);
}

#[tokio::test]
async fn whatever_takes_long_to_unpack_keeps_no_other_image_waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let images = Images::open(folder.path(), folder.path().join("registries.yaml")).expect("it opens");
    let layer = |text: &str| fs::read(archive(&[("file", text.into())]).path()).expect("a layer");
    for name in ["slow", "fast", "unused"] {
        let manifest = json!([{ "Config": "c", "RepoTags": [name], "Layers": ["l"] }]).to_string().into_bytes();
        let files = [("l", layer(name)), ("c", config(&layer(name))), ("manifest.json", manifest)];
        images.import(archive(&files).path()).await.expect("it is taken");
    }
    let [slow, fast, unused] = ["slow", "fast", "unused"].map(|name| images.find(name).expect("it is here"));
    let is_unpacked = |image: &ImageRecord| images.snapshots.has_all(image).expect("a folder");
    images.unpack(&unused).await.expect("it is unpacked");
    assert!(is_unpacked(&unused));

    // Whoever reads from a pipe waits until somebody writes. This one can be read once.
    let content = images.store.content().path(&slow.layers[0].digest);
    fs::remove_file(&content).expect("the layer was there");
    let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &content, fifo, mode, 0).expect("a pipe");
    let unpacking = [(), ()].map(|()| {
        let (images, slow) = (images.clone(), slow.clone());
        tokio::spawn(async move { images.unpack(&slow).await })
    });
    let pipe = tokio::task::spawn_blocking(move || fs::File::options().write(true).open(content));
    let mut pipe = pipe.await.expect("it ends").expect("somebody reads");

    let others = async {
        images.unpack(&fast).await.expect("it is unpacked");
        images.remove("unused").await.expect("it is removed");
        images.remove("slow").await.expect("it is removed");
        images.unpack(&fast).await.expect("it is there already");
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), others).await.expect("they wait for nobody");
    assert_eq!([&slow, &fast, &unused].map(|image| is_unpacked(image)), [false, true, false]);

    pipe.write_all(&layer("slow")).expect("it is read");
    drop(pipe);
    for unpacking in unpacking {
        unpacking.await.expect("it ends").expect("it is unpacked");
    }
    assert!(is_unpacked(&slow), "also if it was removed meanwhile");
    images.remove("fast").await.expect("it is removed");
    assert_eq!(state::names(&folder.path().join("snapshots")).expect("the folder"), Vec::<String>::new());
}
