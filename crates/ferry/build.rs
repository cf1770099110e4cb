//! Each pod has a shim that is this executable, and pods of the toolbox run it, too. At a fixed address its constant data needs
//! no relocation, which would be a megabyte of memory for each of these processes that nobody shares with it.

#[allow(clippy::print_stdout, reason = "this is how a build script speaks to cargo")]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-no-pie");
}
