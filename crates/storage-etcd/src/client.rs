//! Calls to an etcd cluster: over any of its members, with our credentials, and again where that is safe.
//!
//! Connections are made when needed and made again when lost, so a client exists before its etcd does. Reads are
//! repeated until one succeeds or the caller's patience ends. A write is repeated only while it surely was not executed
//! (`failure::Verdict`); otherwise the caller is told that its fate is unknown.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use http::uri::PathAndQuery;
use prost::Message;
use storage::{Error, Revision};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout},
};
use tonic::{
    Request, Response, Status, Streaming,
    client::Grpc,
    metadata::{Ascii, MetadataMap, MetadataValue},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use tonic_prost::ProstCodec;

use crate::{
    Options, OptionsError,
    failure::{self, Verdict},
    keys, wire,
};

/// After this long without an answer a read is tried elsewhere. etcd itself gives up after 7 s.
const READ_ATTEMPT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// etcd closes connections that are pinged more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a call may be executed twice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    Harmless,
    Never,
}

/// A method of etcd's API.
pub(crate) mod method {
    pub const RANGE: &str = "/etcdserverpb.KV/Range";
    pub const PUT: &str = "/etcdserverpb.KV/Put";
    pub const TXN: &str = "/etcdserverpb.KV/Txn";
    pub const COMPACT: &str = "/etcdserverpb.KV/Compact";
    pub const WATCH: &str = "/etcdserverpb.Watch/Watch";
    pub const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
    pub const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
    pub const STATUS: &str = "/etcdserverpb.Maintenance/Status";
}

pub(crate) struct Client {
    options: Options,
    members: Vec<Member>,
    /// The member that answered last.
    preferred: AtomicUsize,
    token: Mutex<Token>,
}

struct Member {
    endpoint: Endpoint,
    channel: Channel,
}

#[derive(Clone, Default)]
enum Token {
    #[default]
    Unknown,
    /// There are no credentials, or etcd wants none.
    NotNeeded,
    Granted(MetadataValue<Ascii>),
}

impl Client {
    /// Must be called inside a tokio runtime.
    pub fn new(options: Options) -> Result<Self, OptionsError> {
        if options.endpoints.is_empty() {
            return Err(OptionsError::Address(vec!["there is no endpoint".into()]));
        }
        let tls = options.tls.as_ref().map(tls_config).transpose()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let member = |address: &String| {
            let unusable = |error: tonic::transport::Error| OptionsError::Endpoint {
                endpoint: address.clone(),
                reason: failure::describe(&Status::from_error(error.into())),
            };
            let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
                .map_err(unusable)?
                .connect_timeout(CONNECT_TIMEOUT)
                .http2_keep_alive_interval(PING_INTERVAL)
                .keep_alive_timeout(PING_TIMEOUT);
            if let Some(tls) = &tls {
                endpoint = endpoint.tls_config(tls.clone()).map_err(unusable)?;
            }
            Ok(Member { channel: endpoint.connect_lazy(), endpoint })
        };
        let members = options.endpoints.iter().map(member).collect::<Result<_, _>>()?;
        Ok(Self { options, members, preferred: AtomicUsize::new(0), token: Mutex::default() })
    }

