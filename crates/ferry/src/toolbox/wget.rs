//! `wget [-q] [-O FILE] [-T SECONDS] [-t TRIES] URL`: fetches by HTTP.

use std::{
    fs::File,
    io::{self, BufReader, Write, stderr, stdout},
    time::Duration,
};

use anyhow::{Context, bail};

use super::{Outcome, http::Head, options::Options, resolve};

const MOST_REDIRECTS: usize = 10;

pub fn run(arguments: &[String]) -> Outcome {
    let options = Options::parse(arguments, "qO:T:t:")?;
    let [url] = options.rest else { bail!("which URL? wget [-q] [-O FILE] [-T SECONDS] [-t TRIES] URL") };
    let patience = Duration::from_secs(options.number('T', 30)?.max(1));
    let tries: u32 = options.number('t', 1)?;
    let mut tried = 0;
    let (head, body) = loop {
        tried += 1;
        match fetch(url, patience) {
            Err(error) if tried < tries && !error.is::<Refused>() => {
                if !options.has('q') {
                    writeln!(stderr(), "wget: {error:#}; trying again")?;
                }
                std::thread::sleep(Duration::from_secs(1));
            }
            result => break result?,
        }
    };
    let name = url.rsplit('/').next().filter(|name| !name.is_empty() && !name.contains(':')).unwrap_or("index.html");
    let mut body = body;
    match options.value('O').unwrap_or(name) {
        "-" => head.copy_body(&mut body, &mut stdout())?,
        path => {
            let mut file = File::create(path).with_context(|| path.to_owned())?;
            head.copy_body(&mut body, &mut file).with_context(|| path.to_owned())?
        }
    };
    Ok(0)
}

/// The server has answered, so that asking again would change nothing.
#[derive(Debug, thiserror::Error)]
#[error("server returned error: {0}")]
struct Refused(String);

fn fetch(url: &str, patience: Duration) -> anyhow::Result<(Head, impl io::BufRead)> {
    let mut url = url.to_owned();
    for _ in 0..MOST_REDIRECTS {
        let (head, body) = get(&url, patience)?;
        let code = head.first.split(' ').nth(1).unwrap_or_default();
        match (code.chars().next(), head.field("location")) {
            (Some('2'), _) => return Ok((head, body)),
            (Some('3'), Some(place)) if place.starts_with('/') => {
                let (authority, _) = split(&url)?;
                url = format!("http://{authority}{place}");
            }
            (Some('3'), Some(place)) => url = place.to_owned(),
            _ => return Err(Refused(head.first).into()),
        }
    }
    bail!("{url}: redirected too often")
}

/// The authority and the path of a URL.
fn split(url: &str) -> anyhow::Result<(&str, &str)> {
    let rest = match url.split_once("://") {
        Some(("http", rest)) => rest,
        Some((scheme, _)) => bail!("{scheme} is not a protocol that this command speaks; http is"),
        None => url,
    };
    let end = rest.find('/').unwrap_or(rest.len());
    Ok(rest.split_at(end))
}

fn get(url: &str, patience: Duration) -> anyhow::Result<(Head, BufReader<std::net::TcpStream>)> {
    let (authority, path) = split(url)?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            (host, port.parse().with_context(|| format!("{port:?} is not a port"))?)
        }
        _ => (authority, 80),
    };
    let mut stream = resolve::connect(host, port, patience)?;
    stream.set_read_timeout(Some(patience))?;
    let path = if path.is_empty() { "/" } else { path };
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: toolbox\r\nConnection: close\r\n\r\n")?;
    let mut stream = BufReader::new(stream);
    let head = match Head::read(&mut stream) {
        Ok(Some(head)) => head,
        Ok(None) => bail!("{authority} closed the connection without an answer"),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            bail!("{authority}: download timed out")
        }
        Err(error) => return Err(error).with_context(|| authority.to_owned()),
    };
    Ok((head, stream))
}
