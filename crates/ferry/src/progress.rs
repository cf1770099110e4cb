//! What the person at the terminal is told while a cluster starts, also where the cluster goes on without the terminal.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Context;
use rustix::{process::setsid, stdio::dup2_stdout};

/// Set for the process that goes on: who started it listens at its standard output until it is up.
const DETACHED: &str = "FERRY_DETACHED";

/// Tells the person at the terminal.
#[allow(clippy::print_stdout, reason = "somebody waits for it there")]
pub fn say(text: &str) {
    eprintln!("{text}");
    if is_detached() {
        println!("{text}");
    }
}

/// The cluster is up: nobody needs to listen any more.
pub fn up() {
    if is_detached()
        && let Ok(nowhere) = File::options().write(true).open("/dev/null")
    {
        let _ = dup2_stdout(nowhere);
    }
}

fn is_detached() -> bool {
    std::env::var_os(DETACHED).is_some()
}

/// Starts this command again without a terminal, passes on what it says until it is up, and leaves it running. From then on
/// it writes to `log`.
pub fn detach(log: &Path) -> anyhow::Result<()> {
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let file = File::options().create(true).append(true).open(log);
    let file = file.with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1).filter(|argument| argument != "--detach")).env(DETACHED, "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
    // SAFETY: between fork and exec only one system call is made.
    unsafe {
        command.pre_exec(|| Ok(setsid().map(drop)?));
    }
    let mut child = command.spawn().context("cannot start")?;
    let said = child.stdout.take().context("its words cannot be read")?;
    for line in BufReader::new(said).lines() {
        eprintln!("{}", line?);
    }
    // It closed its output because it is up, or because it ended.
    match child.try_wait()? {
        None => {
            eprintln!("the cluster goes on as process {}; it writes to {}", child.id(), log.display());
            Ok(())
        }
        Some(_) => {
            let text = fs::read_to_string(log).unwrap_or_default();
            let last = text.lines().rev().find(|line| line.starts_with("error: ")).unwrap_or("error: it said nothing");
            anyhow::bail!("{}\nhint: more is in {}", last.trim_start_matches("error: "), log.display())
        }
    }
}
