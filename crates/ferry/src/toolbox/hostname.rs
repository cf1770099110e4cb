//! `hostname [-i]`: the name of the pod, or its addresses.

use std::io::{Write, stdout};

use super::{Outcome, options::Options, resolve};

pub fn run(arguments: &[String]) -> Outcome {
    let options = Options::parse(arguments, "i")?;
    if !options.has('i') {
        writeln!(stdout(), "{}", name()?)?;
        return Ok(0);
    }
    let addresses: Vec<String> = resolve::addresses(&name()?)?.iter().map(ToString::to_string).collect();
    writeln!(stdout(), "{}", addresses.join(" "))?;
    Ok(0)
}

pub fn name() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/hostname")?.trim_end().to_owned())
}
