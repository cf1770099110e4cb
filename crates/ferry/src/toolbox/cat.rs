//! `cat [FILE…]`: files, or what is read from standard input.

use std::{
    fs::File,
    io::{self, stdin, stdout},
};

use anyhow::Context;

use super::Outcome;

pub fn run(arguments: &[String]) -> Outcome {
    if arguments.is_empty() {
        io::copy(&mut stdin(), &mut stdout())?;
    }
    for path in arguments {
        if path == "-" {
            io::copy(&mut stdin(), &mut stdout())?;
            continue;
        }
        let mut file = File::open(path).with_context(|| path.clone())?;
        io::copy(&mut file, &mut stdout()).with_context(|| path.clone())?;
    }
    Ok(0)
}
