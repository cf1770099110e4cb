//! Against a registry of our own that misbehaves, and a real one where there is one.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use serde_json::json;

use super::*;
use crate::{
    images::{ImageStore, architecture},
    services::AuthConfig,
};

fn store() -> (tempfile::TempDir, Arc<ImageStore>) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("images")).expect("a folder");
    let store = ImageStore::open(folder.path()).expect("it opens");
    (folder, Arc::new(store))
}

fn puller(store: &Arc<ImageStore>) -> Puller {
    Puller { store: store.clone(), hosts: Hosts::default(), fetching: Arc::default(), watcher: None }
}

/// An image with two layers, as a registry has it.
struct Sample {
    blobs: BTreeMap<String, Vec<u8>>,
    manifest: Vec<u8>,
    index: Vec<u8>,
}

impl Sample {
    fn new() -> Self {
        // The kind of the second layer is seen from its bytes.
        let layers = [b"first".to_vec(), vec![7; 300_000]];
        let config = json!({
            "config": { "Cmd": ["run"] },
            "rootfs": { "type": "layers", "diff_ids": layers.each_ref().map(|layer| Digest::of(layer)) },
        });
        let config = config.to_string().into_bytes();
        let describe =
            |bytes: &[u8], kind: &str| json!({ "mediaType": kind, "digest": Digest::of(bytes), "size": bytes.len() });
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": media::MANIFEST,
            "config": describe(&config, media::CONFIG),
            "layers": layers.each_ref().map(|layer| describe(layer, media::LAYER)),
        });
        let manifest = manifest.to_string().into_bytes();
        let mut fitting = describe(&manifest, media::MANIFEST);
        fitting["platform"] = json!({ "os": "linux", "architecture": architecture() });
        let mut other = describe(b"other", media::MANIFEST);
        other["platform"] = json!({ "os": "plan9", "architecture": "mips" });
        let index = json!({ "schemaVersion": 2, "mediaType": media::INDEX, "manifests": [other, fitting] });
        let blobs = layers.into_iter().chain([config]).map(|blob| (Digest::of(&blob).to_string(), blob)).collect();
        Self { blobs, manifest, index: index.to_string().into_bytes() }
    }
}

/// What was asked, and what it is answered with.
type Answers = dyn Fn(&str, &BTreeMap<String, String>) -> Answer + Send + Sync;

struct Answer {
    status: &'static str,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Ends the connection after so many bytes of the body.
    cut: Option<usize>,
}

impl Answer {
    fn new(status: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), cut: None }
    }

    fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// Serves on a free port for as long as the tests run; its address, and what it was asked.
fn serve(answers: Box<Answers>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let (log, answers): (_, Arc<Answers>) = (asked.clone(), answers.into());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (log, answers) = (log.clone(), answers.clone());
            std::thread::spawn(move || converse(stream, &log, &*answers));
        }
    });
    (address, asked)
}

fn converse(mut stream: TcpStream, log: &Mutex<Vec<String>>, answers: &Answers) {
    let mut reader = BufReader::new(stream.try_clone().expect("the same"));
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line.trim().is_empty() {
                break;
            }
            lines.push(line.trim().to_owned());
        }
        let headers = lines[1..].iter().filter_map(|line| line.split_once(": "));
        let headers: BTreeMap<String, String> =
            headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        let path = lines[0].split(' ').nth(1).expect("a path").to_owned();
        log.lock()
            .expect("nobody panics")
            .push(format!("{path} {}", headers.get("range").cloned().unwrap_or_default()));
        let answer = answers(&path, &headers);
        let mut head = format!("HTTP/1.1 {}\r\nContent-Length: {}\r\n", answer.status, answer.body.len());
        for (name, value) in &answer.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let body = answer.cut.map_or(&answer.body[..], |cut| &answer.body[..cut]);
        let sent = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(b"\r\n"))
            .and_then(|()| stream.write_all(body));
        if sent.is_err() || answer.cut.is_some() {
            return;
        }
    }
}

