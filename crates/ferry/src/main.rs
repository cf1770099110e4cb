//! The binary: a whole Kubernetes in one process.
//!
//! `commands/` has one file per verb; `cluster.rs` is the only place where components are wired together.

mod cluster;
mod commands;
mod node;
mod progress;
mod running;
mod toolbox;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use tracing_subscriber::EnvFilter;

/// A whole Kubernetes in one binary.
#[derive(Parser)]
#[command(name = "ferry", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    // First of all: a pod's shim must come to be before there is any thread.
    container_runtime::shim::dispatch();
    if let Some(code) = toolbox::dispatch() {
        return code;
    }
    return_memory();
    let arguments = Arguments::parse();
    tell_troubles();
    match arguments.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads the output has seen enough.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) => {
            ExitCode::FAILURE
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// After a time of much work, memory goes back to the system: few arenas for threads to leave gaps in, and what is large is
/// given back by itself.
fn return_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: these set numbers of the allocator, before there is any other thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 4);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 4 << 20);
    }
}

/// What goes wrong while a cluster runs is told on stderr; `RUST_LOG` asks for more, or for less.
fn tell_troubles() {
    // nlink tells every refusal of the kernel, also those that we ask for to learn whether something is there.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,nlink=error"));
    tracing_subscriber::fmt().with_writer(io::stderr).with_env_filter(filter).init();
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Arguments;

    #[test]
    fn the_flags_of_every_part_fit_together() {
        Arguments::command().debug_assert();
    }
}
