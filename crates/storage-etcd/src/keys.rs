//! Where Ferry's keys live in etcd: below a prefix that is put before each key, taken literally.
//!
//! One further key, the prefix followed by `\0progress`, is the engine's own (see `progress.rs`). Keys of the store
//! contain no NUL, so a range over all of them starts behind it and never shows it.

use bytes::Bytes;
use storage::{Error, KeyValue, Revision};

use crate::wire;

#[derive(Clone, Debug)]
pub(crate) struct KeySpace {
    prefix: String,
}

/// A half-open range of etcd keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub start: Bytes,
    pub end: Bytes,
}

impl KeySpace {
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub fn key(&self, key: &str) -> Bytes {
        Bytes::from([self.prefix.as_bytes(), key.as_bytes()].concat())
    }

    /// The engine's own key.
    pub fn marker(&self) -> Bytes {
        self.key("\0progress")
    }

    /// The keys that start with `prefix`, or those of them behind `after`.
    pub fn range(&self, prefix: &str, after: Option<&str>) -> KeyRange {
        let start = match after {
            Some(after) if after >= prefix => self.key(&format!("{after}\0")),
            _ if prefix.is_empty() => self.key("\u{1}"),
            _ => self.key(prefix),
        };
        KeyRange { start, end: end_of_prefix(&self.key(prefix)) }
    }

    /// All keys of the store and the marker.
    pub fn everything(&self) -> KeyRange {
        KeyRange { start: self.marker(), end: end_of_prefix(self.prefix.as_bytes()) }
    }

    /// The store's name of an etcd key.
    pub fn name(&self, key: Vec<u8>) -> Result<String, Error> {
        let foreign = |key: &[u8]| {
            Error::Corrupt(format!(
                "the key {:?} in etcd was not written by Ferry: give Ferry a prefix of its own",
                String::from_utf8_lossy(key)
            ))
        };
        if !key.starts_with(self.prefix.as_bytes()) {
            return Err(foreign(&key));
        }
        String::from_utf8(key[self.prefix.len()..].to_vec()).map_err(|_| foreign(&key))
    }

    pub fn key_value(&self, kv: wire::KeyValue) -> Result<KeyValue, Error> {
        Ok(KeyValue {
            key: self.name(kv.key)?,
            value: kv.value.into(),
            create_revision: revision(kv.create_revision),
            mod_revision: revision(kv.mod_revision),
        })
    }
}

/// The first key behind all those that start with `prefix`; etcd reads a single NUL as "no end".
fn end_of_prefix(prefix: &[u8]) -> Bytes {
    let Some(last) = prefix.iter().rposition(|byte| *byte < 0xff) else {
        return Bytes::from_static(b"\0");
    };
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    end.into()
}

pub(crate) fn revision(etcd: i64) -> Revision {
    Revision(etcd.max(0).cast_unsigned())
}

/// As etcd counts. What does not fit is in the future for every store.
pub(crate) fn etcd_revision(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_a_prefix_and_hide_the_marker() {
        let keys = KeySpace::new("/ferry");
        let range = |prefix, after| {
            let range = keys.range(prefix, after);
            (range.start.to_vec(), range.end.to_vec())
        };
        assert_eq!(range("/a/", None), (b"/ferry/a/".to_vec(), b"/ferry/a0".to_vec()));
        assert_eq!(range("/a/", Some("/a/b")), (b"/ferry/a/b\0".to_vec(), b"/ferry/a0".to_vec()));
        assert_eq!(range("/a/", Some("/a")), (b"/ferry/a/".to_vec(), b"/ferry/a0".to_vec()));
        assert_eq!(range("", None), (b"/ferry\x01".to_vec(), b"/ferrz".to_vec()));
        assert!(keys.marker() < keys.range("", None).start);
        assert_eq!(keys.everything().start, keys.marker());
        let root = KeySpace::new("");
        assert_eq!(root.range("", None), KeyRange { start: "\u{1}".into(), end: "\0".into() });
        assert_eq!(end_of_prefix(b"a\xff\xff"), "b");
    }

    #[test]
    fn foreign_keys_are_named() {
        let keys = KeySpace::new("/ferry");
        assert_eq!(keys.name(b"/ferry/a".to_vec()), Ok("/a".into()));
        for foreign in [b"/other".to_vec(), b"/ferry/\xff".to_vec()] {
            assert!(matches!(keys.name(foreign), Err(Error::Corrupt(_))));
        }
    }
}
