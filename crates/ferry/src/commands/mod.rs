//! One file per verb.

mod audit;
mod down;
mod up;

use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    /// Start a cluster and keep it running until Ctrl-C
    Up(Box<up::Up>),
    /// Stop a cluster, and with --purge remove every trace of it
    Down(down::Down),
}

impl Command {
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Up(up) => up.run(),
            Command::Down(down) => down.run(),
        }
    }
}
