//! The runtime's side of the shims' protocol.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    process::Stdio,
    time::Duration,
};

use rustix::{
    fs::FlockOperation,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with},
};
use tokio::{
    io::{AsyncReadExt, Interest, unix::AsyncFd},
    process::Command,
};

use crate::runtime::PATIENCE;

use super::{
    NAME,
    protocol::{self, Reply, Request, SOCKET},
};

/// The file in a sandbox's folder that its shim holds a lock on.
const LOCK: &str = "shim.lock";

#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    #[error("cannot start the pod's shim: {0}")]
    Launch(String),
    /// Nobody listens: the shim has ended.
    #[error("the pod's shim is gone")]
    Gone,
    #[error("cannot talk to the pod's shim: {0}")]
    Io(#[from] io::Error),
    /// The shim's own words.
    #[error("{0}")]
    Refused(String),
    #[error("the pod's shim answered what was not asked")]
    Protocol,
}

/// Starts the shim of the sandbox in this folder; it is ready when this returns.
pub async fn launch(executable: &Path, folder: &Path) -> Result<(), ShimError> {
    let failed = |error: io::Error| ShimError::Launch(error.to_string());
    let stderr = File::create(folder.join("shim.log")).map_err(failed)?;
    let lock = File::create(folder.join(LOCK)).map_err(failed)?;
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed(error.into()))?;
    let mut child = Command::new(executable)
        .arg0(NAME)
        .arg(folder)
        .env_clear()
        .current_dir("/")
        // The lock is the shim's as long as it has this descriptor, which is as long as it lives.
        .stdin(lock)
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .map_err(failed)?;
    let mut complaint = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut complaint).await.map_err(failed)?;
    }
    if complaint.is_empty() && child.try_wait().map_err(failed)?.is_none() {
        // It is our child as long as we live, so somebody must take note of its end.
        tokio::spawn(async move { child.wait().await });
        return Ok(());
    }
    let _ = child.wait().await;
    Err(ShimError::Launch(if complaint.is_empty() { "it ended at once".into() } else { complaint }))
}

/// Waits until a shim that an earlier runtime may have been starting has made up its mind: it answers, or it is no more. The
/// lock tells: it is held by a shim that lives, and by nobody else once that runtime is dead.
pub async fn settled(folder: &Path) -> bool {
    loop {
        if Connection::open(folder).await.is_ok() {
            return true;
        }
        let is_free = File::open(folder.join(LOCK))
            .is_ok_and(|lock| rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok());
        if is_free || !folder.join(LOCK).exists() {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// One connection to a shim.
#[derive(Debug)]
pub struct Connection {
    socket: AsyncFd<OwnedFd>,
}

impl Connection {
    pub async fn open(folder: &Path) -> Result<Self, ShimError> {
        // Addresses are short and folders need not be.
        let folder = match File::open(folder) {
            Ok(folder) => folder,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Err(ShimError::Gone);
            }
            Err(error) => return Err(error.into()),
        };
        let path = format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd());
        let address = SocketAddrUnix::new(path).map_err(io::Error::from)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(io::Error::from)?;
        loop {
            match rustix::net::connect(&socket, &address) {
                Ok(()) => break,
                // Too many are waiting to be let in.
                Err(rustix::io::Errno::AGAIN) => tokio::time::sleep(Duration::from_millis(2)).await,
                Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOENT) => return Err(ShimError::Gone),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        protocol::enlarge(&socket);
        // SAFETY: the value owns its descriptor, and gives the same one for as long as it lives.
        let socket = unsafe { AsyncFd::register(socket) }.map_err(io::Error::from)?;
        Ok(Self { socket })
    }

    /// The process on the other side.
    pub fn peer(&self) -> io::Result<i32> {
        Ok(rustix::net::sockopt::socket_peercred(self.socket.get_ref())?.pid.as_raw_nonzero().get())
    }

    pub async fn send(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Result<(), ShimError> {
        let send = |socket: &OwnedFd| protocol::send(socket, request, descriptors);
        match self.socket.async_io(Interest::WRITABLE, send).await {
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                Err(ShimError::Gone)
            }
            result => Ok(result?),
        }
    }

    /// The next answer, with the descriptors beside it.
    pub async fn receive(&self) -> Result<(Reply, Vec<OwnedFd>), ShimError> {
        let receive = |socket: &OwnedFd| protocol::receive::<Reply>(socket.as_fd());
        match self.socket.async_io(Interest::READABLE, receive).await {
            Ok(Some((Reply::Failed(message), _))) => Err(ShimError::Refused(message)),
            Ok(Some(received)) => Ok(received),
            Ok(None) => Err(ShimError::Gone),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(ShimError::Gone),
            // What serde_json calls a text that it cannot read.
            Err(error) if error.raw_os_error().is_none() => Err(ShimError::Protocol),
            Err(error) => Err(error.into()),
        }
    }

    pub async fn call(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), ShimError> {
        self.send(request, descriptors).await?;
        self.receive().await
    }

    /// As [`Connection::call`], of what takes no time. A shim that does not answer it looks after nothing any more: it is killed, so
    /// that it does not come back to life after its pod was given up.
    pub async fn insist(&self, request: &Request) -> Result<(Reply, Vec<OwnedFd>), ShimError> {
        if let Ok(answer) = tokio::time::timeout(PATIENCE, self.call(request, &[])).await {
            return answer;
        }
        let process = rustix::net::sockopt::socket_peercred(self.socket.get_ref()).map_err(io::Error::from)?.pid;
        tracing::warn!(pid = process.as_raw_nonzero(), "a shim that does not answer is killed");
        match rustix::process::kill_process(process, rustix::process::Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Err(ShimError::Gone),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }
}

/// Asks the shim in a folder one thing.
pub async fn call(folder: &Path, request: &Request) -> Result<(Reply, Vec<OwnedFd>), ShimError> {
    Connection::open(folder).await?.call(request, &[]).await
}
