use std::{io, sync::Mutex};

use super::*;
use crate::log::{Block, Log};

const ID: u64 = 7;

#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl LogFile for Memory {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let offset = offset as usize;
        out.copy_from_slice(&self.0.lock().unwrap()[offset..offset + out.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (mut bytes, offset) = (self.0.lock().unwrap(), offset as usize);
        let length = bytes.len().max(offset + data.len());
        bytes.resize(length, 0);
        bytes[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Memory {
    fn tear(&self, block: usize) {
        self.0.lock().unwrap()[block * ALIGNMENT + HEADER] ^= 1;
    }
}

fn files(memory: &[Memory; 2]) -> [Box<dyn LogFile>; 2] {
    [Box::new(memory[0].clone()), Box::new(memory[1].clone())]
}

fn append(log: &mut Log, revision: u64, sync: bool) {
    let mut block = Block::new();
    let version = Version { revision, sub: 0, create: revision, expiry: 0 };
    block.push(&Entry { key: "/a".into(), version, replaced: Replaced::default(), value: Bytes::from_static(b"1") });
    log.append(&mut block, Stamp { reserved: revision, time: 0 }, sync, 0).expect("append");
}

fn revisions(memory: &[Memory; 2], checkpoint: u64, generation: u64) -> Result<Vec<u64>> {
    let replay = replay(&files(memory), ID, checkpoint, generation)?;
    Ok(replay.blocks.iter().flat_map(|block| &block.entries).map(|entry| entry.version.revision).collect())
}

#[test]
fn what_a_crash_has_left_behind_a_torn_block_is_nobodys_damage_later() {
    let memory: [Memory; 2] = Default::default();
    let mut log = Log::new(ID, files(&memory), 1, 1 << 20).expect("log");
    append(&mut log, 1, true);
    append(&mut log, 2, false);
    append(&mut log, 9, true);
    // The power fails before the last sync has ended, and the disk has written the last block first.
    memory[0].tear(1);
    assert_eq!(revisions(&memory, 0, 1).expect("replay"), [1]);
    // The store goes on at a revision that is less than that of the block behind; its first block is torn, too.
    let mut log = Log::new(ID, files(&memory), 2, 1 << 20).expect("log");
    append(&mut log, 6, false);
    memory[0].tear(0);
    assert_eq!(revisions(&memory, 5, 2).expect("the last block is of a use that is over"), [0; 0]);
}

#[test]
fn a_first_block_that_was_durable_is_missed() {
    let memory: [Memory; 2] = Default::default();
    let mut log = Log::new(ID, files(&memory), 1, 1 << 20).expect("log");
    append(&mut log, 1, true);
    append(&mut log, 2, true);
    assert_eq!(revisions(&memory, 0, 1).expect("replay"), [1, 2]);
    memory[0].tear(0);
    revisions(&memory, 0, 1).expect_err("the first block was durable when the second was written");
    assert_eq!(revisions(&memory, 2, 1).expect("the tables have all of it"), [0; 0]);
}
