//! `id`: who this process is.

use std::io::{Write, stdout};

use rustix::process::{getgid, getgroups, getuid};

use super::Outcome;

pub fn run(_: &[String]) -> Outcome {
    let groups: Vec<String> = getgroups()?.iter().map(|group| group.as_raw().to_string()).collect();
    writeln!(stdout(), "uid={} gid={} groups={}", getuid().as_raw(), getgid().as_raw(), groups.join(","))?;
    Ok(0)
}
