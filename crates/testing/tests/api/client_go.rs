//! A Go program with client-go, as operators are written: protobuf, informers, dynamic client, apply, leader election.
//!
//! Its source is beside the tests; it is built with the Go toolchain, if there is one, into a temporary folder. Modules and
//! compiled packages are cached by Go itself.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use testing::{TestServer, skipped};

fn go(arguments: &[&str]) -> std::io::Result<Output> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client-go");
    Command::new("go").args(arguments).current_dir(source).env("GOWORK", "off").output()
}

/// The program, built; none where it cannot be, which is said loudly.
fn build(folder: &Path) -> Option<PathBuf> {
    let text = |output: Output| String::from_utf8_lossy(&output.stderr).into_owned();
    match go(&["mod", "download"]) {
        Err(_) => {
            skipped("go is not on the PATH");
            return None;
        }
        Ok(output) if !output.status.success() => {
            skipped(&format!("the modules of client-go cannot be had: {}", text(output)));
            return None;
        }
        Ok(_) => {}
    }
    let program = folder.join("client-go");
    let built = go(&["build", "-buildvcs=false", "-o", &program.to_string_lossy(), "."]).expect("go runs");
    assert!(built.status.success(), "{}", text(built));
    Some(program)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_with_client_go_finds_nothing_wrong() {
    let server = TestServer::embedded().await;
    let Some(program) = build(server.folder()) else { return };
    let output = Command::new(program).arg(server.kubeconfig()).output().expect("the program runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.ends_with("ok\n"), "{out}{err}");
}
