//! A disk in memory that remembers what was written and synced, can lose power, and can fail.

use std::{
    io,
    sync::{Arc, Mutex},
};

use redb::StorageBackend;

use super::Random;

const SECTOR: usize = 512;

#[derive(Clone, Debug)]
pub enum Op {
    Write(u64, Arc<[u8]>),
    SetLen(u64),
    Sync,
}

#[derive(Clone, Debug, Default)]
pub struct Disk {
    state: Arc<Mutex<State>>,
    failing: Arc<Mutex<Option<io::ErrorKind>>>,
}

#[derive(Debug, Default)]
struct State {
    /// What was on the disk before the log.
    start: Vec<u8>,
    now: Vec<u8>,
    log: Vec<Op>,
}

impl Disk {
    pub fn with(image: Vec<u8>) -> Self {
        let state = State { start: image.clone(), now: image, log: Vec::new() };
        Self { state: Arc::new(Mutex::new(state)), failing: Arc::default() }
    }

    /// From now on, every write fails like this.
    pub fn fail(&self, how: Option<io::ErrorKind>) {
        *self.failing.lock().unwrap() = how;
    }

    /// How much has happened so far.
    pub fn position(&self) -> usize {
        self.state.lock().unwrap().log.len()
    }

    pub fn syncs(&self) -> usize {
        self.state.lock().unwrap().log.iter().filter(|op| matches!(op, Op::Sync)).count()
    }

    /// What is on the disk now, as after a kill.
    pub fn image(&self) -> Vec<u8> {
        self.state.lock().unwrap().now.clone()
    }

    /// What may be left if the power fails after the first `position` operations: everything up to the last sync; of
    /// what came after, any part, in any order, down to single sectors.
    pub fn after_power_loss(&self, position: usize, random: &mut Random) -> Vec<u8> {
        let state = self.state.lock().unwrap();
        let log = &state.log[..position];
        let synced = log.iter().rposition(|op| matches!(op, Op::Sync)).map_or(0, |sync| sync + 1);
        let mut image = state.start.clone();
        for op in &log[..synced] {
            apply(&mut image, op, |_| true);
        }
        let mut unsynced: Vec<&Op> = log[synced..].iter().collect();
        // How much of it got to the disk varies from nothing to everything.
        let survival = random.below(101);
        if random.chance(50) {
            for i in (1..unsynced.len()).rev() {
                unsynced.swap(i, random.below(i as u64 + 1) as usize);
            }
        }
        for op in unsynced {
            if random.chance(survival) {
                let torn = random.chance(20);
                apply(&mut image, op, |_| !torn || random.chance(50));
            }
        }
        image
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

impl Disk {
    fn act(&self, op: Op) -> io::Result<()> {
        if let Some(failure) = *self.failing.lock().unwrap() {
            return Err(failure.into());
        }
        let mut state = self.state.lock().unwrap();
        apply(&mut state.now, &op, |_| true);
        state.log.push(op);
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().unwrap().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock().unwrap();
        let offset = offset as usize;
        let found = state.now.get(offset..offset + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
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
