//! Names that are not the cluster's: asked of the name servers that the node itself uses.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use hickory_proto::op::{Message, MessageType};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    sync::Semaphore,
    time::timeout,
};

const PORT: u16 = 53;
const PER_SERVER: Duration = Duration::from_secs(2);
/// As often as all servers are asked before it is given up.
const ROUNDS: usize = 2;
const AT_ONCE: usize = 1000;
const LOOK_AGAIN: Duration = Duration::from_secs(5);
const LARGEST_DATAGRAM: usize = 4096;

/// Asks other name servers.
pub(super) struct Forwarder {
    /// `/etc/resolv.conf`, or another file of its kind.
    file: PathBuf,
    /// Our own addresses: asking them would never end.
    not: HashSet<IpAddr>,
    known: Mutex<Known>,
    at_once: Semaphore,
}

#[derive(Default)]
struct Known {
    looked: Option<Instant>,
    changed: Option<SystemTime>,
    servers: Arc<[SocketAddr]>,
}

impl Forwarder {
    pub fn new(file: PathBuf, not: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { file, not: not.into_iter().collect(), known: Mutex::default(), at_once: Semaphore::new(AT_ONCE) }
    }

    /// The answer to a query, with the query's id. None if nobody answers.
    pub async fn ask(&self, query: &Message) -> Option<Message> {
        let _one_of_few = self.at_once.try_acquire().ok()?;
        let bytes = query.to_vec().ok()?;
        let servers = self.servers();
        for server in servers.iter().cycle().take(servers.len() * ROUNDS) {
            match timeout(PER_SERVER, over_udp(*server, query, &bytes)).await {
                Ok(Ok(answer)) if !answer.metadata.truncation => return Some(answer),
                Ok(Ok(short)) => {
                    return timeout(PER_SERVER, over_tcp(*server, query, &bytes)).await.ok()?.ok().or(Some(short));
                }
                Ok(Err(error)) => tracing::debug!(%server, %error, "a name server does not answer"),
                Err(_) => tracing::debug!(%server, "a name server does not answer in time"),
            }
        }
        None
    }

    /// The servers, read again when the file has changed.
    fn servers(&self) -> Arc<[SocketAddr]> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.looked.is_none_or(|looked| looked.elapsed() > LOOK_AGAIN) {
            known.looked = Some(Instant::now());
            let changed = std::fs::metadata(&self.file).and_then(|file| file.modified()).ok();
            if changed.is_none() || changed != known.changed {
                let text = std::fs::read_to_string(&self.file).unwrap_or_default();
                known.servers = name_servers(&text).filter(|server| !self.not.contains(&server.ip())).collect();
                known.changed = changed;
            }
        }
        known.servers.clone()
    }
}

/// The servers of a `resolv.conf`.
fn name_servers(text: &str) -> impl Iterator<Item = SocketAddr> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = (words.next()? == "nameserver").then(|| words.next())??;
        // A link-local address says by which link it is reached; those are left out.
        address.parse().ok().map(|address: IpAddr| SocketAddr::new(address, PORT))
    })
}

async fn over_udp(server: SocketAddr, query: &Message, bytes: &[u8]) -> std::io::Result<Message> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // A port that nobody can guess, and that hears from this server only.
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(bytes).await?;
    let mut buffer = vec![0; LARGEST_DATAGRAM];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(answer) = answer_to(query, buffer.get(..length).unwrap_or_default()) {
            return Ok(answer);
        }
    }
}

async fn over_tcp(server: SocketAddr, query: &Message, bytes: &[u8]) -> std::io::Result<Message> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(bytes.len()).map_err(std::io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), bytes].concat()).await?;
    let mut buffer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut buffer).await?;
    answer_to(query, &buffer).ok_or_else(|| std::io::Error::other("the answer is to another question"))
}

/// The message, if it answers this query.
fn answer_to(query: &Message, bytes: &[u8]) -> Option<Message> {
    let answer = Message::from_vec(bytes).ok()?;
    let metadata = &answer.metadata;
    let matches = metadata.id == query.metadata.id
        && metadata.message_type == MessageType::Response
        && answer.queries == query.queries;
    matches.then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_read_as_resolvers_do() {
        let text =
            "# a comment\nsearch a b\nnameserver 10.0.0.2\nnameserver fe80::1%eth0\n  nameserver\tfd00::1\noptions x";
        let servers: Vec<String> = name_servers(text).map(|server| server.to_string()).collect();
        assert_eq!(servers, ["10.0.0.2:53", "[fd00::1]:53"]);
    }

    fn forwarder(server: SocketAddr) -> Forwarder {
        let known = Known { looked: Some(Instant::now()), changed: None, servers: Arc::new([server]) };
        Forwarder { known: Mutex::new(known), ..Forwarder::new("/nonexistent".into(), []) }
    }

    fn query() -> Message {
        use hickory_proto::{
            op::{OpCode, Query},
            rr::{Name, RecordType},
        };
        let mut query = Message::new(7, MessageType::Query, OpCode::Query);
        query.add_query(Query::query(Name::from_ascii("example.org.").unwrap(), RecordType::A));
        query
    }

    fn answer(truncated: bool) -> Vec<u8> {
        let mut answer = query().into_response();
        answer.metadata.truncation = truncated;
        answer.to_vec().unwrap()
    }

    #[tokio::test]
    async fn a_truncated_answer_is_asked_for_again_and_a_strangers_is_not_believed() {
        use tokio::net::TcpListener;
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let udp = UdpSocket::bind(tcp.local_addr().unwrap()).await.unwrap();
        let server = tcp.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            let (_, from) = udp.recv_from(&mut buffer).await.unwrap();
            let mut wrong = query().into_response();
            wrong.metadata.id = 8;
            udp.send_to(&wrong.to_vec().unwrap(), from).await.unwrap();
            udp.send_to(&answer(true), from).await.unwrap();
            let (mut stream, _) = tcp.accept().await.unwrap();
            let length = stream.read_u16().await.unwrap();
            stream.read_exact(&mut buffer[..usize::from(length)]).await.unwrap();
            let whole = answer(false);
            stream.write_u16(u16::try_from(whole.len()).unwrap()).await.unwrap();
            stream.write_all(&whole).await.unwrap();
        });
        let answer = forwarder(server).ask(&query()).await.unwrap();
        assert_eq!((answer.metadata.id, answer.metadata.truncation), (7, false));
    }

    #[tokio::test]
    async fn without_servers_nobody_answers() {
        assert_eq!(Forwarder::new("/nonexistent".into(), []).ask(&query()).await, None);
    }
}
