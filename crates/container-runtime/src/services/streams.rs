//! The streams of an exec or an attach, as their callers hold them.

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, oneshot},
};

use super::ServiceError;

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TerminalSize {
    pub width: u16,
    pub height: u16,
}

/// What was asked for is there, the rest is `None`; with a terminal, everything the process writes comes on `stdout`.
///
/// Dropping `exit` of an exec kills its process; an attach ends with its streams, and its `exit` is the container's.
pub struct Streams {
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Sizes of the terminal, as the client has it.
    pub resize: mpsc::UnboundedSender<TerminalSize>,
    /// The exit code of the process.
    pub exit: oneshot::Receiver<Result<i32, ServiceError>>,
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams")
            .field("stdin", &self.stdin.is_some())
            .field("stdout", &self.stdout.is_some())
            .field("stderr", &self.stderr.is_some())
            .finish_non_exhaustive()
    }
}
