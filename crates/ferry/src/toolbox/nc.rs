//! `nc [-z] [-w SECONDS] HOST PORT`, `nc -l PORT`: one connection between standard input and output and a peer.

use std::{
    io::{self, stdin, stdout},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use anyhow::{Context, bail};

use super::{Outcome, httpd, options::Options, resolve};

pub fn run(arguments: &[String]) -> Outcome {
    let options = Options::parse(arguments, "zw:l")?;
    let words: Vec<&str> = options.rest.iter().map(String::as_str).collect();
    let port = |text: &str| text.parse::<u16>().with_context(|| format!("{text:?} is not a port"));
    let patience = Duration::from_secs(options.number('w', 10)?.max(1));
    let stream = match words.as_slice() {
        [text] if options.has('l') => httpd::listen(port(text)?)?.accept()?.0,
        [host, text] if !options.has('l') => resolve::connect(host, port(text)?, patience)?,
        _ => bail!("where to? nc [-z] [-w SECONDS] HOST PORT, or nc -l PORT"),
    };
    if !options.has('z') {
        exchange(&stream)?;
    }
    Ok(0)
}

/// Ends with the peer; the end of our input is told to it.
fn exchange(stream: &TcpStream) -> anyhow::Result<()> {
    let mut outgoing = stream.try_clone()?;
    std::thread::spawn(move || {
        let _ = io::copy(&mut stdin(), &mut outgoing);
        let _ = outgoing.shutdown(Shutdown::Write);
    });
    io::copy(&mut &*stream, &mut stdout())?;
    Ok(())
}
