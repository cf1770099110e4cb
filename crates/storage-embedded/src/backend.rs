//! The place of the tables: a failed sync is final, and a sync lets others have the disk.

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    ops::Bound,
    os::fd::AsRawFd,
    sync::{Mutex, PoisonError},
};

use redb::{BackendError, StorageBackend};

use crate::fault::sync_failed;

/// Does what the backend in it does, but a sync never fails like a write for which there is no space: after such a write
/// the store is opened again, and after a failed sync it must not be.
#[derive(Debug)]
pub(crate) struct Strict<B> {
    pub backend: B,
    pub unwritten: Option<Unwritten>,
}

/// Which parts of the file were written to since the last sync.
///
/// The tables are synced now and then, the log all the time. A sync of some megabytes keeps the disk busy for as many
/// milliseconds, and the log's would stand in line behind it. So the parts are written one after the other first, and
/// the sync itself finds little to do.
#[derive(Debug)]
pub(crate) struct Unwritten {
    file: File,
    parts: Mutex<BTreeSet<u64>>,
}

impl Unwritten {
    const PART: u64 = 256 << 10;

    pub(crate) fn new(file: File) -> Self {
        Self { file, parts: Mutex::default() }
    }

    fn add(&self, offset: u64, length: usize) {
        let parts = offset / Self::PART..(offset + length as u64).div_ceil(Self::PART);
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).extend(parts);
    }

    fn write(&self) -> io::Result<()> {
        let parts = std::mem::take(&mut *self.parts.lock().unwrap_or_else(PoisonError::into_inner));
        let flags = libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        for part in parts {
            let (offset, length) = ((part * Self::PART) as i64, Self::PART as i64);
            // SAFETY: a call with numbers only, on a file that is open.
            if unsafe { libc::sync_file_range(self.file.as_raw_fd(), offset, length, flags) } != 0 {
                let error = io::Error::last_os_error();
                return match error.raw_os_error() {
                    // It is not possible here, so the sync does it all.
                    Some(libc::ENOSYS | libc::EPERM | libc::EINVAL | libc::ESPIPE) => Ok(()),
                    // An error is told once: the sync would not hear of it.
                    _ => Err(error),
                };
            }
        }
        Ok(())
    }
}

type Locked<T> = Result<T, BackendError>;

impl<B: StorageBackend> StorageBackend for Strict<B> {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.backend.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.unwritten.as_ref().map_or(Ok(()), Unwritten::write).map_err(sync_failed)?;
        self.backend.sync_data().map_err(sync_failed)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.backend.write(offset, data)?;
        if let Some(unwritten) = &self.unwritten {
            unwritten.add(offset, data.len());
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.backend.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.backend.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.backend.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.backend.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.backend.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.backend.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_known_until_it_is_on_the_disk() {
        let unwritten = Unwritten::new(tempfile::tempfile().expect("a file"));
        unwritten.add(Unwritten::PART - 1, 2);
        unwritten.add(5 * Unwritten::PART, 1);
        unwritten.add(9 * Unwritten::PART, 0);
        assert_eq!(unwritten.parts.lock().expect("nobody panicked").iter().copied().collect::<Vec<_>>(), [0, 1, 5]);
        unwritten.write().expect("it is written");
        assert!(unwritten.parts.lock().expect("nobody panicked").is_empty());
    }
}
