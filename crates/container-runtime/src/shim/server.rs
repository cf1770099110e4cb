//! The loop of a shim: it waits for requests, for the ends of processes and for output, and answers.

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with},
    process::{WaitOptions, WaitStatus},
};

use super::{
    container::Container,
    log::Source,
    memory::Unneeded,
    process::{self, News, Pids, Place, Stdio},
    protocol::{self, Reply, Request, SOCKET, VERSION},
    rootfs::{chdir, step},
    spec::{ContainerSpec, Exit, PidNamespace, ProcessSpec},
};
use crate::{services::streams::TerminalSize, state::now};

/// So long after something was done, a shim gives back what memory it can …
const TIDY_AFTER: Duration = Duration::from_secs(1);
/// … and after output, which may come all the time and needs little.
const TIDY_AFTER_OUTPUT: Duration = Duration::from_secs(60);

pub(super) struct Server {
    listener: OwnedFd,
    signals: OwnedFd,
    /// The process that holds the shared pid namespace.
    holder: Option<(i32, OwnedFd)>,
    containers: BTreeMap<String, Container>,
    clients: BTreeMap<u64, Client>,
    next_client: u64,
    /// Processes on their way to their command, by pid.
    starting: BTreeMap<i32, Starting>,
    execs: BTreeMap<i32, Exec>,
    buffer: Vec<u8>,
    /// When to give back memory, if something was done since it was given back last.
    tidy_at: Option<Instant>,
}

struct Client {
    socket: OwnedFd,
    subscribed: bool,
}

struct Starting {
    channel: OwnedFd,
    client: u64,
    pidfd: OwnedFd,
    terminal: Option<OwnedFd>,
    error: Option<String>,
    /// None for an exec.
    container: Option<Container>,
}

struct Exec {
    client: u64,
    pidfd: OwnedFd,
    terminal: Option<OwnedFd>,
    started_at: i64,
}

/// What a descriptor that is ready stands for.
enum Ready {
    Listener,
    Signals,
    Client(u64),
    Starting(i32),
    Output(String, Source),
    Attached(String),
}

impl Server {
    /// Listens in the folder of the sandbox.
    pub(super) fn bind(folder: &Path, holder: Option<(i32, OwnedFd)>) -> io::Result<Self> {
        let signals = child_signals()?;
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        // A path of any length: addresses are short, and only this thread has a working directory.
        step("entering the sandbox's folder", chdir(folder))?;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let _ = fs::remove_file(SOCKET);
        step("binding the socket", rustix::net::bind(&listener, &SocketAddrUnix::new(SOCKET)?))?;
        rustix::net::listen(&listener, 16)?;
        chdir("/")?;
        Ok(Self {
            listener,
            signals,
            holder,
            containers: BTreeMap::new(),
            clients: BTreeMap::new(),
            next_client: 0,
            starting: BTreeMap::new(),
            execs: BTreeMap::new(),
            buffer: vec![0; 16 * 1024],
            tidy_at: Some(Instant::now() + TIDY_AFTER),
        })
    }

    pub(super) fn run(mut self) -> io::Result<()> {
        loop {
            for ready in self.wait()? {
                let is_output = matches!(ready, Ready::Output(..) | Ready::Attached(_));
                let tidy_at = Instant::now() + if is_output { TIDY_AFTER_OUTPUT } else { TIDY_AFTER };
                self.tidy_at = Some(self.tidy_at.map_or(tidy_at, |at| at.min(tidy_at)));
                match ready {
                    Ready::Listener => self.accept(),
                    Ready::Signals => self.reap(),
                    Ready::Client(id) => {
                        if self.request(id) {
                            return Ok(());
                        }
                    }
                    Ready::Starting(pid) => self.news(pid),
                    Ready::Output(id, source) => {
                        if let Some(container) = self.containers.get_mut(&id) {
                            container.read(source, &mut self.buffer);
                        }
                    }
                    Ready::Attached(id) => {
                        if let Some(container) = self.containers.get_mut(&id) {
                            container.flush();
                        }
                    }
                }
            }
            self.finish_containers();
        }
    }

