//! The place of the tables: a failed sync is final.

use std::{io, ops::Bound};

use redb::{BackendError, StorageBackend};

use crate::fault::sync_failed;

/// Does what the backend in it does, but a sync never fails like a write for which there is no space: after such a write
/// the store is opened again, and after a failed sync it must not be.
#[derive(Debug)]
pub(crate) struct Strict<B>(pub B);

type Locked<T> = Result<T, BackendError>;

impl<B: StorageBackend> StorageBackend for Strict<B> {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data().map_err(sync_failed)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.0.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.0.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.0.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.0.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.0.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.0.query_lock_range(start, end)
    }
}
