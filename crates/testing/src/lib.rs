//! What tests of several crates need: where Kubernetes' facts are, how a test says that it cannot run, and (with the
//! feature `server`) a whole API server with a client for it.
//!
//! No crate but a test may depend on this one.

#[cfg(feature = "server")]
pub mod client;
#[cfg(feature = "server")]
mod hollow_node;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod stand_in_agent;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::time::Duration;

use flate2::read::GzDecoder;

#[cfg(feature = "server")]
pub use hollow_node::{Habits, HollowNode, HollowNodes, Random};
#[cfg(feature = "server")]
pub use server::TestServer;
#[cfg(feature = "server")]
pub use stand_in_agent::StandInAgent;

/// A file or folder of facts about Kubernetes v1.36.4, such as `swagger-v1.36.4.json`.
///
/// The facts are not part of the repository. They are looked for in the folder named by `FERRY_FACTS`, else in
/// `../shared/kubernetes` beside the repository. Without them the calling test is skipped, which is said on standard error.
pub fn facts(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("FERRY_FACTS").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/kubernetes")),
        PathBuf::from,
    );
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    skipped(&format!("{name} is not in {}; set FERRY_FACTS to the folder that has it", folder.display()));
    None
}

/// What kube-apiserver answered to thousands of requests: one JSON object in each line.
pub fn recordings() -> Option<impl Iterator<Item = String>> {
    let path = facts("recordings-v1.36.4.jsonl.gz")?;
    let file = File::open(path).expect("the recordings can be opened");
    Some(BufReader::new(GzDecoder::new(file)).lines().map(|line| line.expect("the recordings can be read")))
}

/// Says loudly that the calling test does not run here, and why.
pub fn skipped(reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    eprintln!("skipped: {test}: {reason}");
}

/// How long the processor worked for this thread so far. For bounds on time that a busy machine does not stretch.
pub fn cpu_time() -> Duration {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells what a thread has used");
    let nanos = spent.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("the first number is the time on a processor"))
}
