//! The commands of the image `ferry.local/toolbox`, which is made from this executable: enough to try, show and debug a cluster
//! without any registry.
//!
//! The name that the executable is started under says which command it is, as with busybox; under the name `toolbox`, the first
//! argument does. A command costs as little as it can: it comes before everything else in `main`, and starts no threads
//! unless it serves connections.

mod cat;
mod date;
mod echo;
mod env;
mod hostname;
mod http;
mod httpd;
mod id;
mod ls;
mod nc;
mod nslookup;
mod options;
mod pause;
mod resolve;
mod signals;
mod sleep;
mod wc;
mod wget;

use std::{
    ffi::OsStr,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::Context;
use container_runtime::Runtime;

/// The name of the image.
const IMAGE: &str = "ferry.local/toolbox";

/// Under which name the first argument is the command.
const NAME: &str = "toolbox";

/// An exit code, or what went wrong.
type Outcome = anyhow::Result<u8>;

type Command = fn(&[String]) -> Outcome;

/// The first is what a container does that was not told what to do.
const COMMANDS: &[(&str, Command)] = &[
    ("pause", pause::run),
    ("cat", cat::run),
    ("date", date::run),
    ("echo", echo::run),
    ("env", env::run),
    ("false", |_| Ok(1)),
    ("hostname", hostname::run),
    ("httpd", httpd::run),
    ("id", id::run),
    ("ls", ls::run),
    ("nc", nc::run),
    ("nslookup", nslookup::run),
    ("sleep", sleep::run),
    ("true", |_| Ok(0)),
    ("wc", wc::run),
    ("wget", wget::run),
];

/// Makes the image, unless it is there already.
pub async fn install(runtime: &Runtime) -> anyhow::Result<()> {
    let made = runtime.import_executable(IMAGE, Path::new("/proc/self/exe"), &commands()).await;
    made.context("cannot make the image of the toolbox")?;
    Ok(())
}

/// Unpacks the image, so that the first container that has it starts as fast as the second.
pub async fn unpack(runtime: &Runtime) {
    if let Err(error) = runtime.unpack(IMAGE).await {
        tracing::warn!(%error, "the image of the toolbox is not unpacked yet");
    }
}

/// The names of all commands.
fn commands() -> Vec<&'static str> {
    COMMANDS.iter().map(|(name, _)| *name).collect()
}

/// Runs the command that this process was started as, if it was.
pub fn dispatch() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let path = arguments.next()?;
    let name = Path::new(&path).file_name().and_then(OsStr::to_str)?;
    let mut arguments: Vec<String> = arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    if name != NAME {
        let (name, command) = find(name)?;
        return Some(run(name, command, &arguments));
    }
    if arguments.is_empty() {
        let _ = writeln!(io::stderr(), "commands: {}", commands().join(", "));
        return Some(ExitCode::SUCCESS);
    }
    let name = arguments.remove(0);
    Some(match find(&name) {
        Some((name, command)) => run(name, command, &arguments),
        None => {
            let _ = writeln!(io::stderr(), "there is no command {name:?}\ncommands: {}", commands().join(", "));
            ExitCode::from(127)
        }
    })
}

fn find(name: &str) -> Option<(&'static str, Command)> {
    COMMANDS.iter().copied().find(|(known, _)| *known == name)
}

fn run(name: &str, command: Command, arguments: &[String]) -> ExitCode {
    let outcome = command(arguments).and_then(|code| {
        io::stdout().flush()?;
        Ok(code)
    });
    match outcome {
        Ok(code) => code.into(),
        // Nobody wants to read it: no reason to complain.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) => {
            1.into()
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "{name}: {error:#}");
            1.into()
        }
    }
}
