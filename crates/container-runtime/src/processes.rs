//! Processes beside a container's own, and connections to a container's streams.
//!
//! The runtime makes the pipes and gives one end of each to the shim, which gives it to the process: bytes do not pass through
//! anybody else. A terminal is made inside of the container and comes back the same way.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, ReadBuf},
    net::{TcpStream, unix::pipe},
    sync::{mpsc, oneshot},
};

use crate::{
    containers::{Container, Phase},
    runtime::{Inner, exit_of},
    services::{AttachRequest, ExecRequest, ExecSyncResponse, Result, ServiceError, Streams, TerminalSize},
    shim::{
        client::{self, Connection, ShimError},
        protocol::{Reply, Request},
        spec::{ContainerSpec, ProcessSpec},
    },
    state,
};

/// How much of each stream `exec_sync` keeps, as Kubernetes' other runtimes do.
const MOST_OUTPUT: u64 = 16 << 20;

/// A pipe: our end and theirs.
fn output_pipe(wanted: bool) -> Result<(Option<pipe::Receiver>, Option<OwnedFd>)> {
    if !wanted {
        return Ok((None, None));
    }
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from)?;
    rustix::io::ioctl_fionbio(&read, true).map_err(io::Error::from)?;
    Ok((Some(pipe::Receiver::from_owned_fd(read)?), Some(write)))
}

fn input_pipe(wanted: bool) -> Result<(Option<pipe::Sender>, Option<OwnedFd>)> {
    if !wanted {
        return Ok((None, None));
    }
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from)?;
    rustix::io::ioctl_fionbio(&write, true).map_err(io::Error::from)?;
    Ok((Some(pipe::Sender::from_owned_fd(write)?), Some(read)))
}

/// A terminal says by an error that its last process has closed it.
struct Terminal(pipe::Receiver);

impl AsyncRead for Terminal {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.0).poll_read(context, buffer) {
            Poll::Ready(Err(error)) if error.raw_os_error() == Some(libc::EIO) => Poll::Ready(Ok(())),
            other => other,
        }
    }
}

fn terminal(descriptor: OwnedFd) -> Result<(Terminal, pipe::Sender)> {
    rustix::io::ioctl_fionbio(&descriptor, true).map_err(io::Error::from)?;
    let input = descriptor.try_clone()?;
    Ok((Terminal(pipe::Receiver::from_owned_fd_unchecked(descriptor)?), pipe::Sender::from_owned_fd_unchecked(input)?))
}

fn borrowed(descriptors: &[Option<OwnedFd>]) -> Vec<BorrowedFd<'_>> {
    descriptors.iter().flatten().map(AsFd::as_fd).collect()
}

impl Inner {
    async fn connect(&self, container: &Container) -> Result<Connection> {
        if !matches!(*container.phase.borrow(), Phase::Running { .. }) {
            let text = format!("container {} is in state {:?}", container.id, container.state());
            return Err(ServiceError::FailedPrecondition(text));
        }
        Ok(Connection::open(&self.folders.sandbox(&container.record().pod_sandbox_id)).await?)
    }

    /// The container's process with another command.
    fn process_beside(&self, container: &Container, args: Vec<String>, tty: bool) -> Result<ProcessSpec> {
        let spec: ContainerSpec = state::read(&self.folders.container(&container.id).join(state::SPEC))?;
        let mut process = ProcessSpec { args, tty, ..spec.process };
        if tty && !process.env.iter().any(|entry| entry.starts_with("TERM=")) {
            process.env.push("TERM=xterm".into());
        }
        Ok(process)
    }

    pub(crate) async fn exec(&self, request: ExecRequest) -> Result<Streams> {
        if request.cmd.is_empty() {
            return Err(ServiceError::InvalidArgument("no command specified".into()));
        }
        let container = self.container(&request.container_id)?;
        let connection = self.connect(&container).await?;
        let pipes = !request.tty;
        let (stdin, their_stdin) = input_pipe(pipes && request.stdin)?;
        let (stdout, their_stdout) = output_pipe(pipes && request.stdout)?;
        let (stderr, their_stderr) = output_pipe(pipes && request.stderr)?;
        let theirs = [their_stdin, their_stdout, their_stderr];
        let [has_stdin, has_stdout, has_stderr] = theirs.each_ref().map(Option::is_some);
        let exec = Request::Exec {
            container_id: container.id.clone(),
            process: Box::new(self.process_beside(&container, request.cmd, request.tty)?),
            stdin: has_stdin,
            stdout: has_stdout,
            stderr: has_stderr,
        };
        let (reply, descriptors) = connection.call(&exec, &borrowed(&theirs)).await?;
        drop(theirs);
        let Reply::Started { .. } = reply else { return Err(ShimError::Protocol.into()) };
        let (resize, exit) = accompany(connection);
        let mut streams = Streams {
            stdin: stdin.map(|stream| Box::new(stream) as _),
            stdout: stdout.map(|stream| Box::new(stream) as _),
            stderr: stderr.map(|stream| Box::new(stream) as _),
            resize,
            exit,
        };
        if request.tty {
            let (output, input) = terminal(descriptors.into_iter().next().ok_or(ShimError::Protocol)?)?;
            streams.stdout = Some(Box::new(output));
            streams.stdin = if request.stdin { Some(Box::new(input)) } else { None };
        }
        Ok(streams)
    }

