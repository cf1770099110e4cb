//! `ferry kubeconfig`: where the administrator's kubeconfig is, for `export KUBECONFIG=$(ferry kubeconfig)`.

use std::{fs, path::PathBuf};

use anyhow::Context;
use clap::Args;

use super::up::default_data_dir;
use crate::cluster::traces_file;

#[derive(Args)]
pub struct Kubeconfig {
    /// The cluster's data folder
    #[arg(long, value_name = "FOLDER", default_value_os_t = default_data_dir())]
    data_dir: PathBuf,
}

impl Kubeconfig {
    #[allow(clippy::print_stdout, reason = "it is asked for")]
    pub fn run(self) -> anyhow::Result<()> {
        println!("{}", find(&self.data_dir)?.display());
        Ok(())
    }
}

/// The kubeconfig of a cluster: in its data folder, unless it was told to write it elsewhere.
pub fn find(data_dir: &std::path::Path) -> anyhow::Result<PathBuf> {
    let elsewhere = fs::read_to_string(traces_file(data_dir)).unwrap_or_default();
    let places = elsewhere.lines().rev().map(PathBuf::from).chain([data_dir.join("kubeconfig.yaml")]);
    places
        .filter(|place| place.exists())
        .max_by_key(|place| fs::metadata(place).and_then(|m| m.modified()).ok())
        .with_context(|| {
            let folder = data_dir.display();
            format!(
                "there is no cluster in {folder}\nhint: start one with: ferry up; or name its folder with --data-dir"
            )
        })
}
