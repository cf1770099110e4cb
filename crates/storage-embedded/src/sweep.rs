//! Compaction: removes what was superseded, in steps.
//!
//! Every record after the compaction revision has not been visited yet, every record up to it has. Visiting a record
//! removes the version that it replaced; a deletion then removes itself. The compaction revision moves with each step
//! and in the same redb transaction, so it alone says where to go on, after a crash too.

use redb::{ReadableTable, WriteTransaction};

use crate::{
    fault::Result,
    format::{GAPS, HISTORY, INDEX, META, OBJECTS, Position, Record, index_key, meta},
};

/// Visits the records after `compacted` and up to `target`, whole revisions, about `limit` records. Answers how far it
/// came. `pace` is called again and again, and may make a pause.
pub(crate) fn step(
    transaction: &WriteTransaction,
    compacted: u64,
    target: u64,
    limit: usize,
    mut pace: impl FnMut(),
) -> Result<u64> {
    let mut objects = transaction.open_table(OBJECTS)?;
    let mut reached = target;
    let mut visited = 0;
    let mut last = compacted;
    let (mut positions, mut index_keys): (Vec<Position>, Vec<Vec<u8>>) = Default::default();
    for entry in objects.range((compacted + 1, 0)..=(target, u32::MAX))? {
        let (position, found) = entry?;
        let position = position.value();
        if visited >= limit && position.0 != last {
            reached = last;
            break;
        }
        (visited, last) = (visited + 1, position.0);
        let record = Record::decode(found.value())?;
        let replaced = Some(record.replaced).filter(|replaced| replaced.0 != 0);
        for gone in replaced.into_iter().chain(record.is_deletion().then_some(position)) {
            positions.push(gone);
            index_keys.push(index_key(record.key, gone.0));
        }
        pace();
    }
    // Neighbours share pages: in order, each page is found and changed once.
    positions.sort_unstable();
    index_keys.sort_unstable();
    for position in positions {
        objects.remove(position)?;
        pace();
    }
    let mut index = transaction.open_table(INDEX)?;
    for key in index_keys {
        index.remove(key.as_slice())?;
        pace();
    }
    transaction.open_table(META)?.insert(meta::COMPACTED, reached)?;
    transaction.open_table(HISTORY)?.retain_in(..=reached, |_, _| false)?;
    transaction.open_table(GAPS)?.retain_in(..reached, |_, _| false)?;
    Ok(reached)
}
