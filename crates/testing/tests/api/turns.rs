//! Whoever sends on many connections is not served before somebody who sends on one.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use api_server::{
    Server,
    body::Body,
    serving::{self, Handler, Peer, ServerCertificate, authority::Names},
};
use hyper::{Request, Response, body::Incoming, header::USER_AGENT};
use testing::{
    TestServer,
    client::{Client, Trust},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

const FLOOD: usize = 200;

/// The server, and in which order it answered whom.
struct Noting {
    server: Arc<Server>,
    answered: Mutex<Vec<String>>,
}

impl Handler for Noting {
    async fn handle(self: Arc<Self>, peer: Peer, request: Request<Incoming>) -> Response<Body> {
        let who = request.headers().get(USER_AGENT).and_then(|name| name.to_str().ok()).unwrap_or_default().to_owned();
        let answer = self.server.clone().handle(peer, request).await;
        self.answered.lock().expect("nobody panics").push(who);
        answer
    }
}

/// The server on one thread, which can be made to stand still.
struct OneThread {
    address: SocketAddr,
    noting: Arc<Noting>,
    runtime: tokio::runtime::Handle,
    stop: CancellationToken,
}

impl OneThread {
    async fn serve(server: &TestServer) -> Self {
        let names = Names { dns: Vec::new(), addresses: vec![Ipv4Addr::LOCALHOST.into()] };
        let certificate = Arc::new(ServerCertificate::new(&server.authority(), &names).expect("a certificate"));
        let tls = Arc::new(serving::server_config(certificate).expect("TLS settings"));
        let noting = Arc::new(Noting { server: server.server().clone(), answered: Mutex::default() });
        let stop = CancellationToken::new();
        let (tell, told) = oneshot::channel();
        let (handler, stopped) = (noting.clone(), stop.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
                let address = listener.local_addr().expect("its address");
                let _ = tell.send((address, tokio::runtime::Handle::current()));
                serving::serve(listener, tls, handler, stopped, Duration::ZERO).await;
            });
        });
        let (address, runtime) = told.await.expect("it listens");
        Self { address, noting, runtime, stop }
    }

    async fn connect(&self, server: &TestServer, user: &str) -> Caller {
        let trust = Trust::user(&server.authority(), user, "tenants");
        let stream = Client::new(self.address, trust).connect(b"http/1.1").await.expect("a connection");
        let mut caller = Caller { stream, user: user.to_owned() };
        // From here on it is known whose connection this is.
        caller.ask().await;
        caller.take_answer().await;
        caller
    }

    /// Stops the thread until the sender is dropped.
    async fn stands_still(&self) -> mpsc::Sender<()> {
        let (go_on, wait) = mpsc::channel::<()>();
        let (tell, told) = oneshot::channel();
        self.runtime.spawn(async move {
            let _ = tell.send(());
            let _ = wait.recv();
        });
        told.await.expect("it stands still");
        go_on
    }
}

impl Drop for OneThread {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct Caller {
    stream: TlsStream<TcpStream>,
    user: String,
}

impl Caller {
    async fn ask(&mut self) {
        let request = format!("GET /version HTTP/1.1\r\nHost: server\r\nUser-Agent: {}\r\n\r\n", self.user);
        self.stream.write_all(request.as_bytes()).await.expect("a request");
        self.stream.flush().await.expect("a request");
    }

    async fn take_answer(&mut self) {
        let mut read = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&read).to_lowercase();
            let length = text.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next());
            let length = length.and_then(|length| length.parse::<usize>().ok());
            if let (Some(end), Some(length)) = (text.find("\r\n\r\n"), length)
                && read.len() >= end + 4 + length
            {
                assert!(text.starts_with("http/1.1 200"), "{text}");
                return;
            }
            assert!(self.stream.read_buf(&mut read).await.expect("an answer") > 0, "an answer to the end");
        }
    }
}

/// All requests of a flood are there before that of somebody else, who comes after a few of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_waits_for_a_few_of_a_flood() {
    let server = TestServer::embedded().await;
    let serving = OneThread::serve(&server).await;
    let mut flood = Vec::new();
    for _ in 0..FLOOD {
        flood.push(serving.connect(&server, "mallory").await);
    }
    let mut alice = serving.connect(&server, "alice").await;

    let standing = serving.stands_still().await;
    serving.noting.answered.lock().expect("nobody panics").clear();
    for caller in &mut flood {
        caller.ask().await;
    }
    alice.ask().await;
    drop(standing);
    alice.take_answer().await;
    for caller in &mut flood {
        caller.take_answer().await;
    }
    let answered = serving.noting.answered.lock().expect("nobody panics").clone();
    assert_eq!(answered.len(), FLOOD + 1);
    let before = answered.iter().position(|who| who == "alice");
    assert!(before.is_some_and(|before| before <= 4), "{before:?} requests of the flood were answered first");
}