    fn wait(&mut self) -> io::Result<Vec<Ready>> {
        let mut sources = vec![
            (Ready::Listener, self.listener.as_fd(), PollFlags::IN),
            (Ready::Signals, self.signals.as_fd(), PollFlags::IN),
        ];
        sources.extend(self.clients.iter().map(|(id, c)| (Ready::Client(*id), c.socket.as_fd(), PollFlags::IN)));
        sources.extend(self.starting.iter().map(|(pid, s)| (Ready::Starting(*pid), s.channel.as_fd(), PollFlags::IN)));
        for (id, container) in &self.containers {
            for (source, end) in container.readable() {
                sources.push((Ready::Output(id.clone(), source), end, PollFlags::IN));
            }
            for end in container.writable() {
                sources.push((Ready::Attached(id.clone()), end, PollFlags::OUT));
            }
        }
        let now = Instant::now();
        let tidy = self.tidy_at.take_if(|at| *at <= now).is_some();
        let until = self.containers.values().filter_map(Container::deadline).chain(self.tidy_at).min();
        let timeout = until.map(|until| until.saturating_duration_since(now));
        let timeout =
            timeout.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) });
        let mut polled: Vec<PollFd<'_>> =
            sources.iter().map(|(_, end, flags)| PollFd::from_borrowed_fd(*end, *flags)).collect();
        // The last thing before the wait: what is done in between needs pages again.
        let unneeded = tidy.then(Unneeded::find);
        if let Some(Ok(unneeded)) = &unneeded {
            unneeded.give_back();
        }
        rustix::io::retry_on_intr(|| poll(&mut polled, timeout.as_ref()))?;
        let ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        Ok(sources.into_iter().zip(ready).filter(|(_, ready)| *ready).map(|((what, ..), _)| what).collect())
    }

    fn accept(&mut self) {
        if let Ok(socket) = rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC) {
            protocol::enlarge(&socket);
            self.clients.insert(self.next_client, Client { socket, subscribed: false });
            self.next_client += 1;
        }
    }

    /// Sends to a client. One that does not take it is cut off: it asks for the state when it comes back.
    fn reply(&mut self, client: u64, reply: &Reply, descriptors: &[BorrowedFd<'_>]) {
        if let Some(socket) = self.clients.get(&client).map(|client| &client.socket)
            && protocol::send(socket, reply, descriptors).is_err()
        {
            self.leave(client);
        }
    }

    fn leave(&mut self, client: u64) {
        self.clients.remove(&client);
        for exec in self.execs.values().filter(|exec| exec.client == client) {
            let _ = rustix::process::pidfd_send_signal(&exec.pidfd, rustix::process::Signal::KILL);
        }
        for exec in self.starting.values().filter(|starting| starting.client == client && starting.container.is_none())
        {
            let _ = rustix::process::pidfd_send_signal(&exec.pidfd, rustix::process::Signal::KILL);
        }
    }

    /// Takes one request, and tells whether it was the last one.
    fn request(&mut self, client: u64) -> bool {
        let Some(socket) = self.clients.get(&client).map(|client| &client.socket) else { return false };
        let (request, descriptors) = match protocol::receive::<Request>(socket) {
            Ok(Some(received)) => received,
            Ok(None) => {
                self.leave(client);
                return false;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) => {
                self.reply(client, &Reply::Failed(format!("not a request: {error}")), &[]);
                self.leave(client);
                return false;
            }
        };
        if request == Request::Shutdown {
            self.shut_down();
            self.reply(client, &Reply::Done, &[]);
            return true;
        }
        if let Err(error) = self.handle(client, request, descriptors) {
            self.reply(client, &Reply::Failed(error.to_string()), &[]);
        }
        false
    }

    fn handle(&mut self, client: u64, request: Request, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        match request {
            Request::Subscribe => {
                if let Some(client) = self.clients.get_mut(&client) {
                    client.subscribed = true;
                }
                let containers = self.containers.values().map(Container::report).collect();
                self.reply(client, &Reply::State { version: VERSION, containers }, &[]);
                return Ok(());
            }
            Request::Start { folder } => return self.start(client, &folder),
            Request::Exec { container_id, process, stdin, stdout, stderr } => {
                return self.exec(client, &container_id, &process, [stdin, stdout, stderr], descriptors);
            }
            Request::Resize(size) => {
                let terminals = self.execs.values().filter(|exec| exec.client == client);
                for terminal in terminals.filter_map(|exec| exec.terminal.as_ref()) {
                    resize(terminal, size)?;
                }
                // No answer: on this connection, the next one is the exit.
                return Ok(());
            }
            Request::Attach { container_id, stdin, stdout, stderr } => {
                return self.attach(client, &container_id, stdin, [stdout, stderr], descriptors);
            }
            Request::ResizeContainer { container_id, size } => {
                if let Some(terminal) = &self.running(&container_id)?.terminal {
                    resize(terminal, size)?;
                }
            }
            Request::Signal { container_id, signal } => {
                if let Some(container) = self.containers.get(&container_id) {
                    container.signal(signal)?;
                }
            }
            Request::ReopenLog { container_id } => self.running(&container_id)?.reopen_log()?,
            Request::Connect { port, ipv6 } => {
                let connection = connect(port, ipv6)?;
                self.reply(client, &Reply::Done, &[connection.as_fd()]);
                return Ok(());
            }
            Request::Forget { container_id } => {
                if self.containers.get(&container_id).is_some_and(|container| container.exit.is_none()) {
                    return Err(io::Error::other(format!("container {container_id} is running")));
                }
                self.containers.remove(&container_id);
            }
            Request::Shutdown => {}
        }
        self.reply(client, &Reply::Done, &[]);
        Ok(())
    }

    fn running(&mut self, id: &str) -> io::Result<&mut Container> {
        let container = self.containers.get_mut(id).filter(|container| container.is_running());
        container.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("container {id} is not running")))
    }

    fn start(&mut self, client: u64, folder: &Path) -> io::Result<()> {
        let text = step("reading the container's file", fs::read(folder.join("spec.json")))?;
        let spec: ContainerSpec = step("reading the container's file", serde_json::from_slice(&text))?;
        let known = self.starting.values().filter_map(|starting| starting.container.as_ref());
        if self.containers.contains_key(&spec.id) || known.into_iter().any(|container| container.id == spec.id) {
            return Err(io::Error::other(format!("container {} has been started already", spec.id)));
        }
        let mut container = step("opening the log", Container::new(&spec))?;
        let stdio = if spec.process.tty { Stdio::default() } else { streams(&mut container, spec.stdin)? };
        let pids = match &spec.pid {
            PidNamespace::Own => Pids::New,
            PidNamespace::Host => Pids::Host,
            PidNamespace::Pod => match &self.holder {
                Some((_, pidfd)) => Pids::Of(pidfd.as_fd()),
                None => return Err(io::Error::other("the pod has no shared pid namespace")),
            },
            PidNamespace::Of(target) => {
                let target_container = self.containers.get(target).filter(|container| container.is_running());
                match target_container.and_then(|container| container.pidfd.as_ref()) {
                    Some(pidfd) => Pids::Of(pidfd.as_fd()),
                    None => return Err(io::Error::other(format!("container {target} is not running"))),
                }
            }
        };
        let child = process::spawn(&Place::New(&spec), &spec.process, stdio, &pids)?;
        container.pid = child.pid;
        self.await_command(client, child, Some(container));
        Ok(())
    }

    fn await_command(&mut self, client: u64, child: process::Child, container: Option<Container>) {
        let process::Child { pid, pidfd, channel } = child;
        self.starting.insert(pid, Starting { channel, client, pidfd, terminal: None, error: None, container });
    }

    fn exec(
        &mut self,
        client: u64,
        container_id: &str,
        process: &ProcessSpec,
        wanted: [bool; 3],
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let mut descriptors = descriptors.into_iter();
        let [stdin, stdout, stderr] = wanted.map(|wanted| if wanted { descriptors.next() } else { None });
        let container = self.running(container_id)?;
        let Some(init) = &container.pidfd else { return Err(io::Error::other("the container has no process")) };
        let place = Place::Beside { pid: container.pid, init: init.as_fd(), group: &container.group };
        let stdio = Stdio { stdin, stdout, stderr };
        let child = process::spawn(&place, process, stdio, &Pids::Of(init.as_fd()))?;
        self.await_command(client, child, None);
        Ok(())
    }

    /// Something came from a process on its way: its terminal, a failure, or the end, which means that it has arrived.
    fn news(&mut self, pid: i32) {
        loop {
            let Some(starting) = self.starting.get_mut(&pid) else { return };
            match protocol::receive::<News>(&starting.channel) {
                Ok(Some((News::Terminal, descriptors))) => starting.terminal = descriptors.into_iter().next(),
                Ok(Some((News::Failed(error), _))) => starting.error = Some(error),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(None) | Err(_) => break,
            }
        }
        let Some(starting) = self.starting.remove(&pid) else { return };
        let Starting { client, pidfd, terminal, error, container, .. } = starting;
        if let Some(error) = error {
            if let Some(container) = container {
                // Who asked may be gone, and the next runtime must know that nothing runs.
                let container_id = Some(container.id.clone());
                self.tell(&Reply::Exited { container_id, exit: container.failed(&error) });
            }
            return self.reply(client, &Reply::Failed(error), &[]);
        }
        let container_id = container.as_ref().map(|container| container.id.clone());
        let started = Reply::Started { container_id, pid, at: now() };
        let Some(mut container) = container else {
            let for_client = terminal.as_ref().and_then(|terminal| terminal.try_clone().ok());
            self.execs.insert(pid, Exec { client, pidfd, terminal, started_at: now() });
            if !self.clients.contains_key(&client) {
                return self.leave(client);
            }
            let descriptors: Vec<BorrowedFd<'_>> = for_client.iter().map(AsFd::as_fd).collect();
            return self.reply(client, &started, &descriptors);
        };
        container.started_at = now();
        container.pidfd = Some(pidfd);
        if let Some(terminal) = terminal {
            // Two descriptors of one terminal: one to read from, one for input and sizes.
            if let Ok(output) = terminal.try_clone() {
                container.outputs.push((Source::Stdout, output));
            }
            container.terminal = Some(terminal);
        }
        self.containers.insert(container.id.clone(), container);
        // Who asked may be gone; who listens wants to know in any case.
        self.reply(client, &started, &[]);
        self.tell(&started);
    }

    fn attach(
        &mut self,
        client: u64,
        container_id: &str,
        stdin: bool,
        wanted: [bool; 2],
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let container = self.running(container_id)?;
        let mut descriptors = descriptors.into_iter();
        for (source, wanted) in [(Source::Stdout, wanted[0]), (Source::Stderr, wanted[1])] {
            if wanted && let Some(to) = descriptors.next() {
                container.attach(source, to)?;
            }
        }
        let input = match (&container.terminal, stdin) {
            (_, false) => None,
            (Some(terminal), true) => Some(terminal.try_clone()?),
            (None, true) => container.stdin.as_ref().map(OwnedFd::try_clone).transpose()?,
        };
        if stdin && container.stdin_once {
            container.stdin = None;
        }
        let descriptors: Vec<BorrowedFd<'_>> = input.iter().map(AsFd::as_fd).collect();
        self.reply(client, &Reply::Done, &descriptors);
        Ok(())
    }

    /// Takes the ends of all processes that have ended, those that came here as orphans included.
    fn reap(&mut self) {
        let mut information = [0u8; 128];
        // One signal may stand for many processes.
        while rustix::io::read(&self.signals, &mut information).is_ok() {}
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            let code = exit_code(status);
            self.news(pid);
            // One that has exited may have had the same number.
            let is_it = |container: &&mut Container| container.is_running() && container.pid == pid;
            if let Some(container) = self.containers.values_mut().find(is_it) {
                container.reaped(code);
            } else if let Some(exec) = self.execs.remove(&pid) {
                let exit = Exit {
                    exit_code: code,
                    started_at: exec.started_at,
                    finished_at: now(),
                    oom_killed: false,
                    start_error: None,
                };
                self.reply(exec.client, &Reply::Exited { container_id: None, exit }, &[]);
            }
        }
    }

    fn finish_containers(&mut self) {
        let finished: Vec<Reply> = self
            .containers
            .values_mut()
            .filter_map(|container| {
                let exit = if container.finish() { container.exit.clone() } else { None };
                exit.map(|exit| Reply::Exited { container_id: Some(container.id.clone()), exit })
            })
            .collect();
        for reply in finished {
            self.tell(&reply);
        }
    }

    fn tell(&mut self, news: &Reply) {
        let subscribers: Vec<u64> = self.clients.iter().filter(|(_, c)| c.subscribed).map(|(id, _)| *id).collect();
        for client in subscribers {
            self.reply(client, news, &[]);
        }
    }

    fn shut_down(&mut self) {
        for container in self.containers.values() {
            let _ = container.signal(libc::SIGKILL);
            container.group.kill();
        }
        for starting in self.starting.values() {
            let _ = rustix::process::pidfd_send_signal(&starting.pidfd, rustix::process::Signal::KILL);
        }
        if let Some((_, pidfd)) = &self.holder {
            let _ = rustix::process::pidfd_send_signal(pidfd, rustix::process::Signal::KILL);
        }
    }
}

