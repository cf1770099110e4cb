//! Names that are not the cluster's: asked of the name servers that the node itself uses.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use hickory_proto::op::{Message, MessageType, ResponseCode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    sync::Semaphore,
    time::timeout,
};

pub(super) const PORT: u16 = 53;
const PER_SERVER: Duration = Duration::from_secs(2);
/// As often as all servers are asked before it is given up.
const ROUNDS: usize = 2;
const AT_ONCE: usize = 1000;
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// As large as the client that is behind a question may have allowed.
const LARGEST_DATAGRAM: usize = u16::MAX as usize;
/// Answers that say only that this server does not know.
const FAILURES: [ResponseCode; 2] = [ResponseCode::ServFail, ResponseCode::Refused];

/// Asks other name servers.
pub(super) struct Forwarder {
    /// `/etc/resolv.conf`, or another file of its kind.
    file: PathBuf,
    /// Our own addresses: asking them would never end.
    not: HashSet<IpAddr>,
    known: Mutex<Known>,
    /// The place of the server that answered last.
    answered: AtomicUsize,
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
        Self {
            file,
            not: not.into_iter().collect(),
            known: Mutex::default(),
            answered: AtomicUsize::new(0),
            at_once: Semaphore::new(AT_ONCE),
        }
    }

    /// The answer to a query, with the query's id. None if nobody answers. The server that answered last is asked first.
    pub async fn ask(&self, query: &Message) -> Option<Message> {
        let _one_of_few = self.at_once.try_acquire().ok()?;
        let bytes = query.to_vec().ok()?;
        let servers = self.servers();
        let (first, mut failure) = (self.answered.load(Ordering::Relaxed), None);
        for turn in 0..servers.len() * ROUNDS {
            if turn == servers.len() && failure.is_some() {
                break;
            }
            let number = (first + turn) % servers.len();
            let Some(server) = servers.get(number) else { break };
            match one(*server, query, &bytes).await {
                Ok(answer) if !FAILURES.contains(&answer.metadata.response_code) => {
                    self.answered.store(number, Ordering::Relaxed);
                    return Some(answer);
                }
                // Another one may know better.
                Ok(answer) => failure = Some(answer),
                Err(error) => tracing::debug!(%server, %error, "a name server does not answer"),
            }
        }
        failure
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

async fn one(server: SocketAddr, query: &Message, bytes: &[u8]) -> std::io::Result<Message> {
    let answer = timeout(PER_SERVER, over_udp(server, query, bytes)).await??;
    if !answer.metadata.truncation {
        return Ok(answer);
    }
    match timeout(PER_SERVER, over_tcp(server, query, bytes)).await {
        Ok(Ok(whole)) => Ok(whole),
        // Whoever asked may have more luck over TCP.
        _ => Ok(answer),
    }
}

async fn over_udp(server: SocketAddr, query: &Message, bytes: &[u8]) -> std::io::Result<Message> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // A port that nobody can guess, and that hears from this server only.
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(bytes).await?;
    let mut buffer = Vec::with_capacity(LARGEST_DATAGRAM);
    loop {
        buffer.clear();
        socket.recv_buf(&mut buffer).await?;
        if let Some(answer) = answer_to(query, &buffer) {
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

    fn forwarder(servers: &[SocketAddr]) -> Forwarder {
        let known = Known { looked: Some(Instant::now()), changed: None, servers: servers.into() };
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
        let answer = forwarder(&[server]).ask(&query()).await.unwrap();
        assert_eq!((answer.metadata.id, answer.metadata.truncation), (7, false));
    }

    /// A server that answers everything with a code; how often it was asked.
    async fn answering(code: ResponseCode) -> (SocketAddr, Arc<AtomicUsize>) {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (server, asked) = (udp.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let count = asked.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((_, from)) = udp.recv_from(&mut buffer).await {
                count.fetch_add(1, Ordering::SeqCst);
                let mut answer = query().into_response();
                answer.metadata.response_code = code;
                udp.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
            }
        });
        (server, asked)
    }

    #[tokio::test]
    async fn a_server_that_fails_is_passed_over_and_not_asked_first_again() {
        let (bad, asked_bad) = answering(ResponseCode::ServFail).await;
        let (good, asked_good) = answering(ResponseCode::NXDomain).await;
        let forwarder = forwarder(&[bad, good]);
        for _ in 0..3 {
            let answer = forwarder.ask(&query()).await.unwrap();
            assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain);
        }
        assert_eq!((asked_bad.load(Ordering::SeqCst), asked_good.load(Ordering::SeqCst)), (1, 3));
        let only_bad = self::forwarder(&[bad]).ask(&query()).await.unwrap();
        assert_eq!(only_bad.metadata.response_code, ResponseCode::ServFail, "told as it is");
    }

    #[tokio::test]
    async fn without_servers_nobody_answers() {
        assert_eq!(Forwarder::new("/nonexistent".into(), []).ask(&query()).await, None);
    }
}
