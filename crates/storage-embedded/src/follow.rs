//! Feeds one watch: takes its turns from the hub and waits for the reader, not the other way round.

use std::sync::Arc;

use storage::{Error, Watch, WatchEvent};
use tokio::sync::{Notify, mpsc};

use crate::{
    fault::Result,
    hub::{End, Turn},
    store::Shared,
};

/// Events that wait for the reader. Few: what does not fit waits in the hub or on disk.
const BUFFERED_EVENTS: usize = 32;
/// How much is read from disk at a time.
const CATCH_UP_BYTES: usize = 256 << 10;

pub(crate) struct Follower {
    shared: Arc<Shared>,
    id: u64,
    wake: Arc<Notify>,
    prefix: String,
    reader: mpsc::Sender<Result<WatchEvent, Error>>,
}

/// The reader dropped its watch.
struct Gone;

/// A watch that has everything up to `after`, fed by a task of the current tokio runtime.
pub(crate) fn watch(shared: Arc<Shared>, prefix: &str, after: u64) -> Watch {
    let (reader, watch) = Watch::channel(BUFFERED_EVENTS);
    let (id, wake) = shared.hub.join(prefix.to_owned(), after);
    let follower = Follower { shared, id, wake, prefix: prefix.to_owned(), reader };
    tokio::spawn(async move {
        // Ends when the reader is gone or has been told why.
        let _ = follower.run().await;
    });
    watch
}

impl Follower {
    async fn run(&self) -> Result<(), Gone> {
        loop {
            match self.shared.hub.turn(self.id) {
                Turn::Idle => tokio::select! {
                    () = self.wake.notified() => {}
                    () = self.reader.closed() => return Err(Gone),
                },
                Turn::Deliver(events) => self.deliver(events).await?,
                Turn::CatchUp { after, until } => self.catch_up(after, until).await?,
                Turn::End(End::Closed) => return Ok(()),
                Turn::End(End::Failed(error)) => return self.fail(error).await,
            }
        }
    }

    async fn deliver(&self, events: Vec<WatchEvent>) -> Result<(), Gone> {
        for event in events {
            self.reader.send(Ok(event)).await.map_err(|_| Gone)?;
        }
        Ok(())
    }

    async fn catch_up(&self, mut after: u64, until: u64) -> Result<(), Gone> {
        while after < until {
            let (shared, prefix) = (self.shared.clone(), self.prefix.clone());
            let read = move || shared.events(&prefix, after, until, CATCH_UP_BYTES);
            match tokio::task::spawn_blocking(read).await {
                Ok(Ok((events, reached))) => {
                    self.deliver(events).await?;
                    after = reached;
                }
                Ok(Err(fault)) => return self.fail(fault.error).await,
                Err(stopped) => return self.fail(Error::Unavailable(stopped.to_string())).await,
            }
        }
        Ok(())
    }

    async fn fail(&self, error: Error) -> Result<(), Gone> {
        // The one who asked is told; there is nothing to do if it left.
        let _ = self.reader.send(Err(error)).await;
        Err(Gone)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.shared.hub.leave(self.id);
    }
}
