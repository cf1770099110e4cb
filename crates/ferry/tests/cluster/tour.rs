//! The tour of the README, word for word, and every example, applied.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::place::{Place, project};

/// The lines of the README's tour.
fn tour() -> Vec<String> {
    let readme = fs::read_to_string(project().join("README.md")).expect("a README");
    let tour = readme.split("## A tour").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("a tour");
    let blocks = tour.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    blocks.flat_map(str::lines).map(String::from).collect()
}

/// Asks the Service again and again from the node, until it is told to stop; how often, and every failure.
struct Load {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    asking: JoinHandle<Vec<String>>,
}

impl Load {
    fn begin(address: String) -> Self {
        let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (until, count) = (stop.clone(), asked.clone());
        let asking = thread::spawn(move || {
            let mut failures = Vec::new();
            while !until.load(Ordering::Relaxed) {
                if let Err(error) = ask(&address) {
                    failures.push(format!("request {}: {error}", count.load(Ordering::Relaxed)));
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            failures
        });
        Self { stop, asked, asking }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let failures = self.asking.join().expect("it ends");
        let asked = self.asked.load(Ordering::Relaxed);
        assert!(asked > 100, "only {asked} requests: that is no load");
        assert!(failures.is_empty(), "{} of {asked} requests failed: {failures:#?}", failures.len());
    }
}

/// One request on a connection of its own.
fn ask(address: &str) -> std::io::Result<()> {
    use std::io::{Error, Read, Write};
    let address = address.parse().map_err(Error::other)?;
    let mut stream = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(Error::other(answer)) }
}

#[test]
fn the_tour_works_word_for_word() {
    let Some(place) = Place::new() else { return };
    let mut load = None;
    for line in tour() {
        if line.starts_with("kubectl scale") {
            let address = place.run("kubectl get service web -o jsonpath={.spec.clusterIP}");
            load = Some(Load::begin(format!("{address}:80")));
        }
        if line.starts_with("kubectl delete")
            && let Some(load) = load.take()
        {
            load.end();
        }
        let told = if line.starts_with("export") { String::new() } else { place.run(&line) };
        match line.as_str() {
            "kubectl get nodes" => assert!(told.contains(" Ready "), "{told}"),
            "kubectl get pods -o wide" => assert_eq!(told.matches("Running").count(), 3, "{told}"),
            "kubectl logs deployment/web" => assert!(told.contains("listening on"), "{told}"),
            line if line.contains("wget") => assert!(told.contains("hello"), "{told}"),
            "cargo run --release -- status" => assert!(told.contains(" Ready"), "{told}"),
            _ => {}
        }
    }
    assert!(!place.folder.path().join("data").exists(), "the data folder is gone");
}

#[test]
fn every_example_works() {
    let Some(place) = Place::new() else { return };
    place.run("ferry up --detach");
    let mut applied = 0;
    for entry in fs::read_dir(project().join("examples")).expect("examples") {
        let name = entry.expect("a file").file_name().into_string().expect("a name");
        place.run(&format!("kubectl apply -f examples/{name}"));
        applied += 1;
    }
    assert_eq!(applied, 7, "each example is looked at below");
    place.run("kubectl rollout status deployment/web --timeout 120s");
    place.run("kubectl rollout status statefulset/db --timeout 120s");
    place.run("kubectl rollout status daemonset/watchman --timeout 120s");
    place.run("kubectl wait --for condition=complete job/pieces --timeout 120s");
    let told = place.run("kubectl logs --selector job-name=pieces");
    assert!((0..5).all(|piece| told.contains(&format!("piece {piece} is done"))), "{told}");
    place.run("kubectl create job now --from cronjob/clock");
    place.run("kubectl wait --for condition=complete job/now --timeout 120s");
    let told = place.until("kubectl logs reader", |told| told.contains("open sesame"));
    assert!(told.contains("every object takes the same road"), "{told}");
    let told = place.run("kubectl exec db-0 -- wget -q -O - http://db-2.db:8080/");
    assert!(told.contains("db-2"), "{told}");
    let can = |verb| place.shell(&format!("kubectl auth can-i {verb} pods --as system:serviceaccount:default:looker"));
    assert!(can("list").status.success());
    assert!(!can("delete").status.success());
}
