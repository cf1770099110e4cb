//! Carries the streams of exec, attach and port-forward between a container and a client, in whichever protocol the client speaks:
//! for the node agent's server, and for CRI's clients.

use std::{future::Future, time::Duration};

use streaming::{
    Sink,
    port_forward::PortForward,
    remote_command::{Outcome, RemoteCommand},
};
use tokio::{
    io::{AsyncRead, AsyncWriteExt},
    net::TcpStream,
};

use crate::services::{ServiceError, Streams, TerminalSize};

/// How long the output of a command that has ended may take, which others that it started may keep open.
const REST_OF_OUTPUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The client is told the command's exit code.
    OfCommand,
    /// The client leaves a container that goes on, or sees it end.
    OfStreams,
}

/// Carries bytes until the process has ended or the client is gone; then dropping the streams ends an exec's process.
pub async fn command(streams: Streams, mut remote: RemoteCommand, ending: Ending) {
    let Streams { stdin, stdout, stderr, resize, exit } = streams;
    let (source, sizes) = (remote.stdin.take(), remote.sizes.take());
    let inward = async {
        let typed = async {
            if let (Some(mut from), Some(mut to)) = (source, stdin) {
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = to.shutdown().await;
            }
        };
        let resized = async {
            let Some(mut sizes) = sizes else { return };
            while let Some(size) = sizes.next().await {
                let _ = resize.send(TerminalSize { width: size.width, height: size.height });
            }
        };
        tokio::join!(typed, resized);
        // The process goes on without input.
        std::future::pending::<()>().await;
    };
    let printed = async |from: Option<Box<dyn AsyncRead + Send + Unpin>>, to: &Option<Sink>| {
        if let (Some(from), Some(to)) = (from, to) {
            let _ = to.copy_from(from).await;
        }
    };
    let outward = async { tokio::join!(printed(stdout, &remote.stdout), printed(stderr, &remote.stderr)) };
    let ended = async {
        let (mut outward, mut exit) = (std::pin::pin!(outward), exit);
        if ending == Ending::OfStreams {
            outward.await;
            return Outcome::Success;
        }
        let exit = tokio::select! {
            exit = &mut exit => {
                let _ = tokio::time::timeout(REST_OF_OUTPUT, outward).await;
                exit
            }
            _ = &mut outward => exit.await,
        };
        match exit {
            Ok(Ok(0)) => Outcome::Success,
            Ok(Ok(code)) => Outcome::Exit(code),
            Ok(Err(error)) => Outcome::Failed(error.to_string()),
            Err(_) => Outcome::Failed("the pod's shim is gone".into()),
        }
    };
    let outcome = tokio::select! {
        outcome = ended => outcome,
        () = inward => return,
        () = remote.connection.gone() => return,
    };
    remote.finish(&outcome).await;
}

/// Carries each connection that the client makes to the port that `dial` connects to, until the client is gone.
pub async fn ports<F>(mut forwards: PortForward, dial: impl Fn(u16) -> F)
where
    F: Future<Output = Result<TcpStream, ServiceError>> + Send + 'static,
{
    while let Some(forward) = forwards.next().await {
        let target = dial(forward.port);
        tokio::spawn(forwards.connection.token().run_until_cancelled_owned(async move {
            match target.await {
                Ok(target) => forward.carry(target).await,
                Err(error) => forward.fail(&error.to_string()).await,
            }
        }));
    }
    forwards.connection.gone().await;
}
