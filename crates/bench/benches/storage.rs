//! Storage: durable puts from 32 writers on the embedded engine and on the etcd of this machine, same disk, same run;
//! and what an idle embedded store holds in memory. `cargo bench -p bench --bench storage`

#![allow(clippy::print_stdout, reason = "figures are for people to read")]

use std::{sync::Arc, time::Duration};

use bench::{
    process::{cpu_time, resident_kilobytes},
    storage_load::{Measured, VALUE_BYTES, WRITERS, durable_puts},
};
use criterion::{Criterion, Throughput};
use storage::Store;
use storage_embedded::EmbeddedStore;
use storage_etcd::{
    Etcd,
    testing::{Server, etcd_is_installed},
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// Rounds of the comparison; the engines take turns, so that a drifting machine is the same for both.
const ROUNDS: usize = 4;
/// Puts of each writer in a round. Fewer for etcd, so that both take seconds.
const EMBEDDED_PUTS: u64 = 2000;
const ETCD_PUTS: u64 = 300;

fn main() {
    let runtime = Builder::new_multi_thread().enable_all().build().expect("a runtime");
    idle_memory(&runtime);
    let (embedded, _folder) = embedded();
    let etcd = etcd_is_installed().then(|| etcd(&runtime));

    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    let mut group =
        criterion.benchmark_group(format!("{WRITERS} durable puts of {VALUE_BYTES} bytes, {WRITERS} writers"));
    group.throughput(Throughput::Elements(WRITERS as u64));
    let stores = [("embedded", Some(&embedded)), ("etcd", etcd.as_ref().map(|(store, _)| store))];
    for (name, store) in stores {
        let Some(store) = store else { continue };
        group.bench_function(name, |bencher| bencher.iter_custom(|each| puts(&runtime, store, each).time));
    }
    group.finish();
    if let Some((etcd, server)) = &etcd {
        compare(&runtime, &embedded, etcd, server.process_id().expect("etcd runs"));
    }
    criterion.final_summary();
}

fn puts(runtime: &Runtime, store: &Arc<dyn Store>, each: u64) -> Measured {
    runtime.block_on(durable_puts(store.clone(), each)).expect("the store takes puts")
}

fn compare(runtime: &Runtime, embedded: &Arc<dyn Store>, etcd: &Arc<dyn Store>, etcd_process: u32) {
    let mut totals = [Measured::default(); 2];
    let mut cpu = [Duration::ZERO; 2];
    let own_process = std::process::id();
    for _ in 0..ROUNDS {
        let turns = [(embedded, EMBEDDED_PUTS, own_process), (etcd, ETCD_PUTS, etcd_process)];
        for (index, (store, each, process)) in turns.into_iter().enumerate() {
            let before = cpu_time(process);
            totals[index].add(puts(runtime, store, each));
            cpu[index] += cpu_time(process).saturating_sub(before);
        }
    }
    let [embedded, etcd] = totals.map(|measured| measured.per_second());
    println!("embedded {embedded:.0} puts/s, etcd {etcd:.0} puts/s, ratio {:.1}", embedded / etcd);
    let per_put = |index: usize| cpu[index].as_micros() as f64 / totals[index].puts as f64;
    println!("CPU: embedded {:.0} µs a put with its writers, etcd {:.0} µs without them", per_put(0), per_put(1));
}

/// A folder on the disk that the build is on; a temporary folder may be in memory.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

fn embedded() -> (Arc<dyn Store>, TempDir) {
    let folder = folder();
    let options = storage_embedded::Options::new(folder.path().join("store"));
    (Arc::new(EmbeddedStore::open(options).expect("a new store opens")), folder)
}

fn etcd(runtime: &Runtime) -> (Arc<dyn Store>, Server) {
    runtime.block_on(async {
        // Room for everything the bench writes; otherwise as etcd comes.
        let server = Server::start_in(folder(), &["--quota-backend-bytes", "8589934592"]).await.expect("etcd starts");
        let options = storage_etcd::Options::new([server.endpoint()]);
        let store: Arc<dyn Store> = Arc::new(Etcd::open(options).expect("valid options"));
        (store, server)
    })
}

/// What a store with 3,200 objects holds once nobody uses it: written, closed and opened again. An upper bound, as it
/// counts what the load itself left with the allocator.
fn idle_memory(runtime: &Runtime) {
    let before = resident_kilobytes(std::process::id());
    let (store, folder) = embedded();
    puts(runtime, &store, 100);
    drop(store);
    let options = storage_embedded::Options::new(folder.path().join("store"));
    let _store = EmbeddedStore::open(options).expect("the store opens again");
    runtime.block_on(async { tokio::time::sleep(Duration::from_secs(1)).await });
    let after = resident_kilobytes(std::process::id());
    println!("idle embedded store: {} kB, the process with it {after} kB", after.saturating_sub(before));
}
