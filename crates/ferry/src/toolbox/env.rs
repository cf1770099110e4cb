//! `env [NAME=VALUE…] [COMMAND…]`: the variables of this process, or a command with more of them.

use std::{
    io::{Write, stdout},
    os::unix::process::CommandExt,
};

use anyhow::Context;

use super::Outcome;

pub fn run(arguments: &[String]) -> Outcome {
    let given: Vec<(&str, &str)> = arguments.iter().map_while(|argument| argument.split_once('=')).collect();
    if let Some((command, rest)) = arguments.get(given.len()..).and_then(<[String]>::split_first) {
        let error = std::process::Command::new(command).args(rest).envs(given).exec();
        return Err(error).with_context(|| command.clone());
    }
    let mut all: Vec<(String, String)> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .collect();
    all.extend(given.into_iter().map(|(name, value)| (name.into(), value.into())));
    for (name, value) in all {
        writeln!(stdout(), "{name}={value}")?;
    }
    Ok(0)
}
