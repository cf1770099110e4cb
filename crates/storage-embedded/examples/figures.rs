//! Figures of the embedded store on this machine: durable and relaxed puts from 32 writers, memory of an idle store, and
//! how long opening takes after a crash. `cargo run --release -p storage-embedded --example figures [folder]`
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use storage::{Expected, Store, Transaction};
use storage_embedded::{EmbeddedStore, Options};

const WRITERS: usize = 32;
const SECONDS: u64 = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from).join("ferry-figures");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    runtime.block_on(async {
        idle_memory(&folder).await?;
        for value_bytes in [1500, 200] {
            puts(&folder, "durable creates", value_bytes, |t, key| t.require(key, Expected::Absent)).await?;
            puts(&folder, "durable puts", value_bytes, |t, _| t).await?;
            puts(&folder, "relaxed puts", value_bytes, |t, _| t.relaxed()).await?;
        }
        repair(&folder).await
    })?;
    Ok(fs::remove_dir_all(&folder)?)
}

fn resident_kib() -> Result<u64, std::io::Error> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    Ok(line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0))
}

async fn fill(store: &EmbeddedStore, keys: usize, value_bytes: usize) -> Result<(), storage::Error> {
    for batch in (0..keys).step_by(100) {
        let puts = (batch..batch + 100).fold(Transaction::default(), |transaction, i| {
            transaction.put(format!("/registry/configmaps/default/object-{i:08}"), vec![b'x'; value_bytes])
        });
        store.commit(puts).await?;
    }
    Ok(())
}

async fn idle_memory(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let path = folder.join("idle");
    let before = resident_kib()?;
    let store = EmbeddedStore::open(Options::new(&path))?;
    println!("idle memory, new store: +{} KiB", resident_kib()? - before);
    fill(&store, 10_000, 1500).await?;
    println!("idle memory, having written 10,000 keys of 1.5 KB: +{} KiB", resident_kib()? - before);
    let _ = store.range(storage::Range::default()).await?;
    println!("idle memory, having listed them: +{} KiB", resident_kib()? - before);
    Ok(store.close().await?)
}

async fn puts(
    folder: &Path,
    what: &str,
    value_bytes: usize,
    prepare: fn(Transaction, String) -> Transaction,
) -> Result<(), Box<dyn std::error::Error>> {
    let path = folder.join("puts");
    let store = Arc::new(EmbeddedStore::open(Options::new(&path))?);
    let value = Bytes::from(vec![b'x'; value_bytes]);
    let begun = Instant::now();
    let cpu = cpu_time()?;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (store, value) = (store.clone(), value.clone());
            tokio::spawn(async move {
                let mut count = 0u64;
                while begun.elapsed() < Duration::from_secs(SECONDS) {
                    let key = format!("/registry/configmaps/default/object-{writer}-{count}");
                    let put = Transaction::default().put(key.clone(), value.clone());
                    store.commit(prepare(put, key)).await?;
                    count += 1;
                }
                Ok::<_, storage::Error>(count)
            })
        })
        .collect();
    let mut count = 0;
    for writer in writers {
        count += writer.await??;
    }
    let (elapsed, cpu) = (begun.elapsed(), cpu_time()? - cpu);
    let rate = count as f64 / elapsed.as_secs_f64();
    let each = cpu.as_secs_f64() * 1e6 / count as f64;
    println!("{what} of {value_bytes} bytes from {WRITERS} writers: {rate:.0}/s, {each:.1} µs CPU each");
    store.close().await?;
    println!(
        "  file: {} MiB for {} MiB of values",
        fs::metadata(&path)?.len() >> 20,
        (count * value_bytes as u64) >> 20
    );
    Ok(files(&path).into_iter().try_for_each(fs::remove_file)?)
}

/// What a store is made of: the log first, so that a copy in this order is one.
fn files(store: &Path) -> [PathBuf; 3] {
    ["log-0", "log-1", ""].map(|extension| store.with_extension(extension))
}

/// User and system time of this process, from clock ticks of a hundredth of a second.
fn cpu_time() -> Result<Duration, std::io::Error> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 10))
}

/// What a crash leaves, if nothing is being written.
fn copy(from: &Path, to: &Path) -> Result<(), std::io::Error> {
    for (from, to) in files(from).iter().zip(files(to)) {
        fs::copy(from, to)?;
    }
    Ok(())
}

async fn repair(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let [path, settled, crashed] = ["live", "settled", "crashed"].map(|name| folder.join(name));
    for keys in [1_000, 10_000, 100_000] {
        let store = EmbeddedStore::open(Options::new(&path))?;
        fill(&store, keys, 1500).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        copy(&path, &crashed)?;
        tokio::time::sleep(Duration::from_secs(4)).await;
        copy(&path, &settled)?;
        store.close().await?;
        let size = fs::metadata(&crashed)?.len() >> 20;
        for (how, path) in [("closing", &path), ("a crash while idle", &settled), ("a crash while writing", &crashed)] {
            let begun = Instant::now();
            let reopened = EmbeddedStore::open(Options::new(path))?;
            println!("opening {size} MiB after {how}: {:.1?}", begun.elapsed());
            reopened.close().await?;
            files(path).into_iter().try_for_each(fs::remove_file)?;
        }
    }
    Ok(())
}
