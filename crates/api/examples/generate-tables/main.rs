//! Makes `tables/` from the published facts of Kubernetes: `cargo run -p api --example generate-tables -- <folder>`.
//!
//! The folder holds `swagger`, `fields`, `protobuf` and `bootstrap` of one version as JSON. Only facts go into the
//! tables (names, types, numbers, list types, keys, strategies, verbs), no prose.

mod resources;
mod types;

use std::path::Path;

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let folder = std::env::args().nth(1).ok_or("usage: generate-tables <folder with the facts>")?;
    let tables = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tables"));
    std::fs::write(tables.join("types.txt"), types::generate(folder.as_ref())?)?;
    std::fs::write(tables.join("resources.txt"), resources::generate(folder.as_ref())?)?;
    Ok(())
}
