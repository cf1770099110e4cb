//! One file per verb.

pub mod agent;
mod audit;
mod ctr;
mod down;
mod image;
mod kubeconfig;
mod runtime;
mod status;
mod up;

use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    /// Start a cluster and keep it running until Ctrl-C
    Up(Box<up::Up>),
    /// Tell whether a cluster runs, and how it is
    Status(status::Status),
    /// Tell where the administrator's kubeconfig is
    Kubeconfig(kubeconfig::Kubeconfig),
    /// Run a node by itself, as ferry up --nodes does for each further one
    Agent(agent::Agent),
    /// List, fetch, send, import and remove images
    Image(image::Image),
    /// Look at containers as the node's runtime sees them
    Ctr(ctr::Ctr),
    /// Stop a cluster, and with --purge remove every trace of it
    Down(down::Down),
}

impl Command {
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Up(up) => up.run(),
            Command::Status(status) => status.run(),
            Command::Kubeconfig(kubeconfig) => kubeconfig.run(),
            Command::Agent(agent) => agent.run(),
            Command::Image(image) => image.run(),
            Command::Ctr(ctr) => ctr.run(),
            Command::Down(down) => down.run(),
        }
    }
}
