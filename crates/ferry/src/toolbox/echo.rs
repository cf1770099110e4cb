//! `echo [-n] WORD…`

use std::io::{Write, stdout};

use super::Outcome;

pub fn run(arguments: &[String]) -> Outcome {
    let (words, end) = match arguments.split_first() {
        Some((first, rest)) if first == "-n" => (rest, ""),
        _ => (arguments, "\n"),
    };
    write!(stdout(), "{}{end}", words.join(" "))?;
    Ok(0)
}
