//! `httpd [-p PORT] [-m MESSAGE] [-l SECONDS] [FOLDER]`: serves a folder, or tells who was asked and what.
//!
//! Told to end, it goes on for `-l` seconds, since not everybody knows yet that it ends, asking clients to go elsewhere for their next
//! request; then it takes no more connections, finishes the requests that are open, and ends.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd,
    path::{Component, Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use super::{Outcome, hostname, http::Head, options::Options, signals::Ending};

/// How long a client may take to send a request that it has begun, and the server waits for the open ones when it ends.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a connection without a request looks whether it is time to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

struct Server {
    folder: Option<PathBuf>,
    message: Option<String>,
    name: String,
    /// Each answer is the last one of its connection.
    ending: AtomicBool,
    /// Connections without a request are closed.
    closed: AtomicBool,
    open: Mutex<usize>,
    changed: Condvar,
}

pub fn run(arguments: &[String]) -> Outcome {
    let ending = Ending::block();
    let options = Options::parse(arguments, "p:m:l:")?;
    let folder = match options.rest {
        [] => None,
        [folder] => Some(fs::canonicalize(folder).with_context(|| folder.clone())?),
        _ => bail!("which folder? httpd [-p PORT] [-m MESSAGE] [-l SECONDS] [FOLDER]"),
    };
    let linger = Duration::from_secs(options.number('l', 1)?);
    let port = options.number('p', 8080)?;
    let server = Arc::new(Server {
        folder,
        message: options.value('m').map(String::from),
        name: hostname::name()?,
        ending: AtomicBool::new(false),
        closed: AtomicBool::new(false),
        open: Mutex::new(0),
        changed: Condvar::new(),
    });
    let listener = listen(port).with_context(|| format!("cannot listen on port {port}"))?;
    say(&format!("listening on {}", listener.local_addr()?));
    let accepting = (server.clone(), listener.try_clone()?);
    std::thread::spawn(move || accept(&accepting.0, &accepting.1));

    ending.wait(None);
    server.ending.store(true, Ordering::SeqCst);
    ending.wait(Some(linger));
    server.closed.store(true, Ordering::SeqCst);
    // Whoever is connected already is answered; the thread that accepts finds nobody after that.
    listener.set_nonblocking(true)?;
    while let Ok((stream, client)) = listener.accept() {
        server.spawn(stream, client);
    }
    // The thread that accepts holds the socket, too; this ends it for both, and later clients are refused at once.
    // SAFETY: the call takes a descriptor that is open, and a number.
    unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
    let deadline = Instant::now() + PATIENCE;
    let mut open = server.open();
    while *open > 0 && Instant::now() < deadline {
        open = server.changed.wait_timeout(open, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
    }
    Ok(0)
}

/// Both families where there are both.
pub fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

fn say(line: &str) {
    // Nobody may be there to read it, which is no reason to stop serving.
    let _ = writeln!(io::stdout(), "{line}");
}

fn accept(server: &Arc<Server>, listener: &TcpListener) {
    while !server.closed.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((stream, client)) => server.spawn(stream, client),
            // Out of descriptors, perhaps: some are given back soon.
            Err(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

impl Server {
    fn open(&self) -> MutexGuard<'_, usize> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(self: &Arc<Self>, stream: TcpStream, client: SocketAddr) {
        *self.open() += 1;
        let server = self.clone();
        let spawned = std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
            // A client that goes away has no use for an error.
            let _ = server.converse(&stream, client);
            *server.open() -= 1;
            server.changed.notify_all();
        });
        if spawned.is_err() {
            *self.open() -= 1;
        }
    }

    fn converse(&self, stream: &TcpStream, client: SocketAddr) -> io::Result<()> {
        let client = plain(client);
        stream.set_nodelay(true)?;
        stream.set_nonblocking(false)?;
        let mut reader = BufReader::new(stream);
        while self.begins(&mut reader)? {
            stream.set_read_timeout(Some(PATIENCE))?;
            let Some(head) = Head::read(&mut reader)? else { break };
            // A body is taken where its length is told.
            let length = head.field("content-length").and_then(|length| length.parse::<u64>().ok());
            io::copy(&mut (&mut reader).take(length.unwrap_or(0)), &mut io::sink())?;
            let mut words = head.first.split(' ');
            let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let is_last = self.ending.load(Ordering::SeqCst)
                || head.says("connection", "close")
                || head.field("transfer-encoding").is_some()
                || (words.next() != Some("HTTP/1.1") && !head.says("connection", "keep-alive"));
            let answer = self.answer(method, target, &head, stream, client);
            let code = answer.code;
            answer.send(stream, method == "HEAD", is_last)?;
            say(&format!("{client} \"{}\" {code}", head.first));
            if is_last {
                break;
            }
        }
        stream.shutdown(std::net::Shutdown::Write)
    }

    /// Waits for a request; there is none where the connection ends, or the server does.
    fn begins(&self, reader: &mut BufReader<&TcpStream>) -> io::Result<bool> {
        reader.get_ref().set_read_timeout(Some(LOOK_EVERY))?;
        let mut looked = false;
        loop {
            match reader.fill_buf() {
                Ok(bytes) => return Ok(!bytes.is_empty()),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            // A request may have come with the last look.
            if looked && self.closed.load(Ordering::SeqCst) {
                return Ok(false);
            }
            looked = true;
        }
    }

    fn answer(&self, method: &str, target: &str, head: &Head, stream: &TcpStream, client: SocketAddr) -> Answer {
        match &self.folder {
            None => self.echo(head, stream, client),
            Some(folder) if method == "GET" || method == "HEAD" => file(folder, target),
            Some(_) => Answer::text("405 Method Not Allowed", "only GET and HEAD\n".into()),
        }
    }

    fn echo(&self, head: &Head, stream: &TcpStream, client: SocketAddr) -> Answer {
        let mut text = String::new();
        if let Some(message) = &self.message {
            let _ = writeln!(text, "{message}");
        }
        let address = stream.local_addr().map(|address| plain(address).to_string()).unwrap_or_default();
        let _ = write!(text, "hostname: {}\naddress: {address}\nclient: {client}\n\n{}\n", self.name, head.first);
        for (name, value) in &head.fields {
            let _ = writeln!(text, "{name}: {value}");
        }
        Answer::text("200 OK", text)
    }
}

/// An address of IPv4 as itself, though it comes in the clothes of IPv6.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

struct Answer {
    code: &'static str,
    kind: &'static str,
    length: u64,
    body: Box<dyn Read>,
}

impl Answer {
    fn text(code: &'static str, text: String) -> Self {
        let (kind, length) = ("text/plain; charset=utf-8", text.len() as u64);
        Self { code, kind, length, body: Box::new(io::Cursor::new(text)) }
    }

    fn send(self, mut stream: &TcpStream, without_body: bool, is_last: bool) -> io::Result<()> {
        let connection = if is_last { "close" } else { "keep-alive" };
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n",
            self.code, self.kind, self.length
        );
        let mut whole = head.as_bytes().chain(self.body.take(if without_body { 0 } else { self.length }));
        let mut writer = io::BufWriter::new(&mut stream);
        io::copy(&mut whole, &mut writer)?;
        writer.flush()
    }
}

/// A file of the folder, wherever the path and links in it lead.
fn file(folder: &Path, target: &str) -> Answer {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let missing = || Answer::text("404 Not Found", format!("{path} is not here\n"));
    let relative: PathBuf = Path::new(path).components().filter(|part| matches!(part, Component::Normal(_))).collect();
    let mut whole = folder.join(relative);
    if whole.is_dir() {
        whole.push("index.html");
    }
    let Ok(whole) = fs::canonicalize(whole) else { return missing() };
    if !whole.starts_with(folder) {
        return missing();
    }
    let Ok(file) = File::open(&whole) else { return missing() };
    let length = match file.metadata() {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        _ => return missing(),
    };
    let kind = match whole.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("txt" | "md" | "yaml") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    };
    Answer { code: "200 OK", kind, length, body: Box::new(file) }
}