    /// One request, one answer.
    pub async fn call<Q, A>(&self, method: &'static str, request: Q, repeat: Repeat) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let deadline = Instant::now() + self.options.patience;
        let mut pauses = Pauses::default();
        let mut tokens_refused = 0;
        loop {
            let preferred = self.preferred.load(Ordering::Relaxed);
            let mut patience = deadline.saturating_duration_since(Instant::now());
            if repeat == Repeat::Harmless {
                patience = patience.min(READ_ATTEMPT);
            }
            let failed = match timeout(patience, self.attempt(preferred, method, request.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failed)) => failed,
                Err(_) => Failed::new(Status::deadline_exceeded(format!("no answer within {patience:?}"))),
            };
            match failed.verdict {
                Verdict::StaleToken if self.options.credentials.is_some() && tokens_refused < 2 => {
                    tokens_refused += 1;
                    continue;
                }
                Verdict::StaleToken | Verdict::Refused => return Err(failed.status),
                Verdict::NotExecuted | Verdict::Unknown => self.leave(preferred),
            }
            let pause = pauses.next();
            let hopeless = failed.verdict == Verdict::Unknown && repeat == Repeat::Never;
            if hopeless || Instant::now() + pause >= deadline {
                return Err(failed.status);
            }
            tracing::debug!(method, error = failure::describe(&failed.status), "etcd did not answer; trying again");
            sleep(pause).await;
        }
    }

    async fn attempt<Q, A>(&self, member: usize, method: &'static str, request: Q) -> Result<A, Failed>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let token = self.token(member).await.map_err(Failed::unsent)?;
        let answer = unary(&self.member(member).channel, method, request, &token).await.map_err(Failed::new);
        if answer.as_ref().is_err_and(|failed| failed.verdict == Verdict::StaleToken) {
            self.forget_token(&token).await;
        }
        answer
    }

    /// The newest revision of the cluster, linearizable.
    pub async fn current_revision(&self, any_key: Bytes) -> Result<Revision, Error> {
        let request = wire::RangeRequest { key: any_key, count_only: true, ..Default::default() };
        let answer: wire::RangeResponse =
            self.call(method::RANGE, request, Repeat::Harmless).await.map_err(|status| failure::error(&status))?;
        Ok(keys::revision(wire::revision(&answer.header)))
    }

    /// A connection of its own to some member. A watch must not share one: while its reader is slow, what etcd sent
    /// already fills the connection's flow-control window and would hold up everybody else on it.
    pub async fn connect(&self) -> Result<Connection, Status> {
        let preferred = self.preferred.load(Ordering::Relaxed);
        let token = self.token(preferred).await?;
        match self.member(preferred).endpoint.connect().await {
            Ok(channel) => Ok(Connection { channel, member: preferred, token }),
            Err(error) => {
                self.leave(preferred);
                Err(Status::from_error(error.into()))
            }
        }
    }

    /// Tells that a connection was lost, so that the next one goes to another member.
    pub fn lost(&self, connection: &Connection) {
        self.leave(connection.member);
    }

    /// Tells that etcd did not accept the token of a connection.
    pub async fn refused(&self, connection: &Connection) {
        self.forget_token(&connection.token).await;
    }

    fn member(&self, number: usize) -> &Member {
        &self.members[number % self.members.len()]
    }

    fn leave(&self, member: usize) {
        let next = member.wrapping_add(1);
        // If somebody else moved on already, stay where they went.
        let _ = self.preferred.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    async fn token(&self, member: usize) -> Result<Token, Status> {
        // Held while authenticating, so that etcd checks the password once and not for each of many callers.
        let mut token = self.token.lock().await;
        if matches!(*token, Token::Unknown) {
            *token = self.authenticate(member).await?;
        }
        Ok(token.clone())
    }

    async fn forget_token(&self, refused: &Token) {
        let mut token = self.token.lock().await;
        let unchanged = match (&*token, refused) {
            (Token::Granted(current), Token::Granted(refused)) => current == refused,
            (Token::NotNeeded, Token::NotNeeded) => true,
            _ => false,
        };
        if unchanged {
            *token = Token::Unknown;
        }
    }

    async fn authenticate(&self, member: usize) -> Result<Token, Status> {
        let Some(credentials) = &self.options.credentials else {
            return Ok(Token::NotNeeded);
        };
        let request =
            wire::AuthenticateRequest { name: credentials.user.clone(), password: credentials.password.clone() };
        match unary(&self.member(member).channel, method::AUTHENTICATE, request, &Token::Unknown).await {
            Ok(wire::AuthenticateResponse { token }) => {
                token.parse().map(Token::Granted).map_err(|_| Status::internal("etcd's token is not a header value"))
            }
            Err(status) if failure::is_auth_not_enabled(&status) => Ok(Token::NotNeeded),
            Err(status) => Err(status),
        }
    }
}

/// An attempt that brought no answer.
struct Failed {
    status: Status,
    verdict: Verdict,
}

impl Failed {
    fn new(status: Status) -> Self {
        Self { verdict: failure::verdict(&status), status }
    }

    /// It failed before the request itself was sent.
    fn unsent(status: Status) -> Self {
        let verdict = match failure::verdict(&status) {
            Verdict::Unknown => Verdict::NotExecuted,
            other => other,
        };
        Self { status, verdict }
    }
}

/// A connection to one member that nobody else uses.
pub(crate) struct Connection {
    channel: Channel,
    member: usize,
    token: Token,
}

impl Connection {
    pub async fn version(&self) -> Result<String, Status> {
        let answer = unary(&self.channel, method::STATUS, wire::StatusRequest {}, &self.token);
        let answer: wire::StatusResponse = timeout(READ_ATTEMPT, answer)
            .await
            .map_err(|_| Status::deadline_exceeded("etcd does not tell its version"))??;
        Ok(answer.version)
    }

    pub async fn watch(
        &self,
        requests: impl tokio_stream::Stream<Item = wire::WatchRequest> + Send + 'static,
    ) -> Result<Streaming<wire::WatchResponse>, Status> {
        let mut grpc = grpc(&self.channel).await?;
        let mut request = Request::new(requests);
        add_headers(request.metadata_mut(), &self.token);
        grpc.streaming(request, PathAndQuery::from_static(method::WATCH), ProstCodec::default())
            .await
            .map(Response::into_inner)
    }
}

/// Waits between attempts, longer each time.
pub(crate) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(Duration::from_millis(25))
    }
}

impl Pauses {
    pub fn next(&mut self) -> Duration {
        self.0 = (self.0 * 2).min(Duration::from_secs(2));
        self.0
    }
}

async fn grpc(channel: &Channel) -> Result<Grpc<Channel>, Status> {
    // etcd limits what it accepts and sends, and the sender of a value limits its size.
    let mut grpc =
        Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX);
    grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
    Ok(grpc)
}

async fn unary<Q, A>(channel: &Channel, method: &'static str, request: Q, token: &Token) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut grpc = grpc(channel).await?;
    let mut request = Request::new(request);
    add_headers(request.metadata_mut(), token);
    grpc.unary(request, PathAndQuery::from_static(method), ProstCodec::<Q, A>::default())
        .await
        .map(Response::into_inner)
}

fn add_headers(headers: &mut MetadataMap, token: &Token) {
    // A member that has lost its leader answers so at once instead of waiting, and ends its watches.
    headers.insert("hasleader", MetadataValue::from_static("true"));
    if let Token::Granted(token) = token {
        headers.insert("token", token.clone());
    }
}

fn tls_config(tls: &crate::Tls) -> Result<ClientTlsConfig, OptionsError> {
    let read =
        |path: &Path| std::fs::read(path).map_err(|source| OptionsError::File { path: path.to_path_buf(), source });
    let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&tls.ca)?));
    if let Some((certificate, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    Ok(config)
}
