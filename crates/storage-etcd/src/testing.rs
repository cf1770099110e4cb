//! Real etcd servers for tests and benches, each in a temporary folder and on ports of its own on loopback. They end
//! with the value that stands for them.

use std::{
    fs::File,
    io,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep},
};

/// Whether there is an etcd to start. If not, says loudly that the caller is skipped.
pub fn etcd_is_installed() -> bool {
    let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("skipped: etcd is not on the PATH; install it, for instance Debian's package etcd-server");
    }
    found
}

/// One etcd process; killed when dropped.
pub struct Server {
    folder: TempDir,
    client_port: u16,
    arguments: Vec<String>,
    process: Option<Child>,
}

impl Server {
    /// A server of its own, ready to be used. `arguments` are added to those that give it its place.
    pub async fn start(arguments: &[&str]) -> io::Result<Self> {
        Self::start_in(tempfile::tempdir()?, arguments).await
    }

    /// The same in a folder of the caller's choice, for instance on a certain disk.
    pub async fn start_in(folder: TempDir, arguments: &[&str]) -> io::Result<Self> {
        let mut server = Self::prepare(folder, &[Ports::free()?], 0, "http", arguments);
        server.restart().await?;
        Ok(server)
    }

    /// A server that is reached by TLS only; `arguments` name its certificates.
    pub async fn start_with_tls(arguments: &[&str]) -> io::Result<Self> {
        let mut server = Self::prepare(tempfile::tempdir()?, &[Ports::free()?], 0, "https", arguments);
        server.restart().await?;
        Ok(server)
    }

    /// The members of a new cluster.
    pub async fn cluster(members: usize, arguments: &[&str]) -> io::Result<Vec<Self>> {
        let ports = (0..members).map(|_| Ports::free()).collect::<io::Result<Vec<_>>>()?;
        let mut servers = (0..members)
            .map(|index| Ok(Self::prepare(tempfile::tempdir()?, &ports, index, "http", arguments)))
            .collect::<io::Result<Vec<_>>>()?;
        for server in &mut servers {
            server.spawn()?;
        }
        for server in &mut servers {
            server.ready().await?;
        }
        Ok(servers)
    }

    fn prepare(folder: TempDir, ports: &[Ports], index: usize, scheme: &str, arguments: &[&str]) -> Self {
        let peer = |index: usize| format!("http://127.0.0.1:{}", ports[index].peer);
        let client = format!("{scheme}://127.0.0.1:{}", ports[index].client);
        let members: Vec<String> = (0..ports.len()).map(|index| format!("member{index}={}", peer(index))).collect();
        let mut all: Vec<String> = [
            ("--name", format!("member{index}")),
            ("--data-dir", folder.path().join("data").display().to_string()),
            ("--listen-client-urls", client.clone()),
            ("--advertise-client-urls", client),
            ("--listen-peer-urls", peer(index)),
            ("--initial-advertise-peer-urls", peer(index)),
            ("--initial-cluster", members.join(",")),
            // Room for the largest value and what surrounds it.
            ("--max-request-bytes", "2097152".into()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
        all.extend(arguments.iter().map(|&argument| argument.to_owned()));
        Self { folder, client_port: ports[index].client, arguments: all, process: None }
    }

    /// `host:port` for clients.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }

    /// Where its data and its log are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Ends the process at once, as a crash does (SIGKILL).
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts it on the data it has, after [`Server::kill`].
    pub async fn restart(&mut self) -> io::Result<()> {
        self.spawn()?;
        self.ready().await
    }

    fn spawn(&mut self) -> io::Result<()> {
        let log = File::options().create(true).append(true).open(self.folder.path().join("log"))?;
        let process = Command::new("etcd")
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.process = Some(process);
        Ok(())
    }

    /// Waits until it takes connections.
    async fn ready(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(self.endpoint()).await.is_err() {
            let ended = self.process.as_mut().map(Child::try_wait).transpose()?.flatten();
            if ended.is_some() || Instant::now() > deadline {
                let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                return Err(io::Error::other(format!("etcd did not start ({ended:?}):\n{log}")));
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Calls etcd's JSON gateway, for what the engine itself never does: `post("/v3/auth/enable", "{}")`.
    pub async fn post(&self, path: &str, body: &str) -> io::Result<String> {
        let endpoint = self.endpoint();
        let mut connection = TcpStream::connect(&endpoint).await?;
        let length = body.len();
        let request = format!("POST {path} HTTP/1.0\r\nHost: {endpoint}\r\nContent-Length: {length}\r\n\r\n{body}");
        connection.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.contains(" 200 ") => Ok(body.to_owned()),
            _ => Err(io::Error::other(format!("{path}: {answer}"))),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Ports {
    client: u16,
    peer: u16,
}

impl Ports {
    fn free() -> io::Result<Self> {
        let (client, peer) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
        Ok(Self { client: client.local_addr()?.port(), peer: peer.local_addr()?.port() })
    }
}
