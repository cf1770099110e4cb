//! The binary: a whole Kubernetes in one process.
//!
//! `commands/` has one file per verb; `cluster.rs` is the only place where components are wired together.

mod cluster;
mod commands;

use std::process::ExitCode;

use clap::Parser;

/// A whole Kubernetes in one binary.
#[derive(Parser)]
#[command(name = "ferry", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
