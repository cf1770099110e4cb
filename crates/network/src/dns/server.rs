//! The name server's sockets: questions over UDP and TCP, answered from the zone or by others.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hickory_proto::{
    op::{Edns, Message, MessageType, OpCode, Query, ResponseCode},
    rr::{DNSClass, RData, Record},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::Semaphore,
    time::{sleep, timeout},
};

use super::{
    forward::Forwarder,
    zone::{Cluster, Found, Zone},
};
use crate::Error;

/// How long a connection may be silent.
const PATIENCE: Duration = Duration::from_secs(10);
const CONNECTIONS: usize = 256;
const AFTER_FAILURE: Duration = Duration::from_millis(100);
/// What fits into a datagram that is not announced to be larger.
const SMALLEST: u16 = 512;
/// As much as we send in a datagram, whatever the client would take. Pods are near: nothing is lost on the way.
const LARGEST: u16 = 4096;

pub(super) struct Server<C> {
    zone: Zone<C>,
    others: Forwarder,
    /// How many answers with several addresses there have been.
    turn: AtomicUsize,
}

/// Where the questions come from.
pub(super) struct Sockets {
    udp: UdpSocket,
    tcp: TcpListener,
}

impl Sockets {
    pub async fn bind(at: SocketAddr) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error(format!("cannot listen for names at {at}: {error}"));
        let tcp = TcpListener::bind(at).await.map_err(failed)?;
        // The same port, also when any was asked for.
        let udp = UdpSocket::bind(tcp.local_addr().map_err(failed)?).await.map_err(failed)?;
        Ok(Self { udp, tcp })
    }

    pub fn address(&self) -> Option<SocketAddr> {
        self.tcp.local_addr().ok()
    }
}

impl<C: Cluster> Server<C> {
    pub fn new(zone: Zone<C>, others: Forwarder) -> Self {
        Self { zone, others, turn: AtomicUsize::new(0) }
    }

    /// Answers until it is dropped.
    pub async fn serve(self: Arc<Self>, sockets: Sockets) {
        tokio::join!(self.clone().datagrams(Arc::new(sockets.udp)), self.connections(sockets.tcp));
    }

    async fn datagrams(self: Arc<Self>, socket: Arc<UdpSocket>) {
        let mut buffer = vec![0; 4096];
        loop {
            let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
            let Some(question) = Question::read(buffer.get(..length).unwrap_or_default()) else { continue };
            let largest = question.largest;
            match self.at_once(question) {
                Ok(answer) => drop(socket.try_send_to(&fitting(&answer, largest), from)),
                Err(question) => {
                    let (server, socket) = (self.clone(), socket.clone());
                    tokio::spawn(async move {
                        let answer = server.by_others(question).await;
                        socket.send_to(&fitting(&answer, largest), from).await
                    });
                }
            }
        }
    }

