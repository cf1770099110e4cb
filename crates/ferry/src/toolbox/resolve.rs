//! Names to addresses as /etc/hosts and /etc/resolv.conf say (resolv.conf(5)). libc's way needs files and plugins that an image
//! with one program does not have.

use std::{
    fs, io,
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use anyhow::{Context, bail};
use hickory_proto::{
    op::{Message, Query, ResponseCode},
    rr::{Name, RecordType},
};

/// How often a server is asked, and how long it may take to answer.
const ATTEMPTS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, PartialEq, Eq)]
pub struct Resolver {
    pub servers: Vec<SocketAddr>,
    searches: Vec<String>,
    ndots: usize,
}

impl Resolver {
    pub fn system() -> Self {
        Self::from_text(&fs::read_to_string("/etc/resolv.conf").unwrap_or_default())
    }

    fn from_text(text: &str) -> Self {
        let mut resolver = Self { servers: Vec::new(), searches: Vec::new(), ndots: 1 };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                    resolver.servers.extend(address.map(|address| SocketAddr::from((address, 53))));
                }
                Some("search" | "domain") => resolver.searches = words.map(String::from).collect(),
                Some("options") => {
                    let ndots = words.filter_map(|word| word.strip_prefix("ndots:")?.parse().ok()).next_back();
                    resolver.ndots = ndots.unwrap_or(resolver.ndots);
                }
                _ => {}
            }
        }
        resolver
    }

    /// The full names that a name may mean, in the order in which they are tried.
    fn candidates(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') {
            return vec![name.to_owned()];
        }
        let itself = format!("{name}.");
        let found = self.searches.iter().map(|search| format!("{name}.{}.", search.trim_end_matches('.')));
        if name.matches('.').count() >= self.ndots {
            [itself].into_iter().chain(found).collect()
        } else {
            found.chain([itself]).collect()
        }
    }

    /// Asks for records of one kind until there is a name that is meant: the server, and its answer. A name that exists is meant,
    /// also if it has no such records: whoever would be asked for the next one may not even be there.
    pub fn look_up(&self, name: &str, kind: RecordType) -> anyhow::Result<(SocketAddr, Message)> {
        let mut last = None;
        for candidate in self.candidates(name) {
            let query = Name::from_ascii(&candidate).with_context(|| format!("{name:?} is not a name"))?;
            let (server, answer) = self.ask(&query, kind)?;
            match answer.metadata.response_code {
                ResponseCode::NoError => return Ok((server, answer)),
                ResponseCode::NXDomain => last = Some((server, answer)),
                code => bail!("{candidate}: server {server} answers: {code}"),
            }
        }
        last.context("there is no name to ask for")
    }

    fn ask(&self, name: &Name, kind: RecordType) -> anyhow::Result<(SocketAddr, Message)> {
        let mut last = anyhow::anyhow!("/etc/resolv.conf names no server");
        for server in (0..ATTEMPTS).flat_map(|_| &self.servers) {
            match ask(*server, name, kind) {
                Ok(answer) => return Ok((*server, answer)),
                Err(error) => last = error.context(format!("server {server} does not answer")),
            }
        }
        Err(last)
    }
}

/// Asks one server, by TCP if the answer is too long for a packet.
fn ask(server: SocketAddr, name: &Name, kind: RecordType) -> anyhow::Result<Message> {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name.clone(), kind));
    let request = message.to_vec()?;
    let socket = UdpSocket::bind(if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect(server)?;
    socket.send(&request)?;
    let mut packet = [0; 4096];
    let answer = loop {
        let length = socket.recv(&mut packet)?;
        // Whatever does not belong to the question is somebody else's.
        match Message::from_vec(packet.get(..length).unwrap_or_default()) {
            Ok(answer) if answer.metadata.id == message.metadata.id => break answer,
            _ => {}
        }
    };
    if !answer.metadata.truncation {
        return Ok(answer);
    }
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&[&u16::try_from(request.len())?.to_be_bytes(), request.as_slice()].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    Ok(Message::from_vec(&answer)?)
}

/// All addresses of a name; at least one.
pub fn addresses(name: &str) -> anyhow::Result<Vec<IpAddr>> {
    if let Ok(address) = name.trim_matches(['[', ']']).parse() {
        return Ok(vec![address]);
    }
    let mut found = hosts(&fs::read_to_string("/etc/hosts").unwrap_or_default(), name);
    // Whatever files and servers say or do not say (RFC 6761, 6.3).
    if found.is_empty() && name.eq_ignore_ascii_case("localhost") {
        found = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let resolver = Resolver::system();
    for kind in [RecordType::A, RecordType::AAAA] {
        let (_, answer) = resolver.look_up(name, kind)?;
        found.extend(answer.answers.iter().filter_map(|record| record.data.ip_addr()));
    }
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("{name}: no such name")).into());
    }
    Ok(found)
}

fn hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
    });
    lines.collect()
}

/// Connects to the first address of a name that answers.
pub fn connect(host: &str, port: u16, patience: Duration) -> anyhow::Result<TcpStream> {
    let mut last = anyhow::anyhow!("{host} has no address");
    for address in addresses(host)? {
        match TcpStream::connect_timeout(&(address, port).into(), patience) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = anyhow::Error::new(error).context(format!("cannot connect to {address} port {port}")),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files() {
        let text = "nameserver 10.96.0.10\nsearch default.svc.cluster.local svc.cluster.local\noptions ndots:5\n";
        let resolver = Resolver::from_text(text);
        assert_eq!(resolver.servers, ["10.96.0.10:53".parse().expect("an address")]);
        let names = ["web.default.svc.cluster.local.", "web.svc.cluster.local.", "web."];
        assert_eq!(resolver.candidates("web"), names);
        assert_eq!(resolver.candidates("a.b.c.d.e.f")[0], "a.b.c.d.e.f.");
        assert_eq!(resolver.candidates("web."), ["web."]);
        let text = "127.0.0.1 localhost # home\n10.0.0.5\tpod-1 pod\n";
        assert_eq!(hosts(text, "POD"), ["10.0.0.5".parse::<IpAddr>().expect("an address")]);
        assert_eq!(hosts(text, "home"), Vec::<IpAddr>::new());
    }

    /// A server that knows one name, which has no records, and does not answer anything else: names of others come from a server
    /// that is not there.
    #[test]
    fn a_name_that_exists_is_not_looked_for_elsewhere() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let mut resolver = Resolver::from_text("search near.test far.test\noptions ndots:5\n");
        resolver.servers = vec![server.local_addr().expect("its address")];
        let answering = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for code in [ResponseCode::NXDomain, ResponseCode::NoError] {
                let mut packet = [0; 512];
                let (length, client) = server.recv_from(&mut packet).expect("a question");
                let mut message = Message::from_vec(&packet[..length]).expect("a message");
                asked.push(message.queries[0].name().to_ascii());
                message.metadata.response_code = code;
                server.send_to(&message.to_vec().expect("bytes"), client).expect("sent");
            }
            asked
        });
        let (_, answer) = resolver.look_up("web", RecordType::AAAA).expect("an answer");
        assert_eq!((answer.metadata.response_code, answer.answers.len()), (ResponseCode::NoError, 0));
        assert_eq!(answering.join().expect("it ends"), ["web.near.test.", "web.far.test."]);
    }
}
