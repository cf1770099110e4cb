//! What the runtime and a shim say to each other.
//!
//! Packets of JSON on a Unix socket that keeps their boundaries (SOCK_SEQPACKET), with descriptors beside them where streams
//! are handed over. A shim may be older than the runtime that talks to it, since pods outlive restarts: it tells its
//! version in [`Reply::State`], and a runtime speaks the version of the shim. Additions are optional fields; anything else is a
//! new version.

use std::{
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::spec::{Exit, ProcessSpec};
use crate::services::streams::TerminalSize;

pub const VERSION: u32 = 1;

/// The name of the socket in the folder of a sandbox.
pub const SOCKET: &str = "shim.sock";

/// No more descriptors than this go with one packet.
const MAX_DESCRIPTORS: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Asks for [`Reply::State`], and then for [`Reply::Started`] and [`Reply::Exited`] whenever a container does.
    Subscribe,
    /// Starts the container whose folder this is.
    Start {
        folder: std::path::PathBuf,
    },
    /// Runs a process in a container. Descriptors: those of stdin, stdout and stderr that are true, unless it has a terminal. The
    /// process is killed when the connection ends.
    Exec {
        container_id: String,
        process: Box<ProcessSpec>,
        stdin: bool,
        stdout: bool,
        stderr: bool,
    },
    /// The terminal of the exec on this connection.
    Resize(TerminalSize),
    /// Descriptors: where to copy stdout and stderr to, as far as true.
    Attach {
        container_id: String,
        stdin: bool,
        stdout: bool,
        stderr: bool,
    },
    ResizeContainer {
        container_id: String,
        size: TerminalSize,
    },
    Signal {
        container_id: String,
        signal: i32,
    },
    ReopenLog {
        container_id: String,
    },
    /// Begins a connection to a port of the pod's loopback.
    Connect {
        port: u16,
        ipv6: bool,
    },
    /// Forgets a container that has exited.
    Forget {
        container_id: String,
    },
    /// Kills everything and ends.
    Shutdown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    State {
        version: u32,
        containers: Vec<Report>,
    },
    /// A container, or the process of this connection's exec when it has no id; then with its terminal as descriptor, if it has
    /// one.
    Started {
        container_id: Option<String>,
        pid: i32,
        at: i64,
    },
    /// A container, or the process of this connection's exec when it has no id.
    Exited {
        container_id: Option<String>,
        exit: Exit,
    },
    /// With the descriptor that was asked for, if one was.
    Done,
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub container_id: String,
    pub pid: i32,
    pub started_at: i64,
    pub exit: Option<Exit>,
}

/// Sends one packet; never waits for a peer that does not read.
pub fn send(socket: impl AsFd, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one packet"));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| rustix::net::sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, flags))?;
    Ok(())
}

/// Receives one packet that is there already; `None` is the end.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let peek = RecvFlags::PEEK | RecvFlags::TRUNC | RecvFlags::DONTWAIT;
    let (_, length) = rustix::io::retry_on_intr(|| rustix::net::recv(&socket, &mut [0u8; 1][..], peek))?;
    let mut bytes = vec![0; length];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)
    })?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let descriptors = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    Ok(Some((serde_json::from_slice(&bytes)?, descriptors)))
}

/// Lets packets be as large as the longest command line.
pub fn enlarge(socket: impl AsFd) {
    // Without the privilege, the system's default remains, which is enough for all but huge commands.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size_force(socket, 4 << 20);
}