    async fn connections(self: Arc<Self>, listener: TcpListener) {
        let few = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(one_of_few) = few.clone().acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors, perhaps: some are given back soon.
                sleep(AFTER_FAILURE).await;
                continue;
            };
            let server = self.clone();
            tokio::spawn(async move {
                let _one_of_few = one_of_few;
                server.connection(stream).await
            });
        }
    }

    async fn connection(self: Arc<Self>, mut stream: TcpStream) -> std::io::Result<()> {
        loop {
            let length = timeout(PATIENCE, stream.read_u16()).await??;
            let mut buffer = vec![0; usize::from(length)];
            timeout(PATIENCE, stream.read_exact(&mut buffer)).await??;
            let Some(question) = Question::read(&buffer) else { return Ok(()) };
            let answer = match self.at_once(question) {
                Ok(answer) => answer,
                Err(question) => self.by_others(question).await,
            };
            let bytes = fitting(&answer, u16::MAX);
            let length = u16::try_from(bytes.len()).map_err(std::io::Error::other)?;
            timeout(PATIENCE, stream.write_all(&[&length.to_be_bytes()[..], &bytes].concat())).await??;
        }
    }

    /// The answer, if it is known here; the question, if others have to be asked.
    fn at_once(&self, question: Question) -> Result<Message, Question> {
        if let Some(refusal) = question.refusal {
            return Ok(question.answer(refusal));
        }
        let Some(asked) = question.message.queries.first() else { return Ok(question.answer(ResponseCode::FormErr)) };
        let found = self.zone.look_up(asked.name(), asked.query_type());
        let mut answer = question.answer(ResponseCode::NoError);
        answer.metadata.authoritative = true;
        match found {
            Found::Records { mut answers, beside } => {
                self.take_turns(&mut answers);
                answer.answers = answers;
                answer.additionals = beside;
            }
            Found::Nothing => answer.authorities = vec![self.zone.authority()],
            Found::NoSuchName => {
                answer.metadata.response_code = ResponseCode::NXDomain;
                answer.authorities = vec![self.zone.authority()];
            }
            Found::NotOurs | Found::Elsewhere { .. } => return Err(question),
        }
        Ok(answer)
    }

    /// Most clients take the first address, so each is told another one first.
    fn take_turns(&self, answers: &mut [Record]) {
        let is_address = |record: &Record| matches!(record.data, RData::A(_) | RData::AAAA(_));
        let aliases = answers.iter().take_while(|record| !is_address(record)).count();
        let addresses = answers.get_mut(aliases..).unwrap_or_default();
        if addresses.len() > 1 {
            addresses.rotate_left(self.turn.fetch_add(1, Ordering::Relaxed) % addresses.len());
        }
    }

    async fn by_others(&self, question: Question) -> Message {
        let Some(asked) = question.message.queries.first() else { return question.answer(ResponseCode::FormErr) };
        match self.zone.look_up(asked.name(), asked.query_type()) {
            Found::Elsewhere { alias, target } => {
                let mut query = question.message.clone();
                query.queries = vec![Query::query(target, asked.query_type())];
                let there = self.others.ask(&query).await;
                question.with_alias(*alias, there)
            }
            _ => match self.others.ask(&question.message).await {
                Some(answer) => answer,
                None => question.answer(ResponseCode::ServFail),
            },
        }
    }
}

/// A query that can be answered, if only by a refusal.
struct Question {
    message: Message,
    refusal: Option<ResponseCode>,
    /// How large a datagram the client takes.
    largest: u16,
}

impl Question {
    /// None for what must not be answered: what is no query, or not even a message.
    fn read(bytes: &[u8]) -> Option<Self> {
        let message = Message::from_vec(bytes).ok()?;
        if message.metadata.message_type != MessageType::Query {
            return None;
        }
        let refusal = match message.queries.as_slice() {
            _ if message.metadata.op_code != OpCode::Query => Some(ResponseCode::NotImp),
            _ if message.edns.as_ref().is_some_and(|edns| edns.version() > 0) => Some(ResponseCode::BADVERS),
            [one] if one.query_class() == DNSClass::IN => None,
            [_] => Some(ResponseCode::Refused),
            _ => Some(ResponseCode::FormErr),
        };
        let largest = message.edns.as_ref().map_or(SMALLEST, |edns| edns.max_payload().clamp(SMALLEST, LARGEST));
        Some(Self { message, refusal, largest })
    }

    fn answer(&self, code: ResponseCode) -> Message {
        let asked = &self.message;
        let mut answer = Message::response(asked.metadata.id, asked.metadata.op_code);
        answer.metadata.recursion_desired = asked.metadata.recursion_desired;
        answer.metadata.recursion_available = true;
        answer.metadata.response_code = code;
        answer.queries.clone_from(&asked.queries);
        if asked.edns.is_some() {
            let mut edns = Edns::new();
            edns.set_max_payload(LARGEST);
            edns.set_rcode_high(code.high());
            answer.edns = Some(edns);
        }
        answer
    }

    /// The other name, followed by what others say about it.
    fn with_alias(&self, alias: Record, there: Option<Message>) -> Message {
        let code = there.as_ref().map_or(ResponseCode::ServFail, |there| there.metadata.response_code);
        let mut answer = self.answer(code);
        answer.answers = vec![alias];
        answer.answers.extend(there.into_iter().flat_map(|there| there.answers));
        answer
    }
}

/// The message as bytes; without its records if those do not fit, so that the client asks again over TCP.
fn fitting(message: &Message, largest: u16) -> Vec<u8> {
    let bytes = message.to_vec().unwrap_or_default();
    if bytes.len() <= usize::from(largest) { bytes } else { message.truncate().to_vec().unwrap_or_default() }
}