fn exit_code(status: WaitStatus) -> i32 {
    status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal)).unwrap_or(255)
}

/// Pipes for the standard streams of a container.
fn streams(container: &mut Container, stdin: bool) -> io::Result<Stdio> {
    use rustix::pipe::{PipeFlags, pipe_with};
    let mut stdio = Stdio::default();
    if stdin {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        (stdio.stdin, container.stdin) = (Some(read), Some(write));
    }
    let (out_read, out_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (error_read, error_write) = pipe_with(PipeFlags::CLOEXEC)?;
    (stdio.stdout, stdio.stderr) = (Some(out_write), Some(error_write));
    container.outputs = vec![(Source::Stdout, out_read), (Source::Stderr, error_read)];
    Ok(stdio)
}

fn resize(terminal: &OwnedFd, size: TerminalSize) -> io::Result<()> {
    let size = rustix::termios::Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}

/// Begins a connection and does not wait for it: the runtime does.
fn connect(port: u16, ipv6: bool) -> io::Result<OwnedFd> {
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
    let (family, address) = if ipv6 {
        (AddressFamily::INET6, SocketAddr::from((Ipv6Addr::LOCALHOST, port)))
    } else {
        (AddressFamily::INET, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// A descriptor that becomes readable when a child has ended. Other signals that would end the shim are ignored.
fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised before it is used, and the descriptor is new.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let descriptor = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}
