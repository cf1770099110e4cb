//! What the person at the terminal is told while a cluster starts, also where the cluster goes on without the terminal.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Context;
use rustix::{process::setsid, stdio::dup2_stdout};

/// Set for the process that goes on: who started it listens at its standard output until it is up.
const DETACHED: &str = "FERRY_DETACHED";
/// The last line that it says there: from then on nobody needs to listen.
const UP: &str = "up";

/// Tells the person at the terminal, who may have gone: that is no reason for the cluster to end.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
    if is_detached() {
        let _ = writeln!(io::stdout(), "{text}");
    }
}

/// The cluster is up: nobody needs to listen any more.
pub fn up() {
    if !is_detached() {
        return;
    }
    let _ = writeln!(io::stdout(), "{UP}");
    if let Ok(nowhere) = File::options().write(true).open("/dev/null") {
        let _ = dup2_stdout(nowhere);
    }
}

fn is_detached() -> bool {
    std::env::var_os(DETACHED).is_some()
}

/// Starts this command again without a terminal, passes on what it says until it is up, and leaves it running. What goes
/// wrong is in `log`, then and later.
pub fn detach(log: &Path) -> anyhow::Result<()> {
    let file = File::options().create(true).append(true).open(log);
    let file = file.with_context(|| format!("cannot write {}", log.display()))?;
    // What earlier starts have written is not about this one.
    let from = file.metadata().map_or(0, |metadata| metadata.len());
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
        match line?.as_str() {
            UP => {
                say(&format!("the cluster goes on as process {}; it writes to {}", child.id(), log.display()));
                return Ok(());
            }
            line => say(line),
        }
    }
    child.wait().context("it cannot be told how it ended")?;
    let text = written_since(log, from).unwrap_or_default();
    let error = last_words(&text).unwrap_or("the cluster has ended, and did not say why");
    anyhow::bail!("{error}\nhint: more is in {}", log.display())
}

fn written_since(log: &Path, from: u64) -> io::Result<String> {
    let (mut file, mut text) = (File::open(log)?, String::new());
    file.seek(SeekFrom::Start(from))?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Why a process ended: the error at the end of what it wrote, with its hints.
fn last_words(text: &str) -> Option<&str> {
    const ERROR: &str = "error: ";
    let later = text.rfind(&format!("\n{ERROR}")).map(|at| at + 1);
    let at = later.or_else(|| text.starts_with(ERROR).then_some(0))?;
    text.get(at + ERROR.len()..).map(str::trim_end)
}

#[cfg(test)]
mod tests {
    use super::last_words;

    #[test]
    fn an_error_is_told_with_its_hint() {
        assert_eq!(last_words("API ready\nerror: no port\nhint: try another\n"), Some("no port\nhint: try another"));
        assert_eq!(last_words("error: first\nmore\nerror: last\n"), Some("last"));
        assert_eq!(last_words("error: only\n"), Some("only"));
        assert_eq!(last_words("API ready\n"), None);
    }
}
