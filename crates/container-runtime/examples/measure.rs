//! How long a pod takes, and what its shim costs: `cargo run --release -p container-runtime --example measure -- <static executable>`,
//! as root. The executable is started without arguments and must not end.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use container_runtime::{Runtime, Settings, services::*};

const PODS: usize = 50;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    container_runtime::shim::dispatch();
    let program = std::env::args().nth(1).ok_or("name a static executable that waits when it is started")?;
    let root = tempfile::tempdir()?;
    let threads = tokio::runtime::Runtime::new()?;
    threads.block_on(measure(root.path(), Path::new(&program)))
}

async fn measure(root: &Path, program: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let settings = Settings { cgroup: "/ferry-measure".into(), ..Settings::new(root) };
    let runtime = Runtime::open(settings, Arc::new(NoNetwork)).await?;
    runtime.import_executable("ferry.local/measure", program, &[]).await?;
    let (mut sandboxes, mut containers, mut execs, mut removals) = (vec![], vec![], vec![], vec![]);
    let (mut pods, mut memory) = (Vec::new(), Vec::new());
    for _ in 0..PODS {
        let begin = Instant::now();
        let mut config = PodSandboxConfig::default();
        config.linux.security_context.namespace_options.pid = NamespaceMode::Container;
        let pod = runtime.run_pod_sandbox(config).await?;
        sandboxes.push(begin.elapsed());
        let mut config = ContainerConfig { image: "ferry.local/measure".into(), ..Default::default() };
        config.linux.security_context.namespace_options.pid = NamespaceMode::Container;
        config.linux.security_context.seccomp = SecurityProfile::RuntimeDefault;
        let begin = Instant::now();
        let container = runtime.create_container(&pod, config).await?;
        runtime.start_container(&container).await?;
        containers.push(begin.elapsed());
        let begin = Instant::now();
        // It fails where it is executed, which is the whole way.
        let _ = runtime.exec_sync(&container, vec!["/nosuchcommand".into()], 0).await;
        execs.push(begin.elapsed());
        let netns = runtime.pod_sandbox_status(&pod).await?.netns;
        memory.push(private(&netns.replace("ns/net", "smaps_rollup"))?);
        pods.push(pod);
    }
    for pod in pods {
        let begin = Instant::now();
        runtime.remove_pod_sandbox(&pod).await?;
        removals.push(begin.elapsed());
    }
    runtime.purge().await?;
    for (what, times) in [
        ("run sandbox", sandboxes),
        ("create and start container", containers),
        ("exec", execs),
        ("remove pod", removals),
    ] {
        let (median, slow) = (percentile(times.clone(), 50), percentile(times, 95));
        eprintln!("{what}: p50 {:.1} ms, p95 {:.1} ms", median.as_secs_f64() * 1e3, slow.as_secs_f64() * 1e3);
    }
    memory.sort_unstable();
    eprintln!("shim: {} KiB private (median)", memory.get(memory.len() / 2).copied().unwrap_or_default());
    Ok(())
}

fn percentile(mut times: Vec<Duration>, percent: usize) -> Duration {
    times.sort_unstable();
    times.get((times.len() - 1) * percent / 100).copied().unwrap_or_default()
}

/// The memory that a process shares with nobody, in KiB.
fn private(rollup: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(rollup)?;
    let lines = text.lines().filter(|line| line.starts_with("Private_"));
    Ok(lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum())
}