/// A sound registry with the sample under `a/b:1`.
fn sound(sample: &Sample, path: &str) -> Answer {
    let last = path.rsplit('/').next().expect("a name");
    match last {
        _ if path == "/v2/a/b/manifests/1" => {
            Answer::new("200 OK", sample.index.clone()).with("Content-Type", media::INDEX)
        }
        digest if path.contains("/manifests/") && digest == Digest::of(&sample.manifest).to_string() => {
            Answer::new("200 OK", sample.manifest.clone())
        }
        digest => match sample.blobs.get(digest) {
            Some(blob) => Answer::new("200 OK", blob.clone()),
            None => Answer::new("404 Not Found", r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"unknown"}]}"#),
        },
    }
}

fn count(store: &Path) -> usize {
    fs::read_dir(store.join("content/sha256")).expect("the folder").count()
}

#[tokio::test]
async fn an_index_with_tokens_redirects_and_broken_connections() {
    let sample = Sample::new();
    let large = sample.blobs.iter().find(|(_, blob)| blob.len() > 1000).map(|(digest, _)| digest.clone()).expect("it");
    let (index, broken) = (Digest::of(&sample.index), Mutex::new(0));
    let answers = move |path: &str, headers: &BTreeMap<String, String>| {
        let authorization = headers.get("authorization").map(String::as_str);
        if path.starts_with("/token?") {
            let ok = path.contains("service=s") && path.contains("scope=repository%3Aa%2Fb%3Apull");
            return match authorization {
                Some("Basic bWU6c2VjcmV0") if ok => Answer::new("200 OK", r#"{"token": "t"}"#),
                _ => Answer::new("401 Unauthorized", r#"{"details": "incorrect username or password"}"#),
            };
        }
        if path.starts_with("/v2/") && authorization != Some("Bearer t") {
            let host = headers.get("host").cloned().unwrap_or_default();
            let challenge = format!("Bearer realm=\"http://{host}/token\",service=\"s\",scope=\"repository:a/b:pull\"");
            return Answer::new("401 Unauthorized", "").with("WWW-Authenticate", challenge);
        }
        let mut broken = broken.lock().expect("nobody panics");
        if path.contains(&large) && path.starts_with("/v2/") {
            return Answer::new("307 Temporary Redirect", "").with("Location", format!("/elsewhere/{large}"));
        }
        if path.contains(&large) {
            *broken += 1;
            return match (*broken, headers.get("range").map(String::as_str)) {
                (1, None) => Answer::new("503 Service Unavailable", "").with("Retry-After", "0"),
                (2, None) => Answer { cut: Some(100_000), ..Answer::new("200 OK", vec![7; 300_000]) },
                (3, Some("bytes=100000-")) => Answer::new("206 Partial Content", vec![7; 200_000]),
                other => Answer::new("400 Bad Request", format!("{other:?}")),
            };
        }
        sound(&sample, path)
    };
    let (address, _) = serve(Box::new(answers));
    let (_folder, store) = store();
    let name = format!("{address}/a/b:1");
    let refused = puller(&store).pull(&name, None).await.expect_err("it asks who we are").to_string();
    assert!(refused.contains("pull access denied") && refused.contains("incorrect username"), "{refused}");

    let auth = AuthConfig { username: "me".into(), password: "secret".into(), ..Default::default() };
    let seen: Arc<Mutex<Vec<Progress>>> = Arc::default();
    let watched = seen.clone();
    let watcher: Watcher = Arc::new(move |progress| watched.lock().expect("nobody panics").push(progress));
    let with_watcher = Puller { watcher: Some(watcher), ..puller(&store) };
    let id = with_watcher.pull(&name, Some(&auth)).await.expect("it is fetched");
    let image = store.find(&name).expect("it is found by name");
    assert_eq!((&image.summary.id, image.layers.len(), image.config.cmd.as_slice()), (&id, 2, &["run".to_owned()][..]));
    assert_eq!(image.summary.repo_digests, [format!("{address}/a/b@{index}")]);
    assert!(seen.lock().expect("nobody panics").iter().any(|progress| progress.done == 300_000));
    assert_eq!(with_watcher.pull(&name, Some(&auth)).await.ok(), Some(id), "the same again");
}

#[tokio::test]
async fn nothing_is_left_of_what_is_not_as_it_should_be() {
    let sample = Sample::new();
    let answers = move |path: &str, _: &BTreeMap<String, String>| {
        let mut answer = sound(&sample, path);
        if answer.body.len() > 1000 {
            answer.body[5] = 8;
        }
        answer
    };
    let (address, _) = serve(Box::new(answers));
    let (folder, store) = store();
    let error = puller(&store).pull(&format!("{address}/a/b:1"), None).await.expect_err("it is not whole").to_string();
    assert!(error.contains("is not as it should be"), "{error}");
    assert_eq!((count(folder.path()), store.all().len()), (0, 0));
    let error = puller(&store).pull(&format!("{address}/a/c:1"), None).await.expect_err("it is not there");
    assert!(
        matches!(&error, ServiceError::NotFound(text) if text.ends_with(&format!("{address}/a/c:1: not found"))),
        "{error}"
    );
    let error = puller(&store).pull("ferry.local/nothing", None).await.expect_err("it is not there");
    assert!(matches!(error, ServiceError::NotFound(_)));
}

#[tokio::test]
async fn nobody_but_the_registry_learns_who_we_are() {
    // Asks for a password wherever it is come to, and has a place for it.
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = told.clone();
    let stranger = move |path: &str, headers: &BTreeMap<String, String>| {
        if headers.contains_key("authorization") {
            heard.lock().expect("nobody panics").push(path.to_owned());
        }
        let host = headers.get("host").cloned().unwrap_or_default();
        let challenge = format!("Bearer realm=\"http://{host}/token\",service=\"s\"");
        Answer::new("401 Unauthorized", "").with("WWW-Authenticate", challenge)
    };
    let (stranger, asked) = serve(Box::new(stranger));
    let sample = Sample::new();
    let elsewhere = stranger.clone();
    let answers = move |path: &str, headers: &BTreeMap<String, String>| {
        let redirect = |path: &str| {
            Answer::new("307 Temporary Redirect", "").with("Location", format!("http://{elsewhere}{path}"))
        };
        let host = headers.get("host").cloned().unwrap_or_default();
        match headers.get("authorization").map(String::as_str) {
            _ if path.starts_with("/token") => redirect("/steal"),
            Some("Basic bWU6c2VjcmV0") if path.contains("/blobs/") => redirect(path),
            Some("Basic bWU6c2VjcmV0") => sound(&sample, path),
            _ if path.contains("/tokens/") => {
                let challenge = format!("Bearer realm=\"http://{host}/token\",service=\"s\"");
                Answer::new("401 Unauthorized", "").with("WWW-Authenticate", challenge)
            }
            _ => Answer::new("401 Unauthorized", "").with("WWW-Authenticate", "Basic realm=r"),
        }
    };
    let (address, _) = serve(Box::new(answers));
    let (_folder, store) = store();
    let auth = AuthConfig { username: "me".into(), password: "secret".into(), ..Default::default() };
    for name in ["a/b:1", "tokens/b:1"] {
        puller(&store).pull(&format!("{address}/{name}"), Some(&auth)).await.expect_err("a stranger has it");
    }
    assert!(asked.lock().expect("nobody panics").iter().any(|path| path.contains("/blobs/")), "{asked:?}");
    assert!(asked.lock().expect("nobody panics").iter().any(|path| path.contains("/steal")), "{asked:?}");
    assert_eq!(*told.lock().expect("nobody panics"), Vec::<String>::new());
}

#[tokio::test]
async fn a_layer_is_fetched_once_for_all_who_want_it() {
    let sample = Sample::new();
    let blobs = sample.blobs.len();
    let (address, asked) = serve(Box::new(move |path, _| sound(&sample, path)));
    let (_folder, store) = store();
    let one = Arc::new(puller(&store));
    let name = format!("{address}/a/b:1");
    let all = futures::future::join_all((0..8).map(|_| one.pull(&name, None))).await;
    assert!(all.iter().all(|result| result.is_ok()), "{all:?}");
    let asked = asked.lock().expect("nobody panics");
    assert_eq!(asked.iter().filter(|path| path.contains("/blobs/")).count(), blobs, "{asked:?}");
}

#[tokio::test]
async fn a_mirror_comes_first_and_the_registry_last() {
    let sample = Sample::new();
    let (with, _) = serve(Box::new(move |path, _| sound(&sample, path)));
    let (without, asked) = serve(Box::new(|_, _| Answer::new("404 Not Found", "")));
    let (folder, store) = store();
    let file = folder.path().join("registries.yaml");
    fs::write(&file, format!("mirrors:\n  nowhere.invalid: {{endpoint: ['http://{without}', 'http://{with}/']}}\n"))
        .expect("it is written");
    let hosts = Hosts::read(&file).expect("it is read");
    let mirrored = Puller { hosts, ..puller(&store) };
    mirrored.pull("nowhere.invalid/a/b:1", None).await.expect("the second has it");
    assert!(store.find("nowhere.invalid/a/b:1").is_some());
    assert_eq!(asked.lock().expect("nobody panics").len(), 1);
}

/// Debian's `docker-registry`, with a password.
struct Registry {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn real() -> Option<Registry> {
    let folder = tempfile::tempdir().expect("a folder");
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").to_string();
    let passwords = folder.path().join("htpasswd");
    fs::write(&passwords, "me:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n").expect("it is written");
    let config = format!(
        "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {data}}}}}\nhttp: {{addr: '{address}'}}\n\
         auth: {{htpasswd: {{realm: test, path: {passwords}}}}}\n",
        data = folder.path().join("data").display(),
        passwords = passwords.display(),
    );
    let file = folder.path().join("config.yml");
    fs::write(&file, config).expect("it is written");
    let child =
        Command::new("docker-registry").arg("serve").arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    match child {
        Ok(child) => {
            while TcpStream::connect(&address).is_err() {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            Some(Registry { child, address, _folder: folder })
        }
        Err(error) => {
            eprintln!("skipped: a real registry: docker-registry does not run: {error}");
            None
        }
    }
}

#[tokio::test]
async fn there_and_back_with_a_real_registry() {
    let Some(registry) = real() else { return };
    let (_folder, here) = store();
    let own = std::env::current_exe().expect("this program");
    let id = here.make("ferry.local/own", &own, &["run".into()]).expect("it is made");
    let image = here.find(&id).expect("it is here");
    let pusher = Pusher { store: here.clone(), hosts: Hosts::default(), watcher: None };
    let name = format!("{}/some/where:1", registry.address);
    let refused = pusher.push(&image, &name, None).await.expect_err("it wants a password").to_string();
    assert!(refused.contains("denied"), "{refused}");
    let auth = AuthConfig { username: "me".into(), password: "secret".into(), ..Default::default() };
    let digest = pusher.push(&image, &name, Some(&auth)).await.expect("it is sent");
    assert_eq!(pusher.push(&image, &name, Some(&auth)).await.ok().as_ref(), Some(&digest), "the same again");

    let (_folder, there) = store();
    let fetched = puller(&there).pull(&name, Some(&auth)).await.expect("it is fetched");
    assert_eq!(fetched, id);
    let by_digest = format!("{}/some/where@{digest}", registry.address);
    assert_eq!(puller(&there).pull(&by_digest, Some(&auth)).await.ok(), Some(id.clone()));
    let copy = there.find(&by_digest).expect("it is found by digest");
    assert_eq!(copy.layers, image.layers);
    // What came with a manifest goes on with the same.
    let again = Pusher { store: there.clone(), hosts: Hosts::default(), watcher: None };
    let other = format!("{}/else/where:2", registry.address);
    assert_eq!(again.push(&copy, &other, Some(&auth)).await.ok(), Some(digest));
    let missing = puller(&there).pull(&format!("{}/no/thing:1", registry.address), Some(&auth)).await;
    assert!(matches!(missing, Err(ServiceError::NotFound(_))), "{missing:?}");
}
