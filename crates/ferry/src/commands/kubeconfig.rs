//! `ferry kubeconfig`: where the administrator's kubeconfig is, for `export KUBECONFIG=$(ferry kubeconfig)`.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use anyhow::Context;
use clap::Args;

use super::up::{default_data_dir, hint_of_no_cluster};
use crate::cluster::traces_file;

#[derive(Args)]
pub struct Kubeconfig {
    /// The cluster's data folder
    #[arg(long, value_name = "FOLDER", default_value_os_t = default_data_dir())]
    data_dir: PathBuf,
}

impl Kubeconfig {
    pub fn run(self) -> anyhow::Result<()> {
        Ok(writeln!(io::stdout(), "{}", find(&self.data_dir)?.display())?)
    }
}

/// The kubeconfig of a cluster: in its data folder, unless it was told to write it elsewhere.
pub fn find(data_dir: &std::path::Path) -> anyhow::Result<PathBuf> {
    let elsewhere = fs::read_to_string(traces_file(data_dir)).unwrap_or_default();
    let places = elsewhere.lines().rev().map(PathBuf::from).chain([data_dir.join("kubeconfig.yaml")]);
    places
        .filter(|place| place.exists())
        .max_by_key(|place| fs::metadata(place).and_then(|m| m.modified()).ok())
        .with_context(|| format!("there is no cluster in {}\n{}", data_dir.display(), hint_of_no_cluster(data_dir)))
}
