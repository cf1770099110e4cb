//! Moves what was logged into the tables.

use redb::WriteTransaction;

use crate::{
    fault::Result,
    format::{EXPIRIES, Entry, HISTORY, INDEX, META, OBJECTS, index_key, meta},
    overlay::Load,
};

/// Everything of `load`. It must follow what the tables have; `reserved` is at least what the log says of it. `pace` is called again and
/// again, and may make a pause.
pub(crate) fn apply(transaction: &WriteTransaction, load: &Load, reserved: u64, mut pace: impl FnMut()) -> Result<()> {
    let mut objects = transaction.open_table(OBJECTS)?;
    let mut expiries = transaction.open_table(EXPIRIES)?;
    for Entry { version, replaced, .. } in load.entries.iter().map(AsRef::as_ref) {
        // In this order: what was replaced may have come with the same load.
        if replaced.expiry != 0 {
            expiries.remove((replaced.expiry, replaced.revision, replaced.sub))?;
        }
        if version.expiry != 0 {
            expiries.insert((version.expiry, version.revision, version.sub), ())?;
        }
        pace();
    }
    for entry in &load.entries {
        let record = entry.record();
        record.encode(objects.insert_reserve(entry.version.position(), record.encoded_len())?.as_mut());
        pace();
    }
    // Neighbours share pages: in order of keys, each page is found and changed once.
    let mut by_key: Vec<&Entry> = load.entries.iter().map(AsRef::as_ref).collect();
    by_key.sort_unstable_by(|a, b| a.key.cmp(&b.key).then(b.version.revision.cmp(&a.version.revision)));
    let mut index = transaction.open_table(INDEX)?;
    for Entry { key, version, .. } in by_key {
        index.insert(index_key(key, version.revision).as_slice(), version.index_value())?;
        pace();
    }
    let mut history = transaction.open_table(HISTORY)?;
    for sample in &load.samples {
        history.insert(sample.revision, (sample.time, sample.written))?;
    }
    transaction.open_table(META)?.insert(meta::RESERVED, reserved)?;
    Ok(())
}