    pub(crate) async fn exec_sync(&self, id: &str, cmd: Vec<String>, timeout: i64) -> Result<ExecSyncResponse> {
        let container_id = id.to_owned();
        let request = ExecRequest { container_id, cmd, stdout: true, stderr: true, ..Default::default() };
        let Streams { stdout, stderr, exit, resize: _resize, .. } = self.exec(request).await?;
        let work = async {
            let (stdout, stderr) = tokio::join!(read_all(stdout), read_all(stderr));
            let gone = |_| ServiceError::Internal("the pod's shim is gone".into());
            Ok(ExecSyncResponse { stdout: stdout?, stderr: stderr?, exit_code: exit.await.map_err(gone)?? })
        };
        match u64::try_from(timeout) {
            Ok(seconds) if seconds > 0 => tokio::time::timeout(Duration::from_secs(seconds), work)
                .await
                .unwrap_or_else(|_| Err(ServiceError::DeadlineExceeded(format!("timeout {seconds}s exceeded")))),
            _ => work.await,
        }
    }

    pub(crate) async fn attach(&self, request: AttachRequest) -> Result<Streams> {
        let container = self.container(&request.container_id)?;
        let connection = self.connect(&container).await?;
        let tty = container.record().config.tty;
        let (stdout, their_stdout) = output_pipe(request.stdout)?;
        let (stderr, their_stderr) = output_pipe(request.stderr && !tty)?;
        let theirs = [their_stdout, their_stderr];
        let [has_stdout, has_stderr] = theirs.each_ref().map(Option::is_some);
        let container_id = container.id.clone();
        let attach = Request::Attach { container_id, stdin: request.stdin, stdout: has_stdout, stderr: has_stderr };
        let (_, descriptors) = connection.call(&attach, &borrowed(&theirs)).await?;
        drop(theirs);
        let stdin = match descriptors.into_iter().next() {
            Some(descriptor) if tty => Some(terminal(descriptor)?.1),
            Some(descriptor) => {
                rustix::io::ioctl_fionbio(&descriptor, true).map_err(io::Error::from)?;
                Some(pipe::Sender::from_owned_fd(descriptor)?)
            }
            None => None,
        };
        let (resize, mut sizes) = mpsc::unbounded_channel();
        let (tell_exit, exit) = oneshot::channel();
        let container_id = container.id.clone();
        tokio::spawn(async move {
            let resizing = async {
                while let Some(size) = sizes.recv().await {
                    let resize = Request::ResizeContainer { container_id: container_id.clone(), size };
                    if connection.call(&resize, &[]).await.is_err() {
                        break;
                    }
                }
                std::future::pending::<()>().await;
            };
            let mut tell_exit = tell_exit;
            tokio::select! {
                () = resizing => {}
                () = tell_exit.closed() => {}
                ended = exit_of(&container) => drop(tell_exit.send(ended.map(|exit| exit.exit_code))),
            }
        });
        Ok(Streams {
            stdin: stdin.map(|stream| Box::new(stream) as _),
            stdout: stdout.map(|stream| Box::new(stream) as _),
            stderr: stderr.map(|stream| Box::new(stream) as _),
            resize,
            exit,
        })
    }

    pub(crate) async fn port_forward(&self, sandbox: &str, port: u16) -> Result<TcpStream> {
        let sandbox = self.sandbox(sandbox)?;
        let mut refusal = None;
        for ipv6 in [false, true] {
            match connect(&sandbox.folder, port, ipv6).await {
                Ok(stream) => return Ok(stream),
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        Err(refusal.unwrap_or_else(|| ServiceError::Internal(format!("port {port} was not tried"))))
    }
}

async fn connect(folder: &std::path::Path, port: u16, ipv6: bool) -> Result<TcpStream> {
    let (_, descriptors) = client::call(folder, &Request::Connect { port, ipv6 }).await?;
    let descriptor = descriptors.into_iter().next().ok_or(ShimError::Protocol)?;
    let stream = TcpStream::from_std(descriptor.into())?;
    stream.writable().await?;
    match stream.take_error()? {
        Some(error) => Err(ServiceError::Internal(format!("cannot connect to port {port} of the pod: {error}"))),
        None => Ok(stream),
    }
}

/// Passes sizes on and waits for the exit, until nobody wants to know it: then the connection ends, and the process with it.
fn accompany(
    connection: Connection,
) -> (mpsc::UnboundedSender<TerminalSize>, oneshot::Receiver<Result<i32, ServiceError>>) {
    let (resize, mut sizes) = mpsc::unbounded_channel();
    let (mut tell_exit, exit) = oneshot::channel();
    tokio::spawn(async move {
        loop {
            let result = tokio::select! {
                () = tell_exit.closed() => return,
                Some(size) = sizes.recv() => {
                    match connection.send(&Request::Resize(size), &[]).await {
                        Ok(()) => continue,
                        Err(error) => Err(error.into()),
                    }
                }
                received = connection.receive() => match received {
                    Ok((Reply::Exited { exit, .. }, _)) => Ok(exit.exit_code),
                    Ok(_) => Err(ShimError::Protocol.into()),
                    Err(error) => Err(error.into()),
                },
            };
            // Nobody may be left to hear it.
            let _ = tell_exit.send(result);
            return;
        }
    });
    (resize, exit)
}

/// Reads to the end, and keeps the first part of what is too much.
async fn read_all(stream: Option<Box<dyn AsyncRead + Send + Unpin>>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        (&mut stream).take(MOST_OUTPUT).read_to_end(&mut bytes).await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    }
    Ok(bytes)
}
