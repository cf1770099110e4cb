//! The place of the tables: a failed sync is final, and a sync lets others have the disk.

use std::{
    collections::BTreeMap,
    fs::File,
    io, mem,
    ops::Bound,
    os::fd::AsRawFd,
    sync::{Mutex, MutexGuard, PoisonError},
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
/// milliseconds, and the log's would stand in line behind it. So they are written some at a time first, and the sync itself
/// finds little to do.
#[derive(Debug)]
pub(crate) struct Unwritten {
    file: File,
    /// How many bytes were written to each.
    parts: Mutex<BTreeMap<u64, u64>>,
}

impl Unwritten {
    /// How large a part is, and how much is on its way to the disk at a time.
    const PART: u64 = 256 << 10;

    /// None where the kernel cannot write parts of a file.
    pub(crate) fn of(file: File) -> Option<Self> {
        let unwritten = Self { file, parts: Mutex::default() };
        // Does nothing but look at the file, so that later an error is one of the disk.
        unwritten.ask(0, 0).ok().map(|()| unwritten)
    }

    fn ask(&self, part: u64, what: libc::c_uint) -> io::Result<()> {
        let (offset, length) = ((part * Self::PART) as i64, Self::PART as i64);
        // SAFETY: a call with numbers only, on a file that is open.
        let result = unsafe { libc::sync_file_range(self.file.as_raw_fd(), offset, length, what) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn parts(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, mut offset: u64, length: usize) {
        let (mut parts, end) = (self.parts(), offset + length as u64);
        while offset < end {
            let part = offset / Self::PART;
            let until = end.min((part + 1) * Self::PART);
            let bytes = parts.entry(part).or_default();
            *bytes = Self::PART.min(*bytes + until - offset);
            offset = until;
        }
    }

    /// The kernel tells an error once: the sync would not hear of it.
    fn write(&self) -> io::Result<()> {
        let parts = mem::take(&mut *self.parts());
        let (mut begun, mut bytes) = (Vec::new(), 0);
        for (part, written) in parts {
            if bytes + written > Self::PART {
                self.finish(&mut begun)?;
                bytes = 0;
            }
            self.ask(part, libc::SYNC_FILE_RANGE_WRITE)?;
            begun.push(part);
            bytes += written;
        }
        self.finish(&mut begun)
    }

    fn finish(&self, begun: &mut Vec<u64>) -> io::Result<()> {
        begun.drain(..).try_for_each(|part| self.ask(part, libc::SYNC_FILE_RANGE_WAIT_BEFORE))
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
        let part = Unwritten::PART;
        let unwritten = Unwritten::of(tempfile::tempfile().expect("a file")).expect("the kernel can do that");
        unwritten.add(part - 1, 3);
        unwritten.add(5 * part, 1);
        unwritten.add(6 * part, 2 * part as usize);
        unwritten.add(7 * part, 10);
        unwritten.add(9 * part, 0);
        let known: Vec<_> = unwritten.parts().iter().map(|(part, bytes)| (*part, *bytes)).collect();
        assert_eq!(known, [(0, 1), (1, 2), (5, 1), (6, part), (7, part)]);
        unwritten.write().expect("it is written");
        assert!(unwritten.parts().is_empty());
    }

    #[test]
    fn what_is_not_a_file_is_not_written_in_parts() {
        let (end, _other) = io::pipe().expect("a pipe");
        assert!(Unwritten::of(File::from(std::os::fd::OwnedFd::from(end))).is_none());
    }
}
