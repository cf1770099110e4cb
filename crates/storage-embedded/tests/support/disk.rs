//! A disk in memory that remembers what was written and synced, can lose power, and can fail.

use std::{
    io,
    sync::{Arc, Mutex},
};

use redb::StorageBackend;
use storage_embedded::LogFile;

use super::Random;

const SECTOR: usize = 512;

/// The tables, and the two files of the log.
pub const FILES: usize = 3;

pub type Image = [Vec<u8>; FILES];

#[derive(Clone, Debug)]
pub enum Op {
    Write(u64, Arc<[u8]>),
    SetLen(u64),
    Sync,
}

#[derive(Clone, Debug, Default)]
pub struct Disk {
    state: Arc<Mutex<State>>,
    failing: Arc<Mutex<Option<Failing>>>,
}

/// What fails, and how.
#[derive(Clone, Copy, Debug)]
pub struct Failing {
    /// All files if it is none.
    pub file: Option<usize>,
    pub syncs_only: bool,
    /// A panic if it is none.
    pub how: Option<io::ErrorKind>,
}

/// One file of a disk.
#[derive(Clone, Debug)]
pub struct DiskFile {
    disk: Disk,
    number: usize,
}

#[derive(Debug, Default)]
struct State {
    /// What was on the disk before the log.
    start: Image,
    now: Image,
    /// What happened, and to which file.
    log: Vec<(usize, Op)>,
}

impl Disk {
    pub fn with(image: Image) -> Self {
        let state = State { start: image.clone(), now: image, log: Vec::new() };
        Self { state: Arc::new(Mutex::new(state)), failing: Arc::default() }
    }

    pub fn file(&self, number: usize) -> DiskFile {
        DiskFile { disk: self.clone(), number }
    }

    /// From now on, every write fails like this.
    pub fn fail(&self, how: Option<io::ErrorKind>) {
        self.fail_at(how.map(|how| Failing { file: None, syncs_only: false, how: Some(how) }));
    }

    pub fn fail_at(&self, failing: Option<Failing>) {
        *self.failing.lock().unwrap() = failing;
    }

    /// How much has happened so far.
    pub fn position(&self) -> usize {
        self.state.lock().unwrap().log.len()
    }

    pub fn syncs(&self) -> usize {
        self.state.lock().unwrap().log.iter().filter(|(_, op)| matches!(op, Op::Sync)).count()
    }

    /// What is on the disk now, as after a kill.
    pub fn image(&self) -> Image {
        self.state.lock().unwrap().now.clone()
    }

    /// What is left if the power fails now and nothing survives that was not synced.
    pub fn synced_image(&self) -> Image {
        self.state.lock().unwrap().left(usize::MAX).0
    }

    /// Loses what was not synced, as a system may that fails to write.
    pub fn lose_unsynced(&self) {
        let mut state = self.state.lock().unwrap();
        state.now = state.left(usize::MAX).0;
        (state.start, state.log) = (state.now.clone(), Vec::new());
    }

    /// What may be left if the power fails after the first `position` operations: of each file everything up to its last
    /// sync; of what came after, any part, in any order, down to single sectors.
    pub fn after_power_loss(&self, position: usize, random: &mut Random) -> Image {
        let state = self.state.lock().unwrap();
        let (mut image, mut unsynced) = state.left(position);
        // How much of it got to the disk varies from nothing to everything.
        let survival = random.below(101);
        if random.chance(50) {
            for i in (1..unsynced.len()).rev() {
                unsynced.swap(i, random.below(i as u64 + 1) as usize);
            }
        }
        for (file, op) in unsynced {
            if random.chance(survival) {
                let torn = random.chance(20);
                apply(&mut image[*file], op, |_| !torn || random.chance(50));
            }
        }
        image
    }
}

impl State {
    /// What is durable after the first `position` operations, and the operations that are not.
    fn left(&self, position: usize) -> (Image, Vec<&(usize, Op)>) {
        let log = &self.log[..position.min(self.log.len())];
        let synced: [usize; FILES] = std::array::from_fn(|number| {
            log.iter().rposition(|(file, op)| *file == number && matches!(op, Op::Sync)).map_or(0, |sync| sync + 1)
        });
        let mut image = self.start.clone();
        let mut unsynced = Vec::new();
        for (at, entry) in log.iter().enumerate() {
            let (file, op) = entry;
            if at < synced[*file] {
                apply(&mut image[*file], op, |_| true);
            } else {
                unsynced.push(entry);
            }
        }
        (image, unsynced)
    }
}

/// Applies the sectors of `op` that `arrives` says.
fn apply(image: &mut Vec<u8>, op: &Op, mut arrives: impl FnMut(usize) -> bool) {
    match op {
        Op::Sync => {}
        Op::SetLen(length) => image.resize(*length as usize, 0),
        Op::Write(offset, data) => {
            let offset = *offset as usize;
            if image.len() < offset + data.len() {
                image.resize(offset + data.len(), 0);
            }
            let mut at = 0;
            while at < data.len() {
                let end = data.len().min(at + SECTOR - (offset + at) % SECTOR);
                if arrives(at) {
                    image[offset + at..offset + end].copy_from_slice(&data[at..end]);
                }
                at = end;
            }
        }
    }
}

impl DiskFile {
    fn act(&self, op: Op) -> io::Result<()> {
        let failing = *self.disk.failing.lock().unwrap();
        if let Some(Failing { file, syncs_only, how }) = failing
            && file.is_none_or(|file| file == self.number)
            && (!syncs_only || matches!(op, Op::Sync))
        {
            return Err(how.expect("the disk does not panic").into());
        }
        let mut state = self.disk.state.lock().unwrap();
        apply(&mut state.now[self.number], &op, |_| true);
        state.log.push((self.number, op));
        Ok(())
    }

    fn size(&self) -> u64 {
        self.disk.state.lock().unwrap().now[self.number].len() as u64
    }

    fn get(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.disk.state.lock().unwrap();
        let offset = offset as usize;
        let found = state.now[self.number].get(offset..offset + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }
}

impl StorageBackend for DiskFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.size())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.get(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.act(Op::SetLen(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.act(Op::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.act(Op::Write(offset, data.into()))
    }
}

impl LogFile for DiskFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.size())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.get(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.act(Op::Write(offset, data.into()))
    }

    fn sync(&self) -> io::Result<()> {
        self.act(Op::Sync)
    }
}
