//! One file per verb.

pub mod agent;
mod audit;
mod down;
mod up;

use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    /// Start a cluster and keep it running until Ctrl-C
    Up(Box<up::Up>),
    /// Run a node of a cluster that runs elsewhere
    Agent(agent::Agent),
    /// Stop a cluster, and with --purge remove every trace of it
    Down(down::Down),
}

impl Command {
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Up(up) => up.run(),
            Command::Agent(agent) => agent.run(),
            Command::Down(down) => down.run(),
        }
    }
}
