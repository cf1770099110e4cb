//! `wc [-lwc] [FILE…]`: counts lines, words and bytes.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write, stdin, stdout},
};

use anyhow::Context;

use super::{Outcome, options::Options};

pub fn run(arguments: &[String]) -> Outcome {
    let options = Options::parse(arguments, "lwc")?;
    if options.rest.is_empty() {
        tell(&options, count(stdin().lock())?, "")?;
    }
    for path in options.rest {
        let file = File::open(path).with_context(|| path.clone())?;
        tell(&options, count(BufReader::new(file)).with_context(|| path.clone())?, path)?;
    }
    Ok(0)
}

fn count(mut source: impl BufRead) -> std::io::Result<[u64; 3]> {
    let [mut lines, mut words, mut bytes] = [0, 0, 0];
    let mut in_word = false;
    loop {
        let part = source.fill_buf()?;
        if part.is_empty() {
            return Ok([lines, words, bytes]);
        }
        for byte in part {
            lines += u64::from(*byte == b'\n');
            words += u64::from(!in_word && !byte.is_ascii_whitespace());
            in_word = !byte.is_ascii_whitespace();
        }
        let length = part.len();
        bytes += length as u64;
        source.consume(length);
    }
}

fn tell(options: &Options<'_>, counts: [u64; 3], path: &str) -> std::io::Result<()> {
    let all = !['l', 'w', 'c'].iter().any(|letter| options.has(*letter));
    let wanted = ['l', 'w', 'c'].into_iter().zip(counts).filter(|(letter, _)| all || options.has(*letter));
    let mut fields: Vec<String> = wanted.map(|(_, count)| count.to_string()).collect();
    fields.extend((!path.is_empty()).then(|| path.to_owned()));
    writeln!(stdout(), "{}", fields.join(" "))
}
