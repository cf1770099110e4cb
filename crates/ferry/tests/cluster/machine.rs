//! What a cluster leaves on its machine.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nlink::netlink::{Connection, Nftables};

/// The kernel takes a moment to let go of some things.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// Everything outside of the data folder that a cluster makes while it runs, a line each.
pub fn traces() -> BTreeSet<String> {
    let mut traces = BTreeSet::new();
    let mut add =
        |what: &str, names: Vec<String>| traces.extend(names.into_iter().map(|name| format!("{what} {name}")));
    add("link", names_in("/sys/class/net"));
    add("mount", lines("/proc/self/mountinfo", |line| line.split(' ').nth(4).map(String::from)));
    add("route", lines("/proc/net/route", |line| Some(line.split('\t').take(3).collect::<Vec<_>>().join(" "))));
    add("group", groups(Path::new("/sys/fs/cgroup")));
    add("table", tables());
    add("file", names_in("/run/ferry"));
    add("forwarding", lines("/proc/sys/net/ipv4/ip_forward", |line| Some(line.to_owned())));
    add("shared", names_in("/run/ferry"));
    add("process", processes().into_iter().map(|(id, line)| format!("{id} {line}")).collect());
    traces
}

/// What was not there before is gone, or goes soon.
pub fn assert_nothing_new(before: &BTreeSet<String>) {
    let since = Instant::now();
    loop {
        let left: Vec<String> = traces().difference(before).cloned().collect();
        if left.is_empty() {
            return;
        }
        assert!(since.elapsed() < GONE_WITHIN, "left behind: {left:#?}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// The processes that run our executable, by their ids: the cluster itself, shims, and whatever runs in pods of the toolbox.
pub fn processes() -> Vec<(u32, String)> {
    let ours = fs::canonicalize(env!("CARGO_BIN_EXE_ferry")).expect("our executable");
    let size = fs::metadata(&ours).expect("our executable").len();
    let ids = names_in("/proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
    ids.filter_map(|id| {
        // In a pod it is a copy of the same size.
        let running = fs::metadata(format!("/proc/{id}/exe")).ok()?;
        let line = fs::read_to_string(format!("/proc/{id}/cmdline")).ok()?.replace('\0', " ");
        (running.len() == size).then_some((id, line))
    })
    .collect()
}

fn names_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn lines(file: &str, name: impl Fn(&str) -> Option<String>) -> Vec<String> {
    fs::read_to_string(file).unwrap_or_default().lines().filter_map(name).collect()
}

/// Groups of processes that are ours, of every hierarchy.
fn groups(root: &Path) -> Vec<String> {
    let (mut found, mut left) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = left.pop() {
        let below = fs::read_dir(&folder).into_iter().flatten().flatten();
        let folders = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
        for path in folders {
            if is_ours(&path) {
                found.push(path.display().to_string());
            }
            left.push(path);
        }
    }
    found
}

fn is_ours(group: &Path) -> bool {
    let name = group.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("ferry") || name.starts_with("kubepods") || name.starts_with("pod")
}

/// Tables of nftables. Not by `nft`, of which older versions do not read ours.
fn tables() -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let listed = runtime.block_on(async { Connection::<Nftables>::new()?.list_tables().await });
    listed.expect("the tables").into_iter().map(|table| table.name).collect()
}
