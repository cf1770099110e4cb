//! Compaction: removes what was superseded, in small steps between which the committer serves writers.
//!
//! Every record after the compaction revision has not been visited yet, every record up to it has. Visiting a record
//! removes the version that it superseded; a deletion then removes itself. The compaction revision moves with each step
//! and in the same redb transaction, so it alone says where to go on, after a crash too.

use redb::{ReadableTable, WriteTransaction};

use crate::{
    fault::Result,
    format::{GAPS, HISTORY, INDEX, META, OBJECTS, Record, index_key, meta, split_index_key},
};

/// Visits the records after `compacted` and up to `target`, whole revisions, about `limit` records. Answers how far it
/// came.
pub(crate) fn step(transaction: &WriteTransaction, compacted: u64, target: u64, limit: usize) -> Result<u64> {
    let mut objects = transaction.open_table(OBJECTS)?;
    let mut index = transaction.open_table(INDEX)?;
    let mut reached = target;
    let mut visited: Vec<(u64, u32, String, bool)> = Vec::new();
    for entry in objects.range((compacted + 1, 0)..=(target, u32::MAX))? {
        let (position, found) = entry?;
        let (revision, sub) = position.value();
        if visited.len() >= limit
            && let Some((last, ..)) = visited.last()
            && *last != revision
        {
            reached = *last;
            break;
        }
        let record = Record::decode(found.value())?;
        visited.push((revision, sub, record.key.to_owned(), record.is_deletion()));
    }
    for (revision, sub, key, is_deletion) in visited {
        let (own, oldest) = (index_key(&key, revision), index_key(&key, 0));
        let mut superseded = Vec::new();
        for entry in index.range(own.as_slice()..=oldest.as_slice())?.skip(1) {
            let (found, value) = entry?;
            let (_, older) = split_index_key(found.value())?;
            superseded.push((older, value.value().2));
        }
        for (older, sub) in superseded {
            index.remove(index_key(&key, older).as_slice())?;
            objects.remove((older, sub))?;
        }
        if is_deletion {
            index.remove(own.as_slice())?;
            objects.remove((revision, sub))?;
        }
    }
    transaction.open_table(META)?.insert(meta::COMPACTED, reached)?;
    transaction.open_table(HISTORY)?.retain_in(..=reached, |_, _| false)?;
    transaction.open_table(GAPS)?.retain_in(..reached, |_, _| false)?;
    Ok(reached)
}
