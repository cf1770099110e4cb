//! Wakes whoever follows a log when something in its folder has changed.

use std::{io, mem::MaybeUninit, os::fd::OwnedFd, path::Path};

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use tokio::io::unix::AsyncFd;

pub(super) struct Changes(AsyncFd<OwnedFd>);

impl Changes {
    pub(super) fn watch(folder: &Path) -> io::Result<Self> {
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        add_watch(&inotify, folder, WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO)?;
        // SAFETY: the value owns its descriptor, and gives the same one for as long as it lives.
        let inotify = unsafe { AsyncFd::register(inotify) }.map_err(io::Error::from)?;
        Ok(Self(inotify))
    }

    /// Waits for a change since the last time.
    pub(super) async fn next(&mut self) -> io::Result<()> {
        let mut ready = self.0.readable().await?;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(ready.get_inner(), &mut buffer);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::IGNORED) => return Err(io::ErrorKind::NotFound.into()),
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    ready.clear_ready();
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
