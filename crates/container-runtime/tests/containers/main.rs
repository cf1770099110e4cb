//! Real containers: as root, with real namespaces, cgroups and overlays.
//!
//! The program has a `main` of its own because it is also the shim, and the process that gets killed in tests of recovery.

mod cri;
mod fixture;
mod identity;
mod life;
mod recovery;
mod streams;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    container_runtime::shim::dispatch();
    if recovery::dispatch() {
        return;
    }
    let mut arguments = Arguments::from_args();
    let reason = fixture::why_not();
    if let Some(reason) = &reason {
        eprintln!("skipped: all tests with real containers: {reason}");
    }
    // Each test has a few processes of its own, and machines are small.
    arguments.test_threads = arguments.test_threads.or(Some(4));
    let test = |name: &'static str, body: fn() -> Result<(), Failed>| {
        Trial::test(name, body).with_ignored_flag(reason.is_some())
    };
    let trials = vec![
        test("a_container_runs_and_exits", || run(life::runs_and_exits)),
        test("a_command_that_does_not_exist", || run(life::start_error)),
        test("stopping", || run(life::stopping)),
        test("out_of_memory", || run(life::out_of_memory)),
        test("limits_of_a_pod", || run(life::limits_of_a_pod)),
        test("layers_of_an_archive", || run(life::archive)),
        test("logs_rotate_and_reopen", || run(life::logs)),
        test("many_pods_at_once", || run(life::many)),
        test("callers_that_do_not_wait", || run(life::interrupted)),
        test("a_network_that_is_not_ready", || run(life::no_network)),
        test("a_shim_that_waits_has_little_memory", || run(life::little_memory)),
        test("purge", || run(life::purge)),
        test("on_a_socket", || run(cri::on_a_socket)),
        test("who_a_process_is", || run(identity::process)),
        test("privileged", || run(identity::privileged)),
        test("profiles_of_system_calls", || run(identity::profiles)),
        test("mounts", || run(identity::mounts)),
        test("namespaces_of_a_pod", || run(identity::namespaces)),
        test("exec", || run(streams::exec)),
        test("exec_with_a_terminal", || run(streams::terminal)),
        test("attach", || run(streams::attach)),
        test("attached_and_not_reading", || run(streams::slow_reader)),
        test("port_forward", || run(streams::port_forward)),
        test("killed_runtime", || run(recovery::killed_runtime)),
        test("killed_shim", || run(recovery::killed_shim)),
        test("damaged_records", || run(recovery::damaged_records)),
        test("killed_at_any_moment", || run(recovery::killed_at_any_moment)),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

/// Each test has its own threads, and its own folder and cgroup, which go away whatever happens.
fn run<F: Future<Output = ()>>(test: impl FnOnce(fixture::Fixture) -> F) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (fixture, guard) = fixture::Fixture::new();
    let limit = std::time::Duration::from_secs(120);
    let done = runtime.block_on(async { tokio::time::timeout(limit, test(fixture)).await });
    runtime.shutdown_background();
    drop(guard);
    done.map_err(|_| Failed::from("not done after two minutes"))
}
